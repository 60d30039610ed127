"""Collecting data: shapes, episodes, flags, seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cbm.envs import make_world
from cbm.envs.collect import collect
from cbm.envs.registry import WORLDS
from cbm.errors import DataError
from cbm.transitions import Transitions


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("steps", [2, 60, 1000, 1234])
def test_shapes(name: str, steps: int) -> None:
    world = make_world(name)
    data = collect(world, steps, seed=1)
    d = len(world.factors)
    assert data.obs.shape == data.next_obs.shape == (steps, d)
    assert data.action.shape == (steps, world.action_size)
    assert data.factors == world.factors
    assert set(data.rewards) == set(data.truth_rewards) == set(world.tasks)
    assert all(reward.shape == (steps,) for reward in data.rewards.values())
    assert data.truth is not None
    np.testing.assert_array_equal(data.truth, world.truth)


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize(("steps", "copies"), [(1000, 64), (1030, 3), (777, 1)])
def test_rows_continue_inside_an_episode_and_nowhere_else(name: str, steps: int, copies: int) -> None:
    world = make_world(name)
    data = collect(world, steps, seed=2, copies=copies)
    same = data.episode[1:] == data.episode[:-1]
    np.testing.assert_array_equal(data.obs[1:][same], data.next_obs[:-1][same])
    assert (data.obs[1:][~same] != data.next_obs[:-1][~same]).any(1).all()


@pytest.mark.parametrize("steps", [1000, 1030])
def test_episodes_end_by_truncation_at_the_horizon(steps: int) -> None:
    world = make_world("contact")
    data = collect(world, steps, seed=3, copies=3)
    numbers, lengths = np.unique(data.episode, return_counts=True)
    np.testing.assert_array_equal(numbers, np.arange(-(-steps // world.horizon)))
    assert (lengths[:-1] == world.horizon).all()
    assert data.truncated is not None and data.terminated is not None
    ends = np.append(data.episode[1:] != data.episode[:-1], True)  # the last row, too, is where data stops
    np.testing.assert_array_equal(data.truncated, ends)
    assert not data.terminated.any()


def test_rewards_belong_to_the_state_after_the_step() -> None:
    world = make_world("light")
    data = collect(world, 500, seed=4)
    for task, reward in world.rewards(data.next_obs).items():
        np.testing.assert_array_equal(data.rewards[task], reward)


@pytest.mark.parametrize("name", WORLDS)
def test_data_is_a_function_of_the_seed(name: str) -> None:
    first, again, other = (collect(make_world(name), 500, seed=seed).to_arrays() for seed in (5, 5, 6))
    for key, array in first.items():
        np.testing.assert_array_equal(array, again[key])
    assert not np.array_equal(first["obs"], other["obs"])


def test_progress_counts_up_to_the_end() -> None:
    seen: list[int] = []
    collect(make_world("light"), 1050, copies=2, progress=seen.append)
    assert seen == [200, 400, 600, 800, 1000, 1050]


def test_collected_data_survives_a_file(tmp_path: Path) -> None:
    data = collect(make_world("contact", blocks=4, distractors=12, rescale=True), 500, seed=0)
    data.save(tmp_path / "data.npz")
    again = Transitions.load(tmp_path / "data.npz")
    assert again.factors == data.factors
    for key, array in data.to_arrays().items():
        np.testing.assert_array_equal(again.to_arrays()[key], array)


@pytest.mark.parametrize(("steps", "copies", "seed"), [(0, 1, 0), (10, 0, 0), (10, 1, -1)])
def test_impossible_amounts(steps: int, copies: int, seed: int) -> None:
    with pytest.raises(DataError, match="needs steps and copies >= 1, seed >= 0"):
        collect(make_world("light"), steps, copies=copies, seed=seed)


def test_unknown_policy() -> None:
    with pytest.raises(DataError, match="light: unknown policy 'hold'; choose one of random, scripted, mixed"):
        collect(make_world("light"), 100, policy="hold")
