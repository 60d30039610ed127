"""The declared graphs of the built-in worlds against interventions, and what the policies visit.

An intervention changes one variable of a state that the scripted policy visits, within the support of
the data, and steps both states with the same random numbers: whatever differs afterwards is an effect.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cbm.envs import make_world
from cbm.envs.collect import collect
from cbm.envs.contact import REACH, ContactWorld
from cbm.envs.light import LIGHT
from cbm.envs.registry import WORLDS
from cbm.envs.world import World

HARD: dict[str, Any] = {"blocks": 4, "distractors": 12, "rescale": True}
EVERY_WORLD: list[tuple[str, dict[str, Any]]] = [
    ("contact", {}),
    ("contact", HARD),
    ("contact", {"blocks": 2, "distractors": 0}),
    ("contact", {"world_seed": 7}),
    ("light", {}),
]


def visited(world: World, copies: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Physical states that the scripted policy visits, and its actions there."""
    rng = np.random.default_rng(seed)
    state = world.reset(copies, rng)
    act = world.policy("scripted", copies, rng)
    states, actions = [], []
    for _ in range(world.horizon):
        action = act(state, rng)
        states.append(state)
        actions.append(action)
        state = world.step(state, action, rng)
    return np.concatenate(states), np.concatenate(actions)


def changed_column(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Other values within the support: those of other rows, or the other value when there are only two."""
    low, high = values.min(), values.max()
    if np.isin(values, (low, high)).all():
        return low + high - values
    return rng.permutation(values)


def effects(world: World, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """(d, d+1) share of states in which changing each column, all else equal, changes each variable."""
    rng = np.random.default_rng(1)
    before = world.step(states, actions, np.random.default_rng(2))
    columns = []
    for j in range(states.shape[1] + 1):
        other, act = states.copy(), actions
        if j < states.shape[1]:
            other[:, j] = changed_column(states[:, j], rng)
        else:
            act = rng.uniform(-1, 1, actions.shape)
        after = world.step(other, act, np.random.default_rng(2))
        columns.append((world.observe(after) != world.observe(before)).mean(0))
    return np.stack(columns, 1)


@pytest.mark.parametrize(("name", "options"), EVERY_WORLD)
def test_the_declared_graph_is_what_interventions_show(name: str, options: dict[str, Any]) -> None:
    world = make_world(name, **options)
    share = effects(world, *visited(world))
    found = share > 0
    wrong = [
        f"{world.factors.names[i]} <- {(*world.factors.names, 'action')[j]}: declared {world.truth[i, j]}"
        for i, j in np.argwhere(found != world.truth)
    ]
    assert not wrong
    assert share[world.truth].min() > 0.01, "every edge acts often enough to be seen in data"


@pytest.mark.parametrize(("name", "options"), EVERY_WORLD)
def test_declared_reward_parents_are_what_interventions_show(name: str, options: dict[str, Any]) -> None:
    world = make_world(name, **options)
    states, _ = visited(world)
    rng = np.random.default_rng(1)
    before = world.rewards(states)
    assert tuple(before) == world.tasks
    for j in range(states.shape[1]):
        other = states.copy()
        other[:, j] = changed_column(states[:, j], rng)
        for task, reward in world.rewards(other).items():
            assert (reward != before[task]).any() == world.truth_rewards[task][j], (
                task,
                world.factors.names[j],
            )


def test_the_light_is_flipped_by_the_intervention() -> None:
    values = visited(make_world("light"))[0][:, LIGHT]
    np.testing.assert_array_equal(changed_column(values, np.random.default_rng(0)), 1 - values)


@pytest.mark.parametrize(("name", "options"), EVERY_WORLD)
def test_copies_do_not_affect_each_other_and_inputs_stay_as_they_were(name: str, options: dict[str, Any]) -> None:
    world = make_world(name, **options)
    states, actions = (array[:50] for array in visited(world))
    kept = states.copy(), actions.copy()
    all_after = world.step(states, actions, np.random.default_rng(0))
    states[1:] = states[:1]
    one_after = world.step(states, actions, np.random.default_rng(0))
    np.testing.assert_array_equal(all_after[0], one_after[0])
    np.testing.assert_array_equal(states[0], kept[0][0])
    np.testing.assert_array_equal(actions, kept[1])


def test_rescaling_changes_the_observation_and_not_the_world() -> None:
    plain, scaled = make_world("contact"), make_world("contact", rescale=True)
    (states, actions), (same_states, same_actions) = visited(plain), visited(scaled)
    np.testing.assert_array_equal(states, same_states)
    np.testing.assert_array_equal(actions, same_actions)
    spread = scaled.observe(states).std(0)
    assert spread.max() / spread[spread > 0].min() > 1e4
    np.testing.assert_array_equal(plain.observe(states), states)


# Policies


@pytest.mark.parametrize("options", [{}, HARD])
def test_the_mixed_policy_moves_every_block(options: dict[str, Any]) -> None:
    data = collect(make_world("contact", **options), 20_000, policy="mixed", seed=0)
    for k in range(options.get("blocks", 3)):
        columns = [data.factors.index(f"block{k}_{axis}") for axis in "xyz"]
        moved = (data.obs[:, columns] != data.next_obs[:, columns]).any(1)
        assert moved.mean() >= 0.08, (k, moved.mean())


def test_the_hold_policy_stays_at_a_block() -> None:
    world = ContactWorld()
    data = collect(world, 20_000, policy="hold", seed=0)
    hand = data.obs[:, None, world.layout.hand]
    near = (np.abs(world.layout.positions(data.obs) - hand).max(-1) < REACH).any(1)
    assert near.mean() > 0.7, near.mean()
    corr = np.corrcoef(data.obs[:, 0], data.obs[:, data.factors.index("block0_x")])[0, 1]
    assert corr > 0.2


@pytest.mark.parametrize("name", WORLDS)
def test_actions_of_every_policy_are_within_the_bounds(name: str) -> None:
    world = make_world(name)
    assert {"random", "mixed"} <= set(world.policies)
    low, high = (0, count - 1) if (count := world.factors.discrete_actions) else (-1, 1)
    for policy in world.policies:
        data = collect(world, 1000, policy=policy, seed=0)
        assert low <= data.action.min() and data.action.max() <= high
        assert (data.action.std(0) > 0.05).all()
