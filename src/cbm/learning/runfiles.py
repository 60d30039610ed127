"""The run directory of `cbm learn`: what it was asked for, its curves and logs, its checkpoints, its result."""

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
"""Files that grow, and how they begin."""


class RunFiles:
    """One run on disk. Logs are also kept in memory, since a checkpoint holds what was in them."""

    def __init__(self, run: Path, config: Mapping[str, Any]):
        self.directory = RunDirectory(run, "learn", config)
        self.run = self.directory.path
        self.config = self.directory.config
        self.snapshots = Snapshots(self.directory.checkpoint, self.directory.lock.check)
        self.logs = dict(LOGS)

    def result(self) -> dict[str, Any] | None:
        """The result of a finished run of the same command; another command's directory is refused."""
        return read_result(self.run) if self.directory.is_finished() else None

    def begin(self, replay: Replay) -> dict[str, Any] | None:
        """Take up what is in the directory: the state of the last checkpoint, logs cut back to it."""
        state = self.snapshots.load(replay)
        with usable(self.directory.checkpoint):
            self.logs = dict(LOGS) if state is None else {name: str(state["logs"][name]) for name in LOGS}
        for name, text in self.logs.items():
            self.directory.write_text(name, text)
        return state

    def save(self, number: int, state: Mapping[str, Any], replay: Replay) -> None:
        self.snapshots.write(number, {**state, "logs": self.logs}, replay)

    def finish(self, result: dict[str, Any], graph: CausalGraph | None) -> None:
        """The last checkpoint has been saved before."""
        if graph is not None:
            self.directory.lock.check()
            graph.save(self.run / "graph.json")
        self.directory.write_json(RESULT, result)
        self.snapshots.finish()

    # Logs

    def evaluated(self, row: Mapping[str, Any]) -> None:
        """A line of eval.csv; a task without a notion of success has nothing there."""
        self._append("eval.csv", ",".join(_cell(row[name]) for name in COLUMNS))

    def chosen(self, step: int, task: str, kept: list[str], changed: bool, reset: bool) -> None:
        """A line of abstraction.jsonl."""
        line = {"step": step, "task": task, "kept": kept, "changed": changed, "reset": reset}
        self._append("abstraction.jsonl", json.dumps(line))

    def measured(self, phase: str, task: str | None, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        """A line of metrics.jsonl, unless there is nothing to say."""
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
    """Six digits; JSON has no nan."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
