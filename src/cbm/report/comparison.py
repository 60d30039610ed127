"""From learning runs to the numbers the page shows: curves, tables, abstractions, in and out of distribution.

All statistics are computed here, over seeds; the page only looks them up. NaN and infinity become None.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cbm.checks import is_number
from cbm.report.aggregate import LEVEL, column, common_end, counted, curve, measure_of, number, spread, summary
from cbm.report.command_line import command
from cbm.report.learning import LearningRun
from cbm.report.palette import styles
from cbm.report.statistics import FloatArray, area_under_curve, ratio_interval, steps_to
from cbm.report.variants import Line, Panel, line_labels, panels

MOST_POINTS = 400
"""A line with more points is drawn thinned; its statistics come from all of them."""
HALF = 0.5


def compare(runs: list[LearningRun], at: int | None = None, until: int | None = None) -> dict[str, Any]:
    """Everything the page says about learning, ready for JSON.

    `at`: the step of the column "success at"; `until`: the end of the areas. Both are per task by default: the middle
    and the last step that all lines reach.
    """
    groups = panels(runs)
    labels = line_labels(groups)
    numbers = {id(run): k for k, run in enumerate(runs)}
    methods = [_method_of(label, groups) for label in labels]
    return {
        "methods": [{"label": label, **style} for label, style in zip(labels, styles(methods), strict=True)],
        "runs": [_run(run) for run in runs],
        "tasks": [_panel(panel, groups, labels, numbers, at, until) for panel in groups],
    }


def _method_of(label: str, groups: list[Panel]) -> str:
    return next(line.method for panel in groups for line in panel.lines if line.label == label)


def _run(run: LearningRun) -> dict[str, Any]:
    ends = [float(rows.steps[-1]) for rows in run.evaluations.values()]
    return {
        "name": run.name,
        "method": run.method,
        "seed": run.seed,
        "world": run.world,
        "tasks": list(run.tasks),
        "finished": run.finished,
        "last_step": max(ends, default=None),
        "steps": run.config.get("steps"),
        "seconds": number(run.seconds),
        "command": command(run),
        "config": {key: value for key, value in run.config.items() if key != "factors"},
        "result": run.result,
    }


def _panel(
    panel: Panel,
    groups: list[Panel],
    labels: list[str],
    numbers: dict[int, int],
    at: int | None,
    until: int | None,
) -> dict[str, Any]:
    task = panel.task
    shown = [line for line in panel.lines if counted(line, task)]
    measure = measure_of(panel)
    end = float(until) if until else common_end(panel)
    oracle = next((run.oracle[task] for run in panel.runs if task in run.oracle), None)
    curves = {
        name: [_curve(line, task, name, labels.index(line.label), numbers) for line in shown]
        for name in ("success", "return", "kept")
        if name != "success" or measure == "success"
    }
    same_title = [other for other in groups if other.title == panel.title]
    return {
        "title": panel.title + (f" ({panel.options_text})" if len(same_title) > 1 else ""),
        "world": panel.world,
        "options": panel.options_text,
        "task": task,
        "measure": measure,
        "variables": list(panel.runs[0].variables),
        "oracle": None if oracle is None else np.flatnonzero(oracle).tolist(),
        "at": _chosen_step(curves[measure], at, end),
        "until": end,
        "curves": curves,
        "rows": [_row(line, panel, labels.index(line.label), measure, end) for line in panel.lines],
        "strips": [strip for line in panel.lines for strip in _strips(line, task, labels.index(line.label), numbers)],
        "kept": [row for line in panel.lines if (row := _shares(line, task, labels.index(line.label))) is not None],
        "bars": [row for line in panel.lines if (row := _bars(line, task, labels.index(line.label), measure))],
        "prediction": [row for line in panel.lines for row in _predictions(line, labels.index(line.label))],
    }


# Curves


def _curve(line: Line, task: str, name: str, slot: int, numbers: dict[int, int]) -> dict[str, Any]:
    runs = counted(line, task)
    numbers_of = curve(runs, task, name)
    others = [run for run in line.runs if task in run.evaluations and run not in runs]
    single = [
        {
            "run": numbers[id(run)],
            "seed": run.seed,
            "counted": run in runs,
            "points": _points(run.evaluations[task].steps, column(run.evaluations[task], name)),
        }
        for run in runs + others
    ]
    return {
        "slot": slot,
        "finished": runs[0].finished,
        "points": _points(*(numbers_of[key] for key in ("step", "mean", "low", "high", "iqm"))),
        "seeds": single,
    }


def _points(*columns: FloatArray) -> list[list[float | None]]:
    count = len(columns[0])
    chosen = range(count) if count <= MOST_POINTS else np.linspace(0, count - 1, MOST_POINTS).astype(int)
    return [[number(values[k]) for values in columns] for k in chosen]


def _chosen_step(curves: list[dict[str, Any]], at: int | None, end: float | None) -> float | None:
    """The evaluated step nearest to the one asked for, or to the middle."""
    steps = sorted({point[0] for line in curves for point in line["points"]})
    goal = at if at is not None else (end or 0) / 2
    return min(steps, key=lambda step: abs(step - goal), default=None)


# The table


def _row(line: Line, panel: Panel, slot: int, measure: str, end: float | None) -> dict[str, Any]:
    task, runs = panel.task, counted(line, panel.task)
    rows = [(run.evaluations[task].steps, column(run.evaluations[task], measure)) for run in runs]
    reached = [steps_to(*row, HALF) for row in rows] if measure == "success" else []
    minutes = [run.seconds / 60 for run in runs if run.seconds is not None]
    exact = [answer for run in runs if (answer := run.exact(task)) is not None]
    return {
        "slot": slot,
        "seeds": [run.seed for run in runs],
        "finished": bool(runs) and runs[0].finished,
        "unfinished": [
            {
                "seed": run.seed,
                "step": number(run.evaluations[task].steps[-1]) if task in run.evaluations else None,
            }
            for run in line.runs
            if not run.finished
        ],
        "steps": line.runs[0].config.get("steps"),
        "final": summary([float(values[-1]) for _, values in rows]),
        "half": {
            "mean": number(np.mean([step for step in reached if math.isfinite(step)] or [math.nan])),
            "reached": sum(math.isfinite(step) for step in reached),
            "of": len(reached),
        },
        "area": summary(_areas(line, task, measure, end)),
        "relative": _relative(line, panel, measure, end),
        "kept": spread([float(run.kept[task].sum()) for run in runs if task in run.kept]),
        "exact": {"yes": sum(exact), "of": len(exact)} if exact else None,
        "minutes": spread(minutes),
        "demonstrations": spread([float(demonstrations(run)) for run in line.runs]),
        "tasks": max(len(run.tasks) for run in line.runs),
    }


def demonstrations(run: LearningRun) -> int:
    """Scripted episodes that were in the buffer at the start."""
    settings = run.config.get("settings")
    value = run.config.get("demonstrations", settings.get("demonstrations") if isinstance(settings, dict) else 0)
    return int(value) if is_number(value) else 0


def _areas(line: Line, task: str, measure: str, end: float | None) -> list[float]:
    """One area for each counted run; none at all when one of them ends too early to be compared."""
    rows = [run.evaluations[task] for run in counted(line, task)]
    if not end:
        return []
    areas = [area_under_curve(row.steps, column(row, measure), end) for row in rows]
    return areas if all(math.isfinite(area) for area in areas) else []


def _relative(line: Line, panel: Panel, measure: str, end: float | None) -> dict[str, float | None] | None:
    """The area as a multiple of the one of Oracle; None without an oracle to compare with."""
    oracles = [other for other in panel.lines if other.method == "oracle"]
    if len(oracles) != 1:  # none, or several with different settings
        return None
    reference = _areas(oracles[0], panel.task, measure, end)
    areas = _areas(line, panel.task, measure, end)
    if not reference or not areas or np.mean(reference) <= 0:  # returns may be negative: no multiples of those
        return None
    if line is oracles[0]:
        return {"mean": 1.0, "low": None, "high": None}
    mean, low, high = ratio_interval(areas, reference, LEVEL)
    return {"mean": number(mean), "low": number(low), "high": number(high)}


# Abstraction, distribution, prediction


def _strips(line: Line, task: str, slot: int, numbers: dict[int, int]) -> list[dict[str, Any]]:
    """For each run the masks over time, written down only where they change. Before the first decision: None."""
    strips = []
    for run in line.runs:
        history = [(decision.step, _bits(decision.mask)) for decision in run.decisions[task]]
        if not history and task in run.kept:
            history = [(0.0, _bits(run.kept[task]))]
        if not history:
            continue
        masks: list[tuple[float, str | None]] = [] if history[0][0] <= 0 else [(0.0, None)]
        for step, bits in history:
            if not masks or masks[-1][1] != bits:
                masks.append((step, bits))
        evaluated = run.evaluations[task].steps[-1] if task in run.evaluations else 0.0
        strips.append(
            {
                "slot": slot,
                "run": numbers[id(run)],
                "seed": run.seed,
                "masks": [[number(step), bits] for step, bits in masks],
                "resets": [number(decision.step) for decision in run.decisions[task] if decision.reset],
                "decisions": len(run.decisions[task]),
                "end": number(max(float(evaluated), history[-1][0], 1.0)),
            }
        )
    return strips


def _shares(line: Line, task: str, slot: int) -> dict[str, Any] | None:
    """The share of seeds that kept each variable in the end."""
    masks = [run.kept[task] for run in counted(line, task) if task in run.kept]
    if not masks:
        return None
    return {"slot": slot, "of": len(masks), "count": np.sum(masks, axis=0).tolist()}


def _bars(line: Line, task: str, slot: int, measure: str) -> dict[str, Any] | None:
    entries = [run.evaluation[task] for run in line.runs if task in run.evaluation]
    result: dict[str, Any] = {"slot": slot}
    for place in ("in", "out"):
        values = [entry[place][measure] for entry in entries if entry[place] and entry[place][measure] is not None]
        result[place] = summary(values)
    pairs = [(entry["in"], entry["out"]) for entry in entries if entry["in"] and entry["out"]]
    drops = [a[measure] - b[measure] for a, b in pairs if a[measure] is not None and b[measure] is not None]
    result["drop"] = summary(drops)
    return result if result["in"] or result["out"] else None


def _predictions(line: Line, slot: int) -> list[dict[str, Any]]:
    """Error over steps for each model and place, mean over the seeds that have it at that step."""
    found: dict[tuple[str, str], dict[float, list[float]]] = {}
    for run in line.runs:
        for entry in run.prediction:
            for place in ("in", "out", "still"):
                if entry[place] is not None:
                    model = "" if place == "still" else entry["model"]  # that nothing changes needs no model
                    found.setdefault((model, place), {}).setdefault(entry["steps"], []).append(entry[place])
    return [
        {
            "slot": slot,
            "model": model,
            "place": place,
            "points": [[step, number(np.mean(values))] for step, values in sorted(errors.items())],
        }
        for (model, place), errors in found.items()
    ]


def _bits(mask: Any) -> str:
    return "".join("1" if kept else "0" for kept in mask)
