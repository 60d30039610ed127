"""Options that change how long episodes are and how far apart things start, and that change nothing else."""

from __future__ import annotations

import importlib.util
from typing import Any

import gymnasium
import numpy as np
import pytest

from cbm.envs import make_world
from cbm.envs.collect import collect
from cbm.envs.distractors import Distractors
from cbm.envs.gym import GymWorld
from cbm.envs.manipulation.block import BlockWorld
from cbm.envs.manipulation.world import separate
from cbm.envs.registry import WORLDS
from cbm.errors import DataError

needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs mujoco")
EVERY = [
    pytest.param(entry.name, marks=() if entry.backends[0] == "numpy" else needs_mujoco) for entry in WORLDS.values()
]


# How long episodes are


@pytest.mark.parametrize("name", EVERY)
def test_every_world_takes_a_horizon(name: str) -> None:
    usual, short = make_world(name), make_world(name, horizon=7)
    assert short.horizon == 7 != usual.horizon
    assert make_world(name).horizon == usual.horizon, "of that one world, and not of all that follow"
    np.testing.assert_array_equal(usual.reset(2, np.random.default_rng(1)), short.reset(2, np.random.default_rng(1)))


def test_a_horizon_holds_inside_and_around_distractors() -> None:
    world = make_world("light", horizon=7, distractors=3)
    assert isinstance(world, Distractors)
    assert (world.horizon, world.world.horizon) == (7, 7)
    assert make_world("contact", horizon=7, distractors=3).horizon == 7, "a world with distractors of its own"


def test_episodes_of_a_log_have_that_length() -> None:
    data = collect(make_world("light", horizon=7), 70, seed=0)
    assert np.bincount(data.episode).tolist() == [7] * 10
    assert data.truncated is not None and data.truncated.sum() == 10


def test_an_environment_ends_there() -> None:
    env = gymnasium.make("cbm/Light-v0", horizon=3)
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(3)]
    assert ends == [(False, False), (False, False), (False, True)]
    assert env.spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())).unwrapped
    assert isinstance(again, GymWorld) and again.world.horizon == 3


@pytest.mark.parametrize("value", [0, -5, 2.5, True, "long", None])
def test_horizons_that_are_none(value: object) -> None:
    with pytest.raises(DataError, match="light: option 'horizon' must be a whole number >= 1, not "):
        make_world("light", horizon=value)


# How far apart things start


def block(**options: Any) -> BlockWorld:
    world = make_world("block", **options)
    assert isinstance(world, BlockWorld)
    return world


@needs_mujoco
@pytest.mark.parametrize(
    ("spread", "fixed", "goal"),
    [(0.1, 0.108, (0.1, 0.12)), (0.15, 0.162, (0.15, 0.18)), (0.25, 0.27, (0.25, 0.3)), (0.3, 0.3, (0.3, 0.36))],
)
def test_everything_starts_within_the_spread(spread: float, fixed: float, goal: tuple[float, float]) -> None:
    world = block(spread=spread)
    view = world.view(world.reset(1000, np.random.default_rng(0)))
    places = view.positions()[..., :2]
    extents = np.abs(places).max(axis=(0, 2))
    limits = np.array([spread] * 3 + [fixed])
    assert (extents <= limits).all() and (extents > 0.97 * limits).all()
    reached = np.abs(view["goal"][:, :2]).max(axis=0)
    assert (reached <= goal).all() and (reached > 0.97 * np.array(goal)).all()
    assert view["goal"][:, 2].min() >= 0.9 and view["goal"][:, 2].max() <= 1.0
    gaps = [np.linalg.norm(places[:, a] - places[:, b], axis=1).min() for a in range(4) for b in range(a)]
    assert min(gaps) > 0.06, "four blocks have room"


@needs_mujoco
def test_the_usual_spread_is_what_it_was() -> None:
    """The start from before there was this option."""
    usual, given = (block(**options).reset(40, np.random.default_rng(3)) for options in ({}, {"spread": 0.25}))
    np.testing.assert_array_equal(usual, given)
    view = block().view(usual[-1:])
    places = [[0.18015098, -0.0853112], [-0.22443878, -0.17438225], [-0.03178811, -0.14724237]]
    np.testing.assert_allclose(view.positions()[0, :, :2], [*places, [-0.17175101, -0.12273199]], atol=1e-7)
    np.testing.assert_allclose(view["goal"][0], [-0.15227387, 0.01607734, 0.90340848], atol=1e-7)


@needs_mujoco
def test_picking_works_on_a_small_part_of_the_table() -> None:
    world, rng = make_world("block", spread=0.12, horizon=100, distractors=2), np.random.default_rng(0)
    state, act = world.reset(20, rng), world.policy("pick", 20, rng)
    done = np.zeros(20, dtype=bool)
    for _ in range(world.horizon):
        state = world.step(state, act(state, rng), rng)
        done |= world.success(state)["pick"]
    assert done.mean() >= 0.8


@needs_mujoco
@pytest.mark.parametrize("value", [0.05, 0.31, -0.1, np.nan, np.inf, True, "wide", None])
def test_spreads_without_room_or_beyond_reach(value: object) -> None:
    with pytest.raises(DataError, match=r"block: option 'spread' must be a number > 0\.05 and <= 0\.3, not "):
        make_world("block", spread=value)


@needs_mujoco
def test_the_other_table_has_no_such_option() -> None:
    with pytest.raises(DataError, match="tool: unknown option 'spread'; its options are formula, backend, threads"):
        make_world("tool", spread=0.1)


def test_a_layout_that_does_not_exist_is_told() -> None:
    with pytest.raises(DataError, match="no room to start: 5 drawn layouts have things that touch"):
        separate(lambda n: np.zeros((n, 2, 7)), lambda poses: np.zeros(len(poses), dtype=bool), 3, tries=5)
