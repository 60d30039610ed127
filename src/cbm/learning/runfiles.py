"""The run directory of `cbm learn`: its configuration, curves, logs, checkpoints and result."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.learning.replay import Replay
from cbm.learning.snapshots import Snapshots
from cbm.runs.checkpoint import usable
from cbm.runs.directory import RESULT, RunDirectory
from cbm.runs.files import read_json

COLUMNS = ("step", "seconds", "return", "success", "length", "kept", "seed", "method", "task")
HEADER = ",".join(COLUMNS) + "\n"
LOGS = {"eval.csv": HEADER, "abstraction.jsonl": "", "metrics.jsonl": ""}
"""Files that grow, with their initial content."""


class RunFiles:
    """One run on disk. Logs are also kept in memory, since checkpoints contain them."""

    def __init__(self, run: Path, config: Mapping[str, Any]):
        self.directory = RunDirectory(run, "learn", config)
        self.run = self.directory.path
        self.config = self.directory.config
        self.snapshots = Snapshots(self.directory.checkpoint, self.directory.lock.check)
        self.logs = dict(LOGS)

    def result(self) -> dict[str, Any] | None:
        """The result, if a run of the same command has finished; a directory of another command is refused."""
        return read_result(self.run) if self.directory.is_finished() else None

    def begin(self, replay: Replay) -> dict[str, Any] | None:
        """Resume from the directory: returns the state of the last checkpoint, with the logs cut back to it."""
        state = self.snapshots.load(replay)
        with usable(self.directory.checkpoint):
            self.logs = dict(LOGS) if state is None else {name: str(state["logs"][name]) for name in LOGS}
        for name, text in self.logs.items():
            self.directory.write_text(name, text)
        return state

    def save(self, number: int, state: Mapping[str, Any], replay: Replay) -> None:
        self.snapshots.write(number, {**state, "logs": self.logs}, replay)

    def finish(self, result: dict[str, Any], graph: CausalGraph | None) -> None:
        """Write the result; the last checkpoint must have been saved before."""
        if graph is not None:
            self.directory.lock.check()
            graph.save(self.run / "graph.json")
        self.directory.write_json(RESULT, result)
        self.snapshots.finish()

    # Logs

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """Append a line to eval.csv; success is empty if the task does not define it."""
        self._append("eval.csv", ",".join(_cell(row[name]) for name in COLUMNS))

    def chosen(self, step: int, task: str, kept: list[str], changed: bool, reset: bool) -> None:
        """Append a line to abstraction.jsonl."""
        line = {"step": step, "task": task, "kept": kept, "changed": changed, "reset": reset}
        self._append("abstraction.jsonl", json.dumps(line))

    def measured(self, phase: str, task: str | None, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """Append a line to metrics.jsonl, unless there are no metrics."""
        if metrics:
            row = {"phase": phase, "task": task, "step": step, "seconds": round(seconds, 2)}
            self._append("metrics.jsonl", json.dumps(row | {name: _number(value) for name, value in metrics.items()}))

    def _append(self, name: str, line: str) -> None:
        self.logs[name] += line + "\n"
        self.directory.append(name, line)


def read_result(run: Path) -> dict[str, Any]:
    result = read_json(run / "result.json")
    if not isinstance(result, dict) or not isinstance(result.get("tasks"), dict):
        raise DataError(f"{run / 'result.json'}: is not the result of a learning run")
    return result


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


def _number(value: float) -> float | None:
    """Rounded to six digits; None for nan, which JSON does not have."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
