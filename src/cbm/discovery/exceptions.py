"""Rows in which a law does not hold as it does elsewhere: a hand that meets a wall, a block that is pushed.

Where a model fits all but a few rows to a hair, these few make up its error, and what they depend on is lost in it.
Whether a row is one of them is a question of its own, as whether a block moves: log p(y | x) = log p(exception | x) +
log p(y | x, exception).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbm.discovery.dataset import Dataset
from cbm.discovery.refit import Refits
from cbm.discovery.screen import Additive, additive
from cbm.discovery.settings import EXCEPTIONAL, FEWEST_ACTIVE, MOST_EXCEPTIONS
from cbm.discovery.split import Rows


def exceptions(refits: Refits, rows: Rows, cluster: np.ndarray) -> np.ndarray | None:
    """(T,) 1.0 in the rows whose outcome lies far from what models say that have not seen it; None: there are few, or
    they are too many to be exceptions.

    `cluster` (T,) says which rows are not independent; halves of what was fitted to answer for each other.
    """
    left = np.zeros(len(cluster))
    left[rows.kept], left[rows.test] = refits.residual[refits.kept, 0], refits.residual[refits.test, 0]
    half = cluster[rows.fit] % 2 == 0
    for some in (half, ~half):
        if not some.any():
            return None
        left[rows.fit[~some]] = refits.left_by(some)
    seen = np.concatenate([rows.fit, rows.kept, rows.test])
    usual = 1.4826 * float(np.median(np.abs(left[seen])))
    result = (np.abs(left) > EXCEPTIONAL * usual).astype(float)
    many = result[seen].sum()
    return result if FEWEST_ACTIVE <= many <= MOST_EXCEPTIONS * len(seen) and usual > 0 else None


def question_of(
    data: Dataset, part: int, which: np.ndarray, rows: Rows, bundle: np.ndarray
) -> tuple[Dataset, Additive]:
    """A problem of one part: whether a row is an exception, in the rows that another part speaks of."""
    within = int(data.within[part])
    y = which[:, None] if within < 0 else np.stack([which, data.y[:, within]], 1)
    asked = replace(
        data, y=y, part=np.arange(y.shape[1]), discrete=np.ones(y.shape[1], bool),
        within=np.array([-1 if within < 0 else 1, -1])[: y.shape[1]],
        share=np.ones((1, y.shape[1])), unit=np.zeros(y.shape[1]),
    )  # fmt: skip
    return asked, additive(asked, np.sort(np.concatenate([rows.fit, rows.kept])), bundle)
