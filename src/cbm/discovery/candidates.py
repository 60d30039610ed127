"""The candidates of a part: the inputs that stand out when all are screened, without those that no model uses."""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.discovery.evidence import nats_lost
from cbm.discovery.forms import Structure
from cbm.discovery.part import Part
from cbm.discovery.refit import Refits
from cbm.discovery.screen import product_scores, tree_gains
from cbm.discovery.settings import (
    CONTROLS,
    FEW_CANDIDATES,
    FLOOR,
    FOUND,
    MOST_CANDIDATES,
    MOST_SIGNS,
    MOST_TESTED,
    NEGLIGIBLE,
    PAIRED,
    PRUNED_ROWS,
    SIGNIFICANT,
    TINY,
)
from cbm.discovery.split import rows_of
from cbm.discovery.trees import Trees

seen: dict[str, Any] = {}
"""Trees over all inputs in view, binned once for all parts of the loaded problem that see the same inputs."""


class Candidates(Part):
    """A part on the way from all inputs to the few that are worth a test each."""

    def scores(self) -> tuple[np.ndarray, Trees]:
        """(J,) how far each input stands out in the screens, candidates above 1; and the trees used for them."""
        self._look()
        trees = self._binned()
        gains = self._first_gains(trees)
        score = np.maximum(self.wald / SIGNIFICANT, self._padded(gains) / FOUND)
        return np.maximum(score, self._pairs() / PAIRED), trees

    def _binned(self) -> Trees:
        pairs = self.owner[self.owner[:, 0] != self.owner[:, 1]]
        if self.about_exceptions:  # no other part has this target
            return Trees(self.x, self.owner, self.rows.fit, self.rows.kept)
        key = (self.fold, self.within, tuple(self.seen), (self.part, self.value) if len(pairs) else None)
        if seen.get("key") != key:
            seen.update(key=key, trees=Trees(self.x, self.owner, self.rows.fit, self.rows.kept))
        trees: Trees = seen["trees"]
        return trees

    def _pairs(self) -> np.ndarray:
        """(J,) z-score of the clearest product of each input with another, or with two others if all have two values,
        in the residual of the closed form."""
        plain = np.flatnonzero((self.owner[:, 0] == self.owner[:, 1]) & (self.owner[:, 0] < self.data.inputs))
        x = self.x[np.ix_(self.rows.fit, plain)]
        owner, left = self.owner[plain, 0], self.residual[self.rows.fit]
        best = product_scores(x, owner, left, len(self.wald))
        signs = [c for c in range(x.shape[1]) if len(np.unique(x[:1000, c])) == 2 and len(np.unique(x[:, c])) == 2]
        for c in signs if len(signs) <= MOST_SIGNS else ():
            others = [k for k in signs if owner[k] != owner[c]]
            three = product_scores(x[:, others], owner[others], left * x[:, [c]], len(self.wald))
            best[owner[c]] = max(best[owner[c]], three.max(initial=0.0))
            best = np.maximum(best, three)
        return best

    def _first_gains(self, trees: Trees) -> np.ndarray:
        """(J,) gain of each input in trees on the residual of the closed form; zero if that residual is rounding."""
        if (self.residual[self.rows.fit] ** 2).sum(1).mean() < FLOOR:
            return np.zeros(len(self.wald))
        return tree_gains(trees, self.data.inputs, self.residual)[0]

    def _padded(self, gains: np.ndarray) -> np.ndarray:
        return np.pad(gains, (0, len(self.wald) - len(gains)))

    def _chosen(self, score: np.ndarray) -> list[int]:
        """The most promising inputs, those that hardly vary independently of them, and those that are always in
        view."""
        inputs = self.data.inputs
        order = np.argsort(-score[:inputs], kind="stable")
        chosen = [int(j) for j in order if score[j] > 1 and not self.shows_action[j]][:MOST_CANDIDATES]
        return list(dict.fromkeys([*chosen, *self._mates(chosen), *self.always]))

    def _prune(self, refits: Refits, score: np.ndarray) -> Refits:
        """Drop what no model uses; then the weaker half of the rest, or a quarter, as long as held-out episodes are
        predicted as well."""
        if len(self.candidates) > FEW_CANDIDATES and (unused := self._unused(refits)):
            self.candidates = [j for j in self.candidates if j not in unused]
            refits = self._refits(self.y)
        share = 2 if len(self.rows.fit) >= PRUNED_ROWS else 8
        dropped, usual = set[int](), refits.full
        while len(self.candidates) - len(dropped) > FEW_CANDIDATES and share <= 4:
            order = sorted((j for j in self.candidates if j not in dropped), key=lambda j: score[j])
            weakest = [j for j in order if j not in self.always][: len(order) // share]
            weak = self._whole(dropped | set(weakest))
            without = refits.without(weak)
            delta, stderr = self._nats(refits, usual, without)
            if weak > dropped and delta < max(stderr, NEGLIGIBLE):
                dropped, usual = weak, without
            else:
                share *= 2
        if not dropped:
            return refits
        self.candidates = [j for j in self.candidates if j not in dropped]
        return self._refits(self.y)

    def _unused(self, refits: Refits) -> set[int]:
        """Candidates that neither the closed form nor the trees use more than they use shadows."""
        if refits.gains is None:
            return set()
        usual = max(refits.gains[s] for s in self.shadows[:CONTROLS])
        bound = max(FOUND * usual, TINY * refits.gains.sum())
        shown = refits.structure.order > 0  # by the closed form, if the model has one
        weak = {j for j in self.candidates if refits.gains[j] <= bound and not (shown and self.wald[j] > SIGNIFICANT)}
        return self._whole(weak - set(self.always))

    def _whole(self, weak: set[int]) -> set[int]:
        """The inputs in `weak` that may be dropped: a bundle of inputs is dropped as a whole or not at all."""
        staying = {self.bundle[j] for j in self.candidates if j not in weak} - {-1}
        return {j for j in weak if self.bundle[j] not in staying}

    def _refits(self, y: np.ndarray, structure: Structure | None = None) -> Refits:
        inputs = self.candidates + self.shadows[:CONTROLS]
        chosen = self.structure.order == 0 and self.structure.rounds > 0  # with more candidates
        refits = Refits(self.x, self.owner, y, inputs, self.rows, structure, chosen and self.every_form, self.before)
        self.structure, self.every_form = refits.structure, refits.every_form
        return refits

    def _on_all_rows(self, refits: Refits) -> Refits:
        """Test on every row of the fold if the model consists of trees alone: the laws that need trees show their
        causes in few rows, and trees hold no features in memory."""
        rows = rows_of(self.data, self.fold, self.part, len(self.data.y))
        if refits.structure.order or len(rows.test) <= MOST_TESTED:
            return refits
        self._use_rows(rows)
        return self._refits(self.y, refits.structure)

    def _left_over(self, refits: Refits, hidden: int | None = None) -> np.ndarray:
        """(T, q) residual of the rows in use; with `hidden`, of a refit without that input."""
        left = np.zeros_like(self.y)
        rows = np.concatenate([self.rows.fit, self.rows.kept, self.rows.test])
        left[rows] = refits.residual if hidden is None else refits.everywhere_without({hidden})
        return left

    def _nats(self, refits: Refits, full: np.ndarray, without: np.ndarray) -> tuple[float, float]:
        return nats_lost(full, without, self.cluster, refits.structure.tails)
