"""A closed form with bends of what its linear part predicts: a motor that can do no more, a tank that is full.

What is cut off at a limit is a function of a sum, and no sum of functions.
"""

from __future__ import annotations

import numpy as np

from cbm.discovery.regression import Basis, Gram
from cbm.discovery.settings import BENDS, RIDGES


class Bent:
    """Bends of the predicted change and, where the target is a change, of what comes out."""

    def __init__(
        self, features: np.ndarray, gram: Gram, moments: np.ndarray, keep: np.ndarray, linear: np.ndarray,
        before: np.ndarray | None,
    ):  # fmt: skip
        """`keep` are the features in use, and `linear` those of them that are columns themselves."""
        self.features, self.gram, self.moments, self.keep, n = features, gram, moments, keep, gram.rows
        weights = gram.solve(moments, linear, RIDGES[0])
        change = (features[:, linear] @ weights[linear]) - gram.mean[linear] @ weights[linear]
        sums = [change] if before is None else [change, change + before[:, None]]
        x = np.concatenate(sums, 1)
        x = (x - x[:n].mean(0)) / np.maximum(x[:n].std(0), 1e-12)
        basis = Basis.fit(x[:n], np.zeros((x.shape[1], 2), int), BENDS)
        self.bends = np.delete(basis.features(x)[0], basis.linear(), 1)

    def predictions(self, y: np.ndarray, ridge: float, rows: slice) -> np.ndarray:
        """(T, 1) of some rows, about the mean; `y` (n, 1) centred target of the fitted rows."""
        n, split = self.gram.rows, len(self.moments)
        gram = self.gram.joined(self.features[:n], self.bends[:n])
        moments = np.concatenate([self.moments, self.bends[:n].T @ y])
        weights = gram.solve(moments, np.concatenate([self.keep, np.arange(split, len(moments))]), ridge)
        told = self.features[rows] @ weights[:split] + self.bends[rows] @ weights[split:]
        return np.asarray(told - gram.mean @ weights)
