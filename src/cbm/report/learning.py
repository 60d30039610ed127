"""Reading run directories of `cbm learn`: what was asked for, the evaluations, the abstraction over time.

Nothing is summarised here; `comparison` does that. Whatever a file says wrongly is a DataError of one line that names
the file. Only what a killed process may leave behind is forgiven: a last line cut short, a run without an end.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.checks import is_number
from cbm.data.factors import Factors
from cbm.errors import DataError, unknown_name
from cbm.graph.checks import names_list
from cbm.runs.files import parse_json, read_json

HEADER = ("step", "seconds", "return", "success", "length", "kept", "seed", "method", "task")
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluations:
    """The rows of eval.csv that belong to one task, in order of steps."""

    steps: FloatArray
    seconds: FloatArray
    returns: FloatArray
    success: FloatArray | None
    """None when the task has no notion of success (empty cells)."""
    kept: FloatArray


@dataclass(frozen=True)
class Decision:
    """From this step on, the policy saw the variables of `mask`."""

    step: float
    mask: BoolArray
    reset: bool
    """Whether the policy began anew: the mask differed from the one before, or it was the first decision."""


@dataclass(frozen=True, eq=False)
class LearningRun:
    """One run directory; everything keyed by task."""

    path: Path
    name: str
    config: dict[str, Any]
    method: str
    seed: int
    world: str
    tasks: tuple[str, ...]
    variables: tuple[str, ...]
    oracle: dict[str, BoolArray]
    evaluations: dict[str, Evaluations]
    """A task without any evaluation yet is not in it."""
    decisions: dict[str, list[Decision]]
    result: dict[str, Any] | None
    """Content of result.json; None: not finished."""
    kept: dict[str, BoolArray]
    """The abstraction at the end, or the last one known."""
    evaluation: dict[str, Any]
    """By task: {"in": {"return", "success"}, "out": {...} or None}, from evaluation.json."""
    prediction: list[dict[str, Any]]
    """[{"model", "steps", "in", "out", "still"}, ...] from evaluation.json."""

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def seconds(self) -> float | None:
        if self.result is not None and self.result.get("seconds") is not None:
            return float(self.result["seconds"])
        ends = [float(rows.seconds[-1]) for rows in self.evaluations.values()]
        return max(ends, default=None)

    def exact(self, task: str) -> bool | None:
        """Whether the abstraction equals the oracle's; None when one of the two is not known."""
        if task not in self.kept or task not in self.oracle:
            return None
        return bool((self.kept[task] == self.oracle[task]).all())


def is_learning_run(run_dir: Path) -> bool:
    """Whether this directory was made by `cbm learn` (and not by `cbm discover`)."""
    if (run_dir / "eval.csv").is_file():
        return True
    config = run_dir / "config.json"
    data = read_json(config) if config.is_file() else None
    return isinstance(data, dict) and data.get("command") == "learn"


def read_learning_run(run_dir: Path) -> LearningRun:
    path = run_dir / "config.json"
    if not path.is_file():
        raise DataError(f"{run_dir}: no config.json, so this is not a run that a report can be made of")
    config = _object(read_json(path), path)
    method, world = (_text(config, key, path) for key in ("method", "world"))
    tasks = names_list(config.get("tasks"), f"{path}: tasks")
    if not tasks:
        raise DataError(f"{path}: tasks: there are none")
    seed = config.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise DataError(f"{path}: seed: {seed!r} is not a whole number")
    variables = _variables(config, path)
    oracle = {
        task: _mask(names, variables, f"{path}: oracle.{task}")
        for task, names in _object(config.get("oracle") or {}, path, "oracle").items()
        if names is not None
    }
    result_path = run_dir / "result.json"
    result = _object(read_json(result_path), result_path) if result_path.is_file() else None
    decisions = read_decisions(run_dir / "abstraction.jsonl", variables, tasks)
    evaluation, prediction = read_evaluation(run_dir / "evaluation.json", tasks)
    evaluations = read_evaluations(run_dir / "eval.csv", {"method": method, "seed": str(seed)}, tasks, len(variables))
    if result is not None and len(evaluations) < len(tasks):
        missing = next(task for task in tasks if task not in evaluations)
        raise DataError(f"{run_dir / 'eval.csv'}: a finished run without an evaluation of task {missing!r}")
    return LearningRun(
        path=run_dir,
        name=run_dir.resolve().name.encode("utf-8", "replace").decode("utf-8"),
        config=config,
        method=method,
        seed=seed,
        world=world,
        tasks=tasks,
        variables=variables,
        oracle=oracle,
        evaluations=evaluations,
        decisions=decisions,
        result=result,
        kept=_last_kept(method, tasks, variables, oracle, decisions, result, result_path),
        evaluation=evaluation,
        prediction=prediction,
    )


def read_evaluations(
    path: Path, expected: dict[str, str], tasks: tuple[str, ...], variables: int
) -> dict[str, Evaluations]:
    """eval.csv by task; `expected` are columns that must say what config.json says."""
    if not path.is_file():
        return {}
    rows: dict[str, list[list[float]]] = {}
    lines = whole_lines(path)
    if lines and lines[0][1].split(",") != list(HEADER):
        raise DataError(f"{path}: the first line must be {','.join(HEADER)}")
    for number, line in lines[1:]:
        where, row = f"{path}: line {number}", next(csv.reader([line]))
        if len(row) != len(HEADER):
            raise DataError(f"{where}: {len(row)} values, expected {len(HEADER)}")
        cells = dict(zip(HEADER, row, strict=True))
        for column, value in expected.items():
            if cells[column] != value:
                raise DataError(f"{where}: {column}: {cells[column]!r}, but config.json says {value!r}")
        if cells["task"] not in tasks:
            raise unknown_name(f"{where}: unknown task", cells["task"], tasks)
        rows.setdefault(cells["task"], []).append(_evaluation_row(cells, where, variables))
    return {task: _evaluations(np.array(rows[task]), path, task) for task in tasks if task in rows}


def _evaluation_row(cells: dict[str, str], where: str, variables: int) -> list[float]:
    numbers = {}
    for column in HEADER[:6]:
        if column == "success" and cells[column] == "":
            numbers[column] = math.nan  # the task has no notion of it
            continue
        try:
            numbers[column] = float(cells[column])
        except ValueError:
            raise DataError(f"{where}: {column}: {cells[column]!r} is not a number") from None
        if not math.isfinite(numbers[column]):
            raise DataError(f"{where}: {column}: {cells[column]!r} is not a finite number")
    for column, high in (("step", math.inf), ("seconds", math.inf), ("success", 1.0), ("kept", variables)):
        if numbers[column] < 0 or numbers[column] > high:
            raise DataError(f"{where}: {column}: {cells[column]} is not in 0..{high:g}")
    return [numbers[column] for column in ("step", "seconds", "return", "success", "kept")]


def _evaluations(rows: FloatArray, path: Path, task: str) -> Evaluations:
    steps, seconds, returns, success, kept = rows.T
    backwards = np.flatnonzero(np.diff(steps) <= 0)
    if len(backwards):
        raise DataError(f"{path}: task {task!r}: step {steps[backwards[0] + 1]:g} comes after {steps[backwards[0]]:g}")
    known = ~np.isnan(success)
    if known.any() and not known.all():
        raise DataError(f"{path}: task {task!r}: success is missing at step {steps[~known][0]:g}")
    return Evaluations(steps, seconds, returns, success if known.any() else None, kept)


def read_decisions(path: Path, variables: tuple[str, ...], tasks: tuple[str, ...]) -> dict[str, list[Decision]]:
    """abstraction.jsonl by task, in order of steps."""
    decisions: dict[str, list[Decision]] = {task: [] for task in tasks}
    for number, line in whole_lines(path) if path.is_file() else []:
        where = f"{path}: line {number}"
        try:
            entry = _object(parse_json(line), where)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not a JSON object ({error})") from None
        if entry.get("task") not in tasks:
            raise unknown_name(f"{where}: unknown task", entry.get("task"), tasks)
        step = _finite(entry.get("step"), f"{where}: step")
        history = decisions[entry["task"]]
        if history and step < history[-1].step:
            raise DataError(f"{where}: step {step:g} comes after {history[-1].step:g}")
        mask = _mask(entry.get("kept"), variables, f"{where}: kept")
        reset = entry.get("reset", entry.get("changed"))  # runs of older versions tell only of changes
        history.append(Decision(step, mask, reset is True))
    return decisions


def read_evaluation(path: Path, tasks: tuple[str, ...]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """evaluation.json: returns and success in and out of distribution, and errors of prediction."""
    if not path.is_file():
        return {}, []
    data = _object(read_json(path), path)
    places = {}
    for task, entry in _object(data.get("tasks") or {}, path, "tasks").items():
        if task not in tasks:
            raise unknown_name(f"{path}: unknown task", task, tasks)
        places[task] = {
            place: None if (_object(entry, path, f"tasks.{task}")).get(place) is None else _outcome(entry[place], where)
            for place, where in (("in", f"{path}: tasks.{task}.in"), ("out", f"{path}: tasks.{task}.out"))
        }
    entries = data.get("prediction") or []
    if not isinstance(entries, list):
        raise DataError(f"{path}: prediction: expected a list")
    return places, [_prediction(entry, f"{path}: prediction[{k}]") for k, entry in enumerate(entries)]


def _outcome(entry: Any, where: str) -> dict[str, float | None]:
    entry = _object(entry, where)
    return {
        measure: None if entry.get(measure) is None else _finite(entry[measure], f"{where}.{measure}")
        for measure in ("return", "success")
    }


def _prediction(entry: Any, where: str) -> dict[str, Any]:
    entry = _object(entry, where)
    errors = {
        place: None if entry.get(place) is None else _finite(entry[place], f"{where}.{place}")
        for place in ("in", "out", "still")
    }
    return {"model": str(entry.get("model") or ""), "steps": _finite(entry.get("steps"), f"{where}.steps"), **errors}


def _last_kept(
    method: str,
    tasks: tuple[str, ...],
    variables: tuple[str, ...],
    oracle: dict[str, BoolArray],
    decisions: dict[str, list[Decision]],
    result: dict[str, Any] | None,
    path: Path,
) -> dict[str, BoolArray]:
    """From result.json, else the last decision, else what a method that never decides must keep."""
    kept = {task: history[-1].mask for task, history in decisions.items() if history}
    for task in tasks:
        if method == "full":
            kept.setdefault(task, np.ones(len(variables), dtype=bool))
        elif method == "oracle" and task in oracle:
            kept.setdefault(task, oracle[task])
    for task, entry in _object((result or {}).get("tasks") or {}, path, "tasks").items():
        names = _object(entry, path, f"tasks.{task}").get("kept")
        if task in tasks and names is not None:
            kept[task] = _mask(names, variables, f"{path}: tasks.{task}.kept")
    return kept


def whole_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines that are not empty, without a last one that a crash cut short (it has no line end)."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not a text file ({error.reason} at byte {error.start})") from None
    return [(number, line) for number, line in enumerate(text.split("\n")[:-1], start=1) if line.strip()]


def _variables(config: dict[str, Any], path: Path) -> tuple[str, ...]:
    try:
        return Factors.from_json(_object(config.get("factors"), path, "factors")).names
    except DataError as error:
        text = str(error)
        raise DataError(text if text.startswith(str(path)) else f"{path}: factors: {text}") from None


def _mask(names: Any, variables: tuple[str, ...], where: str) -> BoolArray:
    if not isinstance(names, list):
        raise DataError(f"{where}: expected a list of names")
    for name in names:
        if name not in variables:
            raise unknown_name(f"{where}: unknown variable", name, variables)
    return np.array([name in names for name in variables])


def _object(value: Any, path: Path | str, key: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{path}: {key + ': ' if key else ''}expected a JSON object")
    return value


def _text(config: dict[str, Any], key: str, path: Path) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise DataError(f"{path}: {key}: {'missing' if value is None else f'{value!r} is not a name'}")
    return value


def _finite(value: Any, where: str) -> float:
    if not is_number(value):
        raise DataError(f"{where}: {value!r:.60} is not a finite number")
    return float(value)
