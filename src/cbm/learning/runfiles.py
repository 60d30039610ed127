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
from cbm.runs.files import atomic_write_text, read_json

COLUMNS = ("step", "seconds", "return", "success", "length", "kept", "seed", "method", "task")
HEADER = ",".join(COLUMNS) + "\n"
LOGS = {"eval.csv": HEADER, "abstraction.jsonl": "", "metrics.jsonl": ""}
"""Files that grow, and how they begin."""


class RunFiles:
    """One run on disk. Logs are also kept in memory, since a checkpoint holds what was in them."""

    def __init__(self, run: Path, config: Mapping[str, Any]):
        self.run = Path(run)
        self.config = json.loads(json.dumps(config))
        self.snapshots = Snapshots(self.run / "checkpoint")
        self.logs = dict(LOGS)

    def result(self) -> dict[str, Any] | None:
        """The result of a finished run of the same command; another command's directory is refused."""
        if not (self.run / "config.json").exists():
            return None
        stored = read_json(self.run / "config.json")
        command = stored.get("command") if isinstance(stored, dict) else None
        if command != "learn":
            raise DataError(f"{self.run} holds a run of `cbm {command}`, not of `cbm learn`; choose another directory")
        differing = differences(stored, self.config)
        if differing:
            raise DataError(f"{self.run} holds another run ({'; '.join(differing[:6])}); choose another directory")
        return read_result(self.run) if (self.run / "result.json").exists() else None

    def begin(self, replay: Replay) -> dict[str, Any] | None:
        """Make the directory, or take up what is in it: the state of the last checkpoint, logs cut back to it."""
        try:
            self.run.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"cannot create {self.run}: {error.strerror}") from error
        atomic_write_text(self.run / "config.json", json.dumps(self.config, indent=1) + "\n")
        state = self.snapshots.load(replay)
        self.logs = dict(LOGS) if state is None else {name: state["logs"][name] for name in LOGS}
        for name, text in self.logs.items():
            atomic_write_text(self.run / name, text)
        return state

    def save(self, number: int, state: Mapping[str, Any], replay: Replay) -> None:
        self.snapshots.write(number, {**state, "logs": self.logs}, replay)

    def finish(self, result: dict[str, Any], graph: CausalGraph | None) -> None:
        """The last checkpoint has been saved before."""
        if graph is not None:
            graph.save(self.run / "graph.json")
        atomic_write_text(self.run / "result.json", json.dumps(result, indent=1, allow_nan=False) + "\n")
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
        with (self.run / name).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_config(run: Path) -> dict[str, Any]:
    """What a learning run was asked for."""
    if not (run / "config.json").is_file():
        raise DataError(f"{run}: is no run (it has no config.json)")
    config = read_json(run / "config.json")
    if not isinstance(config, dict) or config.get("command") != "learn":
        command = config.get("command") if isinstance(config, dict) else None
        raise DataError(f"{run}: is a run of `cbm {command}`; only those of `cbm learn` have a policy")
    return config


def read_result(run: Path) -> dict[str, Any]:
    result = read_json(run / "result.json")
    if not isinstance(result, dict) or not isinstance(result.get("tasks"), dict):
        raise DataError(f"{run / 'result.json'}: is not the result of a learning run")
    return result


def differences(stored: Any, wanted: Any, place: str = "") -> list[str]:
    """Where two configurations differ, each as `settings.sac.batch 256, not 128`."""
    if isinstance(stored, dict) and isinstance(wanted, dict):
        found = []
        for key in dict.fromkeys([*wanted, *stored]):
            found += differences(stored.get(key), wanted.get(key), f"{place}.{key}" if place else key)
        return found
    if stored == wanted:
        return []
    text = f"{place} {json.dumps(stored)}, not {json.dumps(wanted)}"
    return [text if len(text) < 120 else f"another {place}"]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    return str(value)


def _number(value: float) -> float | None:
    """Six digits; JSON has no nan."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
