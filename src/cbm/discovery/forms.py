"""Which closed form describes a target best: validation rows choose.

Sums of functions of single inputs come first. What they leave over may be explained by products, by monomials, by a
limit at which the sum is cut off, or by a function of a distance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.discovery.bends import Bent, Index, limits
from cbm.discovery.regression import Basis, Gram, clearest
from cbm.discovery.settings import BETTER, FLOOR, MOST_POWERS, RIDGES, WORTH_TRYING


@dataclass(frozen=True)
class Structure:
    """The structure of the model, chosen with all candidates in view and kept for every refit."""

    order: int = 0
    """0: no closed form. 1: sums of functions of one input. 2: and products of two. 3: and products of three. 4:
    instead of products, monomials of all inputs."""
    ridge: float = 1e-8
    rounds: int = 0
    """Boosting rounds on the residual of the closed form."""
    bent: bool = False
    """Whether the closed form has hinges on its own linear prediction, for outcomes that are cut off at a limit or
    start at one."""
    index: bool = False
    """Whether the closed form has hinges on a quadratic form of its inputs, for functions of a distance."""
    tails: bool = False
    """Whether residuals have heavy tails: because the noise has, or because some rows do not fit a law without noise.
    With a Gaussian likelihood these rows would make up all of an effect, and all of its error."""


class Forms:
    """Closed forms fitted to the first `n` rows and compared on the others."""

    def __init__(
        self, basis: Basis, x: np.ndarray, y: np.ndarray, n: int, ridges: tuple[float, ...], before: np.ndarray | None
    ):  # fmt: skip
        """`x` (T, C) columns, `y` (T, q) target; `before` (T,) is the value whose change it is."""
        self.basis, self.x, self.y, self.n, self.ridges, self.before = basis, x, y, n, ridges, before
        self.most = min(MOST_POWERS, n // 5)
        self.centred = y[:n] - y[:n].mean(0)
        self.found, self.loss = Structure(), float((y[n:] ** 2).mean()) + FLOOR
        self.left = y
        """Residual of sums of functions of single inputs, or the target itself if these do not help."""
        self.tried: dict[int, tuple[np.ndarray, Gram]] = {}
        self.every = True
        """Whether all forms were tried: with very many columns there are too many squares and products."""

    def best(self) -> Structure:
        self._try_orders()
        if self.y.shape[1] == 1:
            if self.found.order and self._unfitted():
                self._try_limits()
            if self._unfitted():
                self._try_distance()
        return self.found

    def _unfitted(self) -> bool:
        return self.loss >= 2 * FLOOR

    def _offer(self, structure: Structure, residual: np.ndarray) -> bool:
        """Take a structure if its residual on validation rows is clearly smaller."""
        loss = float((residual**2).mean()) + FLOOR
        better = loss < BETTER * self.loss
        if better:
            self.found, self.loss = structure, loss
        return better

    def _try_orders(self) -> None:
        """More than sums of functions of single inputs only where their residual shows it."""
        n = self.n
        for order in (1, 2, 3, 4):
            features = self.basis.features(self.x, order, self.most)[0]
            if order > 1 and not self._promising(features[:, len(self.basis.singles()) :]):
                continue
            gram, moments = Gram.of(features[:n]), features[:n].T @ self.centred
            self.tried[order] = features, gram
            for ridge in self.ridges:
                weights = gram.solve(moments, np.arange(len(moments)), ridge)
                residual = self.y - features @ weights + gram.mean @ weights
                if self._offer(Structure(order, ridge), residual[n:]) and order == 1:
                    self.left = residual
            if not self._unfitted():
                return

    def _promising(self, more: np.ndarray) -> bool:
        """Whether any of these features shows in what sums of functions of single inputs leave over."""
        return more.shape[1] > 0 and clearest(more[: self.n], self.left[: self.n]) >= WORTH_TRYING

    def _try_limits(self) -> None:
        """Hinges on the linear prediction."""
        for order in dict.fromkeys((1, self.found.order)):
            features, gram = self.tried[order]
            moments, linear, ridge = features[: self.n].T @ self.centred, self.basis.linear(), self.found.ridge
            bends = limits(features, gram, moments, linear, self.before)
            self._offer(Structure(order, ridge, bent=True), self._bent(order, bends, ridge))

    def _try_distance(self) -> None:
        """Hinges on a quadratic form."""
        squares = self.basis.squares(self.x, self.most)[0]
        self.every = squares.shape[1] > 0
        if not self._promising(squares):
            return
        bends = Index(self.basis, self.x, self.most, self.y[: self.n]).hinges(set())
        for ridge in dict.fromkeys((RIDGES[0], self.found.ridge)):
            self._offer(Structure(1, ridge, index=True), self._bent(1, bends, ridge))

    def _bent(self, order: int, bends: np.ndarray, ridge: float) -> np.ndarray:
        """Residual of validation rows, with hinges (T, B) on a combination beside the features of an order."""
        n, (features, gram) = self.n, self.tried[order]
        bent = Bent(features, gram, features[:n].T @ self.centred, np.arange(features.shape[1]), bends)
        return np.asarray(self.y[n:] - bent.predictions(self.centred, ridge, slice(n, None)))
