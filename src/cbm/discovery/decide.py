"""All verdicts: edge, none or undecided, from refits (`decide`) and from networks (`decide_networks`).

Of refits: edges are claimed at a stated false discovery rate over all cells, "none" means no effect above the target's
limit of detection, and each undecided cell has its reason. Of networks, which learn beside policies and in the
published setting: the paper's threshold, or thresholds calibrated on inputs that cannot matter.
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
from cbm.graph.reward import UNSETTLED

NEAR = "near the threshold"
FEW = "too few rows"
MISFITTED = "smaller than what models do not fit"


@dataclass(frozen=True)
class Verdicts:
    """(K, inputs) decisions about real inputs."""

    cmi: np.ndarray
    stderr: np.ndarray
    thresholds: np.ndarray
    edge: np.ndarray
    """Whether the effect counts as present, undecided cells included."""
    verdict: np.ndarray
    """"edge", "none" or "undecided"."""
    reason: np.ndarray = field(default_factory=lambda: np.zeros(0, "<U1"))
    """Why a cell is undecided; empty: not said."""
    settled: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Whether a cell was decided, or left open, by the data and not by a ceiling; empty: all are."""
    limit: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(K,) limit of detection in nats; empty: not measured."""


def open_cells(pooled: Pooled) -> list[list[int]]:
    """Per target the cells that another fold should look at: neither clearly there nor clearly not."""
    return [np.flatnonzero(row).tolist() for row in _open(pooled)]


def _open(pooled: Pooled) -> np.ndarray:
    """(K, J); an effect on the spread was sure from the start. Without noise, few rows make up all errors. An error
    that is large may hide what other cells of the target would show."""
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

    `bundle` (J,) numbers inputs that hardly vary apart. `variation` says in how many rows each target and each input is
    not what it mostly is. `redundant` are inputs that follow from others, but for what models do not fit, with the one
    that each goes with most. `shown` (J,) is the exogenous input beside which an input hardly varies; -1: none.
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
    unclear &= (z > doubtful) | (reach > large[:, None]) | (delta >= np.maximum(bar * _without_misfit(pooled), least))
    if len(pooled.short) and pooled.given_all.size:  # of few rows, the looks miss what a sum of functions shows
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
    if len(pooled.short):  # of few rows, every fold is asked about everything
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
    """(K,) nats that "none" must rule out: much by itself, or half of all that is known of the target."""
    if not len(pooled.explained):
        return np.full(len(pooled.delta), np.inf)
    return np.maximum(BLIND, BLIND_SHARE * pooled.explained)


def _without_misfit(pooled: Pooled) -> np.ndarray:
    """(K, J) errors without most of the misfit: what would be an edge but for that is not ruled out."""
    misfit = _misfit(pooled)
    return np.maximum(np.sqrt(np.maximum(pooled.error**2 - misfit**2, 0.0)), misfit / LITTLE_MISFIT)


def _mostly_misfit(pooled: Pooled) -> np.ndarray:
    """(K, J) whether half of an error's square or more is what models have not fitted, whatever the rows."""
    return np.asarray(2 * _misfit(pooled) ** 2 >= np.maximum(pooled.error**2, 1e-24))


def _misfit(pooled: Pooled) -> np.ndarray:
    """(K, 1) part of the errors that models have not fitted; none where it was not measured."""
    return pooled.misfit[:, None] if len(pooled.misfit) else np.zeros((len(pooled.delta), 1))


def _decide_blind(verdict: np.ndarray, reason: np.ndarray, blind: np.ndarray) -> None:
    """Where only very strong effects could be seen, that none was seen says nothing."""
    where = blind[:, None] & (verdict == "none")
    verdict[where], reason[where] = "undecided", FEW


def _decide_rare(verdict: np.ndarray, reason: np.ndarray, of_targets: np.ndarray, of_inputs: np.ndarray) -> None:
    """What hardly ever changes says nothing of its causes, or of its effects, unless they are seen."""
    rows = np.minimum(np.where(of_targets > 0, of_targets, RARE)[:, None], np.where(of_inputs > 0, of_inputs, RARE))
    for k, j in zip(*np.nonzero((rows < RARE) & (verdict == "none"))):
        verdict[k, j], reason[k, j] = "undecided", f"hardly ever changes ({rows[k, j]} rows)"


def edge_bar(z: np.ndarray, rate: float) -> float:
    """Errors above zero from which on a cell is an edge, so that at most a share `rate` of all edges is false.

    The step-up rule of Benjamini and Hochberg over all cells; at least three.
    """
    p = np.sort(stats.t.sf(z.ravel(), DEGREES))
    passing = np.flatnonzero(p <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))
    claimed = passing[-1] + 1 if len(passing) else 1
    return max(3.0, float(stats.t.isf(rate * claimed / max(len(p), 1), DEGREES)))


def _decide_bundles(
    verdict: np.ndarray, reason: np.ndarray, pooled: Pooled, bundle: np.ndarray, names: list[str], bar: float
) -> None:
    """Inputs that hardly vary apart: if a model needs the bundle and no single member, nobody can say which.

    A member is sure when the others cannot stand in for it, and none of them has a far larger effect.
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
    """What follows from other inputs has nothing of its own. Where a law is not fitted, it may seem to be needed only
    because models find it easier to follow than what it follows from."""
    for j, mate in (redundant or {}).items():
        for k in np.flatnonzero((verdict[:, j] == "edge") & (pooled.misfit > MISFIT / 10)):
            verdict[k, j], reason[k, j] = "undecided", f"hardly varies by itself: goes with {names[mate]}"


def _decide_shown(
    verdict: np.ndarray, reason: np.ndarray, pooled: Pooled, shown: np.ndarray | None, names: list[str]
) -> None:
    """What hardly varies beside an input that is always in view. A weak effect of it may be misfit of that input's."""
    if shown is None:
        return
    for j in np.flatnonzero(shown >= 0):
        for k in np.flatnonzero((verdict[:, j] == "edge") & (pooled.z[:, j] < SURE)):
            verdict[k, j], reason[k, j] = "undecided", f"hardly varies by itself: goes with {names[shown[j]]}"


def above_shadows(cmi: np.ndarray, real_inputs: int) -> np.ndarray:
    """CMI relative to that of a typical shadow of the same target: what every dropped input costs is no effect."""
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

    `strongest` (K,) is the CMI of each target's strongest cause, where that is not the largest in `cmi`;
    `sure` is how many of its own standard errors an effect must exceed, `lenience` how many it may lack of its
    threshold and still count; `breadth` (inputs,) how many columns each input has: shadows have one, and what
    models imagine grows with their number.
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
    """(K, inputs): beyond the scatter of the target's shadows and a small share of its strongest cause.

    Never below `smallest_effect`, never above twice the paper's epsilon.
    """
    own = NORMAL * np.abs(null).mean(1) if null.shape[1] else np.zeros(len(strongest))
    usual = np.median(own) if len(own) else 0.0
    scatter = np.sqrt((own**2 + usual**2) / 2)  # few shadows per target: lean on the others' too
    wanted = np.maximum(SHADOW_DEVIATIONS * np.outer(scatter, breadth), settings.strongest_share * strongest[:, None])
    return np.clip(wanted, settings.smallest_effect, 2 * settings.epsilon)
