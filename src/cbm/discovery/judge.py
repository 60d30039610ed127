"""Verdicts from refits: edge, none or undecided, each with an error that contains that of the models.

An effect is what refits without an input lose on new episodes, averaged over folds. Its error has two parts: the
scatter over episodes, and the scatter from refit to refit, which shadows show. Edges are claimed at a stated false
discovery rate over all cells. "None" means: no effect above the target's limit of detection.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from cbm.discovery.decide import Verdicts
from cbm.discovery.settings import (
    ASKED,
    BLIND,
    BLIND_SHARE,
    DEGREES,
    DOMINANT,
    DOUBTFUL,
    FEW_TESTED,
    LEAST_EFFICIENCY,
    MOST_SCATTER,
    PLANTED,
    PRIOR_SHADOWS,
    RARE,
    SURE,
    Settings,
)

NEAR = "near the threshold"
FEW = "too few rows"
UNSETTLED = "not settled before the ceiling"


@dataclass(frozen=True)
class Pooled:
    """(K, J) what all folds together say."""

    delta: np.ndarray
    error: np.ndarray
    tested: np.ndarray
    bundled: np.ndarray
    """Effect of the bundle that an input is in, in its own errors; 0 where there is none."""
    limit_error: np.ndarray
    """(K,) error of a typical cell."""
    efficiency: np.ndarray
    """(K,) share of a planted effect that was found."""
    settled: np.ndarray
    """(K,) whether everything that was asked has been answered."""
    given_all: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """Effects given every other input, for what is reported of an edge."""
    explained: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(K,) nats that all inputs together tell of a target."""
    short: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """(K,) whether it was tested on few rows."""

    @property
    def z(self) -> np.ndarray:
        return np.where(self.error > 0, self.delta / np.maximum(self.error, 1e-12), 0.0)


def pool(found: list[list[dict[str, np.ndarray]]], share: np.ndarray, inputs: int, asked: list[int]) -> Pooled:
    """`found[p]` is the evidence on part p, of every fold it was measured on; `asked[p]` how many those should be.

    `share` (K, P) is what each part counts in each target: log-likelihoods of parts add up.
    """
    count = len(found)
    scatter = _fit_scatter(found)
    delta, error, given_all = (np.zeros((count, inputs)) for _ in range(3))
    bundled, bundled_error = np.zeros((count, inputs)), np.zeros((count, inputs))
    tested = np.zeros((count, inputs), int)
    limit, efficiency = np.full(count, np.inf), np.full(count, LEAST_EFFICIENCY)
    explained, short = np.zeros(count), np.zeros(count, bool)
    for p, parts in enumerate(found):
        if not parts:
            continue
        weight = np.stack([(part["tested"] > 0) | (n == 0) for n, part in enumerate(parts)]).astype(float)
        total = weight.sum(0)
        delta[p] = (weight * np.stack([part["delta"] for part in parts])).sum(0) / total
        own = np.sqrt((weight * np.stack([part["stderr"] for part in parts]) ** 2).sum(0)) / total
        usual = np.sqrt(np.mean([part["shadows"][:, 1] ** 2 for part in parts]))
        usual = max(usual, parts[0]["planted"][1] / 2)  # a model that uses nothing has shadows without any scatter
        own = np.where(own > 0, own, usual)
        error[p] = np.sqrt(own**2 + scatter[p] ** 2 / total)
        tested[p] = parts[0]["tested"]
        bundled[p] = np.mean([part["bundled"] for part in parts], 0)
        squares = np.sum([part["bundled_stderr"] ** 2 for part in parts], 0)
        bundled_error[p] = np.sqrt(squares / len(parts) ** 2 + scatter[p] ** 2)
        limit[p] = np.sqrt((usual**2 + scatter[p] ** 2) / len(parts))
        efficiency[p] = np.clip(parts[0]["planted"][0] / PLANTED, LEAST_EFFICIENCY, 1.0)
        explained[p], short[p] = _explained(parts[0]["loss"]), parts[0]["loss"][2] < FEW_TESTED
        given_all[p] = parts[0].get("given_all", parts[0]["delta"])
    settled = np.array([len(parts) >= n for parts, n in zip(found, asked)], bool)
    of = share > 0
    together = share @ bundled
    return Pooled(
        delta=share @ delta,
        error=np.where(_all(of, error.max(1, initial=0) > 0)[:, None], np.sqrt(share**2 @ error**2), 0.0),
        tested=np.array([tested[own].max(0, initial=0) for own in of], int).reshape(len(of), inputs),
        bundled=np.where(together != 0, together / np.maximum(np.sqrt(share**2 @ bundled_error**2), 1e-12), 0.0),
        limit_error=np.array([np.sqrt(((s[own] * limit[own]) ** 2).sum()) for s, own in zip(share, of)]),
        efficiency=np.array([efficiency[own].min(initial=1.0) for own in of]),
        settled=_all(of, settled),
        given_all=share @ given_all,
        explained=share @ explained,
        short=_all(of, short),
    )


def _all(of: np.ndarray, yes: np.ndarray) -> np.ndarray:
    """(K,) whether something holds of every part of a target."""
    return np.array([yes[own].all() for own in of], bool)


def _explained(loss: np.ndarray) -> float:
    """Nats that a part owes to its inputs."""
    return 0.5 * float(np.log(max(loss[1] / loss[0], 1.0)))


def _fit_scatter(found: list[list[dict[str, np.ndarray]]]) -> np.ndarray:
    """(P,) how far refits scatter beyond the error over episodes: a part's own shadows, and those of all others.

    Only what makes an input look useful counts, twice: half of what is useless lies below zero. Others count in units
    of their errors, since parts differ in size by orders of magnitude.
    """
    shadows = [np.concatenate([part["shadows"] for part in parts]) if parts else np.zeros((0, 2)) for parts in found]
    seen = [(2 * (np.clip(s[:, 0], 0, None) ** 2).sum(), (s[:, 1] ** 2).sum()) for s in shadows if len(s)]
    ratios = [min(own / max(error, 1e-24), MOST_SCATTER) for own, error in seen]
    usual = float(np.mean(ratios)) if ratios else 1.0
    result = np.zeros(len(found))
    for p, own in enumerate(shadows):
        if len(own):
            error = float((own[:, 1] ** 2).mean())
            mean = 2 * (np.clip(own[:, 0], 0, None) ** 2).sum() + PRIOR_SHADOWS * usual * error
            result[p] = np.sqrt(max(mean / (len(own) + PRIOR_SHADOWS) - error, 0.0))
    return result


def open_cells(pooled: Pooled, own: np.ndarray) -> list[list[int]]:
    """Per target the cells that another fold should look at: neither clearly there nor clearly not."""
    z = pooled.z
    doubtful = (z > ASKED) & (z < SURE) & (pooled.tested > 0)
    doubtful |= (pooled.bundled > ASKED) & (z < SURE) & (pooled.tested > 0)
    doubtful &= pooled.tested != 3  # an effect on the spread was sure from the start
    doubtful[np.arange(len(own))[own >= 0], own[own >= 0]] = False
    return [np.flatnonzero(row).tolist() for row in doubtful]


def judge(
    pooled: Pooled,
    bundle: np.ndarray,
    names: list[str],
    settings: Settings,
    variation: tuple[np.ndarray, np.ndarray] | None = None,
) -> Verdicts:
    """Verdicts on all cells.

    `bundle` (J,) numbers inputs that hardly vary apart. `variation` says in how many rows each target and each input is
    not what it mostly is.
    """
    z, delta = pooled.z, pooled.delta
    bar = edge_bar(z, settings.false_discovery_rate)
    needed = np.maximum(bar * pooled.error, settings.smallest_effect)
    power = float(stats.norm.isf(settings.miss_rate))
    edge = (delta >= needed) & (pooled.tested > 0)
    reach = delta + power * pooled.error
    large = _large(pooled)
    unclear = ~edge & (pooled.tested > 0) & (reach > settings.smallest_effect)
    unclear &= (z > DOUBTFUL) | (reach > large[:, None])
    if settings.rule == "threshold":  # the paper's rule
        edge, unclear, needed = delta >= settings.epsilon, np.zeros_like(edge), np.full_like(needed, settings.epsilon)
    verdict = np.where(edge, "edge", np.where(unclear, "undecided", "none")).astype("<U9")
    reason = np.where(unclear, NEAR, "").astype(object)
    if settings.rule == "calibrated":
        _judge_bundles(verdict, reason, pooled, bundle, names, bar)
    if settings.rule == "calibrated" and variation is not None:
        _judge_rare(verdict, reason, *variation)
    measured = pooled.error > 0
    asked = (verdict == "undecided") | ~measured | ((z > ASKED) & (z < SURE))
    unsettled = ~pooled.settled[:, None] & asked
    verdict[unsettled], reason[unsettled] = "undecided", UNSETTLED
    guess = np.where(verdict == "undecided", delta >= needed / 2, verdict == "edge") & measured
    least = np.maximum((bar + power) * pooled.limit_error, np.where(verdict == "none", reach, 0.0).max(1, initial=0.0))
    limit = np.maximum(
        least, np.maximum((bar + power) * pooled.limit_error / pooled.efficiency, settings.smallest_effect)
    )
    if settings.rule == "calibrated":
        _judge_blind(verdict, reason, pooled.short & np.isfinite(least) & (least > large))
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


def _judge_blind(verdict: np.ndarray, reason: np.ndarray, blind: np.ndarray) -> None:
    """Where only very strong effects could be seen, that none was seen says nothing."""
    where = blind[:, None] & (verdict == "none")
    verdict[where], reason[where] = "undecided", FEW


def _judge_rare(verdict: np.ndarray, reason: np.ndarray, of_targets: np.ndarray, of_inputs: np.ndarray) -> None:
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


def _judge_bundles(
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
