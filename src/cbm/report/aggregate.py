"""Runs of one line taken together: which of them count, their mean curve, their numbers over seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cbm.errors import DataError
from cbm.report.learning import Evaluations, LearningRun
from cbm.report.statistics import FloatArray, bootstrap_interval, iqm
from cbm.report.variants import Line, Panel

LEVEL = 0.95


def counted(line: Line, task: str) -> list[LearningRun]:
    """Runs that a line's statistics are over: the finished ones, or all that began when none is finished."""
    begun = [run for run in line.runs if task in run.evaluations]
    return [run for run in begun if run.finished] or begun


def measure_of(panel: Panel) -> str:
    """Success where every run has it, otherwise the return."""
    rows = [run.evaluations[panel.task] for run in panel.runs if panel.task in run.evaluations]
    return "success" if rows and all(row.success is not None for row in rows) else "return"


def common_end(panel: Panel) -> float | None:
    """The last step that all lines reach; lines without a finished run do not hold the others back."""
    ends: dict[bool, list[float]] = {True: [], False: []}
    for line in panel.lines:
        for run in counted(line, panel.task):
            ends[run.finished].append(float(run.evaluations[panel.task].steps[-1]))
    chosen = ends[True] or ends[False]
    return min(chosen, default=None)


def column(rows: Evaluations, name: str) -> FloatArray:
    values = {"success": rows.success, "return": rows.returns, "kept": rows.kept}[name]
    if values is None:
        raise DataError("a task without success has no curve of it")
    return values


def curve(runs: list[LearningRun], task: str, name: str) -> dict[str, FloatArray]:
    """Mean, interval and IQM over these runs at every step where one of them was evaluated and all had begun.

    A run that was evaluated at other steps counts with the straight line between its evaluations.
    """
    rows = [run.evaluations[task] for run in runs]
    first, last = max(row.steps[0] for row in rows), min(row.steps[-1] for row in rows)
    steps = np.unique(np.concatenate([row.steps for row in rows]))
    steps = steps[(steps >= first) & (steps <= last)]
    values = np.array([np.interp(steps, row.steps, column(row, name)) for row in rows])  # (seeds, steps)
    low, high = bootstrap_interval(values, LEVEL) if len(steps) else (steps, steps)
    middle = iqm(values) if len(steps) else steps
    return {"step": steps, "mean": values.mean(axis=0), "low": low, "high": high, "iqm": middle}


def summary(values: list[float]) -> dict[str, Any] | None:
    """Mean over seeds with its interval, IQM, and every seed's value."""
    if not values:
        return None
    low, high = bootstrap_interval(values, LEVEL)
    numbers = {"mean": float(np.mean(values)), "low": low, "high": high, "iqm": iqm(values)}
    return {key: number(value) for key, value in numbers.items()} | {"each": [number(value) for value in values]}


def spread(values: list[float]) -> dict[str, float | None] | None:
    if not values:
        return None
    return {"mean": number(np.mean(values)), "low": number(min(values)), "high": number(max(values))}


def number(value: Any) -> float | None:
    """Six significant digits; None for what JSON cannot hold."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{float(value):.6g}")
