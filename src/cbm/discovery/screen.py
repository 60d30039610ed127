"""Screening: which inputs may matter to a target, that is, all that a quick look at every input cannot rule out.

Two methods, each blind to what the other sees. A sum of functions of single inputs, in closed form for all targets at
once, tests each input given all others. Boosted trees on its residual find thresholds and interactions; an input counts
if its splits gain more than those of shadows. Neither makes decisions: they only rank.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cbm.discovery.dataset import Dataset
from cbm.discovery.evidence import nats_lost
from cbm.discovery.regression import Basis, solve_positive
from cbm.discovery.settings import (
    BLOCK,
    CONSTANT,
    HINGES,
    LOOK_ROUNDS,
    MOST_FEATURES,
    OWN_VARIATION,
    REPETITION,
    RIDGE,
    ROWS_PER_FEATURE,
)
from cbm.discovery.trees import Trees, gains_of


@dataclass(frozen=True)
class Additive:
    """Results of the closed form on all inputs, for every target column."""

    wald: np.ndarray
    """(Q, J) Wald statistic of each input given all others, in deviations of a chi-square above its mean; J has
    shadows."""
    grouped: np.ndarray
    """(Q, J) the same for an input together with its whole bundle."""
    bundle: np.ndarray
    """(J,) number of each variable's bundle: variables that hardly vary independently of each other, given the
    exogenous inputs; -1 if it is in none."""
    shown: np.ndarray
    """(J,) the exogenous input given which a variable hardly varies; -1: none."""
    nats: np.ndarray
    """(Q, J) nats of a target that the closed form loses without an input, given all others."""
    residual: np.ndarray
    """(T, Q) the residual of each target column."""
    repeats: np.ndarray
    """(J,) variables that merely repeat an exogenous input: the previous action or, for rewards, the action."""
    last_action: np.ndarray
    """(Q, 2) nats lost on held-out episodes without the previous action and all that repeats it, and their errors."""


def additive(data: Dataset, rows: np.ndarray, bundle: np.ndarray | None = None) -> Additive:
    """Fitted to `rows` (indices), with the residual of all rows. `bundle` is given if it is known already."""
    owner = data.owner
    hinges = int(np.clip(MOST_FEATURES // len(owner) - 1, 0, HINGES))
    some = rows[:: max(1, len(rows) // 20_000)]
    basis = Basis.fit(data.columns[some], np.stack([owner, owner], 1), hinges)
    of = np.array(basis.singles(), int)[:, 0]
    blocks = [np.flatnonzero(of == j) for j in range(int(owner.max()) + 1)]
    fit = _Fit.of(data, basis, rows)
    wald = fit.excess(blocks)
    whole = bundle is None  # then reported values come from a fit to all rows
    view = _View.of(data, some)
    bundle = _bundles(view, fit, blocks, basis.linear(), len(rows)) if bundle is None else bundle
    grouped = wald.copy()
    for b in range(int(bundle.max(initial=-1)) + 1):
        members = np.flatnonzero(bundle == b)
        grouped[:, members] = fit.excess([np.concatenate([blocks[j] for j in members])])
    every = np.arange(len(data.y)) if whole else rows
    use = (_Fit.of(data, basis, every).excess(blocks) if whole else wald) * np.sqrt([2 * len(own) for own in blocks])
    nats = 0.5 * np.log1p(np.clip(use, 0, None) / len(every))
    low, high = data.columns[rows].min(0), data.columns[rows].max(0)
    residual = fit.residual(data, basis, low, high)
    repeats = view.closely(REPETITION) >= 0
    last = np.zeros((0, 2))
    if whole and data.inputs > data.action + 1:
        hidden = np.concatenate([blocks[j] for j in (*np.flatnonzero(repeats), data.action + 1)])
        last = _worth(
            residual, fit.without(hidden).residual(data, basis, low, high), np.setdiff1d(every, rows), data.cluster
        )
    return Additive(wald, grouped, bundle, view.closely(OWN_VARIATION), nats, residual, repeats, last)


def _worth(residual: np.ndarray, without: np.ndarray, new: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """(Q, 2) nats lost on the `new` rows, and their standard errors."""
    squares = residual[new] ** 2, without[new] ** 2
    group = np.unique(cluster[new], return_inverse=True)[1]
    return np.array([nats_lost(squares[0][:, q], squares[1][:, q], group) for q in range(residual.shape[1])])


@dataclass(frozen=True)
class _Fit:
    """The regression of every target column on all features."""

    inverse: np.ndarray
    """(F, F) inverse of `matrix`."""
    matrix: np.ndarray
    """(F, F) Gram matrix of the features, each scaled to unit size."""
    weights: np.ndarray
    """(F, Q) coefficients of the scaled features."""
    scale: np.ndarray
    mean: np.ndarray
    y_mean: np.ndarray
    noise: np.ndarray
    """(Q,) residual variance."""

    @classmethod
    def of(cls, data: Dataset, basis: Basis, rows: np.ndarray) -> _Fit:
        gram, moments, mean, y_mean, squares = _moments(data, basis, rows)
        scale = 1 / np.sqrt(np.maximum(gram.diagonal(), CONSTANT * len(rows)))
        matrix = gram * scale[:, None] * scale
        matrix[np.diag_indices_from(matrix)] += RIDGE
        inverse = solve_positive(matrix, np.eye(len(matrix)))
        weights = inverse @ (moments * scale[:, None])
        left = squares - (weights * moments * scale[:, None]).sum(0)
        noise = np.maximum(left, 1e-8 * squares + 1e-12) / max(len(rows) - len(matrix) - 1, 1)
        return cls(inverse, matrix, weights, scale, mean, y_mean, noise)

    def excess(self, blocks: list[np.ndarray]) -> np.ndarray:
        """(Q, blocks) Wald statistic of each block of features, given all others: how far it exceeds that of useless
        ones.

        In deviations of a chi-square.
        """
        return np.stack([self._excess(own) for own in blocks], 1)

    def _excess(self, own: np.ndarray) -> np.ndarray:
        if not len(own):
            return np.zeros(len(self.noise))
        block = solve_positive(self.inverse[np.ix_(own, own)], self.weights[own])
        return np.asarray(((self.weights[own] * block).sum(0) / self.noise - len(own)) / np.sqrt(2 * len(own)))

    def own_share(self, blocks: list[np.ndarray], linear: np.ndarray, rows: int) -> np.ndarray:
        """(J,) largest share of any of an input's columns that a sum of functions of all other inputs leaves
        unexplained. `linear` are the features that are columns themselves.

        With few rows such a sum explains anything, and all shares are 1.
        """
        share = np.ones(len(blocks))
        if rows < ROWS_PER_FEATURE * len(self.inverse):
            return share
        for j, own in enumerate(blocks):
            if len(own):
                left = solve_positive(self.inverse[np.ix_(own, own)], np.eye(len(own))).diagonal()
                share[j] = left[np.isin(own, linear)].max()
        return share

    def closest(self, j: int, blocks: list[np.ndarray]) -> int:
        """The other input whose functions explain most of input j's first column."""
        column, best, partner = blocks[j][0], 0.0, j
        for i, own in enumerate(blocks):
            if i != j and len(own):
                together = self.matrix[own, column]
                explained = float(together @ solve_positive(self.matrix[np.ix_(own, own)], together))
                if explained > best:
                    best, partner = explained, i
        return partner

    def without(self, own: np.ndarray) -> _Fit:
        """The regression without some features: a correction of the weights instead of a new fit."""
        block = solve_positive(self.inverse[np.ix_(own, own)], self.weights[own])
        weights = self.weights - self.inverse[:, own] @ block
        weights[own] = 0.0
        return replace(self, weights=weights)

    def residual(self, data: Dataset, basis: Basis, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """(T, Q) of all rows; inputs beyond `low` and `high` (C,) count as there, since curves are not continued."""
        result = np.empty_like(data.y)
        for start in range(0, len(result), BLOCK):
            part = slice(start, start + BLOCK)
            features = basis.features(np.clip(data.columns[part], low, high))[0] - self.mean
            result[part] = data.y[part] - self.y_mean - features @ (self.weights * self.scale[:, None])
        return result


def _moments(
    data: Dataset, basis: Basis, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Centred sums over rows, block by block, so that memory does not grow with the number of rows."""
    first = basis.features(data.columns[rows[:BLOCK]])[0]
    about, y_about = first.mean(0), data.y[rows[:BLOCK]].mean(0)  # centring near the mean avoids cancellation
    size, count = first.shape[1], data.y.shape[1]
    gram, moments, total = np.zeros((size, size)), np.zeros((size, count)), np.zeros(size)
    y_total, squares = np.zeros(count), np.zeros(count)
    for start in range(0, len(rows), BLOCK):
        part = rows[start : start + BLOCK]
        features = basis.features(data.columns[part])[0] - about
        y = data.y[part] - y_about
        gram += features.T @ features
        moments += features.T @ y
        total, y_total, squares = total + features.sum(0), y_total + y.sum(0), squares + (y**2).sum(0)
    n = len(rows)
    gram -= np.outer(total, total) / n
    moments -= np.outer(total, y_total) / n
    return gram, moments, about + total / n, y_about + y_total / n, squares - y_total**2 / n


@dataclass(frozen=True)
class _View:
    """Variables as models see them: the exogenous inputs are always in view, so linear functions of these are
    removed."""

    data: Dataset
    x: np.ndarray
    """(rows, C) columns of the real inputs that are not exogenous, minus linear functions of the exogenous ones."""
    owner: np.ndarray
    shown: np.ndarray
    """(exogenous inputs, C) share of each column that each exogenous input leaves unexplained."""
    several: np.ndarray
    """(C,) whether the input has other columns, too: those of an angle or of categories are related by construction."""
    moving: np.ndarray
    """(C,) whether the column belongs to a variable and ever varies: a constant repeats nothing."""

    @classmethod
    def of(cls, data: Dataset, some: np.ndarray) -> _View:
        real = np.flatnonzero(data.owner < data.exogenous)
        x, owner = data.columns[np.ix_(some, real)], data.owner[real]
        several = (owner[:, None] == owner).sum(1) > 1
        left = [_residuals(x, data.columns[np.ix_(some, data.owner == e)]) for e in range(data.exogenous, data.inputs)]
        spread = np.maximum(x.var(0), 1e-12)
        shown = np.array([part.var(0) / spread for part in left]).reshape(-1, x.shape[1])
        given = data.columns[np.ix_(some, (data.owner >= data.exogenous) & (data.owner < data.inputs))]
        moving = (x.std(0) > 0) & (owner < data.action)  # the action's columns may repeat each other
        return cls(data, _residuals(x, given), owner, np.where(several, 1.0, shown), several, moving)

    def closely(self, share: float) -> np.ndarray:
        """(J,) the exogenous input that leaves less than this share of a variable unexplained; -1: none does."""
        result = np.full(int(self.data.owner.max()) + 1, -1)
        if len(self.shown):
            close = (self.shown.min(0) < share) & self.moving
            result[self.owner[close]] = self.data.exogenous + self.shown.argmin(0)[close]
        return result

    def closest(self, c: int) -> int:
        """The other input most correlated with column c."""
        together = np.abs((self.x - self.x.mean(0)).T @ (self.x[:, c] - self.x[:, c].mean()))
        together /= np.maximum(self.x.std(0), 1e-12)
        together[self.owner == self.owner[c]] = -1.0
        return int(self.owner[together.argmax()])


def _bundles(view: _View, fit: _Fit, blocks: list[np.ndarray], linear: np.ndarray, rows: int) -> np.ndarray:
    """(J,) bundles of inputs that hardly vary independently: the others explain all but a small share of what remains
    of one given the exogenous inputs.

    Such a variable joins the input that explains most of it. A constant variable joins none.
    """
    data, owner = view.data, view.owner
    unshown = view.shown.min(0, initial=1.0)
    alone = np.where(view.several, 1.0, _own_share(view.x))
    alone = np.minimum(alone, fit.own_share(blocks, linear, rows)[owner] / np.maximum(unshown, REPETITION))
    alone[unshown < REPETITION] = 1.0  # a repetition of an exogenous input is no candidate
    bundle = np.full(int(data.owner.max()) + 1, -1)
    links = np.arange(len(bundle))
    for c in np.flatnonzero((alone < OWN_VARIATION) & view.moving):
        partner = view.closest(int(c)) if len(view.shown) else fit.closest(int(owner[c]), blocks[: data.inputs])
        links[links == links[owner[c]]] = links[partner]
    for number, root in enumerate(r for r in np.unique(links) if (links == r).sum() > 1):
        bundle[links == root] = number
    return bundle


def _residuals(x: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Columns minus the linear function of `given` that fits them best."""
    if not given.shape[1]:
        return x
    design = np.column_stack([given, np.ones(len(x))])
    return np.asarray(x - design @ np.linalg.lstsq(design, x, rcond=None)[0])


def _own_share(x: np.ndarray) -> np.ndarray:
    """(C,) share of each column that a linear function of all others leaves unexplained.

    The reciprocal of the diagonal of the inverse correlation matrix.
    """
    spread = x.std(0)
    z = (x - x.mean(0)) / np.where(spread > 0, spread, 1.0)
    correlation = z.T @ z / len(z)
    matrix = correlation + RIDGE * np.eye(x.shape[1])
    return np.asarray(1 / np.maximum(solve_positive(matrix, np.eye(len(matrix))).diagonal(), 1.0))


def product_scores(x: np.ndarray, owner: np.ndarray, residual: np.ndarray, count: int) -> np.ndarray:
    """(J,) largest z-score of an input's products with others in the residual: two signs that matter only together.

    Trees cannot find such a pair, since neither of the two gains anything alone. All pairs cost two matrix products.
    """
    squares, best = x**2, np.zeros(count)
    apart = owner[:, None] != owner[None]
    for r in residual.T:
        z = np.abs(x.T @ (r[:, None] * x)) / np.sqrt(squares.T @ ((r**2)[:, None] * squares) + 1e-12)
        np.maximum.at(best, owner, np.where(apart, z, 0.0).max(1, initial=0.0))
    return best


def tree_gains(trees: Trees, inputs: int, residual: np.ndarray) -> tuple[np.ndarray, int]:
    """(J,) gain of each input's splits in a model of one target's residual (T, q), relative to a shadow's gain.

    And the number of boosting rounds that validation rows support: zero where nothing is left to find.
    """
    owner, fit = trees.owner, trees.fit
    gains, most = np.zeros(int(owner.max()) + 1), 0
    for q in range(residual.shape[1]):
        unit = max(float(residual[fit, q].std()), 1e-9)
        model, used = trees.train(residual[:, q] / unit, set(), LOOK_ROUNDS, watch=True)
        gains += gains_of(model, used, owner)
        most = max(most, used)
    usual = max(float(gains[inputs:].max(initial=0.0)), 1e-9 * gains.max(initial=0.0), 1e-12)
    return np.asarray(gains / usual), most
