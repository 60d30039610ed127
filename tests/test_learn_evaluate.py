"""Evaluation: sums of rewards, success at any step, the same episodes for everyone, noise where it is asked for."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from cbm.errors import DataError
from cbm.learning.evaluate import Act, evaluate
from cbm.learning.task_env import TaskEnv, WorldTaskEnv
from cbm.learning.vector_env import GymVectorEnv


class Walk(gymnasium.Env[np.ndarray, np.ndarray]):
    """Copy k ends after k + 1 steps (the seed says k); reward is the position; success at position 2 only."""

    observation_space = gymnasium.spaces.Box(-100, 100, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)
    made = 0

    def __init__(self) -> None:
        self.limit = Walk.made + 1
        Walk.made += 1

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.position = 0
        return np.zeros(2), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.position += 1
        told = {"success": self.position == 2}
        return np.full(2, self.position, float), float(self.position), self.position >= self.limit, False, told


def _walks(monkeypatch: pytest.MonkeyPatch) -> TaskEnv:
    task_env: Any = WorldTaskEnv("light")
    monkeypatch.setattr(Walk, "made", 0)
    monkeypatch.setattr(task_env, "vector_env", lambda copies, rng: GymVectorEnv(Walk, copies, rng))
    return task_env


def test_episodes_of_different_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(lambda obs, context: np.zeros((4, 1)), _walks(monkeypatch), "reward", 4, seed=0)
    assert found.length.tolist() == [1, 2, 3, 4]
    assert found.returns.tolist() == [1, 3, 6, 10]  # nothing after the end counts
    assert found.success is not None and found.success.tolist() == [False, True, True, True]  # at any step
    assert found.summary() == {"return": 5.0, "success": 0.75, "length": 2.5}


def _recorder(seen: list[np.ndarray], value: float) -> Act:
    def act(obs: np.ndarray, context: np.ndarray) -> np.ndarray:
        seen.append(obs.copy())
        return np.full((len(obs), 4), value)

    return act


def test_returns_are_sums_over_the_horizon() -> None:
    task_env = WorldTaskEnv("contact")
    found = evaluate(_recorder([], 0.3), task_env, "pick", 5, seed=7)
    rng = np.random.default_rng([7, 41])
    state, total = task_env.world.reset(5, rng), np.zeros(5)
    for _ in range(50):
        state = task_env.world.step(state, np.full((5, 4), 0.3), rng)
        total += task_env.world.rewards(state)["pick"]
    assert np.allclose(found.returns, total) and (found.length == 50).all()


def test_everyone_meets_the_same_episodes() -> None:
    task_env = WorldTaskEnv("contact")
    one: list[np.ndarray] = []
    two: list[np.ndarray] = []
    evaluate(_recorder(one, 0.0), task_env, "pick", 5, seed=0)
    evaluate(_recorder(two, 1.0), task_env, "stack", 5, seed=0)
    assert (one[0] == two[0]).all()
    uncontrollable = [i for i, name in enumerate(task_env.factors.names) if name.startswith("ud")]
    assert (one[30][:, uncontrollable] == two[30][:, uncontrollable]).all()  # whatever the policies did meanwhile
    other: list[np.ndarray] = []
    evaluate(_recorder(other, 0.0), task_env, "pick", 5, seed=1)
    assert (one[0] != other[0]).any()


def test_noise_replaces_what_is_seen_and_nothing_else() -> None:
    task_env = WorldTaskEnv("contact")
    replaced = np.arange(36) >= 10
    usual: list[np.ndarray] = []
    noisy: list[np.ndarray] = []
    plain = evaluate(_recorder(usual, 0.2), task_env, "pick", 20, seed=0)
    found = evaluate(_recorder(noisy, 0.2), task_env, "pick", 20, seed=0, replaced=replaced)
    assert (found.returns == plain.returns).all()  # the world goes on as before
    before, after = np.stack(usual), np.stack(noisy)  # (50, 20, 36)
    assert (before[:, :, :10] == after[:, :, :10]).all()
    noise = after[:, :, 10:]
    assert abs(noise.mean()) < 0.02 and abs(noise.std() - 1) < 0.02
    assert abs(np.corrcoef(noise[:-1].ravel(), noise[1:].ravel())[0, 1]) < 0.02  # drawn anew at every step


def test_a_mask_of_the_wrong_size() -> None:
    with pytest.raises(DataError, match=r"shape \(7,\), expected \(36,\)"):
        evaluate(_recorder([], 0.0), WorldTaskEnv("contact"), "pick", 2, 0, replaced=np.ones(7, bool))


def test_a_task_without_success() -> None:
    found = evaluate(lambda obs, context: np.zeros((2, 2)), WorldTaskEnv("light"), "cross", 2, seed=0)
    assert found.success is None and np.isnan(found.summary()["success"])
