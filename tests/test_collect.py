"""Collecting data: shapes, episodes, flags, seeds."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cbm.data.transitions import Transitions
from cbm.envs import make_world
from cbm.envs.collect import collect, collect_with_events
from cbm.envs.contact import ContactWorld
from cbm.envs.coverage import moved
from cbm.envs.light import LightWorld
from cbm.envs.registry import WORLDS
from cbm.errors import DataError


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("steps", [2, 60, 234])
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
@pytest.mark.parametrize(("steps", "copies"), [(600, 64), (530, 3), (377, 1)])
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
    first, again, other = (collect(make_world(name), 200, seed=seed).to_arrays() for seed in (5, 5, 6))
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


# In several processes


class SlowLight(LightWorld):
    """Light as if its steps were slow."""

    parallel = True


@pytest.mark.parametrize("steps", [2000, 3050])
def test_the_data_does_not_depend_on_the_number_of_processes(steps: int) -> None:
    made = [collect_with_events(SlowLight(), steps, seed=3, recipe=SlowLight, workers=workers) for workers in (1, 2)]
    first, other = (result.data.to_arrays() for result in made)
    for key, array in first.items():
        np.testing.assert_array_equal(array, other[key])
    assert made[0].success == made[1].success
    np.testing.assert_array_equal(collect(SlowLight(), steps, seed=3).obs, made[0].data.obs)


def test_chunks_are_whole_episodes_with_streams_of_their_own() -> None:
    world = SlowLight()
    data = collect(world, 4000, seed=0)
    starts = data.obs[:: world.horizon]
    assert len(np.unique(starts, axis=0)) == len(starts) == 40
    same = data.episode[1:] == data.episode[:-1]
    np.testing.assert_array_equal(data.obs[1:][same], data.next_obs[:-1][same])
    np.testing.assert_array_equal(collect(world, 1600, seed=0).obs, data.obs[:1600])  # longer data begins alike


def test_mistakes_in_processes_are_told() -> None:
    with pytest.raises(DataError, match="light: unknown policy 'hold'"):
        collect_with_events(SlowLight(), 4000, policy="hold", recipe=SlowLight, workers=2)
    with pytest.raises(DataError, match="workers=0"):
        collect_with_events(SlowLight(), 4000, workers=0)
    with pytest.raises(DataError, match="contact: option 'blocks'"):
        recipe = partial(make_world, "contact", blocks=1)
        collect_with_events(SlowLight(), 4000, recipe=recipe, workers=2)


# What the log shows


def test_events_and_success_are_counted() -> None:
    world = ContactWorld()
    made = collect_with_events(world, 5000, policy="scripted", seed=0)
    rng = np.random.default_rng(0)
    state = world.reset(64, rng)
    act = world.policy("scripted", 64, rng)
    held = []
    for _ in range(world.horizon):
        state = world.step(state, act(state, rng), rng)
        held.append(world.held(state)[:, 0])
    assert set(made.events) == {"block0 held", "block1 held", "block2 held"}
    first_round = np.stack(held, 1).ravel()
    assert made.events["block0 held"] == pytest.approx(first_round.mean(), abs=0.1)
    assert set(made.success) == {"pick", "stack"} and all(0 <= share <= 1 for share in made.success.values())


@pytest.mark.parametrize("rescale", [False, True])
def test_movement_is_counted_in_metres(rescale: bool) -> None:
    world = ContactWorld(rescale=rescale)
    data = collect(world, 5000, seed=0)
    share = moved(data, world.metres)
    assert tuple(share) == ("hand", "block0", "block1", "block2", "fixed")
    assert share["hand"] > 0.99 and share["fixed"] == 0
    columns = [data.factors.index(f"block0_{axis}") for axis in "xyz"]
    changed = (data.obs[:, columns] != data.next_obs[:, columns]).any(1).mean()
    assert 0.9 * changed < share["block0"] <= changed, "of the slightest movements some are below a millimetre"


def test_movement_without_metres_is_relative_to_the_range() -> None:
    data = collect(ContactWorld(rescale=True), 5000, seed=0)
    share = moved(data, None)
    assert share["fixed"] == 0 and share["hand"] > 0.9 and 0.05 < share["block0"] < 0.5
    assert moved(collect(make_world("light"), 500, seed=0), None) == {}


# A full disk


FULL_DISK = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
from cbm.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("resource")
    arguments = ["collect", "contact", "--steps", "2000", "--quiet", "--out"]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *arguments, str(tmp_path / "new" / f"log{suffix}")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (1, 2) and done.stdout == ""
    assert done.stderr.startswith("cbm: ") and done.stderr.count("\n") == 1 and "File too large" in done.stderr
    assert list(tmp_path.rglob("*")) == []


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    path = tmp_path / "log.npz"
    collect(make_world("light"), 50, seed=0).save(path)
    before = path.read_bytes()
    arguments = ["collect", "contact", "--steps", "2000", "--quiet", "--force", "--out", str(path)]
    done = subprocess.run([sys.executable, "-c", FULL_DISK, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
