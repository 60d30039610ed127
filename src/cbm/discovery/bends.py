"""A closed form with hinges on a combination of its inputs: a limit at which a sum is cut off, or a distance.

Such an outcome is a function of a sum, and not a sum of functions of single inputs.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from cbm.discovery.regression import Basis, Gram
from cbm.discovery.settings import BENDS, BLOCK, INDEX_HINGES, INDEX_OUTCOMES, RIDGES


class Bent:
    """Functions of single inputs together with hinges on one or two combinations of them."""

    def __init__(self, features: np.ndarray, gram: Gram, moments: np.ndarray, keep: np.ndarray, bends: np.ndarray):
        """`keep` are the features in use; `bends` (T, B) the hinges on combinations."""
        self.features, self.gram, self.moments, self.keep, self.bends = features, gram, moments, keep, bends

    def predictions(self, y: np.ndarray, ridge: float, rows: slice) -> np.ndarray:
        """(T, 1) predictions for some rows, relative to the mean; `y` (n, 1) is the centred target of the training
        rows."""
        n, split = self.gram.rows, len(self.moments)
        gram = self.gram.joined(self.features[:n], self.bends[:n])
        moments = np.concatenate([self.moments, self.bends[:n].T @ y])
        weights = gram.solve(moments, np.concatenate([self.keep, np.arange(split, len(moments))]), ridge)
        told = self.features[rows] @ weights[:split] + self.bends[rows] @ weights[split:]
        return np.asarray(told - gram.mean @ weights)


def limits(
    features: np.ndarray, gram: Gram, moments: np.ndarray, linear: np.ndarray, before: np.ndarray | None
) -> np.ndarray:
    """(T, B) hinges on the predicted change and, if the target is a change (of `before`), on the resulting value: a
    motor at its limit, a tank that is full. `linear` are the features that are columns themselves."""
    weights = gram.solve(moments, linear, RIDGES[0])
    change = (features[:, linear] @ weights[linear]) - gram.mean[linear] @ weights[linear]
    sums = [change] if before is None else [change, change + before[:, None]]
    return _hinges(np.concatenate(sums, 1), gram.rows, BENDS)


class Index:
    """The quadratic form of the inputs that goes best with some function of the outcome: a squared distance, if the
    outcome is a function of that.

    Both are found together, in closed form, as the first canonical correlation of all squares and products of the
    inputs with a basis of functions of the outcome. Leaving an input out means leaving out its rows and columns.
    Squares and products are computed block by block and never held for all rows.
    """

    def __init__(self, basis: Basis, x: np.ndarray, most: int, y: np.ndarray):
        """`x` (T, C) are the columns of `basis`; `y` (n, 1) is the target of the training rows, which come first.

        If there are more than `most` squares and products, there is no form.
        """
        self.basis, self.x, self.most, n = basis, x, most, len(y)
        self.owner = basis.squares(x[:1], most)[1]
        outcome = Basis.fit(y, np.zeros((1, 2), int), INDEX_OUTCOMES).features(y)[0]
        outcome = (outcome - outcome.mean(0)) / np.maximum(outcome.std(0), 1e-12)
        size = len(self.owner)
        total, products, self.moments = np.zeros(size), np.zeros((size, size)), np.zeros((size, outcome.shape[1]))
        for rows in self._blocks(n):
            squares = basis.squares(x[rows], most)[0]
            total += squares.sum(0)
            products += squares.T @ squares
            self.moments += squares.T @ outcome[rows]
        self.gram = Gram(products - np.outer(total, total) / n, total / n, n)
        self.outcome = outcome.T @ outcome / n + RIDGES[0] * np.eye(outcome.shape[1])

    def hinges(self, hidden: set[int]) -> np.ndarray:
        """(T, B) hinges on the form of the inputs that are not hidden."""
        keep = np.flatnonzero(~np.isin(self.owner, list(hidden)).any(1))
        weights = self.gram.solve(self.moments, keep, RIDGES[0])
        explained = self.moments.T @ weights / self.gram.rows
        best = linalg.eigh((explained + explained.T) / 2, self.outcome)[1][:, -1:]
        blocks = self._blocks(len(self.x))
        form = np.concatenate([self.basis.squares(self.x[rows], self.most)[0] @ (weights @ best) for rows in blocks])
        return _hinges(form, self.gram.rows, INDEX_HINGES, True)

    @staticmethod
    def _blocks(rows: int) -> list[slice]:
        return [slice(start, min(start + BLOCK, rows)) for start in range(0, rows, BLOCK)]


def _hinges(sums: np.ndarray, rows: int, hinges: int, linear: bool = False) -> np.ndarray:
    """(T, B) hinges on each column, with knots from the first `rows`; with `linear` also the column itself."""
    z = (sums - sums[:rows].mean(0)) / np.maximum(sums[:rows].std(0), 1e-12)
    basis = Basis.fit(z[:rows], np.zeros((z.shape[1], 2), int), hinges)
    features = basis.features(z)[0]
    return features if linear else np.delete(features, basis.linear(), 1)
