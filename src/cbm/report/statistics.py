"""Numbers that sum up learning curves: areas, steps to a level, means with bootstrap intervals, IQM.

The unit of every average is a seed, that is one whole run. Episodes of one run share a policy, so they say nothing
about how another run would have gone, and no interval here is ever taken over them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbm.errors import DataError

FloatArray = NDArray[np.float64]
RESAMPLES = 2000


def value_at(steps: ArrayLike, values: ArrayLike, step: float) -> float:
    """The curve at this step, straight between two evaluations; before the first one it is as high as there.

    A curve is not continued beyond its last evaluation: there, the answer is NaN.
    """
    x, y = _curve(steps, values)
    return float(np.interp(step, x, y)) if step <= x[-1] else math.nan


def area_under_curve(steps: ArrayLike, success: ArrayLike, until: float) -> float:
    """Mean height of the curve between step 0 and `until` (trapezoids); in [0, 1] for a success rate.

    Before its first evaluation the curve counts as high as there. NaN when it ends before `until`.
    """
    x, y = _curve(steps, success)
    if not until > 0:
        raise DataError(f"until: must be more than 0, not {until:g}")
    if until > x[-1]:
        return math.nan
    inside = (x > 0) & (x < until)
    x_cut = np.concatenate(([0.0], x[inside], [float(until)]))
    heights = np.interp(x_cut, x, y)
    return float(np.diff(x_cut) @ (heights[1:] + heights[:-1]) / 2 / until)


def steps_to(steps: ArrayLike, values: ArrayLike, level: float) -> float:
    """Where the curve, straight between evaluations, first reaches `level`; infinity if it never does."""
    x, y = _curve(steps, values)
    reached = np.flatnonzero(y >= level)
    if not len(reached):
        return math.inf
    k = int(reached[0])
    if k == 0:
        return float(x[0])
    return float(x[k - 1] + (level - y[k - 1]) / (y[k] - y[k - 1]) * (x[k] - x[k - 1]))


def iqm(values: ArrayLike) -> Any:
    """Interquartile mean: the mean of the middle half. Along the first axis of a matrix.

    Where a quarter is no whole number of values, the ones on its border count in part, so that three values have
    weights 1/4, 1, 1/4. With 4, 8, 12, ... values this is scipy.stats.trim_mean(values, 0.25).
    """
    ordered = np.sort(_values(values), axis=0)
    n = len(ordered)
    edges = np.clip(np.arange(n + 1) / n, 0.25, 0.75)  # each sorted value stands for 1/n of the distribution
    result = np.tensordot(2 * np.diff(edges), ordered, axes=1)
    return _plain(result)


def bootstrap_interval(values: ArrayLike, level: float = 0.95, seed: int = 0) -> tuple[Any, Any]:
    """Percentile bootstrap interval (low, high) of the mean over seeds; along the first axis of a matrix.

    The columns of a matrix (the points of a curve) are resampled together. One value has no interval: NaN. With two
    or three values and level 0.95, the interval reaches from the lowest to the highest of them.
    """
    array = _values(values)
    if len(array) == 1:
        nothing = _plain(np.full(array.shape[1:], np.nan))
        return nothing, nothing
    means = np.tensordot(_weights(len(array), np.random.default_rng(seed)), array, axes=1)
    low, high = np.quantile(means, _tails(level), axis=0)
    lowest, highest = array.min(axis=0), array.max(axis=0)  # sums of rounded numbers may miss them by a hair
    return _plain(np.clip(low, lowest, highest)), _plain(np.clip(high, lowest, highest))


def ratio_interval(
    values: ArrayLike, reference: ArrayLike, level: float = 0.95, seed: int = 0
) -> tuple[float, float, float]:
    """Ratio of two means with its interval (ratio, low, high); both sets of seeds are resampled.

    NaN where it has no meaning: a reference that is not positive, or one seed on both sides.
    """
    above, below = _values(values), _values(reference)
    if above.ndim != 1 or below.ndim != 1:
        raise DataError("ratio: expected two lists of numbers")
    if not below.mean() > 0:
        return math.nan, math.nan, math.nan
    ratio = float(above.mean() / below.mean())
    if len(above) == len(below) == 1:
        return ratio, math.nan, math.nan
    rng = np.random.default_rng(seed)
    top, bottom = (_weights(len(array), rng) @ array for array in (above, below))
    ratios = top[bottom > 0] / bottom[bottom > 0]
    low, high = np.quantile(ratios, _tails(level)) if len(ratios) else (math.nan, math.nan)
    return ratio, float(low), float(high)


def _weights(n: int, rng: np.random.Generator) -> FloatArray:
    """How much each of n values counts in each resample: (RESAMPLES, n), rows sum to 1."""
    return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES) / n


def _tails(level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise DataError(f"level: must be between 0 and 1, not {level:g}")
    return (1 - level) / 2, (1 + level) / 2


def _curve(steps: ArrayLike, values: ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, y = _values(steps), _values(values)
    if x.shape != y.shape or x.ndim != 1:
        raise DataError(f"curve: steps of shape {x.shape} and values of shape {y.shape} do not belong together")
    if (np.diff(x) <= 0).any():
        raise DataError("curve: steps must increase")
    return x, y


def _values(values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or len(array) == 0:
        raise DataError("no values to summarise")
    if not np.isfinite(array).all():
        raise DataError("values to summarise must be finite")
    return array


def _plain(array: Any) -> Any:
    return float(array) if np.ndim(array) == 0 else array
