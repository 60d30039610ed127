"""What a target loses without an input: models refitted without it, compared on held-out episodes.

The model with all candidates and each model without one of them are fitted alike, on the same rows, so they differ by
the input or by chance, in either direction. A model is a regression in closed form, or boosted trees on its residual,
whichever predicts validation rows better.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from cbm.discovery.bends import Bent, Index, limits
from cbm.discovery.evidence import heavy_tailed
from cbm.discovery.forms import Forms, Structure
from cbm.discovery.regression import Basis, Gram, hinges_for
from cbm.discovery.settings import (
    BETTER,
    BEYOND,
    BOOST_ROUNDS,
    CAREFUL,
    CHOOSING,
    FLOOR,
    MOST_POWERS,
    RIDGE_ROWS,
    RIDGES,
    SLOPES,
    TAME,
)
from cbm.discovery.split import Rows
from cbm.discovery.trees import Trees, gains_of


class Refits:
    """All refits of one target on one fold."""

    def __init__(
        self, columns: np.ndarray, owner: np.ndarray, y: np.ndarray, candidates: list[int], rows: Rows,
        structure: Structure | None = None, trees_only: bool = False, before: np.ndarray | None = None,
        tame: bool = True,
    ):  # fmt: skip
        """`columns` (T, C) and their `owner` (C, 2); `y` (T, q) one column, or the levels of a discrete target.

        `structure` was chosen on another fold; if it is None, validation rows choose, with `trees_only` among trees.
        `before` (T,) is the value whose change `y` is, in its units; limits apply to their sum. `tame`: whether
        outliers may be drawn in.
        """
        seen = np.asarray(np.isin(owner, candidates).all(1))
        every = np.concatenate([rows.fit, rows.kept, rows.test])
        self.fit, self.kept, self.test = np.split(np.arange(len(every)), np.cumsum([len(rows.fit), len(rows.kept)]))
        self.columns, self.owner, self.y = _taken(columns, every, seen), owner[seen], y[every]
        self.before = None if before is None else before[every]
        self.mean = self.y[self.fit].mean(0)
        self.basis = Basis.fit(self.columns[: len(self.fit)], self.owner, hinges_for(len(self.owner), len(self.fit)))
        self.features: np.ndarray | None = None
        self.structure = structure or Structure()
        self.every_form = True
        """Whether all closed forms were tried; some are left out if there are very many columns."""
        if structure is not None and structure.order:
            self._use(structure.order)
        self.trees: Trees | None = None
        self._careful: np.ndarray | None = None
        self.gains: np.ndarray | None = None
        """(J,) gain of each input's splits in the chosen trees; None: no trees, or chosen on another fold."""
        self.may_tame = tame
        self.residual = self._choose(trees_only) if structure is None else self._fitted()
        if structure is None and self.y.shape[1] == 1 and len(np.unique(self.y[:1000])) > 2:  # no indicators
            self.structure = replace(self.structure, tails=heavy_tailed(self.residual[self.kept, 0] ** 2))

    def _use(self, order: int) -> None:
        """Compute the features of an order and their Gram matrix."""
        self.features, self.of = self.basis.features(self.columns, order, self._most())
        self.gram = Gram.of(self.features[: len(self.fit)])
        self.index: Index | None = None
        self._set_moments()

    def _most(self) -> int:
        """Monomials at most: as many as were tried when the form was chosen."""
        return min(MOST_POWERS, min(len(self.fit), CHOOSING) // 5)

    def _set_moments(self) -> None:
        if self.features is None:
            return
        centred = self.y[: len(self.fit)] - self.mean
        self.moments = self.features[: len(self.fit)].T @ centred
        if self.structure.index:
            self.index = Index(self.basis, self.columns, self._most(), self.y[: len(self.fit)])

    @property
    def full(self) -> np.ndarray:
        """Squared errors of the test rows, with all candidates in view."""
        return self._squared(self.residual)

    def without(self, hidden: set[int]) -> np.ndarray:
        """Squared errors of the test rows, refitted without these inputs."""
        return np.asarray((self._left_without(hidden) ** 2).sum(1))

    def _left_without(self, hidden: set[int]) -> np.ndarray:
        """(test rows, q) residual of a refit without these inputs."""
        if not self.structure.rounds:
            new = slice(len(self.fit) + len(self.kept), None)
            return np.asarray(self.y[new] - self._closed(self.structure, hidden, new))
        residual = self.y - self._closed(self.structure, hidden)
        return self._boost(residual, hidden, self.structure.rounds, watch=False)[0][self.test]

    def everywhere_without(self, hidden: set[int]) -> np.ndarray:
        """(T, q) residual of all rows of a refit without these inputs."""
        residual = self.y - self._closed(self.structure, hidden)
        rounds = self.structure.rounds
        return self._boost(residual, hidden, rounds, watch=True)[0] if rounds else residual

    def _squared(self, residual: np.ndarray) -> np.ndarray:
        return np.asarray((residual[self.test] ** 2).sum(1))

    def challenged(self, j: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Squared errors of the test rows with and without input j, from models better able to do without it.

        First from trees that learn in smaller steps: large steps exploit inputs that merely correlate with the causes.
        Then with a stand-in, which correlates with the other inputs and with the model's prediction as j does, but
        carries no other information. Where a model does not fit, any input correlated with the true causes helps it,
        and so does the stand-in.
        """
        residual = self.y - self._closed(self.structure, {j})
        if self.structure.rounds:
            if self._careful is None:
                self._careful = self._squared(self._boost_carefully(set()))
            residual = self._boost_carefully({j})
            yield self._careful, self._squared(residual)
        yield self.full, self._with_stand_in(j, self.y - residual)

    def _boost_carefully(self, hidden: set[int]) -> np.ndarray:
        residual = self.y - self._closed(self.structure, hidden)
        return self._boost(residual, hidden, BOOST_ROUNDS * CAREFUL, watch=True, careful=True)[0]

    def _with_stand_in(self, j: int, predicted: np.ndarray) -> np.ndarray:
        other = copy.copy(self)
        other.columns = self._stand_in(j, predicted)
        other.trees = Trees(other.columns, self.owner, self.fit, self.kept) if self.structure.rounds else None
        if self.structure.order:
            other._use(self.structure.order)
        residual = other.y - other._closed(self.structure, set())
        if self.structure.rounds:
            residual = other._boost(residual, set(), self.structure.rounds, watch=False)[0]
        return self._squared(residual)

    def with_own_variation(self, j: int, cluster: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared errors of the test rows by a model that uses what other inputs do not explain of input j, and by one
        without input j.

        For an input that hardly varies by itself. Such a small variation acts, if at all, in proportion to its size,
        with a slope that may depend on the input's value: a regression of the residual without input j on the input's
        own residual. Slopes come from one half of the test rows (by `cluster`), errors from the other.
        """
        own, told = self._explained_by_others(j, self.columns[:, :0])
        rest = (self.columns[:, own] - told)[self.test]
        place = np.maximum(told[self.test][:, :, None] - np.quantile(told[self.fit], SLOPES, axis=0).T, 0.0)
        terms = np.concatenate([rest[:, :, None], rest[:, :, None] * place], 2).reshape(len(rest), -1)
        left = self._left_without({j})
        better, even = left.copy(), cluster % 2 == 0
        both = even.any() and not even.all()  # a single episode cannot be used for both
        for fit, new in ((even, ~even), (~even, even)) if both else ():
            gram = Gram.of(terms[fit])
            weights = gram.solve(terms[fit].T @ (left[fit] - left[fit].mean(0)), np.arange(terms.shape[1]), RIDGES[0])
            better[new] -= (terms[new] - gram.mean) @ weights
        return (better**2).sum(1), (left**2).sum(1)

    def _explained_by_others(self, j: int, more: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Indices of input j's own columns, and (T, columns) their prediction from all other inputs and `more` (T,
        M)."""
        plain = self.owner[:, 0] == self.owner[:, 1]
        own, rest = (np.flatnonzero(plain & ((self.owner[:, 0] == j) == yes)) for yes in (True, False))
        others = np.concatenate([self.columns[:, rest], more], 1)
        basis = Basis.fit(others[self.fit], np.zeros((others.shape[1], 2), int))
        features, _ = basis.features(others)
        gram = Gram.of(features[: len(self.fit)])
        x = self.columns[:, own]
        mean = x[self.fit].mean(0)
        weights = gram.solve(features[: len(self.fit)].T @ (x[self.fit] - mean), np.arange(len(gram.mean)), RIDGES[0])
        return own, mean + (features - gram.mean) @ weights

    def _stand_in(self, j: int, predicted: np.ndarray) -> np.ndarray:
        """All columns, those of input j replaced by their prediction from the others plus its residual from another
        time."""
        own, told = self._explained_by_others(j, predicted)
        plain, x = self.owner[:, 0] == self.owner[:, 1], self.columns[:, own]
        columns = self.columns.copy(order="F")
        for rows in (self.fit, self.kept, self.test):
            columns[np.ix_(rows, own)] = told[rows] + np.roll((x - told)[rows], len(rows) // 3, axis=0)
        for c in np.flatnonzero(~plain & (self.owner == j).any(1)):
            pair = np.flatnonzero(plain & np.isin(self.owner[:, 0], self.owner[c]))
            some = np.column_stack([self.columns[: len(pair) + 100, pair], np.ones(len(pair) + 100)])
            slopes = np.linalg.lstsq(some, self.columns[: len(some), c], rcond=None)[0]
            columns[:, c] = columns[:, pair] @ slopes[:-1] + slopes[-1]
        return columns

    def fitted_to(self, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared errors of the same test rows, fitted to all training rows and to `some` of them (booleans).

        The target is the same: outliers that were drawn in stay so. Only test rows within the range of `some` count,
        since extrapolation does not show how well the law is known.
        """
        x, fit = self.columns, self.fit[some]
        within = ((x[self.test] >= x[fit].min(0)) & (x[self.test] <= x[fit].max(0))).all(1)
        return self.full[within], self._on(Rows(fit, self.kept, self.test[within])).full

    def left_by(self, some: np.ndarray) -> np.ndarray:
        """Residuals of models fitted to `some` of the training rows (booleans), on the other training rows."""
        other = self._on(Rows(self.fit[some], self.kept, self.fit[~some]))
        return np.asarray(other.residual[other.test, 0])

    def _on(self, rows: Rows) -> Refits:
        """Models of the same structure on other rows."""
        candidates = [int(j) for j in np.unique(self.owner)]
        return Refits(self.columns, self.owner, self.y, candidates, rows, self.structure, False, self.before, False)

    def of_value(self, own: int) -> Refits:
        """Models of the next value instead of its change, without the variable's own past."""
        assert self.before is not None
        candidates = [int(j) for j in np.unique(self.owner) if j != own]
        after = self.y + self.before[:, None]
        return Refits(self.columns, self.owner, after, candidates, Rows(self.fit, self.kept, self.test), tame=False)

    def relabelled(self, y: np.ndarray) -> Refits:
        """The same rows and inputs with another target."""
        other = copy.copy(self)
        other.y, other.mean, other._careful = y, y[self.fit].mean(0), None
        other._set_moments()
        empty = self.structure.order == 0 and self.structure.rounds == 0
        other.residual = other._choose() if empty else other._fitted()
        return other

    def _fitted(self) -> np.ndarray:
        """The residual of every row (with trees, of the test rows only) for the given structure."""
        residual = self.y - self._closed(self.structure, set())
        if self._tame(residual):
            residual = self.y - self._closed(self.structure, set())
        if self.structure.rounds:
            self.trees = self.trees or Trees(self.columns, self.owner, self.fit, self.kept)
            residual = self._boost(residual, set(), self.structure.rounds, watch=False)[0]
        return residual

    def _choose(self, trees_only: bool = False) -> np.ndarray:
        """Choose the structure on validation rows; returns the residual of every row."""
        residual = self.y - self.mean if trees_only else self._use_best()
        if self._tame(residual):
            residual = self.y - self.mean if trees_only else self._use_best()
        best = self._loss(residual)
        if best < 2 * FLOOR:
            return residual
        self.trees = Trees(self.columns, self.owner, self.fit, self.kept)
        found = replace(self.structure)
        for start in dict.fromkeys((self.structure.order, 0)):  # trees would have to undo the errors of a closed form
            option = replace(self.structure, order=start)
            left, rounds = self._boost(self.y - self._closed(option, set()), set(), BOOST_ROUNDS, watch=True)
            if rounds and self._loss(left) < BETTER * best:
                best, residual, found = self._loss(left), left, replace(option, rounds=rounds)
                self.gains = self._last_gains
        self.structure = found
        return residual

    def _use_best(self) -> np.ndarray:
        """Use the best closed form on validation rows, if it beats a constant; returns the residual of every row."""
        self.structure = self._chosen_closed()
        residual = self.y - self.mean
        if self.structure.order:
            self._use(self.structure.order)
            left = self.y - self._closed(self.structure, set())
            if self._loss(left) < BETTER * self._loss(residual):
                return left
            self.structure = Structure()
        return residual

    def _chosen_closed(self) -> Structure:
        """The closed form with the lowest validation loss; of very many rows, a subset is enough to choose."""
        fit, kept = (rows[:: max(1, len(rows) // CHOOSING)] for rows in (self.fit, self.kept))
        every = np.concatenate([fit, kept])
        before = None if self.before is None else self.before[every]
        ridges = RIDGES if len(self.fit) < RIDGE_ROWS else RIDGES[:1]
        forms = Forms(self.basis, self.columns[every], self.y[every] - self.mean, len(fit), ridges, before)
        chosen = forms.best()
        self.every_form = forms.every
        return chosen

    def _tame(self, residual: np.ndarray) -> bool:
        """Draw in outliers if a few rows make up most of the squared error; all refits then share this target.

        A residual r becomes s asinh(r / s), where s is three robust deviations: otherwise least squares would fit only
        these.
        """
        if not self.may_tame:
            return False
        squares = np.sort((residual[self.fit] ** 2).sum(1))
        few = squares[-max(1, len(squares) // 1000) :].sum()
        spread = 3 * 1.4826 * np.median(np.abs(residual[self.fit]), axis=0)
        if few < TAME * squares.sum() or (spread <= 0).any():
            return False
        self.y = self.y - residual + spread * np.arcsinh(residual / spread)
        self.mean = self.y[self.fit].mean(0)
        self._set_moments()
        return True

    def _loss(self, residual: np.ndarray) -> float:
        return float((residual[self.kept] ** 2).mean()) + FLOOR

    def _closed(self, structure: Structure, hidden: set[int], rows: slice = slice(None)) -> np.ndarray:
        """(T, q) predictions of the closed form for some rows, hardly beyond the outcomes that it was fitted to: where
        inputs meet in a new way, products of many of them may be of any size."""
        if not structure.order:
            return np.broadcast_to(self.mean, self.y[rows].shape)
        keep = np.arange(len(self.of))
        if hidden:
            keep = keep[~np.isin(self.of, list(hidden)).any(1)]
        assert self.features is not None
        if structure.bent or structure.index:
            fit = Bent(self.features, self.gram, self.moments, keep, self._bends(keep, hidden))
            told = self.mean + fit.predictions(self.y[: len(self.fit)] - self.mean, structure.ridge, rows)
        else:
            weights = self.gram.solve(self.moments, keep, structure.ridge)
            told = self.features[rows] @ weights + (self.mean - self.gram.mean @ weights)
        low, high = self.y[self.fit].min(0), self.y[self.fit].max(0)
        return np.asarray(np.clip(told, low - BEYOND * (high - low), high + BEYOND * (high - low)))

    def _bends(self, keep: np.ndarray, hidden: set[int]) -> np.ndarray:
        """(T, B) hinges on combinations of the features in `keep`."""
        assert self.features is not None
        if self.index is None:
            return limits(self.features, self.gram, self.moments, self._linear(keep), self.before)
        return self.index.hinges(hidden)

    def _linear(self, keep: np.ndarray) -> np.ndarray:
        """Those features in `keep` that are columns themselves."""
        return keep[np.isin(keep, self.basis.linear())]

    def _boost(
        self, residual: np.ndarray, hidden: set[int], rounds: int, watch: bool, careful: bool = False
    ) -> tuple[np.ndarray, int]:
        """The residual of trees (without `watch`, of the test rows only), and how many rounds they took."""
        assert self.trees is not None
        result, most = residual.copy(), 0
        self._last_gains = np.zeros(int(self.owner.max()) + 1)
        rows = slice(None) if watch else self.test
        for q in range(residual.shape[1]):
            unit = max(float(np.sqrt(np.mean(residual[self.fit, q] ** 2))), 1e-9)
            model, used = self.trees.train(residual[:, q] / unit, hidden, rounds, watch, careful)
            if used > 0:
                if watch:
                    self._last_gains += gains_of(model, used, self.owner)
                told = unit * model.predict(self.columns[rows], num_iteration=used, num_threads=1)
                learnt = residual[self.fit, q]  # linear leaves can be steep: nothing beyond what was seen is predicted
                result[rows, q] -= np.clip(told, learnt.min(), learnt.max())
            most = max(most, used)
        return result, most


def _taken(columns: np.ndarray, rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Some rows of some columns, stored column by column."""
    places = np.flatnonzero(chosen)
    result = np.empty((len(rows), len(places)), order="F")
    for k, c in enumerate(places):
        np.take(columns[:, c], rows, out=result[:, k])
    return result
