"""The size of an effect from refits, and the errors that belong to it.

An effect is the loss of refits without an input on held-out episodes, averaged over folds. Its error combines the
scatter over episodes, the scatter between refits, seen in shadows and in the other folds, and misfit: structure that
the models have not fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from cbm.discovery.settings import (
    DEGREES,
    DOUBTFUL,
    FEW_TESTED,
    FLOOR,
    LEAST_EFFICIENCY,
    MISFIT,
    MOST_MISFIT,
    MOST_SCATTER,
    NOISY,
    PRIOR_FOLDS,
    PRIOR_SHADOWS,
    SURE,
    TAIL_DEGREES,
    TAIL_WORTH,
    UNFITTED,
    UNFITTED_SHARE,
)


@dataclass
class Evidence:
    """Measurements of one part of a target on one fold; arrays cover all real inputs."""

    delta: np.ndarray
    """(J,) nats that a refit without the input loses on held-out episodes."""
    stderr: np.ndarray
    """(J,) its standard error over episodes."""
    tested: np.ndarray
    """(J,) 0: not a candidate. 2: tested alone. 3: tested alone, as a cause of the target's spread. 4: tested alone, as
    a cause of exceptions to the law; the error then includes everything."""
    bundled: np.ndarray
    """(J,) nats that a refit loses without all inputs of the bundle (0 if there is none), and their error."""
    bundled_stderr: np.ndarray
    given_all: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(J,) the same given every other input, not only the candidates, if a sum of functions of single inputs describes
    the target; otherwise equal to `delta`."""
    shadows: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    """(controls, 2) nats lost without each shadow, and their errors."""
    planted: np.ndarray = field(default_factory=lambda: np.zeros(3))
    """Nats found of the planted effect, their error, and its true size."""
    loss: np.ndarray = field(default_factory=lambda: np.zeros(4))
    """Mean squared error of the model and of a constant, the number of test rows, and the squared scale of the
    residuals in the likelihood: the first number or, with heavy tails, the scale of most rows."""
    unfitted: np.ndarray = field(default_factory=lambda: np.zeros(()))
    """Nats that the model still gains when its rows double."""

    follows: np.ndarray = field(default_factory=lambda: np.array(-1))
    """If the variable follows from the other inputs, except for misfit: the input that explains most of it; otherwise
    -1."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(value) for name, value in vars(self).items()}


def nats_lost(full: np.ndarray, without: np.ndarray, cluster: np.ndarray, tails: bool = False) -> tuple[float, float]:
    """Nats lost without an input, from squared errors (T,) with and without it, and the standard error.

    The mean difference of two log-likelihoods, Gaussian or, with `tails`, Student's t, each with its best-fitting
    scale. Rows are independent between clusters only. The error of the fitted scales is of second order and left out.
    """
    with_it, without_it = (_negative_log_likelihood(squares, tails) for squares in (full, without))
    terms = without_it - with_it
    sums, sizes = np.bincount(cluster, terms), np.bincount(cluster)
    left, count = sums - terms.mean() * sizes, len(sums)
    stderr = np.sqrt((left**2).sum() * count / max(count - 1, 1)) / len(terms)
    return float(terms.mean()), float(stderr)


def _negative_log_likelihood(squares: np.ndarray, tails: bool) -> np.ndarray:
    """(T,) for residuals with these squares, up to a constant."""
    if not tails:
        variance = squares.mean() + FLOOR
        return np.asarray(0.5 * (np.log(variance) + squares / variance))
    scale = student_scale(squares)
    return np.asarray(0.5 * (np.log(scale) + (TAIL_DEGREES + 1) * np.log1p(squares / (TAIL_DEGREES * scale))))


def student_scale(squares: np.ndarray) -> float:
    """The squared scale that maximises Student's t likelihood of residuals with these squares."""
    scale = float(np.median(squares)) + FLOOR
    for _ in range(20):
        scale = float(((TAIL_DEGREES + 1) * squares / (TAIL_DEGREES + squares / scale)).mean()) + FLOOR
    return scale


def heavy_tailed(squares: np.ndarray) -> bool:
    """Whether Student's t describes residuals with these squares clearly better than a normal distribution."""
    half = TAIL_DEGREES / 2
    student = math.lgamma(half) - math.lgamma(half + 0.5) + 0.5 * math.log(TAIL_DEGREES * math.pi)
    gain = 0.5 * math.log(2 * math.pi) - student
    gain += float((_negative_log_likelihood(squares, False) - _negative_log_likelihood(squares, True)).mean())
    return gain > TAIL_WORTH


@dataclass(frozen=True)
class Pooled:
    """(K, J) evidence of all folds together."""

    delta: np.ndarray
    error: np.ndarray
    tested: np.ndarray
    bundled: np.ndarray
    """Effect of the input's bundle, in standard errors; 0 if it is in none. These errors exclude misfit, since a bundle
    can only raise doubt and never makes an edge."""
    limit_error: np.ndarray
    """(K,) error of a typical cell."""
    efficiency: np.ndarray
    """(K,) share of a planted effect that was found."""
    settled: np.ndarray
    """(K,) whether everything that was requested has been measured."""
    given_all: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """Effects given every other input, reported as the CMI of edges."""
    explained: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(K,) nats of a target that all inputs together explain."""
    short: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """(K,) whether the target was tested on few rows."""
    misfit: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(K,) part of every error that is due to misfit."""
    follows: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    """(K,) if the target's variable follows from other inputs: the one that explains most of it; otherwise -1."""

    @property
    def z(self) -> np.ndarray:
        return np.where(self.error > 0, self.delta / np.maximum(self.error, 1e-12), 0.0)


def pool(found: list[list[dict[str, np.ndarray]]], share: np.ndarray, inputs: int, settled: list[bool]) -> Pooled:
    """`found[p]` is the evidence on part p from every fold on which it was measured; `settled[p]` says whether that is
    all.

    `share` (K, P) is the weight of each part in each target: log-likelihoods of parts add up.
    """
    count = len(found)
    scatter = _fit_scatter(found)
    delta, error, given_all = (np.zeros((count, inputs)) for _ in range(3))
    bundled, bundled_error = np.zeros((count, inputs)), np.zeros((count, inputs))
    tested = np.zeros((count, inputs), int)
    limit, efficiency = np.full(count, np.inf), np.full(count, LEAST_EFFICIENCY)
    explained, short, misfit = np.zeros(count), np.zeros(count, bool), np.zeros(count)
    follows = np.full(count, -1)
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
        misfit[p], follows[p] = _misfit(parts[0]["loss"], float(parts[0]["unfitted"])), parts[0]["follows"]
        exact = _exactness(parts[0]["loss"])  # without noise all folds share the same misfit
        tested[p] = parts[0]["tested"]
        law = tested[p] != 4  # the errors of causes of exceptions include everything already
        within = np.sqrt(own**2 + law * scatter[p] ** 2 * (exact + (1 - exact) / total))
        factor = _fold_factor(np.stack([part["delta"] for part in parts]), weight, within)
        error[p] = np.sqrt((factor * within) ** 2 + law * misfit[p] ** 2)
        bundled[p] = np.mean([part["bundled"] for part in parts], 0)
        squares = np.sum([part["bundled_stderr"] ** 2 for part in parts], 0)
        bundled_error[p] = np.sqrt(squares / len(parts) ** 2 + scatter[p] ** 2)
        limit[p] = np.sqrt((usual**2 + scatter[p] ** 2) / len(parts) + misfit[p] ** 2)
        efficiency[p] = np.clip(parts[0]["planted"][0] / parts[0]["planted"][2], LEAST_EFFICIENCY, 1.0)
        explained[p], short[p] = _explained(parts[0]["loss"]), parts[0]["loss"][2] < FEW_TESTED
        given_all[p] = parts[0].get("given_all", parts[0]["delta"])
    of = share > 0
    together = share @ bundled
    measured = _all(of, error.max(1, initial=0) > 0)[:, None]
    effect, doubt = _of_targets(delta, error, share)
    return Pooled(
        delta=effect,
        error=np.where(measured, doubt, 0.0),
        tested=np.array([tested[own].max(0, initial=0) for own in of], int).reshape(len(of), inputs),
        bundled=np.where(together != 0, together / np.maximum(np.sqrt(share**2 @ bundled_error**2), 1e-12), 0.0),
        limit_error=np.array([np.sqrt(((s[own] * limit[own]) ** 2).sum()) for s, own in zip(share, of)]),
        efficiency=np.array([efficiency[own].min(initial=1.0) for own in of]),
        settled=_all(of, np.array(settled, bool)),
        given_all=share @ given_all,
        explained=share @ explained,
        short=_all(of, short),
        misfit=np.sqrt(share**2 @ misfit**2),
        follows=np.array([follows[own].max(initial=-1) for own in of], int),
    )


def _of_targets(delta: np.ndarray, error: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K, J) effects on whole targets and their errors, from those on parts (P, J): log-likelihoods add up.

    A cause of any part is a cause of the target. Where the clearest part shows it better than the sum, which has the
    errors of all parts, that part alone counts. Its error is then enlarged for being the best of several (Bonferroni).
    """
    whole, doubt = share @ delta, np.sqrt(share**2 @ error**2)
    z = np.where(error > 0, delta / np.maximum(error, 1e-12), 0.0)
    for k, own in enumerate(share > 0):
        if own.sum() < 2:
            continue
        best = np.flatnonzero(own)[z[own].argmax(0)]
        columns = np.arange(z.shape[1])
        clearest = stats.t.isf(np.minimum(own.sum() * stats.t.sf(z[best, columns], DEGREES), 1.0), DEGREES)
        known = np.where(doubt[k] > 0, whole[k] / np.maximum(doubt[k], 1e-12), 0.0)
        better = (known < SURE) & (clearest > np.maximum(known, DOUBTFUL))
        whole[k, better] = (share[k, best] * delta[best, columns])[better]
        doubt[k, better] = whole[k, better] / clearest[better]
    return whole, doubt


def _fold_factor(delta: np.ndarray, weight: np.ndarray, error: np.ndarray) -> np.ndarray:
    """(J,) factor on the error of a mean over folds, from the scatter of the folds (F, J).

    Refits to other rows differ, too. Three folds show this poorly, so `error` (J,) counts like PRIOR_FOLDS more of
    them.
    """
    total = weight.sum(0)
    apart = (weight * (delta - (weight * delta).sum(0) / total) ** 2).sum(0) / total  # about (total - 1) squared errors
    squares = apart / np.maximum(error, 1e-12) ** 2 + PRIOR_FOLDS
    return np.sqrt(np.maximum(squares / (total - 1 + PRIOR_FOLDS), 1.0))


def misfit_of(found: Evidence) -> float:
    """Error in nats due to what the models of a part have not fitted."""
    return _misfit(found.loss, float(found.unfitted))


def _misfit(loss: np.ndarray, unfitted: float) -> float:
    """Error in nats due to what a part's models have not fitted, which does not shrink with more rows.

    Where there is noise, misfit is hidden by it. Without noise the residual is nothing but misfit, and any input
    correlated with the causes helps to reduce it. A residual that shrinks with more rows is also misfit, unless rows
    are few: then more of them help any model.
    """
    falling = unfitted > UNFITTED and loss[2] >= FEW_TESTED
    return max(MISFIT * _exactness(loss), min(UNFITTED_SHARE * unfitted, MOST_MISFIT) if falling else 0.0)


def _exactness(loss: np.ndarray) -> float:
    """1 for a law without noise, 0 for one with noise. A law may be exact in most rows and miss a few by far."""
    return 1 / (1 + (float(loss[3] / loss[1]) / NOISY) ** 2)


def _all(of: np.ndarray, yes: np.ndarray) -> np.ndarray:
    """(K,) whether a condition holds for every part of a target."""
    return np.array([yes[own].all() for own in of], bool)


def _explained(loss: np.ndarray) -> float:
    """Nats of a part that its inputs explain."""
    return 0.5 * float(np.log(max(loss[1] / loss[0], 1.0)))


def _fit_scatter(found: list[list[dict[str, np.ndarray]]]) -> np.ndarray:
    """(P,) scatter between refits, beyond the error over episodes: from a part's own shadows and those of all others.

    Only positive losses count, and twice: half of all useless inputs lie below zero. Shadows of other parts count
    relative to their errors, since parts differ in size by orders of magnitude.
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
