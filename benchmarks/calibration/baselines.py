"""Five ways to decide about edges without this package, each with the thresholds that a careful user would choose.

- `linear`: |t| > 5 in a linear regression of every next value on all inputs.
- `additive`: a sum of one piecewise linear function per input; an input is an edge if leaving it out costs
  likelihood on held-out episodes.
- `trees`: boosted trees with permutation importances, see `benchmarks.baselines`.
- `refits`: a linear fit and boosted trees on its residual, refitted without each input; an input is an edge if that
  costs likelihood on held-out episodes. Only the inputs that the full model uses most are tried.
- `pcmci`: PCMCI with partial correlation if tigramite is installed, see `benchmarks.pcmci`.

Conventions for self-edges and constant variables are those of `benchmarks.baselines`: for a persistent variable the
change is predicted, and its self-edge counts as found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.baselines import (
    PERSISTENT,
    Baseline,
    boosted_trees,
    import_lightgbm,
    input_columns,
    moving_variables,
    self_memory,
    target_values,
)
from benchmarks.baselines import linear as linear_regression
from benchmarks.pcmci import pcmci
from cbm.data.transitions import Transitions

LARGE_T = 5.0
KNOTS = 8
RIDGE = 1e-8
"""Share of the inputs' variance: enough to invert repeated inputs, too little to cause bias."""
HELD_OUT = 0.2
SURE = 3.0
"""Standard errors by which a mean gain has to exceed zero."""
ADDITIVE_GAIN, REFIT_GAIN = 0.001, 0.002
"""Nats by which it has to exceed zero, at least."""
NOISE_FLOOR = 1e-6
"""Share of a target's deviation: smaller residuals are rounding, not noise."""
ROUNDS, LEAVES, TRAIN_ROWS, REFITS = 100, 15, 20_000, 16
"""Refits: trees per model at most, leaves per tree, training rows and inputs tried per target at most."""
EARLY_SHARE = 0.2
"""Share of the training rows on which the number of trees is chosen."""
FEWEST_EPISODES, BLOCKS = 10, 20
"""With fewer held-out episodes than the first, errors are computed over that many blocks of rows instead."""


def linear(data: Transitions, seed: int = 0) -> Baseline:
    """An edge where |t| > 5."""
    result = linear_regression(data)
    return replace(result, found=result.scores > LARGE_T)


def trees(data: Transitions, seed: int = 0) -> Baseline:
    """Boosted trees with permutation importances, as in `cbm bench discovery`."""
    return boosted_trees(data, HELD_OUT, seed)


def additive(data: Transitions, seed: int = 0) -> Baseline:
    """Gain in held-out likelihood by each input's function, from one regression in closed form."""
    start = time.perf_counter()
    train, held = data.split(HELD_OUT, seed)
    inputs, owner = input_columns(train)
    hats = [Hats.fit(column) for column in inputs.T]
    features, held_features = (_features(hats, part) for part in (train, held))
    owners = np.repeat(owner, [hat.size for hat in hats])
    d = len(data.factors)
    targets = Targets.of(train, held)
    fit = Regression.fit(features, owners, targets.train)
    unit = _units(held.episode)
    gains, errors = np.zeros((d, d + 1)), np.zeros((d, d + 1))
    full = _log_likelihood(targets.held, fit.predict(held_features), fit.deviation)
    for j in range(d + 1):
        less = fit.without(j)
        reduced = _log_likelihood(targets.held, less.predict(held_features), less.deviation)
        gains[:, j], errors[:, j] = _mean_and_error(full - reduced, unit)
    return _decided(targets, gains, errors, ADDITIVE_GAIN, start)


def refits(data: Transitions, seed: int = 0) -> Baseline:
    """Gain in held-out likelihood by each of the most used inputs, from a model refitted without it."""
    start = time.perf_counter()
    train, held = data.split(HELD_OUT, seed)
    rows = np.sort(np.random.default_rng([seed, 66]).permutation(len(train))[:TRAIN_ROWS])
    train = train.select(rows)
    inputs, owner = input_columns(train)
    centre, scale = inputs.mean(0), np.where(inputs.std(0) > 0, inputs.std(0), 1.0)
    features = (inputs - centre) / scale
    held_features = (input_columns(held)[0] - centre) / scale
    targets = Targets.of(train, held)
    fit = Regression.fit(features, owner, targets.train)
    linear_importance = fit.importance()
    boosting = Boosting(features, held_features, owner, seed)
    unit = _units(held.episode)
    d = len(data.factors)
    gains, errors = np.zeros((d, d + 1)), np.zeros((d, d + 1))
    for i in np.flatnonzero(targets.moving).tolist():
        boosting.choose_rounds(fit, targets, i)
        full, importance = boosting.log_likelihood(fit, targets, i, None)
        for j in np.argsort(-importance - linear_importance[:, i])[:REFITS].tolist():
            if j == i and targets.persistent[i]:
                continue
            reduced, _ = boosting.log_likelihood(fit.without(j), targets, i, j)
            mean, error = _mean_and_error((full - reduced)[:, None], unit)
            gains[i, j], errors[i, j] = mean[0], error[0]
    return _decided(targets, gains, errors, REFIT_GAIN, start)


METHODS: dict[str, Callable[[Transitions, int], Baseline]] = {
    "linear": linear, "additive": additive, "trees": trees, "refits": refits, "pcmci": pcmci,
}  # fmt: skip


@dataclass(frozen=True)
class Targets:
    """The prediction target of every variable, with a deviation of 1 in the training rows."""

    train: np.ndarray  # (n, d)
    held: np.ndarray  # (m, d)
    persistent: np.ndarray
    """(d,) variables of which the change is predicted."""
    memory: np.ndarray
    """(d,) partial R^2 of the own present."""
    moving: np.ndarray
    """(d,) variables that ever change."""

    @classmethod
    def of(cls, train: Transitions, held: Transitions) -> Targets:
        memory, moving = self_memory(train), moving_variables(train)
        persistent = memory > PERSISTENT
        columns = [
            np.stack([target_values(part, i, bool(persistent[i])) for i in range(len(memory))], 1)
            for part in (train, held)
        ]
        centre, scale = columns[0].mean(0), columns[0].std(0)
        scaled = [(part - centre) / np.where(scale > 0, scale, 1.0) for part in columns]
        return cls(scaled[0], scaled[1], persistent & moving, memory, moving)


@dataclass(frozen=True)
class Regression:
    """Ridge regression of many targets; leaving out an input is a correction of the weights, not another fit."""

    weights: np.ndarray  # (F, K)
    deviation: np.ndarray
    """(K,) of the residuals in training."""
    owner: np.ndarray
    """(F,) the input that each feature belongs to."""
    inverse: np.ndarray
    """(F, F) of the features' second moments."""
    centre: np.ndarray  # (F,)

    @classmethod
    def fit(cls, features: np.ndarray, owner: np.ndarray, targets: np.ndarray) -> Regression:
        """Targets have mean 0."""
        centre = features.mean(0)
        features = features - centre
        moments = features.T @ features / len(features)
        size = np.trace(moments) / len(moments)
        inverse = np.linalg.inv(moments + RIDGE * max(size, 1e-12) * np.eye(len(moments)))
        inverse = (inverse + inverse.T) / 2
        weights = inverse @ (features.T @ targets / len(features))
        deviation = np.maximum((targets - features @ weights).std(0), NOISE_FLOOR)
        return cls(weights, deviation, owner, inverse, centre)

    def predict(self, features: np.ndarray) -> np.ndarray:
        return (features - self.centre) @ self.weights

    def without(self, j: int) -> Regression:
        """The fit without input j: its squared residual grows by b' (P_jj)^-1 b, with b the input's weights."""
        own = np.flatnonzero(self.owner == j)
        block = np.linalg.solve(self.inverse[np.ix_(own, own)], self.weights[own])  # (own, K)
        weights = self.weights - self.inverse[:, own] @ block
        weights[own] = 0.0
        worse = np.maximum((self.weights[own] * block).sum(0), 0)
        return replace(self, weights=weights, deviation=np.sqrt(self.deviation**2 + worse))

    def importance(self) -> np.ndarray:
        """(inputs, K) half the log of how much the squared residual grows without each input."""
        count = int(self.owner.max()) + 1
        return np.stack([np.log(self.without(j).deviation / self.deviation) for j in range(count)])


@dataclass(frozen=True)
class Hats:
    """Piecewise linear functions of one column: hat k is 1 at knot k, 0 at all others."""

    knots: np.ndarray

    @classmethod
    def fit(cls, column: np.ndarray) -> Hats:
        return cls(np.unique(np.quantile(column, np.linspace(0.005, 0.995, KNOTS))))

    @property
    def size(self) -> int:
        """All hats sum to 1, so the first is left out; the column itself extends beyond the outer knots."""
        return len(self.knots)

    def __call__(self, column: np.ndarray) -> np.ndarray:
        if len(self.knots) == 1:
            return np.zeros((len(column), 1))
        first, last = self.knots[0], self.knots[-1]
        place = np.interp(column, self.knots, np.arange(len(self.knots)))
        hats = np.maximum(1 - np.abs(place[:, None] - np.arange(1, len(self.knots))), 0)
        beyond = (np.minimum(column - first, 0) + np.maximum(column - last, 0)) / (last - first)
        return np.concatenate([hats, beyond[:, None]], 1)


class Boosting:
    """Boosted trees on what a linear fit leaves; inputs are binned once, whichever of them a model may use."""

    def __init__(self, features: np.ndarray, held_features: np.ndarray, owner: np.ndarray, seed: int):
        self.lightgbm = import_lightgbm()
        self.features, self.held_features, self.owner = features, held_features, owner
        quiet = {"verbosity": -1}
        self.table = self.lightgbm.Dataset(features, free_raw_data=False, params=quiet)
        self.checked = np.random.default_rng([seed, 67]).random(len(features)) < EARLY_SHARE
        self.early = self.lightgbm.Dataset(features[~self.checked], free_raw_data=False, params=quiet)
        self.check = self.early.create_valid(features[self.checked])
        self.rounds = ROUNDS
        self.options: dict[str, Any] = {
            "objective": "regression", "num_leaves": LEAVES, "learning_rate": 0.1, "verbosity": -1,
            "num_threads": 1, "seed": seed, "deterministic": True,
        }  # fmt: skip

    def choose_rounds(self, fit: Regression, targets: Targets, i: int) -> None:
        """Choose the number of trees, for the full model and its refits, on training rows that trees have not seen."""
        residual = (targets.train[:, i] - (self.features - fit.centre) @ fit.weights[:, i]) / fit.deviation[i]
        self.early.set_label(residual[~self.checked])
        self.check.set_label(residual[self.checked])
        stop = self.lightgbm.early_stopping(10, verbose=False)
        options = self.options | {"metric": "l2"}
        model = self.lightgbm.train(options, self.early, ROUNDS, valid_sets=[self.check], callbacks=[stop])
        self.rounds = max(model.best_iteration, 1)

    def log_likelihood(
        self, fit: Regression, targets: Targets, i: int, left_out: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(m,) of target i on the held-out rows, without one input, and (inputs,) the squared error trees save."""
        weights = fit.weights[:, i]
        residual = targets.train[:, i] - (self.features - fit.centre) @ weights
        usable = np.flatnonzero(self.owner != left_out).tolist()
        self.table.set_label(residual / fit.deviation[i])
        model = self.lightgbm.train(self.options | {"interaction_constraints": [usable]}, self.table, self.rounds)
        guess = (self.held_features - fit.centre) @ weights + fit.deviation[i] * model.predict(self.held_features)
        # Training residuals of trees are too small, so the noise is measured on rows that they have not seen.
        wrong = targets.held[:, i] - guess
        deviation = max(float(np.sqrt((wrong**2).mean())), NOISE_FLOOR)
        saved = np.bincount(self.owner, model.feature_importance("gain"), minlength=int(self.owner.max()) + 1)
        return _log_likelihood(targets.held[:, i], guess, np.array(deviation)), saved / len(residual)


def _features(hats: list[Hats], data: Transitions) -> np.ndarray:
    columns = input_columns(data)[0]
    return np.concatenate([hat(column) for hat, column in zip(hats, columns.T, strict=True)], 1)


def _log_likelihood(values: np.ndarray, guess: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Gaussian, up to a constant."""
    return np.asarray(-np.log(deviation) - ((values - guess) / deviation) ** 2 / 2)


def _units(episode: np.ndarray) -> np.ndarray:
    """Units over which errors are computed: held-out episodes, or blocks of rows if there are too few."""
    _, unit = np.unique(episode, return_inverse=True)
    if unit.max() + 1 >= FEWEST_EPISODES:
        return np.asarray(unit)
    return np.arange(len(episode)) * min(BLOCKS, len(episode)) // len(episode)


def _mean_and_error(gain: np.ndarray, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (K,) of gains (m, K), and its standard error over the units."""
    mean = gain.mean(0)
    count = int(unit.max()) + 1
    sums = np.stack([np.bincount(unit, column, minlength=count) for column in (gain - mean).T], 1)
    return mean, np.sqrt((sums**2).sum(0) * count / (count - 1)) / len(gain)


def _decided(targets: Targets, gains: np.ndarray, errors: np.ndarray, least: float, start: float) -> Baseline:
    found = (gains > SURE * errors) & (gains > least)
    scores = gains.copy()
    known = np.flatnonzero(targets.persistent | ~targets.moving)
    scores[known, known], found[known, known] = np.inf, True
    still = ~targets.moving
    others = still[:, None] & ~np.eye(len(still), len(still) + 1, dtype=bool)
    scores[others], found[others] = 0.0, False
    return Baseline(scores, found, time.perf_counter() - start)
