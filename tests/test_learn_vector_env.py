"""Copies stepped at once: the same numbers as the world itself, no row across two episodes, exact saving."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from cbm.envs.registry import make_world
from cbm.errors import DataError
from cbm.learning.task_env import GymTaskEnv, WorldTaskEnv, distractors, make_task_env, oracle
from cbm.learning.vector_env import EpisodeCounter, GymVectorEnv, Moves, VectorEnv, WorldVectorEnv

HORIZON = 50  # of the contact world


def _random(vector_env: VectorEnv, rng: np.random.Generator, actions: int) -> np.ndarray:
    return rng.uniform(-1, 1, (vector_env.copies, actions))


def _steps(vector_env: VectorEnv, count: int, actions: int = 4, seed: int = 1) -> list[Moves]:
    rng = np.random.default_rng(seed)
    return [vector_env.step(_random(vector_env, rng, actions)) for _ in range(count)]


def test_same_numbers_as_the_world_stepped_by_hand() -> None:
    world, copies = make_world("contact"), 3
    vector_env = WorldVectorEnv(world, copies, np.random.default_rng(5))
    rng, actions = np.random.default_rng(5), np.random.default_rng(1)
    state = world.reset(copies, rng)
    for moves in _steps(vector_env, 120):
        before = world.observe(state)
        action = actions.uniform(-1, 1, (copies, 4))
        state = world.step(state, action, rng)
        assert (moves.obs == before).all() and (moves.action == action).all()
        assert (moves.next_obs == world.observe(state)).all()
        for task, reward in world.rewards(state).items():
            assert (moves.rewards[task] == reward).all()
            assert (moves.success[task] == world.success(state)[task]).all()
        if moves.truncated.any():
            assert moves.truncated.all()
            state = world.reset(copies, rng)


@pytest.mark.parametrize("staggered", [False, True])
def test_no_row_joins_two_episodes(staggered: bool) -> None:
    vector_env = WorldVectorEnv(make_world("contact"), 4, np.random.default_rng(0), staggered=staggered)
    seen = _steps(vector_env, 130)
    for k in range(4):
        for before, after in itertools.pairwise(seen):
            same = before.episode[k] == after.episode[k]
            assert same == (not before.over[k])
            assert same == bool((before.next_obs[k] == after.obs[k]).all())  # a new start is another state
    assert not any(moves.terminated.any() for moves in seen)
    ends = np.array([moves.truncated for moves in seen])
    assert ends.sum() >= 8
    if staggered:
        assert ends.sum(1).max() == 1  # never two at the same step
        assert [np.flatnonzero(end)[0] for end in ends.T] == [49, 37, 24, 12]
    else:
        assert set(ends.sum(1)) == {0, 4}
    for k in range(4):
        gaps = np.diff(np.flatnonzero(ends[:, k]))
        assert (gaps == HORIZON).all()


def test_episode_numbers_are_never_used_twice() -> None:
    numbers = EpisodeCounter()
    world = make_world("contact")
    vector_envs = [WorldVectorEnv(world, 2, np.random.default_rng(k), numbers, staggered=True) for k in range(2)]
    owner: dict[int, tuple[int, int]] = {}
    for k, vector_env in enumerate(vector_envs):
        for moves in _steps(vector_env, 110):
            for copy, episode in enumerate(moves.episode):
                assert owner.setdefault(int(episode), (k, copy)) == (k, copy)
    assert numbers.next == max(owner) + 1


@pytest.mark.parametrize("name", ["contact", "light", "block", "cheetah"])
def test_goes_on_exactly_after_restoring(name: str) -> None:
    if name in ("block", "cheetah"):
        pytest.importorskip("mujoco")
        pytest.importorskip("dm_control")
    options = {"distractors": 2} if name == "cheetah" else {}
    world = make_world(name, **options)
    actions = len(world.factors.action_names)
    vector_env = WorldVectorEnv(world, 2, np.random.default_rng(0), staggered=True)
    _steps(vector_env, 7, actions)
    saved = {key: value.copy() if hasattr(value, "copy") else value for key, value in vector_env.saved().items()}
    after = _steps(vector_env, 20, actions, seed=2)
    other = WorldVectorEnv(
        make_world(name, **({"distractors": 2} if name == "cheetah" else {})), 2, np.random.default_rng(9)
    )
    other.restore(saved)
    for one, two in zip(after, _steps(other, 20, actions, seed=2)):
        for part in ("obs", "context", "next_obs", "next_context", "truncated"):
            assert (getattr(one, part) == getattr(two, part)).all(), part


def test_context_before_and_after_the_step() -> None:
    pytest.importorskip("mujoco")
    world = make_world("block")
    vector_env = WorldVectorEnv(world, 2, np.random.default_rng(0))
    moves = vector_env.step(np.zeros((2, 4)))
    assert moves.context.shape == (2, 3) and (moves.context == moves.next_context).all()  # the goal of the episode
    assert (moves.next_context == vector_env.context).all()


# Any Gymnasium environment


class Corridor(gymnasium.Env[np.ndarray, np.ndarray]):
    """Position 0, 1, 2, ...; ends at 3; the action (asymmetric bounds) is the reward."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,), np.float64)
    action_space = gymnasium.spaces.Box(np.array([2.0, -1.0]), np.array([6.0, 0.0]), dtype=np.float64)

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=options.get("seed"))
        self.position = 0.0
        return np.array([self.position]), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.position += 1
        return np.array([self.position]), float(action.sum()), self.position >= 3, False, {"is_success": True}


def test_actions_are_stretched_and_ends_kept_apart() -> None:
    vector_env = GymVectorEnv(Corridor, 2, np.random.default_rng(0))
    moves = [vector_env.step(np.array([[-1.0, -1.0], [1.0, 0.0]])) for _ in range(4)]
    assert moves[0].rewards["reward"].tolist() == [2.0 - 1.0, 6.0 - 0.5]
    assert [m.terminated.tolist() for m in moves] == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    assert [m.obs[0, 0] for m in moves] == [0, 1, 2, 0] and [m.next_obs[0, 0] for m in moves] == [1, 2, 3, 1]
    assert moves[0].success["reward"].all() and moves[3].episode.tolist() == [2, 3]
    assert moves[0].action.tolist() == [[-1.0, -1.0], [1.0, 0.0]]  # as the policy chose them


class TellsAtTheEnd(Corridor):
    """Says only when an episode ends whether it was a success, as many environments do; the ends differ."""

    def __init__(self, length: int, reward: float = 1.0):
        self.length, self.reward = length, reward

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position += 1
        over = self.position >= self.length
        return np.array([self.position]), self.reward, over, False, {"is_success": self.length == 2} if over else {}


def test_success_may_be_told_at_the_end_of_an_episode_only() -> None:
    lengths = iter([2, 3])
    vector_env = GymVectorEnv(lambda: TellsAtTheEnd(next(lengths)), 2, np.random.default_rng(0))
    told = [vector_env.step(np.zeros((2, 2))).success for _ in range(3)]
    assert told[0] == {}  # nobody has said anything
    assert told[1]["reward"].tolist() == [True, False] and told[2]["reward"].tolist() == [False, False]


def test_a_reward_that_is_no_number_is_refused() -> None:
    vector_env = GymVectorEnv(lambda: TellsAtTheEnd(3, math.nan), 2, np.random.default_rng(0))
    with pytest.raises(DataError, match="the environment's reward is not finite: nan"):
        vector_env.step(np.zeros((2, 2)))


def test_time_limits_truncate() -> None:
    vector_env = GymTaskEnv("gymnasium:Pendulum-v1").vector_env(2, np.random.default_rng(0))
    ends = [vector_env.step(np.zeros((2, 1))) for _ in range(201)]
    assert ends[199].truncated.all() and not any(moves.terminated.any() for moves in ends)
    assert (ends[199].next_obs != ends[200].obs).any()
    vector_env.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: make_task_env("gymnasium:CartPole-v1"), "Box"),
        (lambda: make_task_env("gymnasium:Pendulm-v1"), "Pendulum"),
        (lambda: make_task_env("gymnasium:Pendulum-v1", {"gravity": 1}), "gravity"),
        (lambda: make_task_env("chemical"), "discrete"),
        (lambda: make_task_env("contac"), "contact"),
    ],
)
def test_what_cannot_be_learned_in(make: Callable[[], object], said: str) -> None:
    with pytest.raises(DataError, match=said):
        make()


def test_oracle_and_distractors() -> None:
    task_env = WorldTaskEnv("contact")
    names = np.array(task_env.factors.names)
    needed = oracle(task_env, "pick")
    assert needed is not None
    assert list(names[needed]) == ["hand_x", "hand_y", "hand_z", "gripper", "block0_x", "block0_y", "block0_z"]
    assert all(name[:2] in ("cd", "ud") for name in names[distractors(task_env.factors)])
    assert distractors(task_env.factors).sum() == 20


def test_oracle_reads_the_papers_graph_and_markers_distract() -> None:
    pytest.importorskip("mujoco")
    task_env = WorldTaskEnv("block", {"distractors": 2})
    needed = oracle(task_env, "pick")
    assert needed is not None and np.flatnonzero(needed).tolist() == list(range(17))
    assert distractors(task_env.factors).sum() == 9 + 4


def test_variables_of_gymnasium_have_names() -> None:
    named = make_task_env("gymnasium:Pendulum-v1", {"names": ["cos", "sin", "speed"]})
    assert named.factors.names == ("cos", "sin", "speed")
    assert make_task_env("gymnasium:Pendulum-v1").factors.names == ("obs_0", "obs_1", "obs_2")
    with pytest.raises(DataError, match="gymnasium:Pendulum-v1: 2 names for 3 variables"):
        make_task_env("gymnasium:Pendulum-v1", {"names": ["cos", "sin"]})
