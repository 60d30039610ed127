"""Differences of two variables that a target depends on: whether a hand holds a block is a matter of their distance.

Trees split on one variable at a time, and would need a staircase of splits for "close to each other". If two variables
are related much more closely in the rows in which the target is active than elsewhere, their difference is added as a
column. Units do not matter: each of the two is divided by its own deviation in those rows.
"""

from __future__ import annotations

import numpy as np

from cbm.discovery.settings import ACTIVE, CLOSER, COPY, FEWEST_ACTIVE, MOST_DIFFERENCES


def active_rows(y: np.ndarray) -> np.ndarray:
    """(T,) booleans for one column of a target: the rows with the rarer of two values, or the tenth farthest from the
    median."""
    low, high = y.min(), y.max()
    if ((y == low) | (y == high)).all():
        rare = y == high
        return rare if rare.mean() <= 0.5 else ~rare
    far = np.abs(y - np.median(y))
    return far > np.quantile(far, 1 - ACTIVE)


def differences(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (P, 2) of columns of `x` (T, C), the closest first, and their differences (T, P).

    Chosen in `rows` (indices), for a target `y` (T, q).
    """
    closeness = np.full((x.shape[1],) * 2, np.inf)
    unit = np.ones((2, *closeness.shape))
    usual = _left_over(x[rows])
    for q in range(y.shape[1]):
        active = x[rows[active_rows(y[rows, q])]]
        if len(active) < FEWEST_ACTIVE:
            continue
        known = (usual > COPY) & np.isfinite(usual)
        ratio = np.where(known, _left_over(active) / np.where(known, usual, 1.0), np.inf)
        better = ratio < closeness
        spread = active.std(0)
        sign = np.sign(active.T @ (active - active.mean(0)))
        closeness = np.where(better, ratio, closeness)
        unit = np.where(better, np.stack([np.broadcast_to(spread[:, None], ratio.shape), sign * spread]), unit)
    first, second = np.triu_indices(len(closeness), 1)
    ratio = closeness[first, second]
    best = np.argsort(ratio, kind="stable")[:MOST_DIFFERENCES]
    best = best[ratio[best] < CLOSER]
    pairs = np.stack([first[best], second[best]], 1)
    a, b = unit[:, pairs[:, 0], pairs[:, 1]]
    return pairs, x[:, pairs[:, 0]] / a - x[:, pairs[:, 1]] / b


def between_angles(angles: np.ndarray, y: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (P, 2) of columns of `angles` (T, A), those most correlated with a target `y` (T, q) in `rows` first; and
    the angles between them (T, P), in units of pi."""
    pairs = np.stack(np.triu_indices(angles.shape[1], 1), 1)
    between = (angles[:, pairs[:, 0]] - angles[:, pairs[:, 1]] + np.pi) % (2 * np.pi) / np.pi - 1
    if len(pairs) > MOST_DIFFERENCES:
        x, left = between[rows] - between[rows].mean(0), y[rows] - y[rows].mean(0)
        use = (np.abs(x.T @ left) / np.maximum(x.std(0), 1e-12)[:, None]).max(1)
        best = np.argsort(-use, kind="stable")[:MOST_DIFFERENCES]
        pairs, between = pairs[best], between[:, best]
    return pairs, between


def _left_over(x: np.ndarray) -> np.ndarray:
    """(C, C) share of one column's variance that another leaves unexplained; infinite where one is constant."""
    z = x - x.mean(0)
    spread = np.sqrt((z**2).mean(0))
    still = spread <= 0
    z /= np.where(still, 1.0, spread)
    left = 1 - (z.T @ z / len(z)) ** 2
    left[still], left[:, still] = np.inf, np.inf
    return np.asarray(np.maximum(left, 0.0))
