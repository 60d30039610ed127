"""Regression in closed form under any mask of inputs: sums of functions of single inputs, and products.

Each column enters as itself and as hinge functions at quantiles, so that linear laws are exact and bends are followed.
One Gram matrix serves every mask: leaving an input out means leaving out its rows and columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from cbm.discovery.settings import (
    CONSTANT,
    HINGES,
    MOST_HINGES,
    MOST_POWERS,
    MOST_PRODUCTS,
    MOST_SINGLES,
    MOST_TRIPLES,
    POWER_REACH,
    ROWS_PER_SINGLE,
    TAIL,
)

Terms = list[tuple[np.ndarray, np.ndarray]]
"""Features, each as two factors."""
Owners = list[tuple[int, ...]]


@dataclass(frozen=True)
class Basis:
    """Functions of the columns of some inputs, with knots from training rows."""

    owner: tuple[tuple[int, int], ...]
    """The input (or two) that each column belongs to."""
    knots: tuple[np.ndarray, ...]
    """Positions of each column's hinges."""

    @classmethod
    def fit(cls, x: np.ndarray, owner: np.ndarray, hinges: int = HINGES) -> Basis:
        """From training rows (T, C); `owner` (C, 2) says which inputs a column belongs to."""
        knots = tuple(_knots(x[:, c], hinges) for c in range(x.shape[1]))
        return cls(tuple((int(a), int(b)) for a, b in owner), knots)

    def singles(self) -> list[tuple[int, int]]:
        """The inputs that each function of a single column belongs to."""
        return [own for own, knots in zip(self.owner, self.knots) for _ in range(1 + len(knots))]

    def linear(self) -> np.ndarray:
        """Indices of the columns themselves among these functions."""
        sizes = [1 + len(knots) for knots in self.knots]
        return np.cumsum([0, *sizes[:-1]])

    def features(self, x: np.ndarray, order: int = 1, most: int = MOST_POWERS) -> tuple[np.ndarray, np.ndarray]:
        """(T, F) functions of one column each, then products of two (order 2), or of two and three (order 3, none if
        there are too many of three), or monomials (order 4, at most `most`); and (F, W) the inputs they belong to."""
        blocks = self.singles()
        terms: Terms = []
        more: Owners = []
        if order == 2:
            terms, more = self._products(x)
        elif order == 3 and (triples := self._triples(x))[0]:
            twos = self._products(x)
            terms, more = twos[0] + triples[0], twos[1] + triples[1]
        elif order == 4:
            terms, more = self._powers(x, most)
        result = np.empty((len(x), len(blocks) + len(terms)), order="F")  # filled and read column by column
        f = 0
        for c, knots in enumerate(self.knots):
            result[:, f] = x[:, c]
            for k in knots:
                f += 1
                np.maximum(x[:, c] - k, 0, out=result[:, f])
            f += 1
        for term in terms:
            np.multiply(*term, out=result[:, f])
            f += 1
        width = max((len(own) for own in more), default=2)
        owners = [tuple(own) + (own[-1],) * (width - len(own)) for own in [*blocks, *more]]
        return result, np.array(owners, int).reshape(-1, width)

    def _plain(self) -> list[int]:
        return [k for k, (a, b) in enumerate(self.owner) if a == b]

    def _triples(self, x: np.ndarray) -> tuple[Terms, Owners]:
        """Products of columns of three inputs, none if there are too many. The product of a speed and the sine of an
        angle between two others, for example, carries no information unless all three are known."""
        plain = self._plain()
        chosen = [
            (a, b, c)
            for n, a in enumerate(plain)
            for m, b in enumerate(plain[n + 1 :], n + 1)
            for c in plain[m + 1 :]
            if len({self.owner[a], self.owner[b], self.owner[c]}) == 3
        ]
        if len(chosen) > MOST_TRIPLES:
            return [], []
        terms: Terms = [(x[:, a] * x[:, b], x[:, c]) for a, b, c in chosen]
        return terms, [tuple(self.owner[k][0] for k in three) for three in chosen]

    def _products(self, x: np.ndarray) -> tuple[Terms, Owners]:
        """Products of functions of columns of two inputs, as factors, and those inputs."""
        plain = self._plain()
        pairs = [(a, b) for n, a in enumerate(plain) for b in plain[n + 1 :] if self.owner[a] != self.owner[b]]
        rich = 4 * len(pairs) <= MOST_PRODUCTS
        low = {k: self._low(x, k, rich) for k in plain}
        terms: Terms = []
        owners: Owners = []
        for a, b in pairs:
            terms += [(u, v) for u in low[a] for v in low[b]]
            owners += [(self.owner[a][0], self.owner[b][0])] * (len(low[a]) * len(low[b]))
        return terms, owners

    def squares(self, x: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
        """(T, F) all columns, their squares and products, none if there are more than `most`; and (F, 2) the inputs
        they belong to."""
        plain, (terms, owners) = self._plain(), self._powers(x, most, 2)
        if not terms:
            return np.empty((len(x), 0)), np.empty((0, 2), int)
        result = np.empty((len(x), len(plain) + len(terms)), order="F")
        result[:, : len(plain)] = np.clip(x[:, plain], -POWER_REACH, POWER_REACH)
        for f, term in enumerate(terms, len(plain)):
            np.multiply(*term, out=result[:, f])
        return result, np.array([*(self.owner[k] for k in plain), *owners], int)

    def _powers(self, x: np.ndarray, most: int, largest: int = 5) -> tuple[Terms, Owners]:
        """Monomials of degree 2 to `largest`, each as a factor times a monomial of one degree less.

        For smooth laws of few inputs, as in simulators; columns are clipped because of outliers.
        """
        plain = self._plain()
        degree = max((d for d in range(2, largest + 1) if math.comb(len(plain) + d, d) <= most), default=1)
        unit = {k: np.clip(x[:, k], -POWER_REACH, POWER_REACH) / 3 for k in plain}
        lower: list[tuple[np.ndarray, tuple[int, ...]]] = [(unit[k], (k,)) for k in plain]
        terms, owners = [], []
        for d in range(2, degree + 1):
            grown = []
            for value, used in lower:
                for k in plain[plain.index(used[-1]) :]:
                    terms.append((value, unit[k]))
                    own = tuple(sorted({self.owner[c][0] for c in (*used, k)}))
                    owners.append(own if len(own) > 1 else own * 2)
                    if d < degree:
                        grown.append((value * unit[k], (*used, k)))
            lower = grown
        return terms, owners

    def _low(self, x: np.ndarray, k: int, rich: bool) -> list[np.ndarray]:
        """The column and, if `rich`, one hinge in its middle."""
        z, knots = x[:, k], self.knots[k]
        return [z, np.maximum(z - knots[len(knots) // 2], 0)] if rich and len(knots) else [z]


def _knots(z: np.ndarray, hinges: int) -> np.ndarray:
    """Inner quantiles, or inner levels where there are few; none for a column with two values."""
    levels = np.unique(z[:5000])
    if len(levels) <= hinges + 2:
        levels = np.unique(z)
    if len(levels) <= hinges + 2:
        return levels[1:-1]
    if not hinges:
        return levels[:0]
    even = hinges // 2 if hinges > HINGES else 0  # of many hinges half are evenly spaced, for bends where rows are few
    inner = np.quantile(z, np.linspace(0, 1, hinges - even + 2)[1:-1])
    low, high = np.quantile(z, [TAIL, 1 - TAIL])
    inner = np.unique(np.concatenate([inner, np.linspace(low, high, even)]))
    return inner[(inner > levels[0]) & (inner < levels[-1])]


@dataclass
class Gram:
    """Sums over training rows that determine the regression under any mask."""

    gram: np.ndarray
    mean: np.ndarray
    rows: int

    @classmethod
    def of(cls, features: np.ndarray) -> Gram:
        mean = features.mean(0)
        return cls(features.T @ features - len(features) * np.outer(mean, mean), mean, len(features))

    def joined(self, features: np.ndarray, more: np.ndarray) -> Gram:
        """With more features (T, M) appended to `features` (T, F), from which this one was computed."""
        mean = more.mean(0)
        across = features.T @ more - self.rows * np.outer(self.mean, mean)
        own = more.T @ more - self.rows * np.outer(mean, mean)
        return Gram(np.block([[self.gram, across], [across.T, own]]), np.concatenate([self.mean, mean]), self.rows)

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
    """matrix^-1 @ right, for a positive definite matrix that may be singular up to rounding."""
    try:
        return np.asarray(linalg.cho_solve(linalg.cho_factor(matrix, check_finite=False), right, check_finite=False))
    except linalg.LinAlgError:
        return np.asarray(linalg.lstsq(matrix, right, check_finite=False)[0])


def clearest(features: np.ndarray, residual: np.ndarray) -> float:
    """Largest z-score of features (T, F) in a residual (T, q): whether a fit with all of them can pay off."""
    z = np.abs(features.T @ residual) / np.sqrt((features**2).T @ residual**2 + 1e-30)
    return float(z.max(initial=0.0))


def hinges_for(columns: int, rows: int) -> int:
    """Hinges per column: the fewer the columns the more, as far as the rows allow."""
    return int(np.clip(min(MOST_SINGLES, rows // ROWS_PER_SINGLE) // columns - 1, HINGES, MOST_HINGES))
