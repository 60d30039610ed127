"""Regression in closed form under every mask: sums of functions of single inputs, and of products of two.

Each column enters as itself and as a few hinge functions at quantiles, so that linear laws are exact and bends are
followed. One Gram matrix serves every mask: leaving an input out means leaving out its rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

HINGES = 7  # per column, at most
MOST_PRODUCTS = 480  # features of order two; beyond it, only plain products
CONSTANT = 1e-12  # variance, in units of the column's, below which a feature says nothing


@dataclass(frozen=True)
class Basis:
    """Functions of the columns that belong to some inputs; fitted to training rows."""

    owner: tuple[tuple[int, int], ...]
    """The input (or two) that each column belongs to."""
    knots: tuple[np.ndarray, ...]
    """Where each column's hinges are."""

    @classmethod
    def fit(cls, x: np.ndarray, owner: np.ndarray, hinges: int = HINGES) -> Basis:
        """From training rows (T, C); `owner` (C, 2) says which inputs a column belongs to."""
        knots = tuple(_knots(x[:, c], hinges) for c in range(x.shape[1]))
        return cls(tuple((int(a), int(b)) for a, b in owner), knots)

    def singles(self) -> list[tuple[int, int]]:
        """The inputs that each function of one column belongs to."""
        return [own for own, knots in zip(self.owner, self.knots) for _ in range(1 + len(knots))]

    def features(self, x: np.ndarray, products: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(T, F) functions of one column each, then products of two; and (F, 2) the inputs they belong to."""
        plain = [k for k, (a, b) in enumerate(self.owner) if a == b] if products else []
        pairs = [(a, b) for n, a in enumerate(plain) for b in plain[n + 1 :] if self.owner[a] != self.owner[b]]
        rich = 4 * len(pairs) <= MOST_PRODUCTS
        low = {k: self._low(x, k, rich) for k in plain}
        owners = self.singles()
        owners += [(self.owner[a][0], self.owner[b][0]) for a, b in pairs for _ in range(len(low[a]) * len(low[b]))]
        result = np.empty((len(x), len(owners)), order="F")  # filled and read column by column
        f = 0
        for c, knots in enumerate(self.knots):
            result[:, f] = x[:, c]
            for k in knots:
                f += 1
                np.maximum(x[:, c] - k, 0, out=result[:, f])
            f += 1
        for a, b in pairs:
            for u in low[a]:
                for v in low[b]:
                    np.multiply(u, v, out=result[:, f])
                    f += 1
        return result, np.array(owners, int).reshape(-1, 2)

    def _low(self, x: np.ndarray, k: int, rich: bool) -> list[np.ndarray]:
        """The column, and one hinge in its middle."""
        z, knots = x[:, k], self.knots[k]
        return [z, np.maximum(z - knots[len(knots) // 2], 0)] if rich and len(knots) else [z]


def _knots(z: np.ndarray, hinges: int) -> np.ndarray:
    """Inner quantiles, or inner levels where there are few; none for a column with two values."""
    levels = np.unique(z[:5000])
    if len(levels) <= hinges + 2:
        levels = np.unique(z)
    if len(levels) <= hinges + 2:
        return levels[1:-1]
    inner = np.unique(np.quantile(z, np.linspace(0, 1, hinges + 2)[1:-1])) if hinges else levels[:0]
    return inner[(inner > levels[0]) & (inner < levels[-1])]


@dataclass
class Gram:
    """Sums over training rows from which a regression under any mask follows."""

    gram: np.ndarray
    mean: np.ndarray
    rows: int

    @classmethod
    def of(cls, features: np.ndarray) -> Gram:
        mean = features.mean(0)
        return cls(features.T @ features - len(features) * np.outer(mean, mean), mean, len(features))

    def solve(self, moments: np.ndarray, keep: np.ndarray, ridge: float) -> np.ndarray:
        """Coefficients of the features in `keep`, zero elsewhere; `ridge` is relative to each feature's own size."""
        result = np.zeros_like(moments)
        diagonal = self.gram.diagonal()
        keep = keep[diagonal[keep] > CONSTANT * self.rows]
        if not len(keep):
            return result
        scale = 1 / np.sqrt(diagonal[keep])
        matrix = self.gram[np.ix_(keep, keep)] * scale[:, None] * scale
        matrix[np.diag_indices_from(matrix)] += ridge
        right = moments[keep] * scale[:, None]
        result[keep] = solve_positive(matrix, right) * scale[:, None]
        return result


def solve_positive(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix^-1 right of a positive matrix that may be singular up to rounding."""
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(matrix, check_finite=False), right, check_finite=False))
    except linalg.LinAlgError:
        return np.asarray(linalg.lstsq(matrix, right, check_finite=False)[0])
