"""Systems of the calibration benchmark have the graphs they declare: one input is changed, and only effects follow."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from benchmarks.calibration import gym
from benchmarks.calibration.kinds import KINDS
from benchmarks.calibration.system import System, random_rewards, simulate

OURS = [name for name, kind in KINDS.items() if kind.system is not None and name != "short-2500"]
GYM = {
    "cartpole-gym": gym.CARTPOLE, "pendulum-gym": gym.PENDULUM,
    "mountaincar-gym": gym.MOUNTAIN_CAR, "acrobot-gym": gym.ACROBOT,
}  # fmt: skip


def system_of(name: str, seed: int) -> System:
    make = KINDS[name].system
    assert make is not None
    return make(seed)


def effects(system: System, seed: int) -> np.ndarray:
    """(d, d+1): outputs that differ when an input has its value of another row and the random numbers are the same."""
    rows = 12_000 if len(system.factors) < 20 else 1500  # rare effects are in small systems only
    data = simulate(system, rows, seed)
    state, action, d = data.obs, data.action.astype(float), len(data.factors)
    other = np.random.default_rng(seed).permutation(rows)
    usual = system.step(state, action, np.random.default_rng(1))
    found = np.zeros((d, d + 1), bool)
    for j in range(d + 1):
        changed, act = state.copy(), action
        if j < d:
            changed[:, j] = state[other, j]
        else:
            act = action[other]
        found[:, j] = (system.step(changed, act, np.random.default_rng(1)) != usual).any(0)
    return found


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("seed", [0, 1])
def test_interventions_find_the_declared_graph(name: str, seed: int) -> None:
    system = system_of(name, seed)
    found = effects(system, seed)
    wrong = np.argwhere(found != system.truth)
    columns = (*system.factors.names, "action")
    assert not len(wrong), [(columns[i], columns[j], bool(found[i, j])) for i, j in wrong]


@pytest.mark.parametrize("name", OURS)
def test_rewards_depend_on_their_parents_only(name: str) -> None:
    system = system_of(name, 2)
    after = simulate(system, 2000, 2).next_obs
    other = np.random.default_rng(0).permutation(len(after))
    for reward in (system.rewards or random_rewards(system.factors, 2)).values():
        for j in range(after.shape[1]):
            changed = after.copy()
            changed[:, j] = after[other, j]
            differs = np.abs(reward.value(changed) - reward.value(after)).max() > 1e-9
            assert differs == (j in reward.parents), system.factors.names[j]


@pytest.mark.parametrize("name", KINDS)
def test_a_seed_makes_a_usable_log(name: str) -> None:
    rows = min(KINDS[name].rows, 1000)
    one, same, other = (KINDS[name](seed, rows) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.next_obs, same.next_obs)
    assert not np.array_equal(one.next_obs, other.next_obs)
    assert len(one) == rows and len(one.rewards) == 2 and set(one.rewards) == set(one.truth_rewards)
    assert all(parents.any() for parents in one.truth_rewards.values())
    assert one.truth is not None and one.truth.shape == (len(one.factors), len(one.factors) + 1)
    same_episode = one.episode[1:] == one.episode[:-1]
    np.testing.assert_array_equal(one.obs[1:][same_episode], one.next_obs[:-1][same_episode])


@pytest.mark.parametrize("name", GYM)
def test_gym_physics_by_intervention(name: str) -> None:
    """States of the simulator are changed one at a time; cos and sin of an angle go together."""
    environment = GYM[name]
    env: Any = gymnasium.make(environment.id).unwrapped
    env.reset(seed=0)
    env.action_space.seed(0)
    rng = np.random.default_rng(0)
    p = len(environment.names)
    declared = np.array([list(row) for row in environment.truth]) == "x"
    if "sin" in environment.names:
        owner = [0, 0, 1]
    elif "sin1" in environment.names:
        owner = [0, 0, 1, 1, 2, 3]
    else:
        owner = list(range(p))
    found = np.zeros((p, max(owner) + 2), bool)
    for _ in range(60):
        state = rng.uniform(-0.15, 0.15, max(owner) + 1) * (0.3 if name == "mountaincar-gym" else 1)
        action, other = env.action_space.sample(), env.action_space.sample()
        usual = _stepped(env, state, action)
        for j in range(len(state)):
            changed = state.copy()
            changed[j] += 0.01
            found[:, j] |= _stepped(env, changed, action) != usual
        found[:, -1] |= _stepped(env, state, other) != usual
    together = np.zeros_like(found)
    for column, j in enumerate(owner):
        together[:, j] |= declared[:, column]
    together[:, -1] = declared[:, -1]
    np.testing.assert_array_equal(found, together)


def _stepped(env: Any, state: np.ndarray, action: Any) -> np.ndarray:
    env.state, env.steps_beyond_terminated = state.copy(), None
    return np.asarray(env.step(action)[0])


def test_pendulum_speed_does_not_hear_the_cosine() -> None:
    env: Any = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    torque = np.array([0.5], np.float32)
    for angle in np.linspace(-1.5, 1.5, 7):
        one, mirrored = (_stepped(env, np.array([a, 1.0]), torque)[2] for a in (angle, np.pi - angle))
        assert one == pytest.approx(mirrored, abs=1e-6)


def test_projections_are_functions_of_the_action() -> None:
    data = KINDS["acrobot-gym"](0, 600)
    first = data.factors.index("projection0")
    for choice in range(3):
        rows = data.action[:, 0] == choice
        assert (np.ptp(data.next_obs[rows][:, first : first + 4], axis=0) < 1e-12).all()


def test_rare_events_are_rare_and_happen() -> None:
    for seed in range(3):
        share = KINDS["rare-events"](seed).next_obs[:, 2].mean()
        assert 0.001 < share < 0.012


def test_twins_differ_by_a_percent_at_most() -> None:
    data = KINDS["twin-sensors"](0, 5000)
    for one in (1, 6):
        gap = (data.obs[:, one] - data.obs[:, one + 1]).std() / data.obs[:, one].std()
        assert 0.0005 < gap < 0.02


def test_a_cube_moves_sideways_only_in_the_hand() -> None:
    data = KINDS["gripper"](0, 5000)
    hand, opening, cube = data.obs[:, :3], data.obs[:, 3], data.obs[:, 4:7]
    moved = (data.next_obs[:, 4:6] != cube[:, :2]).any(1)
    assert 0.1 < moved.mean() < 0.6
    assert (opening[moved] < 0.4).all() and (np.linalg.norm(hand - cube, axis=1)[moved] < 0.16).all()


def test_few_parcels_are_dropped() -> None:
    for seed in range(3):
        dropped = KINDS["rare-counts"](seed, 15_000).next_obs[:, 5]
        assert 0.01 < (dropped > 0).mean() < 0.15 and dropped.max() > 3


def test_buffers_hold_the_last_actions() -> None:
    data = KINDS["buffers"](0, 3000)
    later = np.flatnonzero(data.episode[2:] == data.episode[:-2])
    for k in (1, 2):
        np.testing.assert_array_equal(data.obs[later + 2, k - 1], data.action[later + 2 - k, 0])


def test_sensors_follow_what_the_rewards_read() -> None:
    after = KINDS["distances"](0, 10_000).next_obs
    for read, sensor in ((0, 12), (1, 13), (8, 14), (10, 15)):
        assert 0.97 < abs(np.corrcoef(after[:, read], after[:, sensor])[0, 1]) < 0.9999
