"""Distractors around a world: known projections, a world that stays as it was, and graphs by intervention."""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import pickle
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from cbm.envs import make_world
from cbm.envs.collect import collect
from cbm.envs.contact import ContactWorld
from cbm.envs.distractors import Distractors
from cbm.envs.gym import GymWorld
from cbm.envs.light import LightWorld
from cbm.errors import DataError

needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("dm_control") is None, reason="needs dm_control")
NAMES = ["light", "chemical", pytest.param("cheetah", marks=needs_mujoco)]


def wrapped(name: str, **options: Any) -> Distractors:
    world = make_world(name, **{"distractors": 4, **options})
    assert isinstance(world, Distractors)
    return world


@pytest.mark.parametrize(
    ("name", "variables"),
    [
        ("light", 46),
        ("chemical", 55),
        pytest.param("cheetah", 57, marks=needs_mujoco),
        pytest.param("walker", 64, marks=needs_mujoco),
    ],
)
def test_twenty_of_each(name: str, variables: int) -> None:
    assert len(make_world(name, distractors=20).factors) == variables
    assert len(Distractors(LightWorld()).factors) == 46, "twenty is the default"


def test_names_and_groups() -> None:
    world = wrapped("light", distractors=2)
    assert world.factors.names[-4:] == ("cd0", "cd1", "ud0", "ud1")
    assert world.factors.variables[-4].group == "controllable distractor"
    assert world.factors.variables[-1].group == "uncontrollable distractor"


def test_controllable_ones_are_projections_of_the_clipped_action() -> None:
    world = wrapped("light")
    rng = np.random.default_rng(0)
    state = world.reset(3, rng)
    np.testing.assert_array_equal(world.observe(state)[:, 6:10], 0)
    after = world.observe(world.step(state, np.array([[0.5, -0.5], [3.0, -9.0], [0.0, 0.0]]), rng))
    expected = np.array([[0.5, -0.5], [1.0, -1.0], [0.0, 0.0]]) @ world.projection
    np.testing.assert_allclose(after[:, 6:10], expected)
    np.testing.assert_allclose(np.abs(world.projection).sum(0), 1)


def test_discrete_actions_are_projected_as_one_hot_vectors() -> None:
    world = wrapped("chemical")
    assert world.projection.shape == (25, 4)
    rng = np.random.default_rng(0)
    after = world.observe(world.step(world.reset(2, rng), np.array([[3], [24]]), rng))
    np.testing.assert_array_equal(after[:, 15:19], world.projection[[3, 24]])


def test_uncontrollable_ones_are_uniform_and_fresh() -> None:
    data = collect(wrapped("light"), 20_000, seed=0)
    before, after = data.obs[:, 10:], data.next_obs[:, 10:]
    for values in (before, after):
        assert np.abs(values).max() <= 1
        np.testing.assert_allclose(values.mean(0), 0, atol=0.03)
        np.testing.assert_allclose(values.std(0), 1 / np.sqrt(3), atol=0.02)
    correlation = np.corrcoef(before.T, after.T)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_the_world_inside_is_as_it_was(name: str) -> None:
    """One step with the same random numbers; rewards, success, context, events, policies."""
    outer, inner = wrapped(name), make_world(name)
    state, alone = outer.reset(5, np.random.default_rng(0)), inner.reset(5, np.random.default_rng(0))
    act, act_alone = (w.policy("mixed", 5, np.random.default_rng(1)) for w in (outer, inner))
    action = act(state, np.random.default_rng(2))
    np.testing.assert_array_equal(action, act_alone(alone, np.random.default_rng(2)))
    state = outer.step(state, action, np.random.default_rng(3))
    alone = inner.step(alone, action, np.random.default_rng(3))
    d = len(inner.factors)
    np.testing.assert_array_equal(outer.observe(state)[:, :d], inner.observe(alone))
    np.testing.assert_array_equal(outer.context(state), inner.context(alone))
    for method in ("rewards", "success", "events"):
        ours, theirs = getattr(outer, method)(state), getattr(inner, method)(alone)
        assert ours.keys() == theirs.keys()
        for key in ours:
            np.testing.assert_array_equal(ours[key], theirs[key])
    for attribute in ("tasks", "policies", "horizon", "action_size", "context_names", "frames_per_second", "parallel"):
        assert getattr(outer, attribute) == getattr(inner, attribute)


@pytest.mark.parametrize("name", NAMES)
def test_truths_are_extended(name: str) -> None:
    outer, inner = wrapped(name), make_world(name)
    d = len(inner.factors)
    assert outer.truths.keys() == inner.truths.keys()
    for key, truth in outer.truths.items():
        np.testing.assert_array_equal(truth[:d, :d], inner.truths[key][:, :d])
        np.testing.assert_array_equal(truth[:d, -1], inner.truths[key][:, -1])
        assert not truth[:, d:-1].any(), "distractors cause nothing"
        assert truth[d : d + 4, -1].all() and truth[d : d + 4].sum() == 4, "cd <- action only"
        assert not truth[d + 4 :].any(), "ud <- nothing"
    np.testing.assert_array_equal(outer.truth, outer.truths["physical"])
    for task, parents in outer.truth_rewards.items():
        np.testing.assert_array_equal(parents[:d], inner.truth_rewards[task])
        assert not parents[d:].any()


@pytest.mark.parametrize("name", ["light", "chemical"])
def test_interventions_show_that_distractors_depend_on_the_action_alone(name: str) -> None:
    world = wrapped(name)
    rng = np.random.default_rng(0)
    d, n = len(world.factors), 2000
    state = world.reset(n, rng)
    act = world.policy("random", n, rng)
    for _ in range(3):
        state = world.step(state, act(state, rng), rng)
    action = act(state, rng)
    base = world.observe(world.step(state, action, np.random.default_rng(1)))
    for j in range(d):
        other = world.intervene(state, j, rng.permutation(world.observe(state)[:, j]))
        after = world.observe(world.step(other, action, np.random.default_rng(1)))
        assert not (after != base)[:, d - 8 :].any()
        if j >= d - 8:
            np.testing.assert_array_equal(after, base)
    after = world.observe(world.step(state, act(state, rng), np.random.default_rng(1)))
    assert (after != base)[:, d - 8 : d - 4].any(0).all()
    assert not (after != base)[:, d - 4 :].any()


def test_interventions_on_both_parts() -> None:
    world = wrapped("light")
    state = world.reset(2, np.random.default_rng(0))
    for j, value in ((1, 0.25), (6, 0.5), (13, -0.5)):
        changed = world.observe(world.intervene(state, j, np.full(2, value)))
        expected = world.observe(state).copy()
        expected[:, j] = value
        np.testing.assert_array_equal(changed, expected)
    assert world.settable.all()
    with pytest.raises(DataError, match="variable 'cd0', row 1: 1.5 is outside its range"):
        world.intervene(state, 6, np.array([0.0, 1.5]))


def test_the_world_seed_draws_the_projection() -> None:
    one, same, other = (wrapped("light", world_seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.projection, same.projection)
    assert not np.allclose(one.projection, other.projection)
    chemical = wrapped("chemical", world_seed=1)
    np.testing.assert_array_equal(chemical.networks[4].first, make_world("chemical", world_seed=1).networks[4].first)  # type: ignore[attr-defined]


def test_a_world_with_distractors_of_its_own_keeps_them() -> None:
    assert isinstance(make_world("contact", distractors=20), ContactWorld)
    assert len(make_world("contact", distractors=20).factors) == 56
    with pytest.raises(DataError, match="variable name 'cd0' is used twice"):
        Distractors(ContactWorld())


def test_none_is_no_wrapper() -> None:
    assert isinstance(make_world("light", distractors=0), LightWorld)
    assert isinstance(make_world("light"), LightWorld)


def test_pictures_show_the_world_inside() -> None:
    world = wrapped("chemical")
    state = world.reset(1, np.random.default_rng(0))
    inner = make_world("chemical")
    np.testing.assert_array_equal(
        world.render(state[0], 64, 48),
        inner.render(state[0, : inner.state_size], 64, 48),  # type: ignore[attr-defined]
    )


def test_it_can_be_copied_and_sent_to_another_process() -> None:
    world = wrapped("light")
    for again in (copy.deepcopy(world), pickle.loads(pickle.dumps(world))):
        np.testing.assert_array_equal(again.projection, world.projection)


@pytest.mark.parametrize("name", ["Light", "Chemical"])
def test_gymnasium_finds_nothing_to_complain_about(name: str) -> None:
    env = gymnasium.make(f"cbm/{name}-v0", distractors=20)
    assert isinstance(env.unwrapped, GymWorld)
    check_env(env.unwrapped)


def trajectory_hash(seed: int) -> str:
    return hashlib.sha256(collect(wrapped("light"), 300, seed=seed).next_obs.tobytes()).hexdigest()


def test_a_seed_gives_the_same_trajectory_here_and_in_another_process() -> None:
    here = trajectory_hash(5)
    assert here != trajectory_hash(6)
    folder = __file__.rsplit("/", 1)[0]
    script = f"import sys; sys.path.insert(0, {folder!r}); import test_distractors as t; print(t.trajectory_hash(5))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == here, done.stderr


@pytest.mark.parametrize("value", [-1, 2.5, True, "many"])
def test_bad_counts(value: object) -> None:
    with pytest.raises(DataError, match="light: option 'distractors' must be a whole number >= 0"):
        make_world("light", distractors=value)
