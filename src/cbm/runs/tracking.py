"""Sends the numbers of a run to a tracker.

The files of the run are the only record: metrics.jsonl and eval.csv, written by the run itself. A `Tracking` reads new
lines and passes them on, so discovery and learning know nothing about trackers. RUN/track.json records how many lines
were sent. A resumed run therefore continues the same curve without duplicate points, and a tracker that is first
requested when a run is resumed gets the earlier part too.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from cbm.errors import DataError
from cbm.runs.files import atomic_write_text, read_json
from cbm.runs.trackers import Tracker, check_tracker, first_line, flat, open_tracker

EVERY = 5.0
"""Seconds between two checks of the files."""
NOT_NUMBERS = ("phase", "task", "step", "seconds", "method", "seed")


class Point(NamedTuple):
    """Values by name at one step."""

    step: int
    seconds: float
    values: dict[str, float]


class Tracking:
    """The bridge for one run. Call it whenever there is progress; leaving the context sends the rest."""

    def __init__(self, name: str | None, run: Path):
        check_tracker(name)
        self.name, self.run = name, run
        self.tracker: Tracker | None = None
        self.sent: dict[str, Any] = {}
        """Number of lines sent of each file, and the values of the result."""
        self.last_look = -math.inf

    def __enter__(self) -> Tracking:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self.tracker is not None:
            self.look(final=kind is None)
        if self.tracker is not None:
            self.tracker.close(kind is None)

    def __call__(self) -> None:
        if time.monotonic() - self.last_look >= EVERY:
            self.look()

    def look(self, final: bool = False) -> None:
        """Send what is new. A tracker that fails later does not end the run."""
        self.last_look = time.monotonic()
        if self.name is None or not (self.run / "config.json").is_file():
            return
        tracker = self.tracker or self._open()
        try:
            for name, points in (("metrics.jsonl", self._metrics()), ("eval.csv", self._evaluations())):
                for point in points:
                    self._send(tracker, point)
                    self.sent[name] = self.sent.get(name, 0) + 1
            if final:
                self._send_result(tracker)
        except DataError:
            raise
        except Exception as error:  # whatever the library raises
            print(f"cbm: --track {self.name}: {first_line(error)}; the run goes on without it", file=sys.stderr)
            self.name, self.tracker = None, None
            return
        self._remember(tracker)

    def _send(self, tracker: Tracker, point: Point) -> None:
        if point.values:
            tracker.log(*point)

    def _send_result(self, tracker: Tracker) -> None:
        """Send the numbers of result.json, unless they were sent before."""
        if not (self.run / "result.json").is_file():
            return
        result = read_json(self.run / "result.json")
        kept = {f"kept/{name}": len(names) for name, names in result.get("abstractions", {}).items()}
        seconds = float(result.get("seconds", 0.0))
        values = _numbers(flat(result) | kept, "result") | {"result/seconds": seconds}
        if values != self.sent.get("result"):
            self._send(tracker, Point(0, seconds, values))
            self.sent["result"] = values

    def _open(self) -> Tracker:
        """Reopen the earlier tracker, or open a new one."""
        assert self.name is not None
        earlier = self._stored().get(self.name, {})
        self.sent = dict(earlier.get("sent", {}))
        self.tracker = open_tracker(self.name, self.run, read_json(self.run / "config.json"), earlier.get("key"))
        self._remember(self.tracker)
        return self.tracker

    def _stored(self) -> dict[str, Any]:
        path = self.run / "track.json"
        stored = read_json(path) if path.is_file() else {}
        if not isinstance(stored, dict):
            raise DataError(f"{path}: not what a run with --track writes")
        return stored

    def _remember(self, tracker: Tracker) -> None:
        stored = self._stored()
        stored[str(self.name)] = {"key": tracker.key, "sent": self.sent}
        atomic_write_text(self.run / "track.json", json.dumps(stored, indent=1) + "\n")

    # The files of a run

    def _metrics(self) -> Iterator[Point]:
        for line in self._new_lines("metrics.jsonl"):
            row = json.loads(line)
            parts = [str(row["phase"]), *([str(row["task"])] if row.get("task") else [])]
            yield Point(int(row.get("step", 0)), float(row.get("seconds") or 0), _numbers(row, "/".join(parts)))

    def _evaluations(self) -> Iterator[Point]:
        lines = self._new_lines("eval.csv")
        if lines:
            header = (self.run / "eval.csv").read_text(encoding="utf-8").partition("\n")[0].split(",")
            for row in csv.DictReader(lines, header):
                if row["step"] != "step":
                    yield Point(int(row["step"]), float(row["seconds"]), _numbers(row, f"eval/{row['task']}"))
                else:
                    yield Point(0, 0.0, {})  # the header counts as a line

    def _new_lines(self, name: str) -> list[str]:
        """Whole lines that were not sent yet. A resumed run repeats the lines after its checkpoint: these are not
        new."""
        path = self.run / name
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        return lines[self.sent.get(name, 0) :]


def _numbers(row: dict[str, Any], prefix: str) -> dict[str, float]:
    """Every finite number of a row, named `prefix/name`."""
    numbers: dict[str, float] = {}
    for name, value in row.items():
        try:
            number = float(value) if name not in NOT_NUMBERS and not isinstance(value, bool) else math.nan
        except (TypeError, ValueError):
            continue
        if math.isfinite(number):
            numbers[f"{prefix}/{name.replace('.', '/')}"] = number
    return numbers
