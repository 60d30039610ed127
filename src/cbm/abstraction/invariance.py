"""Invariant causal prediction (Peters et al. 2016): finds the causes of a target from data of several environments.

Given a target's parents, its conditional distribution is the same in every environment that does not intervene on the
target itself. So each set of inputs is tested: the target is regressed on it over all environments together, and the
residuals must have the same mean and variance in all of them. The intersection of all accepted sets contains only
causes, at the level of the test. Only numpy and scipy are used.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from scipy import special

from cbm.abstraction.table import Regression

FEATURES = 80  # random features of the nonlinear regression
RIDGE = 1e-6  # relative; keeps the solution unique if inputs repeat each other
EXACT = 1e-9  # a set is accepted if it leaves less than this share of the variance unexplained


@dataclass(frozen=True)
class Inputs:
    """The possible causes of a target, row by row."""

    columns: np.ndarray
    """(n, C) columns of the candidates, in comparable units."""
    owner: np.ndarray
    """(C,) the candidate that each column belongs to, 0 … k-1."""
    always: np.ndarray
    """(n, a) columns that every regression includes."""
    environment: np.ndarray
    """(n,) environment labels."""

    @property
    def candidates(self) -> int:
        return int(self.owner.max()) + 1

    def of(self, candidates: list[int]) -> np.ndarray:
        return self.columns[:, np.isin(self.owner, candidates)]


@dataclass(frozen=True)
class Verdict:
    """The intersection of the accepted sets."""

    parents: np.ndarray
    """(k,) booleans; none if no set was accepted, or the empty one was."""
    accepted: int
    """Number of accepted sets; sets that could not change the answer are not tested."""
    tested: int


def invariant_parents(
    inputs: Inputs, target: np.ndarray, level: float, most: int, regression: Regression = "linear", seed: int = 0
) -> Verdict:
    """Causes of `target` among the candidates; the search covers the `most` candidates that explain it best."""
    model = Model(inputs, None if regression == "linear" else np.random.default_rng([seed, 31]))
    return search(model, target, preselect(model, target, most), level)


def search(model: Model, target: np.ndarray, chosen: list[int], level: float) -> Verdict:
    """The intersection of all accepted subsets of `chosen`, tested in order of size.

    A set that contains the intersection so far cannot change it and is skipped.
    """
    common: frozenset[int] | None = None
    accepted = tested = 0
    for size in range(len(chosen) + 1):
        for subset in itertools.combinations(chosen, size):
            if common is not None and common <= set(subset):
                continue
            tested += 1
            if passes(model.residual(target, list(subset)), target, model.inputs.environment, level):
                accepted += 1
                common = frozenset(subset) if common is None else common & set(subset)
    parents = np.zeros(model.inputs.candidates, bool)
    parents[sorted(common or ())] = True
    return Verdict(parents, accepted, tested)


def passes(residual: np.ndarray, target: np.ndarray, environment: np.ndarray, level: float) -> bool:
    """Whether residuals have the same mean and variance in each environment as in the others, with Bonferroni
    correction."""
    if residual.var() <= EXACT * target.var():
        return True
    names = np.unique(environment)
    sides = names if len(names) > 2 else names[:1]  # of two environments, each is the other's complement
    for name in sides:
        parts = residual[environment == name], residual[environment != name]
        mean = welch(*parts)
        spread = welch(*(np.abs(part - np.median(part)) for part in parts))  # Levene's test, around medians
        if 2 * len(sides) * min(mean, spread) < level:
            return False
    return True


def preselect(model: Model, target: np.ndarray, most: int) -> list[int]:
    """Repeatedly adds the candidate that explains most of the residual, until none helps (BIC) or there are `most`.

    The search is correct only if the candidates left out are no parents: the usual price of many variables.
    """
    n, chosen = len(target), list[int]()
    left = model.residual(target, [], additive=True)
    while len(chosen) < min(most, model.inputs.candidates) and left.var() > EXACT * target.var():
        rest = [j for j in range(model.inputs.candidates) if j not in chosen]
        best = min(rest, key=lambda j: float(model.alone(left, j).var()))
        after = model.residual(target, [*chosen, best], additive=True)
        if n * np.log(left.var() / max(after.var(), 1e-300)) < model.pieces[best].shape[1] * np.log(n):
            break
        chosen.append(best)
        left = after
    return sorted(chosen)


class Model:
    """Least squares on any set of candidates: linear or, given a random generator, with random rectified features of
    the set."""

    def __init__(self, inputs: Inputs, rng: np.random.Generator | None = None):
        self.inputs, self.rng = inputs, rng
        self.base = np.concatenate([np.ones((len(inputs.columns), 1)), inputs.always], 1)
        blocks = [inputs.of([j]) for j in range(inputs.candidates)]
        self.pieces = blocks if rng is None else [_hinges(block) for block in blocks]
        """For each candidate, the functions of it that preselection uses."""
        if rng is not None:
            self.direction = rng.normal(size=(inputs.columns.shape[1], FEATURES))
            self.offset = rng.normal(size=FEATURES)

    def residual(self, target: np.ndarray, subset: list[int], additive: bool = False) -> np.ndarray:
        """The part of the target that the set does not explain; `additive` leaves out interactions."""
        if additive or not subset:
            return _solve([self.base, *(self.pieces[j] for j in subset)], target)
        columns = self.inputs.of(subset)
        if self.rng is None:
            return _solve([self.base, columns], target)
        own = self.direction[np.isin(self.inputs.owner, subset)] / columns.shape[1] ** 0.5
        return _solve([self.base, columns, np.maximum(columns @ own + self.offset, 0)], target)

    def alone(self, left: np.ndarray, candidate: int) -> np.ndarray:
        """The part of a residual that a single candidate does not explain."""
        return _solve([self.base[:, :1], self.pieces[candidate]], left)


def _solve(blocks: list[np.ndarray], target: np.ndarray) -> np.ndarray:
    """Residual of a regression with a tiny ridge penalty, relative to each column's size."""
    design = np.concatenate(blocks, 1)
    gram = design.T @ design
    gram[np.diag_indices_from(gram)] = gram.diagonal() * (1 + RIDGE) + 1e-12
    return np.asarray(target - design @ np.linalg.solve(gram, design.T @ target))


def _hinges(block: np.ndarray) -> np.ndarray:
    """Columns as piecewise-linear functions with knots at their quantiles."""
    knots = [np.unique(np.quantile(column, (0.2, 0.4, 0.6, 0.8))) for column in block.T]
    bent = [np.maximum(column[:, None] - knot, 0) for column, knot in zip(block.T, knots, strict=True)]
    return np.concatenate([block, *bent], 1)


def welch(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided p-value of equal means, when variances may differ."""
    spread = np.array([part.var(ddof=1) / len(part) for part in (first, second)])
    if spread.sum() <= 0:
        return 1.0
    degrees = spread.sum() ** 2 / (spread[0] ** 2 / (len(first) - 1) + spread[1] ** 2 / (len(second) - 1))
    return float(2 * special.stdtr(degrees, -abs(first.mean() - second.mean()) / spread.sum() ** 0.5))
