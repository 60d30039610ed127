"""The alternatives that the benchmarks compare with: right where they can be right, and fairly treated."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks.baselines import best_threshold_f1, boosted_trees, linear, self_memory
from benchmarks.systems import linear_gaussian
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.errors import DataError


def _small_system(steps: int = 4000, seed: int = 0) -> Transitions:
    """walk' = walk + 0.5 a0; follows' = walk + noise; noise: fresh; still: constant within an episode."""
    rng = np.random.default_rng(seed)
    walk, follows, still = (rng.normal(size=steps // 20) for _ in range(3))
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    fresh = rng.normal(size=len(walk))
    for _ in range(20):
        action = rng.uniform(-1, 1, (len(walk), 2))
        obs = np.stack([walk, follows, fresh, still], 1)
        walk, follows = (
            walk + 0.5 * action[:, 0] + rng.normal(0, 0.05, len(walk)),
            walk + rng.normal(0, 0.2, len(walk)),
        )
        fresh = rng.normal(size=len(walk))
        rows.append((obs, action, np.stack([walk, follows, fresh, still], 1)))
    obs, action, after = (np.stack(part, 1).reshape(steps, -1) for part in zip(*rows, strict=True))
    truth = np.array([[1, 0, 0, 0, 1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]], dtype=bool)
    names = ("walk", "follows", "fresh", "still")
    return Transitions(
        obs=obs, action=action, next_obs=after, factors=Factors(tuple(map(Variable, names)), ("a0", "a1")),
        rewards={}, episode=np.repeat(np.arange(steps // 20), 20), truth=truth,
    )  # fmt: skip


def test_linear_regression_finds_a_linear_system() -> None:
    data, exact = linear_gaussian(8, 20_000, seed=1)
    result = linear(data)
    assert result.scores.shape == (8, 9)
    assert data.truth is not None
    assert np.array_equal(result.found, data.truth)
    strong = exact > 0.01
    assert result.scores[strong].min() > result.scores[~data.truth].max()


def test_t_statistic_and_change_or_value() -> None:
    """Against the textbook formula, and the claim that the change gives the same t outside the diagonal."""
    data = _small_system()
    x = np.concatenate([np.ones((len(data), 1)), data.obs, data.action], 1)
    inverse = np.linalg.inv(x.T @ x)
    for target in (data.next_obs[:, 1], data.next_obs[:, 1] - data.obs[:, 1]):
        weights = inverse @ x.T @ target
        noise = ((target - x @ weights) ** 2).sum() / (len(x) - x.shape[1])
        t = np.abs(weights / np.sqrt(noise * np.diag(inverse)))[1:]
        scores = linear(data).scores[1]
        assert scores[[0, 2, 3]] == pytest.approx(t[[0, 2, 3]], rel=1e-6)
        assert scores[4] == pytest.approx(t[4:].max(), rel=1e-6)


def test_baselines_on_persistent_memoryless_and_fixed_variables() -> None:
    data = _small_system(20_000)
    assert data.truth is not None
    assert np.array_equal(linear(data).found, data.truth)
    trees = boosted_trees(data, trees=40)
    assert np.array_equal(trees.found, data.truth)
    assert best_threshold_f1(trees.scores, data.truth)[0] == 1.0
    assert trees.seconds > 0
    memory = self_memory(data)
    assert memory[0] > 0.8 and memory[3] > 0.999
    assert memory[[1, 2]] == pytest.approx([0.0, 0.0], abs=0.01)  # `follows` is slow without any memory


def test_trees_see_what_a_line_cannot() -> None:
    data = _small_system()
    after = data.next_obs.copy()
    after[:, 2] += 3 * np.abs(data.obs[:, 0])  # fresh' now depends on walk, evenly on both sides of zero
    bent = Transitions(
        obs=data.obs,
        action=data.action,
        next_obs=after,
        factors=data.factors,
        rewards={},
        episode=data.episode,
    )
    trees = boosted_trees(bent, trees=40)
    assert trees.found[2, 0] and not trees.found[2, [1, 2, 3, 4]].any()
    again = boosted_trees(bent, trees=40)
    assert np.array_equal(trees.scores, again.scores)


def test_discrete_actions_are_one_input() -> None:
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(600, 2)), rng.integers(3, size=(600, 1))
    after = np.stack([obs[:, 0] + (action[:, 0] == 1), rng.normal(size=600)], 1)
    factors = Factors((Variable("x"), Variable("y")), ("choice",), discrete_actions=3)
    data = Transitions(
        obs=obs,
        action=action,
        next_obs=after,
        factors=factors,
        rewards={},
        episode=np.repeat(np.arange(30), 20),
    )
    expected = np.array([[True, False, True], [False, False, False]])
    assert np.array_equal(linear(data).found, expected)
    trees = boosted_trees(data, trees=20)
    assert trees.scores[0, 2] > 0.5 > trees.scores[1].max()


def test_best_threshold() -> None:
    truth = np.array([[True, False, True], [False, True, False]])
    assert best_threshold_f1(np.array([[3.0, 1.0, 2.0], [0.5, 2.5, 0.0]]), truth) == (1.0, 2.0)
    f1, threshold = best_threshold_f1(np.array([[3.0, 2.5, 2.0], [0.5, 0.2, 0.0]]), truth)
    assert f1 == pytest.approx(3 / 4) and threshold == 0.2
    f1, threshold = best_threshold_f1(np.zeros((2, 3)), truth)  # ties cannot be told apart
    assert f1 == pytest.approx(2 / 3) and threshold == 0.0
    assert best_threshold_f1(np.where(truth, np.inf, 1.0), truth) == (1.0, np.inf)


def test_missing_lightgbm_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(DataError, match="lightgbm"):
        boosted_trees(_small_system(200))
