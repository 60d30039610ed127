"""Boosted trees (LightGBM) on the residual of a closed form: thresholds, rare events, interactions of many inputs.

One binned copy of the columns serves every mask: an input is left out by giving its splits no gain.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from cbm.discovery.settings import BOOST_PATIENCE, CAREFUL, FEW_FITTED

OPTIONS: dict[str, Any] = {
    "objective": "regression", "num_leaves": 31, "learning_rate": 0.2, "min_data_in_leaf": 10, "lambda_l2": 1.0,
    "boost_from_average": False, "max_bin": 127, "verbosity": -1, "num_threads": 1, "deterministic": True,
    "force_row_wise": True, "seed": 0, "feature_pre_filter": False, "bin_construct_sample_cnt": 10_000,
    "linear_tree": True, "linear_lambda": 0.1,
}  # fmt: skip
"""A leaf holds a linear function of the inputs on its path, so smooth laws need few leaves; steps need no more than
with constant leaves."""
OF_TABLES = (
    "max_bin", "min_data_in_leaf", "feature_pre_filter", "verbosity", "bin_construct_sample_cnt", "linear_tree",
    "num_threads",
)  # fmt: skip


class Trees:
    """Boosted trees for several labels on the same rows."""

    def __init__(self, columns: np.ndarray, owner: np.ndarray, fit: np.ndarray, kept: np.ndarray):
        """`columns` (T, C); `owner` (C, 2); `fit` and `kept` are indices of training and validation rows."""
        self.lightgbm = _lightgbm()
        self.owner, self.fit, self.kept = owner, fit, kept
        self.steps = CAREFUL if len(fit) < FEW_FITTED else 1
        """Divisor of the learning rate: with few rows time does not matter, and large steps overfit."""
        options = {key: OPTIONS[key] for key in OF_TABLES}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.table = self.lightgbm.Dataset(columns[fit], np.zeros(len(fit)), params=options)
            self.watched = self.lightgbm.Dataset(columns[kept], np.zeros(len(kept)), reference=self.table)
            self.watched.construct()

    def train(
        self, label: np.ndarray, hidden: set[int], rounds: int, watch: bool, careful: bool = False
    ) -> tuple[Any, int]:
        """A model of `label` (T,) without the inputs in `hidden`, and how many of its rounds to use.

        With `watch`, early stopping on validation rows sets that number, possibly zero (`rounds`: at most, in usual
        steps); `careful` learns in smaller steps.
        """
        self.table.set_label(label[self.fit])
        gone = np.asarray(np.isin(self.owner, list(hidden)).any(1))
        options = OPTIONS | {"feature_contri": [0.0 if g else 1.0 for g in gone]}
        steps = self.steps * (CAREFUL if careful else 1)
        options["learning_rate"] = OPTIONS["learning_rate"] / steps
        rounds = rounds * self.steps if watch else rounds
        calls, seen = [], []
        if watch:
            self.watched.set_label(label[self.kept])
            calls, seen = (
                [self.lightgbm.early_stopping(BOOST_PATIENCE * steps**2, verbose=False)],
                [self.watched],
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.lightgbm.train(
                options, self.table, rounds, valid_sets=seen, callbacks=calls, keep_training_booster=True
            )  # without keep_training_booster each model is written as text and parsed again
        return model, (model.best_iteration if watch else rounds)


def gains_of(model: Any, rounds: int, owner: np.ndarray) -> np.ndarray:
    """(J,) total gain of each input's splits; the gain of a difference is divided between its two inputs."""
    gain = model.feature_importance("gain", iteration=rounds)
    result = np.zeros(int(owner.max()) + 1)
    for end in (0, 1):
        np.add.at(result, owner[:, end], gain / 2)
    return result


def _lightgbm() -> Any:
    try:
        import lightgbm
    except OSError as error:  # its wheel uses the system's OpenMP library
        raise OSError(f"LightGBM cannot be loaded ({error}); on Debian and Ubuntu: apt install libgomp1") from error
    return lightgbm
