"""All verdicts: edge, none or undecided, from refits (`decide`) and from networks (`decide_networks`).

From refits, edges are claimed at a stated false discovery rate over all cells, "none" means no effect above the
target's limit of detection, and each undecided cell has its reason. From networks, used online and in the published
setting, decisions use the paper's threshold, or thresholds calibrated on inputs that cannot matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from cbm.discovery.evidence import Pooled
from cbm.discovery.settings import (
    ASKED,
    BLIND,
    BLIND_SHARE,
    DEGREES,
    DOMINANT,
    DOUBTFUL,
    HIDDEN,
    LITTLE_MISFIT,
    MISFIT,
    NORMAL,
    RARE,
    SHADOW_DEVIATIONS,
    STANDARD_ERRORS,
    SURE,
    SURE_ABOVE_ZERO,
    SURE_WITHOUT_NOISE,
    Settings,
)
from cbm.graph.reward import NEAR, UNSETTLED

FEW = "too few rows"
MISFITTED = "smaller than what models do not fit"


@dataclass(frozen=True)
class Verdicts:
    """(K, inputs) decisions about real inputs."""

    cmi: np.ndarray
    stderr: np.ndarray
    thresholds: np.ndarray
    edge: np.ndarray
    """Whether the effect counts as present; in undecided cells, the better guess."""
    verdict: np.ndarray
    """"edge", "none" or "undecided"."""
    reason: np.ndarray = field(default_factory=lambda: np.zeros(0, "<U1"))
    """Why a cell is undecided; empty if no reasons were recorded."""
    settled: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Whether a cell was decided, or left undecided, by the data rather than by a ceiling; empty: all cells were."""
    limit: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(K,) limit of detection in nats; empty: not measured."""


def open_cells(pooled: Pooled) -> list[list[int]]:
    """For each target, the cells that another fold should measure: neither clearly an effect nor clearly none."""
    return [np.flatnonzero(row).tolist() for row in _open(pooled)]


def _open(pooled: Pooled) -> np.ndarray:
    """(K, J) booleans. Effects on the spread were already tested until sure. Without noise a few rows can make up all
    errors, so more is needed to be sure. An unusually large error may hide an effect that other cells of the target
    would show."""
    misfit = _misfit(pooled)
    sure = np.where(misfit > MISFIT / 2, SURE_WITHOUT_NOISE, SURE)
    hidden = pooled.delta + STANDARD_ERRORS * pooled.error > HIDDEN * pooled.limit_error[:, None]
    doubtful = ((pooled.z > ASKED) | (pooled.bundled > ASKED) | hidden) & (pooled.z < sure)
    return np.asarray(doubtful & (pooled.tested > 0) & (pooled.tested != 3))


def decide(
    pooled: Pooled,
    bundle: np.ndarray,
    names: list[str],
    settings: Settings,
    variation: tuple[np.ndarray, np.ndarray] | None = None,
    redundant: Mapping[int, int] | None = None,
    shown: np.ndarray | None = None,
) -> Verdicts:
    """Verdicts on all cells.

    `bundle` (J,) numbers groups of inputs that hardly vary independently. `variation` counts the rows in which each
    target and each input differs from its most common value. `redundant` maps inputs that follow from others, except
    for misfit, to the input that explains most of them. `shown` (J,) is the exogenous input given which an input hardly
    varies; -1: none.
    """
    z, delta = pooled.z, pooled.delta
    bar = edge_bar(z, settings.false_discovery_rate)
    least = settings.smallest_effect
    needed = np.maximum(bar * pooled.error, least)
    power = float(stats.norm.isf(settings.miss_rate))
    edge = (delta >= needed) & (pooled.tested > 0)
    reach = delta + power * pooled.error
    large = _large(pooled)
    unclear = ~edge & (pooled.tested > 0) & (reach > least)
    doubtful = np.where(pooled.short, ASKED, DOUBTFUL)[:, None] if len(pooled.short) else DOUBTFUL
    hidden = (delta > DOUBTFUL * _without_misfit(pooled)) & (reach > BLIND)  # not ruled out by what is not fitted
    unclear &= (z > doubtful) | (reach > large[:, None]) | hidden
    if len(pooled.short) and pooled.given_all.size:  # with few rows, screening misses effects of the closed form
        unclear |= ~edge & pooled.short[:, None] & (pooled.tested == 0) & (pooled.given_all > DOUBTFUL * pooled.error)
    if settings.rule == "threshold":  # the paper's rule
        edge, unclear, needed = delta >= settings.epsilon, np.zeros_like(edge), np.full_like(needed, settings.epsilon)
    verdict = np.where(edge, "edge", np.where(unclear, "undecided", "none")).astype("<U9")
    reason = np.where(unclear, np.where(_mostly_misfit(pooled), MISFITTED, NEAR), "").astype(object)
    if settings.rule == "calibrated":
        _decide_bundles(verdict, reason, pooled, bundle, names, bar)
        _decide_redundant(verdict, reason, pooled, redundant, names)
        _decide_shown(verdict, reason, pooled, shown, names)
    if settings.rule == "calibrated" and variation is not None:
        _decide_rare(verdict, reason, *variation)
    measured = pooled.error > 0
    asked = (verdict == "undecided") | ~measured | _open(pooled)
    if len(pooled.short):  # with few rows, every fold tests all candidates
        asked |= pooled.short[:, None]
    unsettled = ~pooled.settled[:, None] & asked
    verdict[unsettled], reason[unsettled] = "undecided", UNSETTLED
    guess = np.where(verdict == "undecided", delta >= needed / 2, verdict == "edge") & measured
    clear = np.maximum((bar + power) * pooled.limit_error, np.where(verdict == "none", reach, 0.0).max(1, initial=0.0))
    limit = np.maximum(clear, np.maximum((bar + power) * pooled.limit_error / pooled.efficiency, least))
    if settings.rule == "calibrated":
        _decide_blind(verdict, reason, pooled.short & np.isfinite(clear) & (clear > large))
    limit = np.where(np.isfinite(limit), limit, np.nan)
    cmi = delta
    if pooled.given_all.size:
        cmi = np.where((verdict == "edge") & (pooled.given_all >= needed), pooled.given_all, delta)
        cmi = np.where(pooled.tested == 0, np.minimum(pooled.given_all, needed), cmi)
    return Verdicts(cmi, pooled.error, needed, guess, verdict, reason.astype(str), ~unsettled, limit)


def _large(pooled: Pooled) -> np.ndarray:
    """(K,) nats that "none" must rule out: `BLIND`, or half of all that is explained of the target if that is more."""
    if not len(pooled.explained):
        return np.full(len(pooled.delta), np.inf)
    return np.maximum(BLIND, BLIND_SHARE * pooled.explained)


def _without_misfit(pooled: Pooled) -> np.ndarray:
    """(K, J) errors without most of the misfit, for effects that misfit hides without ruling them out."""
    misfit = _misfit(pooled)
    return np.maximum(np.sqrt(np.maximum(pooled.error**2 - misfit**2, 0.0)), misfit / LITTLE_MISFIT)


def _mostly_misfit(pooled: Pooled) -> np.ndarray:
    """(K, J) whether misfit, which does not shrink with more rows, makes up at least half of the squared error."""
    return np.asarray(2 * _misfit(pooled) ** 2 >= np.maximum(pooled.error**2, 1e-24))


def _misfit(pooled: Pooled) -> np.ndarray:
    """(K, 1) part of the errors that is due to misfit; zero where it was not measured."""
    return pooled.misfit[:, None] if len(pooled.misfit) else np.zeros((len(pooled.delta), 1))


def _decide_blind(verdict: np.ndarray, reason: np.ndarray, blind: np.ndarray) -> None:
    """Where only very strong effects could be detected, finding none says nothing."""
    where = blind[:, None] & (verdict == "none")
    verdict[where], reason[where] = "undecided", FEW


def _decide_rare(verdict: np.ndarray, reason: np.ndarray, of_targets: np.ndarray, of_inputs: np.ndarray) -> None:
    """No absence of an effect is claimed for a target or an input that hardly ever changes."""
    rows = np.minimum(np.where(of_targets > 0, of_targets, RARE)[:, None], np.where(of_inputs > 0, of_inputs, RARE))
    for k, j in zip(*np.nonzero((rows < RARE) & (verdict == "none"))):
        verdict[k, j], reason[k, j] = "undecided", f"hardly ever changes ({rows[k, j]} rows)"


def edge_bar(z: np.ndarray, rate: float) -> float:
    """z-score from which on a cell is an edge, so that at most a share `rate` of all edges is false.

    The step-up rule of Benjamini and Hochberg over all cells; at least three.
    """
    p = np.sort(stats.t.sf(z.ravel(), DEGREES))
    passing = np.flatnonzero(p <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))
    claimed = passing[-1] + 1 if len(passing) else 1
    return max(3.0, float(stats.t.isf(rate * claimed / max(len(p), 1), DEGREES)))


def _decide_bundles(
    verdict: np.ndarray, reason: np.ndarray, pooled: Pooled, bundle: np.ndarray, names: list[str], bar: float
) -> None:
    """Inputs that hardly vary independently: if a model needs the bundle but no single member, the data cannot tell
    which.

    A member is certain if the others cannot replace it and none of them has a far larger effect.
    """
    for b in range(int(bundle.max(initial=-1)) + 1):
        members = np.flatnonzero(bundle == b)
        for k in np.flatnonzero(pooled.bundled[:, members].max(1, initial=0.0) > bar):
            delta = pooled.delta[k, members]
            rivals = np.array([np.delete(delta, n).max() for n in range(len(members))])
            sure = (pooled.z[k, members] > SURE) & (DOMINANT * delta > rivals)
            doubtful = members[~sure]
            for j in doubtful if not sure.any() else doubtful[verdict[k, doubtful] == "edge"]:
                mate = next(m for m in members if m != j)
                verdict[k, j], reason[k, j] = "undecided", f"hardly varies by itself: goes with {names[mate]}"


def _decide_redundant(
    verdict: np.ndarray, reason: np.ndarray, pooled: Pooled, redundant: Mapping[int, int] | None, names: list[str]
) -> None:
    """An input that follows from others carries no information of its own. Where a law is not fully fitted, it may seem
    to be needed only because models follow it more easily than the inputs that determine it."""
    for j, mate in (redundant or {}).items():
        for k in np.flatnonzero((verdict[:, j] == "edge") & (pooled.misfit > MISFIT / 10)):
            verdict[k, j], reason[k, j] = "undecided", f"hardly varies by itself: goes with {names[mate]}"


def _decide_shown(
    verdict: np.ndarray, reason: np.ndarray, pooled: Pooled, shown: np.ndarray | None, names: list[str]
) -> None:
    """An input that hardly varies given one that is always in view: a weak effect may be misfit of that other input."""
    if shown is None:
        return
    for j in np.flatnonzero(shown >= 0):
        for k in np.flatnonzero((verdict[:, j] == "edge") & (pooled.z[:, j] < SURE)):
            verdict[k, j], reason[k, j] = "undecided", f"hardly varies by itself: goes with {names[shown[j]]}"


def above_shadows(cmi: np.ndarray, real_inputs: int) -> np.ndarray:
    """CMI minus that of a typical shadow of the same target: a loss that comes with dropping any input is no effect."""
    shadows = cmi[:, real_inputs:]
    return cmi - np.median(shadows, 1, keepdims=True) if shadows.shape[1] else cmi


def decide_networks(
    cmi: np.ndarray,
    stderr: np.ndarray,
    null: np.ndarray,
    settings: Settings,
    strongest: np.ndarray | None = None,
    sure: float = SURE_ABOVE_ZERO,
    lenience: float = 0.0,
    breadth: np.ndarray | None = None,
) -> Verdicts:
    """Verdicts from (K, inputs) CMI and standard errors, and (K, n) CMI of shadows.

    `strongest` (K,) is the CMI of each target's strongest cause, if that is not the largest in `cmi`; `sure` is the
    number of its own standard errors that an effect must exceed; `lenience` is how many standard errors below its
    threshold an effect may lie and still count; `breadth` (inputs,) is the number of columns of each input: shadows
    have one, and spurious CMI grows with that number.
    """
    if settings.rule == "threshold":
        edge = cmi >= settings.epsilon  # the paper's rule
        verdict = np.where(edge, "edge", "none")
        return Verdicts(cmi, stderr, np.full_like(cmi, settings.epsilon), edge, verdict)
    if strongest is None:
        strongest = cmi.max(1, initial=0.0)
    breadth = np.ones(cmi.shape[1]) if breadth is None else breadth
    thresholds = np.maximum(calibrated_thresholds(strongest, null, settings, breadth), sure * stderr)
    edge = cmi + lenience * stderr > thresholds
    clear = np.abs(cmi - thresholds) > STANDARD_ERRORS * stderr
    verdict = np.where(clear, np.where(edge, "edge", "none"), "undecided")
    return Verdicts(cmi, stderr, thresholds, edge, verdict)


def calibrated_thresholds(
    strongest: np.ndarray, null: np.ndarray, settings: Settings, breadth: np.ndarray
) -> np.ndarray:
    """(K, inputs) thresholds: beyond the scatter of the target's shadows and a small share of its strongest cause.

    Never below `smallest_effect`, never above twice the paper's epsilon.
    """
    own = NORMAL * np.abs(null).mean(1) if null.shape[1] else np.zeros(len(strongest))
    usual = np.median(own) if len(own) else 0.0
    scatter = np.sqrt((own**2 + usual**2) / 2)  # a target has few shadows, so those of all targets count as well
    wanted = np.maximum(SHADOW_DEVIATIONS * np.outer(scatter, breadth), settings.strongest_share * strongest[:, None])
    return np.clip(wanted, settings.smallest_effect, 2 * settings.epsilon)
