"""PCMCI with partial correlation, as its users run it: the standard method for causal time series.

Conditions are chosen by PC1, links tested by MCI, at lag 1, with false discovery control over all of them. tigramite,
the authors' implementation of PCMCI, is under the GPL and not a dependency: `pcmci_program.py` runs in an interpreter
that has it (the one named by `CBM_TIGRAMITE_PYTHON`, or this one) and communicates with us through two files.

Each column of the action is a variable like the others, also as a target: that is how PCMCI learns what a policy reacts
to. Episodes are its multiple data sets, cut wherever a row does not follow the one before. Its results for the columns
of the action are joined in the graph's single input. A variable that never changes gets its self-edge and nothing else,
as with the other baselines.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.baselines import Baseline, moving_variables
from cbm.data.transitions import Transitions
from cbm.discovery.targets import action_columns
from cbm.errors import DataError

INTERPRETER = "CBM_TIGRAMITE_PYTHON"
PROGRAM = Path(__file__).with_name("pcmci_program.py")
LEVEL = 0.01
"""Smaller corrected p-values are links, as in tigramite's tutorial."""
MOST_ROWS = 20_000
"""Whole series are taken up to so many rows: time grows with rows and, by the number of tests, with the square of the
variables."""
SHORTEST = 3
"""Shortest usable series, in states: conditions reach two steps back."""
MINUTES = 60
"""Time limit per log."""


class NotRun(Exception):
    """The reason why there is no result, in one line."""


def pcmci(data: Transitions, seed: int = 0) -> Baseline:
    """|partial correlation| of every MCI test; an edge where its corrected p-value is below 1 %.

    Raises NotRun without tigramite, or where the log has no three states in a row.
    """
    reason = missing()
    if reason is not None:
        raise NotRun(reason)
    start = time.perf_counter()
    columns, owner = _columns(data)
    values, series = series_of(data, columns)
    varies = values.shape[0] > 0 and np.nanmax(values, 0) > np.nanmin(values, 0)
    if not np.any(varies):
        raise NotRun("PCMCI needs three states in a row, and something that varies in them")
    varies = np.flatnonzero(varies)
    p, value = _run_program(values[:, varies], series)
    d = len(data.factors)
    scores, found = np.zeros((d, d + 1)), np.zeros((d, d + 1), bool)
    for row, i in enumerate(owner[varies]):
        for column, j in enumerate(owner[varies]):
            if i < d:  # causes of the action are not part of the graph
                scores[i, j] = max(scores[i, j], abs(value[row, column]))
                found[i, j] |= p[row, column] < LEVEL
    still = np.flatnonzero(~moving_variables(data))
    scores[still], found[still] = 0.0, False
    scores[still, still], found[still, still] = np.inf, True
    return Baseline(scores, found, time.perf_counter() - start)


def series_of(data: Transitions, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """States and actions as series: `values` (N, d + a), and the number (N,) of the series of each row.

    The state after the last step is a row too; its action is missing (NaN).
    """
    follows = (data.episode[1:] == data.episode[:-1]) & (data.next_obs[:-1] == data.obs[1:]).all(1)
    starts = np.flatnonzero(np.concatenate([[True], ~follows]))
    blank = np.full((1, actions.shape[1]), np.nan)
    parts, rows = [], 0
    for first, after in zip(starts, [*starts[1:], len(data)], strict=True):
        if after - first + 1 < SHORTEST or rows >= MOST_ROWS:
            continue
        states = np.concatenate([data.obs[first:after], data.next_obs[after - 1 : after]])
        parts.append(np.concatenate([states, np.concatenate([actions[first:after], blank])], 1))
        rows += after - first
    if not parts:
        return np.empty((0, data.obs.shape[1] + actions.shape[1])), np.empty(0, np.int64)
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def missing() -> str | None:
    """The reason why PCMCI cannot be run here; None if it can."""
    return _missing(_interpreter())


@cache
def _missing(interpreter: str) -> str | None:
    advice = f"install tigramite, joblib and numba beside any Python and name that in {INTERPRETER}"
    try:
        done = subprocess.run([interpreter, str(PROGRAM)], capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{interpreter} does not run ({type(error).__name__}); {advice}"
    reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return None if done.returncode == 0 else f"{interpreter} has no tigramite ({reason}); {advice}"


def _interpreter() -> str:
    return os.environ.get(INTERPRETER) or sys.executable


def _columns(data: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the action, and the graph's input of every column; n choices need n - 1 columns."""
    actions = action_columns(data.action, data.factors.discrete_actions).astype(float)
    if data.factors.discrete_actions is not None:
        actions = actions[:, 1:]
    d = data.obs.shape[1]
    return actions, np.minimum(np.arange(d + actions.shape[1]), d)


def _run_program(values: np.ndarray, series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corrected p-values and partial correlations, (C, C) each: row i, one step after column j."""
    # Units would not matter to correlations, but a variable at 1e9 would lose its digits in their sums.
    scaled = (values - np.nanmean(values, 0)) / np.nanstd(values, 0)
    with tempfile.TemporaryDirectory(prefix="pcmci-") as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, values=scaled, series=series)
        command = [_interpreter(), str(PROGRAM), str(source), str(target)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            raise NotRun(f"PCMCI was given up after {MINUTES} minutes") from None
        if done.returncode != 0 or not target.exists():
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise DataError(f"PCMCI failed: {last}")
        with np.load(target, allow_pickle=False) as arrays:
            return arrays["p"], arrays["value"]
