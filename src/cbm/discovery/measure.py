"""Evidence on one part of a target, on one fold: candidates, refits, controls. Each job is a pure function of arrays.

Candidates are pruned in groups before each remaining one is tested alone: if a model without the weaker half predicts
held-out episodes as well, it needs none of that half, and tests are sharper with fewer useless inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, fields
from typing import Any

import numpy as np

from cbm.discovery.candidates import Candidates, seen
from cbm.discovery.dataset import Dataset
from cbm.discovery.evidence import Evidence, misfit_of, nats_lost, student_scale
from cbm.discovery.exceptions import exceptions, exceptions_dataset
from cbm.discovery.forms import Structure
from cbm.discovery.refit import Refits
from cbm.discovery.screen import Additive, additive, tree_gains
from cbm.discovery.settings import (
    CONCEIVABLE,
    CONTROLS,
    FLOOR,
    FOUND,
    HARMFUL,
    LITTLE,
    MOST_ADDED,
    MOST_MISFIT,
    NEGLIGIBLE,
    NOISY,
    OWN_VARIATION,
    PLANTED,
    SHOWN,
    SPREAD_ROUNDS,
    SURE,
    TAIL_DEGREES,
    UNFITTED,
    WEAK,
    WEAK_SHARE,
)
from cbm.discovery.trees import Trees


def screen_job(shared: Mapping[str, np.ndarray], problem: str) -> dict[str, np.ndarray]:
    """Screen all inputs with the closed form, on the rows that fold 0 is fitted to."""
    data = Dataset.load(shared, problem)
    return {k: np.asarray(v) for k, v in vars(additive(data, np.flatnonzero(data.fold != 0))).items()}


def part_job(
    shared: Any, problem: str, part: int, fold: int, own: int, cells: list[int] | None = None,
    candidates: list[int] | None = None, structure: list[float] | None = None, spread: bool = True,
    pairs: bool = True, value: bool = False, exceptional: list[int] | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Evidence on one part of a target and one fold. `own` is the input whose change the part is (-1: it is not a
    change).

    `value`: predict the next value instead of the change, because an earlier fold found that better.

    `spread`: also look for causes of the target's spread. `pairs`: models see differences of two variables.

    `cells`, `candidates` and `structure` come from an earlier fold: then only those cells are tested, and the
    `exceptional` ones as causes of exceptions to the law.
    """
    data, screened = _load(shared, problem)
    work = _Part(data, screened, part, fold, own, pairs, value)
    if candidates is None:
        found = work.search(spread)
        if work.is_memoryless(found):  # given the other inputs, its own past says nothing about its next value
            value = True
            work = _Part(data, screened, part, fold, own, pairs, value)
            found = work.search(spread)
    else:
        assert structure is not None and cells is not None
        found = work.retest(candidates, cells, exceptional or [], _structure(structure))
    chosen = work.structure
    return {
        **found.arrays(), "candidates": np.array(work.candidates, int), "value": np.array(value),
        "structure": np.array(astuple(chosen), float),
    }  # fmt: skip


def _structure(numbers: list[float]) -> Structure:
    order, ridge, rounds, *yes = numbers
    return Structure(int(order), ridge, int(rounds), *(bool(y) for y in yes))


_cache: dict[Any, Any] = {}


def _load(shared: Any, problem: str) -> tuple[Dataset, Additive]:
    """The arrays of a problem, loaded once per process."""
    key = (str(getattr(shared, "path", id(shared))), problem)
    if _cache.get("key") != key:
        _cache.clear()
        seen.clear()
        screened = Additive(*(np.asarray(shared[f"{problem}.{field.name}"]) for field in fields(Additive)))
        _cache.update(key=key, data=Dataset.load(shared, problem), screened=screened)
    return _cache["data"], _cache["screened"]


class _Part(Candidates):
    """Takes one part from the inputs in view to evidence."""

    def search(self, spread: bool, looked: tuple[np.ndarray, Trees] | None = None) -> Evidence:
        """Choose candidates by two screens of all inputs and prune them; look at their model's residual, to restore
        those dropped by mistake; then test each candidate alone."""
        score, trees = looked or self.scores()
        self.candidates = self._chosen(score)
        refits = self._prune(self._refits(self.y), score)
        nothing_left = refits.full.mean() < FLOOR
        more, used = (self.wald, 0) if nothing_left else tree_gains(trees, self.data.inputs, self._left_over(refits))
        missed = [int(j) for j in np.flatnonzero(more[: self.data.inputs] > FOUND) if j not in self.candidates]
        missed = [j for j in missed if not self.shows_action[j]]
        if used and missed:
            self.candidates += sorted(missed, key=lambda j: -more[j])[:MOST_ADDED]
            refits = self._refits(self.y)
        refits = self._on_all_rows(refits)
        found = self._empty(refits)
        self._test(found, refits, self.candidates)
        refits = self._without_harm(found, refits)
        # Trees leave part of the mean unexplained, and that remainder would look like spread.
        if spread and (refits.structure.rounds == 0 or found.loss[0] > LITTLE * found.loss[1]):
            self._add_spread(found, refits, trees)
        if spread:
            self._add_exceptions(found, refits)
        self._report(found, refits.structure)
        self._add_controls(found, refits)
        found.unfitted = np.array(self._unfitted(refits))
        if self.value:
            self._doubt_past(found, float(found.unfitted))
        return found

    def retest(self, candidates: list[int], cells: list[int], exceptional: list[int], structure: Structure) -> Evidence:
        """Test the cells that another fold left open; the `exceptional` ones as causes of exceptions to the law."""
        self.candidates = candidates
        refits = self._on_all_rows(self._refits(self.y, structure))
        found = self._empty(refits)
        self._test(found, refits, cells)
        found.shadows = np.array([self._loss_without(refits, {s}) for s in self.shadows[:CONTROLS]])
        if self.value and self.past in cells:
            self._doubt_past(found, self._unfitted(refits))
        if exceptional:
            found.tested[exceptional] = 4
            self._add_exceptions(found, refits, exceptional)
        return found

    def _without_harm(self, found: Evidence, refits: Refits) -> Refits:
        """Drop candidates that make the model worse: what it fits to them by chance hides the effects of others."""
        dropped = False
        while (worst := self._most_harmful(found)) is not None:
            self.candidates.remove(worst)
            found.delta[worst], found.stderr[worst], found.tested[worst] = 0.0, 0.0, 0
            refits, dropped = self._refits(self.y), True
            self._test(found, refits, [j for j in self.candidates if found.delta[j] < 0])
        if dropped:
            found.loss = self._empty(refits).loss
            self._test(found, refits, self.candidates)
        return refits

    def _most_harmful(self, found: Evidence) -> int | None:
        """The candidate whose removal improves the model most, by more than chance; bundles stay whole."""
        staying = {self.own, *range(self.data.exogenous, self.data.inputs)}
        harm = {j: -found.delta[j] for j in self.candidates if j not in staying and self.bundle[j] < 0}
        harm = {j: nats for j, nats in harm.items() if nats > max(HARMFUL * found.stderr[j], NEGLIGIBLE)}
        return max(harm, key=lambda j: harm[j]) if harm else None

    def _bundles(self) -> list[list[int]]:
        """Groups of candidates that hardly vary independently of each other."""
        bundles = [[j for j in self.candidates if self.bundle[j] == b] for b in np.unique(self.bundle[self.candidates])]
        return [members for members in bundles if len(members) > 1 and self.bundle[members[0]] >= 0]

    def _worth(self, refits: Refits, j: int) -> tuple[float, float]:
        """Nats lost without an input, and their error; a weak effect must also hold against better models without the
        input."""
        delta, stderr = self._loss_without(refits, {j})
        if CONCEIVABLE * stderr < delta < max(WEAK, WEAK_SHARE * self._explained(refits)):
            for full, without in refits.challenged(j):
                delta, stderr = min((delta, stderr), self._nats(refits, full, without))
                if delta <= CONCEIVABLE * stderr:
                    break
        return delta, stderr

    def _explained(self, refits: Refits) -> float:
        """Nats of this part that all its inputs together explain."""
        constant = float(((refits.y[refits.test] - refits.mean) ** 2).sum(1).mean())
        return 0.5 * float(np.log((constant + FLOOR) / (refits.full.mean() + FLOOR)))

    def _loss_without(self, refits: Refits, hidden: set[int]) -> tuple[float, float]:
        """Nats lost without some inputs, and the standard error over episodes."""
        return self._nats(refits, refits.full, refits.without(hidden))

    def _empty(self, refits: Refits) -> Evidence:
        J = self.data.inputs
        zeros = [np.zeros(J) for _ in range(5)]
        constant = ((refits.y[refits.test] - refits.mean) ** 2).sum(1).mean()
        found = Evidence(zeros[0], zeros[1], np.zeros(J, int), zeros[3], zeros[4])
        mean = refits.full.mean() + FLOOR
        scale = student_scale(refits.full) if refits.structure.tails else mean
        found.loss = np.array([mean, constant + FLOOR, len(refits.test), scale])
        return found

    def _test(self, found: Evidence, refits: Refits, cells: list[int]) -> None:
        """Test each input alone, and each bundle of inputs that hardly vary independently."""
        if self.before is not None and self.within < 0 and self.own in cells:
            self._test_own(found, refits)
        for j in cells:
            if j != self.own:
                found.delta[j], found.stderr[j] = self._worth(refits, j)
                found.tested[j] = 2
        for members in self._bundles():
            delta, stderr = self._loss_without(refits, set(members))
            found.bundled[members], found.bundled_stderr[members] = delta, stderr
            alone = [j for j in members if j in cells and j != self.own]
            if delta > SURE * stderr and (found.delta[alone] < SURE * found.stderr[alone]).all():
                for j in alone:
                    own, error = self._nats(refits, *refits.with_own_variation(j, self.cluster))
                    if own * found.stderr[j] > found.delta[j] * error:
                        found.delta[j], found.stderr[j] = own, error

    def _test_own(self, found: Evidence, refits: Refits) -> None:
        """Nats lost without the variable's own past: models of its next value without it against models of its
        change."""
        value, j = refits.of_value(self.own), self.own
        found.delta[j], found.stderr[j] = self._nats(refits, refits.full, value.full)
        found.tested[j] = 2
        spread = ((value.y[value.test] - value.mean) ** 2).sum(1).mean()
        left = float(value.full.mean() / max(spread, 1e-300))
        if left > OWN_VARIATION and found.delta[j] > SURE * MOST_MISFIT:
            return
        unfitted = self._unfitted(value)
        self._doubt_past(found, unfitted)
        if left < NOISY or (left < OWN_VARIATION and unfitted > UNFITTED):
            use = self.wald if value.gains is None else value.gains
            found.follows = np.array(max((i for i in self.candidates if i != j), key=lambda i: use[i], default=-1))

    def _doubt_past(self, found: Evidence, unfitted: float) -> None:
        """Add misfit to the error of the previous value: no other input makes up for misfit as well, since the previous
        value contains it too. So all nats gained by doubling the rows count."""
        found.stderr[self.past] = np.hypot(found.stderr[self.past], min(max(unfitted, 0.0), MOST_MISFIT))

    def is_memoryless(self, found: Evidence) -> bool:
        """Whether the next value is predicted from the other inputs as well as the change is from all inputs."""
        tested = self.own >= 0 and found.tested[self.own] == 2
        return bool(tested and found.delta[self.own] < SURE * found.stderr[self.own])

    def _add_spread(self, found: Evidence, refits: Refits, trees: Trees) -> None:
        """Add causes of the target's spread to those of its mean."""
        left = self._left_over(refits)[:, :1]
        unit = 1.4826 * float(np.median(np.abs(left[self.rows.fit])))
        if self.discrete or found.loss[0] < NOISY or unit < 1e-3 * left[self.rows.fit].std():
            return
        gains, used = tree_gains(trees, self.data.inputs, self._spread(left, unit))
        if used < SPREAD_ROUNDS:
            return
        known = found.delta > SURE * found.stderr
        new = [int(j) for j in np.argsort(-gains[: self.data.inputs]) if gains[j] > SHOWN and not known[j]]
        new = [j for j in new[:6] if j != self.own]
        before = self.candidates
        self.candidates = list(dict.fromkeys([*before, *new]))
        for j in new:
            delta, stderr = self._worth_to_spread(refits, j, unit)
            if delta > found.delta[j] and delta > SURE * stderr:
                found.delta[j], found.stderr[j], found.tested[j] = delta, stderr, 3
        if not (found.tested == 3).any():
            self.candidates = before

    def _worth_to_spread(self, refits: Refits, j: int, unit: float) -> tuple[float, float]:
        """Nats that the spread of the target loses without an input, beyond those of a shadow, and their error.

        The spread around a refit without that input: what the mean owes to it by chance would show as spread, where
        outcomes are often the same and the residual is the prediction itself.
        """
        spread = self._spread(self._left_over(refits, j)[:, :1], unit)
        of_spread = Refits(self.x, self.owner, spread, self.candidates + self.shadows[:CONTROLS], self.rows)
        usual = max(self._loss_without(of_spread, {s})[0] for s in self.shadows[:CONTROLS])
        delta, stderr = self._loss_without(of_spread, {j})
        return delta - max(usual, 0.0), stderr

    def _spread(self, left: np.ndarray, unit: float) -> np.ndarray:
        """(T, 1) logarithm of the size of residuals, relative to its mean."""
        spread = np.log(np.abs(left) / unit + 0.05)
        return np.asarray(spread - spread[self.rows.fit].mean())

    def _add_exceptions(self, found: Evidence, refits: Refits, cells: list[int] | None = None) -> None:
        """Add causes of whether the law holds in a row, where that shows them more clearly than the law itself; or only
        `cells`, for which another fold found this. Their errors include the misfit of these models."""
        which = exceptions(refits, self.rows, self.data.cluster) if refits.structure.tails else None
        if which is None:
            return
        asked, screened = exceptions_dataset(self.data, self.part, which, self.rows, self.bundle)
        work = _Part(asked, screened, 0, self.fold, -1, self.pairs)
        work.about_exceptions = True
        looked = work.scores()
        unclear = found.delta < SURE * np.maximum(found.stderr, 1e-12)
        if cells is None and not (unclear & (looked[0][: self.data.inputs] > 1)).any():
            return
        answer = work.search(False, looked)
        stderr = np.sqrt(
            answer.stderr**2 + 2 * np.mean(np.clip(answer.shadows[:, 0], 0, None) ** 2) + misfit_of(answer) ** 2
        )
        for j in clearer(found, answer, stderr, self.own) if cells is None else cells:
            found.delta[j], found.stderr[j], found.tested[j] = answer.delta[j], stderr[j], 4

    def _report(self, found: Evidence, structure: Structure) -> None:
        """Record CMI given all other inputs, as the method defines it: pruned candidates belong to the condition too.

        For inputs that were no candidates, the closed form has the only estimate.
        """
        nats, additive = (
            self.nats[: self.data.inputs],
            structure.order <= 1 and structure.rounds == 0 and not (structure.bent or structure.index),
        )
        found.given_all = np.where((found.tested == 0) | ((found.tested == 2) & additive), nats, found.delta)
        if self.own >= 0:
            found.given_all[self.own] = found.delta[self.own]

    def _add_controls(self, found: Evidence, refits: Refits) -> None:
        found.shadows = np.array([self._loss_without(refits, {s}) for s in self.shadows[:CONTROLS]])
        shadow = self.shadows[0]
        column = int(np.flatnonzero((refits.owner == shadow).all(1))[0])
        found.planted = np.array(self._planted(refits, shadow, column, float(found.shadows[:, 1].mean())))

    def _unfitted(self, refits: Refits) -> float:
        """Nats that the models still gain when their rows double; a residual that is all noise does not shrink with
        more rows."""
        half = self.data.cluster[self.rows.fit] % 2 == 0
        if not (refits.structure.order or refits.structure.rounds) or not half.any():
            return 0.0
        full, other = refits.fitted_to(half)
        return nats_lost(full, other, np.arange(len(full)), refits.structure.tails)[0] if len(full) else 0.0

    def _planted(self, refits: Refits, shadow: int, column: int, error: float) -> tuple[float, float, float]:
        """Nats that the same models find of an effect planted on a shadow (a step at its mean), their error, and the
        true size: large enough to stand out from `error`, that of a shadow without an effect."""
        nats = max(PLANTED, SURE * error)
        z = refits.columns[:, column]
        step = np.where(z > z.mean(), 1.0, -1.0)
        noise = refits.full.mean() / refits.y.shape[1] + FLOOR
        if refits.structure.tails:  # variance of a Gaussian with the same Fisher information about a shift
            noise = student_scale(refits.full) * (TAIL_DEGREES + 3) / (TAIL_DEGREES + 1)
        size = np.sqrt(np.expm1(2 * nats) * noise)
        other = refits.relabelled(refits.y + size * step[:, None])
        return *self._loss_without(other, {shadow}), nats


def clearer(found: Evidence, answer: Evidence, stderr: np.ndarray, own: int) -> list[int]:
    """Inputs that causes of exceptions (`answer`, with errors `stderr`) show more clearly than the law does (`found`).

    The variable's own past is none of them if it was not tested: its edge holds by construction.
    """
    z = answer.delta / np.maximum(stderr, 1e-12)
    known = found.delta / np.maximum(found.stderr, 1e-12)
    better = (answer.tested == 2) & (z > np.maximum(known, CONCEIVABLE)) & (known < SURE) & (found.tested != 3)
    if own >= 0 and not found.tested[own]:
        better[own] = False
    return [int(j) for j in np.flatnonzero(better)]
