"""The block world: what states are worth, and what an intervention on one of its variables does."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from block_states import clear_table, held, placed, start, world  # type: ignore[import-not-found]
from cbm.envs.manipulation.block import BlockWorld
from cbm.envs.manipulation.layout import rotated, with_component
from cbm.errors import DataError

pytest.importorskip("mujoco")


# Rewards


def near(steepness: float, distance: float | np.floating) -> float:
    return float(1 - np.tanh(steepness * distance))


def reward(state: np.ndarray, task: str, formula: str = "code") -> float:
    return float(cached_world(formula).rewards(state)[task][0])


@cache
def cached_world(formula: str) -> BlockWorld:
    return BlockWorld(formula=formula)


def test_rewards_of_a_block_out_of_the_hand() -> None:
    state = placed(clear_table(), eef_pos=(0.0, 0.1, 0.92), goal=(0.03, 0.0, 0.82))
    l2 = np.hypot(0.1, 0.1)
    assert reward(state, "pick") == pytest.approx(0.2 * near(2, l2))
    assert reward(state, "pick", "paper") == pytest.approx(0.2 * near(2, l2) + 1)
    assert reward(state, "stack") == pytest.approx(0.2 * near(2, 0.2))
    assert reward(state, "stack", "paper") == pytest.approx(0.2 * near(2, l2))
    assert reward(state, "reach") == pytest.approx(near(5, 0.03 + 0.1 + 0.1))
    assert reward(state, "push") == pytest.approx(0.5 * near(3, l2) / 1.5)
    assert reward(state, "grasp") == pytest.approx(0.5 * near(10, 0.2))
    assert reward(placed(state, finger_pos=(0.0, 0.0)), "grasp") == 0
    success = world().success(state)
    assert {task for task in success if success[task][0]} == {"pick", "push"}


def test_rewards_of_a_held_block() -> None:
    state = placed(held(), goal=(0.1, 0.0, 0.9))
    view = world().view(state)
    hand, block = view.hand[0], view.position("mov0")[0]
    gap, way = np.linalg.norm(hand - block), np.linalg.norm(block - (0.1, 0.0, 0.9))
    assert reward(state, "pick") == pytest.approx(0.2 * near(2, gap) + 0.4 + 0.5 * near(5, way))
    close = placed(state, goal=tuple(block + (0.04, 0.0, 0.0)))
    assert reward(close, "pick") == pytest.approx(0.2 * near(2, gap) + 0.4 + 0.5 * near(5, 0.04) + 1)
    aside = abs(block[0] + 0.2) + abs(block[1] + 0.2)
    l1 = np.abs(hand - block).sum()
    align = 0.5 + 0.5 * near(5, aside + abs(block[2] - 0.9))
    assert reward(state, "stack") == pytest.approx(0.2 * near(2, l1) + 0.4 + align)
    assert reward(state, "stack", "paper") == pytest.approx(0.2 * near(2, gap) + 0.4 + 0.5 * near(5, aside))
    assert reward(state, "grasp") == 1
    in_plane = np.hypot(*(block - (0.1, 0.0, 0.9))[:2])
    assert reward(state, "push") == pytest.approx((0.5 * near(3, gap) + near(5, in_plane)) / 1.5)
    assert world().success(state)["grasp"][0]


def test_rewards_of_a_stacked_block() -> None:
    state = placed(clear_table(), mov0_pos=(-0.19, -0.2, 0.8599))
    align = 0.5 + 0.5 * near(5, 0.01 + abs(0.8599 - 0.9))
    l1, l2 = 0.19 + 0.2 + (0.9 - 0.8599), np.linalg.norm((0.19, 0.2, 0.9 - 0.8599))
    assert reward(state, "stack") == pytest.approx(0.2 * near(2, l1) + align + 2)
    assert reward(state, "stack", "paper") == pytest.approx(0.2 * near(2, l2) + 0.5 * near(5, 0.01) + 2)
    assert world().success(state)["stack"][0]
    beside = placed(clear_table(), mov0_pos=(-0.1601, -0.2, 0.82))
    assert not world().success(beside)["stack"][0], "touching is not enough"


# Interventions


@pytest.mark.parametrize("variable", range(47))
def test_an_intervention_changes_what_it_says(variable: int) -> None:
    block = world()
    state = np.concatenate([start(4, seed=1), held()])
    name = block.factors.names[variable]
    before = block.observe(state)
    turn = "_q" in name
    value = np.clip(before[:, variable] + 0.1, -1, 1) - (0.2 * (before[:, variable] > 0.89) if turn else 0)
    after = block.intervene(state, variable, value)
    seen = block.observe(after)
    np.testing.assert_allclose(seen[:, variable], value, atol=1e-12)
    same = [k for k in range(47) if k != variable and not (turn and block.factors.names[k][:6] == name[:6])]
    np.testing.assert_array_equal(seen[:, same], before[:, same])
    if turn:
        quaternion = block.view(after)[name.split("_")[0] + "_quat"]
        np.testing.assert_allclose(np.linalg.norm(quaternion, axis=1), 1)
    contacts = np.concatenate([block.columns[key] for key in ("grasped", "touched", "hits")])
    set_by_it = np.concatenate([block._variables, contacts])
    hidden = np.setdiff1d(np.arange(block.state_size), set_by_it)
    np.testing.assert_array_equal(after[:, hidden], state[:, hidden])


def test_contacts_follow_an_intervention() -> None:
    block = world()
    state = held()
    x = block.factors.index("mov0_x")
    gone = block.intervene(state, x, block.observe(state)[:, x] + 0.2)
    assert block.view(state).grasped("mov0")[0] and not block.view(gone).touched("mov0")[0]
    assert block.settable.all()


def test_nothing_to_stretch_in_a_quaternion() -> None:
    upright = np.array([[0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(with_component(upright, 3, np.array([0.6])), [[0, 0, 0.8, 0.6]])
    np.testing.assert_allclose(with_component(upright, 0, np.array([0.6])), [[0.6, 0, 0, 0.8]])
    np.testing.assert_allclose(with_component(np.array([[0.6, 0, 0, 0.8]]), 0, np.array([1.0])), [[1, 0, 0, 0]])
    quarter = np.array([[0, 0, np.sqrt(0.5), np.sqrt(0.5)]])
    np.testing.assert_allclose(rotated(np.array([1.0, 0.0, 2.0]), quarter), [[0, 1, 2]], atol=1e-12)


def test_a_state_that_the_simulator_cannot_step_is_told() -> None:
    broken = start(3)
    broken[1, world().columns["mov0_pos"]] = np.inf
    with pytest.raises(DataError, match="row 1: the state is impossible"):
        world().step(broken, np.zeros((3, 4)), np.random.default_rng(0))


def test_a_quaternion_has_length_one() -> None:
    with pytest.raises(DataError, match=r"'mov0_qx': 5 is outside its range \[-1, 1\]"):
        world().intervene(start(), world().factors.index("mov0_qx"), np.array([5.0]))
    state = start()
    world().check_hidden(state)
    state[0, world().columns["mov1_quat"]] = 0.4
    with pytest.raises(DataError, match="block: the quaternion of mov1 has length 0.8, not 1"):
        world().check_hidden(state)


def test_values_that_no_state_has_are_refused() -> None:
    with pytest.raises(DataError, match="'mov0_x'.*nan"):
        world().intervene(start(), world().factors.index("mov0_x"), np.array([np.nan]))
