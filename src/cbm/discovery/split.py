"""Splits the rows of a part: training rows, validation rows for model selection, and test rows from held-out
episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.discovery.dataset import Dataset
from cbm.discovery.settings import MOST_FITTED, MOST_OUTSIDE, MOST_TESTED


@dataclass(frozen=True)
class Rows:
    """One split, as row indices."""

    fit: np.ndarray
    kept: np.ndarray
    test: np.ndarray

    def inside(self, x: np.ndarray) -> Rows:
        """Without the new rows outside the range of the training rows: how a curve continues there is unknown, and one
        such row can outweigh all others. Where they are the majority, all stay, with inputs moved to the edge of that
        range (`Part`); a law without noise would no longer hold exactly there."""
        low, high = x[self.fit].min(0), x[self.fit].max(0)
        parts = [self.fit]
        for new in (self.kept, self.test):
            within = ((x[new] >= low) & (x[new] <= high)).all(1)
            parts.append(new[within] if within.mean() >= 1 - MOST_OUTSIDE else new)
        return Rows(*parts)


def rows_of(data: Dataset, fold: int, part: int, tested: int = MOST_TESTED) -> Rows:
    """The rows that a part covers, on one fold: at most MOST_FITTED to learn from, and at most `tested` to test on."""
    mine, test = data.rows_of(part), data.fold == fold
    learnt = _some(np.flatnonzero(mine & ~test), data.rank, MOST_FITTED)
    kept = data.kept[learnt]
    return Rows(learnt[~kept], learnt[kept], _some(np.flatnonzero(mine & test), data.rank, tested))


def _some(rows: np.ndarray, rank: np.ndarray, most: int) -> np.ndarray:
    """About `most` of the rows, in whole episodes: the first ones in the order of `rank`."""
    if len(rows) <= most:
        return rows
    return np.asarray(rows[rank[rows] <= np.sort(rank[rows])[most - 1]])
