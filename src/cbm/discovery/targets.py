"""What the networks predict: each variable's next value or change, mapped to a coordinate u in [0, 1].

Conditional mutual information does not change under a monotone map of the predicted variable, so we choose one that
makes densities easy to learn: half the empirical distribution function (every variable, whatever its scale or tails,
fills the interval) and half the linear scale (tails keep their resolution). A value that occurs again and again, such
as "did not move", becomes an interval of its own, inside which the coordinate is drawn at random: then even variables
that are partly or wholly discrete have a density.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.data.factors import Kind
from cbm.data.transitions import Transitions
from cbm.discovery.settings import ATOM

TABLE = 2049  # points of the table that inverts the coordinate


@dataclass(frozen=True)
class Coordinate:
    """The monotone map of one scalar to u, fitted to data."""

    values: np.ndarray
    """Sorted support points."""
    lower: np.ndarray
    """u just below each support point."""
    upper: np.ndarray
    """u at each support point; larger than `lower` only for atoms."""

    @classmethod
    def fit(cls, sample: np.ndarray, discrete: bool = False) -> Coordinate:
        values, counts = np.unique(sample, return_counts=True)
        share = counts / counts.sum()
        if discrete:  # levels alone fill the interval, each at least half as wide as an even share
            upper = np.cumsum(share / 2 + 1 / (2 * len(values)))
            return cls(values, np.concatenate([[0.0], upper[:-1]]), upper)
        cdf = np.cumsum(share)
        atom = share > ATOM
        lower = np.where(atom, cdf - share, cdf - share / 2)
        upper = np.where(atom, cdf, cdf - share / 2)
        low, high = np.quantile(sample, [0.001, 0.999])
        span = max(high - low, 1e-12 * max(1.0, abs(high)))
        linear = np.clip((values - low + 0.05 * span) / (1.1 * span), 0, 1)
        keep = _table_rows(atom, len(values))
        return cls(values[keep], (lower + linear)[keep] / 2, (upper + linear)[keep] / 2)

    def forward(self, sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """u, and the width of the atom that it belongs to (0 for a continuous value)."""
        last = len(self.values) - 1
        right = np.clip(np.searchsorted(self.values, sample), 0, last)
        on_point = self.values[right] == sample
        left = np.maximum(right - 1, 0)
        gap = self.values[right] - self.values[left]
        share = np.clip((sample - self.values[left]) / np.where(gap > 0, gap, 1.0), 0, 1)
        between = self.upper[left] + share * (self.lower[right] - self.upper[left])
        between = np.where(sample < self.values[0], self.lower[0], between)
        between = np.where(sample > self.values[-1], self.upper[-1], between)
        u = np.where(on_point, self.lower[right], between)
        return u, np.where(on_point, self.upper[right] - self.lower[right], 0.0)

    def inverse_table(self) -> np.ndarray:
        """The scalar at u = 0, 1/(TABLE-1), …, 1."""
        u = np.stack([self.lower, self.upper], 1).ravel()
        return np.interp(np.linspace(0, 1, TABLE), u, np.repeat(self.values, 2))


def _table_rows(atom: np.ndarray, n: int) -> np.ndarray:
    """At most a few thousand support points: evenly spread ranks, and every atom with its neighbours."""
    rows = np.unique(np.linspace(0, n - 1, min(n, 2 * TABLE)).astype(int))
    atoms = np.flatnonzero(atom)
    return np.unique(np.clip(np.concatenate([rows, atoms - 1, atoms, atoms + 1]), 0, n - 1))


def change(obs: np.ndarray, next_obs: np.ndarray, kind: Kind) -> np.ndarray:
    """Difference over one step; for angles along the shorter arc."""
    delta = next_obs - obs
    return wrap(delta) if kind == "angle" else delta


def wrap(angle: np.ndarray) -> np.ndarray:
    """The same angle in [-pi, pi)."""
    return (angle + np.pi) % (2 * np.pi) - np.pi


def self_memory(data: Transitions, rows: int = 20_000) -> np.ndarray:
    """Nats by which each variable's change is predicted better than its next value, both without its present value.

    log(residual of the value / residual of the change) of two additive regressions on all other inputs. It is large
    where a variable is its previous value plus something: there the change is what to model, and the variable's own
    past is a cause. It is near zero or negative for memoryless variables, whose change would seem to depend on their
    own past and on everything correlated with it.
    """
    pick = np.linspace(0, len(data) - 1, min(rows, len(data))).astype(int)
    obs, after, kinds = data.obs[pick], data.next_obs[pick], data.factors.kinds
    d = obs.shape[1]
    now, later = ([_on_circle(part[:, i], kinds[i]) for i in range(d)] for part in (obs, after))
    action = action_columns(data.action[pick], data.factors.discrete_actions)
    pieces, column = additive_features(np.concatenate([*now, action], 1))
    variable = np.repeat(np.arange(d + 1), [*(part.shape[1] for part in now), action.shape[1]])
    delta = [change(obs[:, i], after[:, i], kinds[i])[:, None] for i in range(d)]
    outcomes = [*later, *delta]
    of = np.repeat(np.arange(2 * d), [part.shape[1] for part in outcomes])
    squares = _squares_without_own(pieces, variable[column], np.concatenate(outcomes, 1), of % d)
    residual = np.sqrt(np.bincount(of, squares, 2 * d))
    memory = np.log(residual[:d] + 1e-12) - np.log(residual[d:] + 1e-12)
    memory[[kind in ("binary", "categorical") for kind in kinds]] = -np.inf
    return memory


def _on_circle(values: np.ndarray, kind: Kind) -> np.ndarray:
    """(T, 1) the values, or (T, 2) sine and cosine of an angle."""
    return np.stack([np.sin(values), np.cos(values)], 1) if kind == "angle" else values[:, None]


def action_columns(action: np.ndarray, discrete: int | None) -> np.ndarray:
    """The action as numbers: itself, or one indicator per choice."""
    return action if discrete is None else np.eye(discrete)[action[:, 0].astype(int)]


def additive_features(inputs: np.ndarray, most: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Each column as a few hinge functions (fewer when there are many columns), standardised."""
    hinges = int(np.clip(most // inputs.shape[1], 1, 5))
    std = inputs.std(0)
    z = (inputs - inputs.mean(0)) / np.where(std > 0, std, 1)
    knots = [np.quantile(z, q, axis=0) for q in np.linspace(0, 1, hinges + 1)[1:-1]]
    pieces = np.concatenate([z, *[np.maximum(z - knot, 0) for knot in knots]], 1)
    owner = np.tile(np.arange(inputs.shape[1]), 1 + len(knots))
    return pieces - pieces.mean(0), owner


def _squares_without_own(pieces: np.ndarray, owner: np.ndarray, y: np.ndarray, own: np.ndarray) -> np.ndarray:
    """(Q,) mean squared residual of each column of y, regressed on all features but those of its own variable `own`.

    One inverse serves all targets: leaving out a block of features from a ridge regression with inverse Gram matrix P
    raises the squared residual by b' (P_block)^-1 b, where b are the block's coefficients.
    """
    n = len(pieces)
    y = y - y.mean(0)
    scale = np.where(y.std(0) > 0, y.std(0), 1)
    y = y / scale
    inverse = np.linalg.inv(pieces.T @ pieces / n + 1e-6 * np.eye(pieces.shape[1]))
    moment = pieces.T @ y / n
    weights = inverse @ moment
    squares = 1 - (moment * weights).sum(0)
    for i in np.unique(own):
        mine = np.flatnonzero(owner == i)
        b = weights[np.ix_(mine, own == i)]
        squares[own == i] += (b * np.linalg.solve(inverse[np.ix_(mine, mine)], b)).sum(0)
    return np.asarray(np.maximum(squares, 0) * scale**2)


@dataclass(frozen=True)
class Target:
    """One thing to predict: a variable's next value or its change, or a reward."""

    index: int
    """The variable (or reward) it belongs to."""
    kind: Kind
    changes: bool
    coordinate: Coordinate

    @property
    def levels(self) -> int:
        """Number of values of a discrete target, 0 for a continuous one."""
        return len(self.coordinate.values) if self.kind in ("binary", "categorical") else 0

    def level_of(self, sample: np.ndarray) -> np.ndarray:
        """Index of the nearest known value; 0 for continuous targets."""
        if not self.levels:
            return np.zeros(len(sample), dtype=np.int64)
        values = self.coordinate.values
        return np.searchsorted((values[1:] + values[:-1]) / 2, sample).astype(np.int64)
