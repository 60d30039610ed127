"""Rows in which a law does not hold as it does elsewhere: a hand that meets a wall, a block that is pushed.

Where a model fits all but a few rows almost exactly, these few make up its error and hide what they depend on. So
whether a row is an exception becomes a target of its own, like whether a block moves: log p(y | x) = log p(exception |
x) + log p(y | x, exception).
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
    """(T,) 1.0 in rows whose outcome is far from the prediction of models that were not fitted to them; None: too few
    rows to learn from, or too many to be exceptions.

    `cluster` (T,) numbers groups of dependent rows; by cluster, each half of the training rows is predicted from the
    other.
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


def exceptions_dataset(
    data: Dataset, part: int, which: np.ndarray, rows: Rows, bundle: np.ndarray
) -> tuple[Dataset, Additive]:
    """A dataset of one part, with its screening: whether a row is an exception, among the rows that another part
    covers."""
    within = int(data.within[part])
    y = which[:, None] if within < 0 else np.stack([which, data.y[:, within]], 1)
    asked = replace(
        data, y=y, part=np.arange(y.shape[1]), discrete=np.ones(y.shape[1], bool),
        within=np.array([-1 if within < 0 else 1, -1])[: y.shape[1]],
        share=np.ones((1, y.shape[1])), unit=np.zeros(y.shape[1]),
    )  # fmt: skip
    return asked, additive(asked, np.sort(np.concatenate([rows.fit, rows.kept])), bundle)
