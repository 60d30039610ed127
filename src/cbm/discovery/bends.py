"""A closed form with hinges on its linear prediction: a motor at its limit, a tank that is full.

An outcome that is cut off at a limit is a function of a sum, and not a sum of functions of single inputs.
"""

from __future__ import annotations

import numpy as np

from cbm.discovery.regression import Basis, Gram
from cbm.discovery.settings import BENDS, RIDGES


class Bent:
    """Hinges on the predicted change and, if the target is a change, on the resulting value."""

    def __init__(
        self, features: np.ndarray, gram: Gram, moments: np.ndarray, keep: np.ndarray, linear: np.ndarray,
        before: np.ndarray | None,
    ):  # fmt: skip
        """`keep` are the features in use, and `linear` those among them that are columns themselves."""
        self.features, self.gram, self.moments, self.keep, n = features, gram, moments, keep, gram.rows
        weights = gram.solve(moments, linear, RIDGES[0])
        change = (features[:, linear] @ weights[linear]) - gram.mean[linear] @ weights[linear]
        sums = [change] if before is None else [change, change + before[:, None]]
        x = np.concatenate(sums, 1)
        x = (x - x[:n].mean(0)) / np.maximum(x[:n].std(0), 1e-12)
        basis = Basis.fit(x[:n], np.zeros((x.shape[1], 2), int), BENDS)
        self.bends = np.delete(basis.features(x)[0], basis.linear(), 1)

    def predictions(self, y: np.ndarray, ridge: float, rows: slice) -> np.ndarray:
        """(T, 1) predictions for some rows, relative to the mean; `y` (n, 1) is the centred target of the training
        rows."""
        n, split = self.gram.rows, len(self.moments)
        gram = self.gram.joined(self.features[:n], self.bends[:n])
        moments = np.concatenate([self.moments, self.bends[:n].T @ y])
        weights = gram.solve(moments, np.concatenate([self.keep, np.arange(split, len(moments))]), ridge)
        told = self.features[rows] @ weights[:split] + self.bends[rows] @ weights[split:]
        return np.asarray(told - gram.mean @ weights)
