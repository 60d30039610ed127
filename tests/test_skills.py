"""Plans, skills and task scripts: legs in known situations, who follows what, success, what the data shows."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from cbm.envs.collect import collect_with_events
from cbm.envs.coverage import moved
from cbm.envs.manipulation.block import BlockWorld
from cbm.envs.manipulation.legs import CLOSE, HERE, OPEN, Courier, Leg, grasp_legs, pause
from cbm.envs.manipulation.repertoire import block_skills, hook, tool_skills
from cbm.envs.manipulation.scripts import BLOCK_SCRIPTS
from cbm.envs.manipulation.skills import Mixed, noisy
from cbm.envs.manipulation.tool import ToolWorld

pytest.importorskip("mujoco")


@cache
def block() -> BlockWorld:
    return BlockWorld()


@cache
def tool() -> ToolWorld:
    return ToolWorld()


def successes(world: Any, task: str, episodes: int, seed: int, steps: int | None = None) -> np.ndarray:
    """(episodes,) booleans: the script did its task at some step."""
    rng = np.random.default_rng(seed)
    state = world.reset(episodes, rng)
    act = world.policy(task, episodes, rng)
    done = np.zeros(episodes, dtype=bool)
    for _ in range(steps or world.horizon):
        state = world.step(state, act(state, rng), rng)
        done |= world.success(state)[task]
        if done.all():
            break
    return done


# Legs


def test_a_plan_goes_from_leg_to_leg() -> None:
    world = block()
    rng = np.random.default_rng(0)
    state = world.reset(3, rng)
    home = (0.1, -0.1, 0.95)
    plan = [Leg(("room", "room", "room"), OPEN, home, limit=80), pause(3, CLOSE), Leg(HERE, OPEN, limit=10**6)]
    courier = Courier(world, [plan], 3)
    courier.begin(np.ones(3, dtype=bool), np.zeros(3, dtype=int))
    legs = []
    for _ in range(60):
        courier.look(state)
        action = courier.act()
        legs.append(courier.at.copy())
        np.testing.assert_array_equal(action[:, 3], np.where(courier.at == 1, 1.0, -1.0))
        if (courier.at == 0).all():
            expected = np.clip((np.array(home) - world.view(state).hand) / 0.05, -1, 1)
            np.testing.assert_allclose(action[:, :3], expected)
        state = world.step(state, action, rng)
    path = np.array(legs)
    assert (np.diff(path, axis=0) >= 0).all() and (path[-1] == 2).all()
    assert ((path == 1).sum(axis=0) == 3).all(), "three steps of closing"
    np.testing.assert_allclose(world.view(state).hand, np.tile(home, (3, 1)), atol=0.012)


def test_shifts_and_moved_points() -> None:
    """A leg that brings the tool's head to the cube moves the hand by the same way."""
    world = tool()
    state = world.reset(2, np.random.default_rng(0))
    courier = Courier(world, [[Leg(("cube", "head", "head"), CLOSE, moved="head")]], 2)
    courier.shift[:, 0] = (-0.01, 0.02, 0.0)
    places = world.points(state)
    way = places[:, world.places.index("cube"), 0] - places[:, world.places.index("head"), 0] - 0.01
    courier.look(state)
    np.testing.assert_allclose(courier.act()[:, 0], np.clip(way / 0.05, -1, 1))
    np.testing.assert_allclose(courier.act()[:, 1:], [(0.4, 0, 1)] * 2, atol=1e-9)


def test_a_plan_without_what_it_should_hold_is_lost_after_three_steps() -> None:
    world = block()
    state = world.reset(1, np.random.default_rng(0))
    courier = Courier(world, [[Leg(HERE, CLOSE, holding="mov0", limit=99)]], 1)
    assert [bool(courier.look(state)[1][0]) for _ in range(4)] == [False, False, True, True]


def test_a_stuck_hand_goes_back_one_leg() -> None:
    world = block()
    state = world.reset(1, np.random.default_rng(0))
    plan = [pause(1, OPEN), Leg(("room", "room", "room"), CLOSE, (0.2, 0.2, 0.9))]
    courier = Courier(world, [plan], 1, steps_back=True)
    at = []
    for _ in range(8):  # the state does not change: the hand is stuck
        courier.look(state)
        at.append(int(courier.at[0]))
    assert at[:1] == [1] and 0 in at[1:5]


# Skills


def test_noise_keeps_small_movements_and_the_sign_of_the_grip() -> None:
    action = np.array([[1.0, -0.3, -0.7, 1.0], [0.1, 0.9, 0.0, -1.0]])
    low, high = noisy(action, np.zeros((2, 4))), noisy(action, np.ones((2, 4)))
    np.testing.assert_allclose(low, [[0.6, -0.3, -0.9, 0.5], [0.1, 0.6, 0.0, -0.5]])
    np.testing.assert_allclose(high, [[1.0, -0.3, -0.5, 1.0], [0.1, 1.0, 0.0, -1.0]])


def test_the_shares_of_the_skills() -> None:
    skills = block_skills(block(), 1).skills
    assert sum(skill.share for skill in skills if skill.name.startswith("lift")) == pytest.approx(0.5)
    assert sorted(skill.name for skill in skills if skill.name.startswith("push")) == [
        *("push mov0", "push mov1", "push mov2", "push unmov0")
    ]
    shares = {skill.name: skill.share for skill in tool_skills(tool(), 1).skills}
    assert shares["pick_place"] == shares["hook"] == 0.15
    assert sum(share for name, share in shares.items() if name.startswith("lift")) == pytest.approx(0.6)


def test_what_needs_the_cube_is_not_tried_while_it_is_out_of_reach() -> None:
    world = tool()
    rng = np.random.default_rng(0)
    state = world.reset(100, rng)
    skills = tool_skills(world, 100)
    skills(state, rng)
    chosen = {skills.skills[k].name for k in skills.courier.plan}
    assert "hook" in chosen and not chosen & {"lift cube", "pick_place"}
    x, y = world.factors.index("cube_x"), world.factors.index("cube_y")
    state = world.intervene(world.intervene(state, x, np.full(100, -0.2)), y, np.full(100, -0.2))
    skills = tool_skills(world, 100)
    skills(state, rng)
    chosen = {skills.skills[k].name for k in skills.courier.plan}
    assert {"lift cube", "pick_place", "lift pot"} <= chosen


def test_a_policy_draws_the_same_amount_of_numbers_whatever_the_state() -> None:
    world = block()
    for name in world.policies:
        drawn = []
        for seed in (1, 2):
            state = world.reset(5, np.random.default_rng(seed))
            act, rng = world.policy(name, 5, np.random.default_rng(0)), np.random.default_rng(0)
            for _ in range(3):
                act(state, rng)
            drawn.append(rng.random())
        assert drawn[0] == drawn[1], name


def test_mixed_goes_through_all_its_spells() -> None:
    world = block()
    rng = np.random.default_rng(0)
    state = world.reset(40, rng)
    mixed = world.policy("mixed", 40, rng)
    assert isinstance(mixed, Mixed)
    seen = set()
    for _ in range(40):
        action = mixed(state, rng)
        assert np.abs(action).max() <= 1
        seen |= set(mixed.follows.tolist())
        state = world.step(state, action, rng)
    assert seen == set(range(2 + len(BLOCK_SCRIPTS))), "skills, each script, chance"


def test_a_hook_pulls_the_cube_nearer() -> None:
    world = tool()
    rng = np.random.default_rng(3)
    state = world.reset(4, rng)
    courier = Courier(world, [hook(1.0).legs], 4)
    courier.shift[:, 8, 0] = -0.05  # where the head is pulled to
    courier.begin(np.ones(4, dtype=bool), np.zeros(4, dtype=int))
    for _ in range(130):
        courier.look(state)
        state = world.step(state, courier.act(), rng)
    assert (world.view(state).position("cube")[:, 0] < 0.06).all(), "now the hand can grasp it"


# Scripts


@pytest.mark.parametrize("task", ["pick", "stack"])
def test_block_scripts_do_their_task(task: str) -> None:
    assert successes(block(), task, 10, seed=5).all()


def test_the_series_script_does_its_task() -> None:
    assert successes(tool(), "series", 6, seed=5).all()


def test_a_block_beside_the_fixed_one_is_nudged_clear_and_picked() -> None:
    world = block()
    rng = np.random.default_rng(0)
    state = world.reset(2, rng)
    size = world.backend.size
    for name, where in {"mov0_pos": (0.0, 0.0, 0.82), "unmov0_pos": (0.01, 0.062, 0.82)}.items():
        state[:, :size] = world.backend.write(state[:, :size], name, np.tile(where, (2, 1)))
    script = BLOCK_SCRIPTS["pick"](world, 2)
    script(state, rng)
    assert (script.courier.at == 0).all(), "it begins with the nudge"
    done = np.zeros(2, dtype=bool)
    for _ in range(200):
        state = world.step(state, script(state, rng), rng)
        done |= world.success(state)["pick"]
    assert done.all()


def test_grasp_legs_end_with_the_thing_between_the_fingers() -> None:
    world = tool()
    rng = np.random.default_rng(1)
    state = world.reset(3, rng)
    courier = Courier(world, [[*grasp_legs("pot", 0.92, at="handle"), pause(2, CLOSE, holding="pot")]], 3)
    for _ in range(70):
        courier.look(state)
        state = world.step(state, courier.act(), rng)
    assert world.view(state).grasped("pot").all()


# What the data shows


def test_every_block_moves_in_the_data() -> None:
    world = block()
    log = collect_with_events(world, 16 * 250, policy="skills", seed=0)
    shares = moved(log.data, world.metres)
    assert all(shares[name] > 0.02 for name in ("mov0", "mov1", "mov2")) and shares["unmov0"] == 0
    assert log.events["mov0 grasped"] > 0.03


@pytest.mark.slow
@pytest.mark.parametrize(("task", "least"), [("pick", 98), ("stack", 95)])
def test_block_scripts_over_a_hundred_episodes(task: str, least: int) -> None:
    assert successes(block(), task, 100, seed=11).sum() >= least


@pytest.mark.slow
def test_the_series_script_over_a_hundred_episodes() -> None:
    assert successes(tool(), "series", 100, seed=11).sum() >= 90


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed", "skills"])
def test_coverage_of_the_block_world(policy: str) -> None:
    world = block()
    log = collect_with_events(world, 50_000, policy=policy, seed=1)
    shares = moved(log.data, world.metres)
    assert min(shares[name] for name in ("mov0", "mov1", "mov2")) >= 0.08
    assert all(log.events[f"{a} hit {b}"] > 0.001 for a, b in (("mov0", "mov1"), ("mov0", "mov2"), ("mov1", "mov2")))
