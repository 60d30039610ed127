"""Alternatives to this package: regression with p-values, and boosted trees with permutation importances.

Both return a (d, d+1) score for "j at t matters to i at t+1" in the layout of the graph, their own default decision,
and the seconds they took. They get every advantage that costs nothing:

- A variable that never changes gets its self-edge and nothing else.
- The self-edge. If the change of a variable is predicted, its own past seems to matter or not for the wrong
  reason: the change of a memoryless variable depends on its past, that of a constant one is always zero.
  Linear regression predicts the next value, which leaves the t statistic of every other cell exactly as with the
  change. Trees cannot fit a value and its small changes at once: they predict the change if, in that regression,
  the variable's present value explains more than half of what all other inputs leave unexplained (the partial
  R^2). The self-edge then counts as found, with score 2 R^2, the effect of permuting the variable's own value in
  such a regression. Otherwise they predict the next value, and the self cell has its own importance. (A plain
  lag-one correlation would also give a self-edge to every variable that follows a slow one.)
- The columns of the action are one input: the largest |t| of them, or all permuted together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from cbm.data.transitions import Transitions
from cbm.discovery.targets import action_columns, change
from cbm.errors import DataError

SIGNIFICANCE = 0.05  # shared by all tested coefficients (Bonferroni)
IMPORTANT = 0.01  # trees: an input matters when permuting it adds 1 % of the target's variance to the error
PERSISTENT = 0.5  # partial R^2 of a variable's own present above which its change is what trees predict
ROUNDING = 1e-6  # of a target's deviation: smaller residuals are rounding, not noise
REDUNDANT = 1e-10  # share of the variance below which a direction of the inputs is a repetition
MOST_HELD_OUT = 4000  # rows on which importances are measured


@dataclass(frozen=True)
class Baseline:
    """Scores, the method's own decision, and its cost."""

    scores: np.ndarray
    """(d, d+1), larger: more likely an edge."""
    found: np.ndarray
    """(d, d+1) booleans."""
    seconds: float


def linear(data: Transitions) -> Baseline:
    """|t| of an ordinary least-squares regression of every next value on all inputs; Bonferroni decides."""
    start = time.perf_counter()
    inputs, owner = input_columns(data)
    t, degrees = _t_statistics(inputs, data.next_obs)
    p = 2 * stats.t.sf(np.abs(t), degrees)
    significant = p < SIGNIFICANCE / p.size
    d = data.obs.shape[1]
    scores, found = np.zeros((d, d + 1)), np.zeros((d, d + 1), dtype=bool)
    for column, j in enumerate(owner):
        scores[:, j] = np.maximum(scores[:, j], np.abs(t[:, column]))
        found[:, j] |= significant[:, column]
    still = ~moving_variables(data)
    scores[still], found[still] = 0.0, False
    scores[still, still.nonzero()[0]], found[still, still.nonzero()[0]] = np.inf, True
    return Baseline(scores, found, time.perf_counter() - start)


def boosted_trees(
    data: Transitions,
    held_out: float = 0.1,
    seed: int = 0,
    trees: int = 150,
    leaves: int = 31,
    num_threads: int = 1,
) -> Baseline:
    """One model per target; held-out permutation importances as shares of the target's variance."""
    lightgbm = import_lightgbm()
    start = time.perf_counter()
    rng = np.random.default_rng([seed, 19])
    train, held = data.split(held_out, seed)
    held = held.select(np.sort(rng.permutation(len(held))[:MOST_HELD_OUT]))
    inputs, owner = input_columns(train)
    held_inputs, _ = input_columns(held)
    table = lightgbm.Dataset(inputs, free_raw_data=False, params={"verbosity": -1})
    options = {
        "objective": "regression", "num_leaves": leaves, "learning_rate": 0.1, "verbosity": -1,
        "num_threads": num_threads, "seed": seed, "deterministic": True,
    }  # fmt: skip
    d = data.obs.shape[1]
    scores = np.zeros((d, d + 1))
    memory = self_memory(train)
    moving = moving_variables(train)
    for i in range(d):
        if not moving[i]:
            scores[i, i] = 2.0
            continue
        persistent = memory[i] > PERSISTENT
        y, held_y = (target_values(part, i, persistent) for part in (train, held))
        unit = y.std()
        if unit > 0:
            table.set_label((y - y.mean()) / unit)  # a deviation of 1, whatever the variable's unit
            model = lightgbm.train(options, table, num_boost_round=trees)
            scores[i] = _importances(model, held_inputs, (held_y - y.mean()) / unit, owner, d, rng)
        if persistent:
            scores[i, i] = 2 * memory[i]
    return Baseline(scores, scores > IMPORTANT, time.perf_counter() - start)


def best_threshold_f1(scores: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """The largest F1 that any one threshold gives (edge: score >= threshold), and that threshold."""
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked, hits = scores.ravel()[order], np.cumsum(truth.ravel()[order])
    f1 = 2 * hits / (np.arange(1, len(ranked) + 1) + truth.sum())
    last_of_ties = np.append(ranked[1:] != ranked[:-1], True)
    best = int(np.argmax(np.where(last_of_ties, f1, -1.0)))
    return float(f1[best]), float(ranked[best])


def self_memory(data: Transitions) -> np.ndarray:
    """(d,) partial R^2 of each variable's own present in the regression of its next value on all inputs."""
    inputs, _ = input_columns(data)
    t, degrees = _t_statistics(inputs, data.next_obs)
    squared = np.diagonal(t) ** 2
    return np.asarray(squared / (squared + degrees))


def input_columns(data: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Input columns (T, C), and the graph's column each of them belongs to; the action's come last."""
    actions = action_columns(data.action, data.factors.discrete_actions)
    d = data.obs.shape[1]
    return np.concatenate([data.obs, actions], 1), np.minimum(np.arange(d + actions.shape[1]), d)


def moving_variables(data: Transitions) -> np.ndarray:
    return np.asarray((data.obs != data.next_obs).any(0))


def target_values(data: Transitions, i: int, persistent: bool) -> np.ndarray:
    if not persistent:
        return data.next_obs[:, i]
    return change(data.obs[:, i], data.next_obs[:, i], data.factors.kinds[i])


def _t_statistics(inputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, int]:
    """(K, C) t statistics of targets (T, K) on inputs (T, C) and a constant, and the degrees of freedom."""
    x, y = _standardised(inputs), _standardised(targets)
    n = len(x)
    inverse = np.linalg.pinv(x.T @ x / n, rcond=REDUNDANT, hermitian=True)  # constant or redundant columns do no harm
    weights = inverse @ (x.T @ y) / n  # (C, K)
    degrees = n - 1 - np.linalg.matrix_rank(x.T @ x, tol=REDUNDANT * n, hermitian=True)
    if degrees < 1:
        raise DataError(f"linear regression on {x.shape[1]} inputs needs more than {n} transitions")
    noise = np.sqrt(((y - x @ weights) ** 2).sum(0) / degrees)
    error = np.maximum(noise, ROUNDING) * np.sqrt(np.clip(np.diag(inverse), 0, None) / n)[:, None]
    t = np.divide(weights, error, out=np.zeros_like(weights), where=error > 0)
    return t.T, int(degrees)


def _standardised(columns: np.ndarray) -> np.ndarray:
    centred = columns - columns.mean(0)
    std = columns.std(0)
    return np.asarray(centred / np.where(std > 0, std, 1.0))


def _importances(
    model: Any, inputs: np.ndarray, y: np.ndarray, owner: np.ndarray, d: int, rng: np.random.Generator
) -> np.ndarray:
    """(d+1,) increase of the mean squared error when an input's columns are permuted."""
    usual = ((model.predict(inputs) - y) ** 2).mean()
    result = np.zeros(d + 1)
    used = np.asarray(model.feature_importance()) > 0  # permuting a column that no tree uses changes nothing
    for j in np.unique(owner[used]):
        permuted = inputs.copy()
        own = owner == j
        permuted[:, own] = inputs[rng.permutation(len(inputs))][:, own]
        result[j] = ((model.predict(permuted) - y) ** 2).mean() - usual
    return result


def import_lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise DataError("the boosted-trees baseline needs lightgbm: pip install 'cbm-rl[bench]'") from error
    return lightgbm
