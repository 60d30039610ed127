"""ROS 2 bags and MCAP files: topics become columns on one clock.

Every number of a message is a column, `joint_states.position.elbow` or `cmd_vel.linear.x`; pictures, point clouds and
texts are left out. A recording has no rows, so it needs a clock: the messages of the slowest topic in use, or `rate`.
Each row contains the last message at or before its time, never a later one; only a command is taken from the middle of
the step, since a controller sends it after observing the state. A topic that was silent for several of its usual steps
has no value there; a command holds until the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.readers.common import check_memory, optional, reason
from cbm.data.roles import NUMBER, Roles, select
from cbm.data.series import Reading, Table, read_table
from cbm.errors import DataError

LONGEST = 64
"""Longer arrays are pictures, point clouds or scans."""
SILENT = 3.0
"""A topic has no value after this many of its usual steps without a message."""
MOST_ROWS = 50_000_000
_SKIPPED = ("Image", "CompressedImage", "PointCloud2", "PointCloud", "LaserScan", "OccupancyGrid", "Log", "TFMessage")


@dataclass
class Topic:
    """Messages of one topic."""

    name: str
    times: list[int] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)

    def period(self) -> float:
        """Seconds between two messages."""
        steps = np.diff(np.array(self.times)) / 1e9
        return float(np.median(steps[steps > 0])) if (steps > 0).any() else np.inf


def is_bag(path: Path) -> bool:
    return (path / "metadata.yaml").is_file()


def read(path: Path, roles: Roles) -> Reading:
    try:
        topics, left_out = _topics(path)
        reading = _resampled(topics, roles)
        reading.understood.ignored |= left_out
        return reading
    except DataError:
        raise
    except Exception as error:  # rosbags raises its own errors, and damaged bytes make it raise others
        raise DataError(f"not a readable ROS 2 bag or MCAP file: {reason(error)}") from None


def _topics(path: Path) -> tuple[list[Topic], dict[str, str]]:
    reader_of = optional("rosbags.highlevel", "reading ROS 2 bags").AnyReader
    typesys = optional("rosbags.typesys", "reading ROS 2 bags")
    files = [path] if path.is_file() else list(path.iterdir())
    check_memory(file.stat().st_size for file in files if file.is_file())
    topics: dict[str, Topic] = {}
    left_out: dict[str, str] = {}
    with reader_of([path], default_typestore=typesys.get_typestore(typesys.Stores.LATEST)) as bag:
        connections = []
        for connection in bag.connections:
            kind = connection.msgtype.rpartition("/")[2]
            if kind in _SKIPPED:
                left_out[connection.topic.lstrip("/")] = kind
            else:
                connections.append(connection)
        for connection, moment, raw in bag.messages(connections=connections) if connections else ():
            topic = topics.setdefault(connection.topic, Topic(connection.topic.lstrip("/")))
            topic.times.append(moment)
            topic.rows.append(dict(_numbers(bag.deserialize(raw, connection.msgtype), topic.name)))
    left_out |= {topic.name: "no numbers" for topic in topics.values() if not any(topic.rows)}
    return [topic for topic in topics.values() if any(topic.rows)], left_out


def _numbers(message: Any, path: str) -> Iterator[tuple[str, float]]:
    """Every number in a message with its name; entries of an array have the message's own names for them, if any."""
    fields = {name: getattr(message, name) for name in getattr(message, "__dataclass_fields__", {})
              if name not in ("header", "__msgtype__") and not name.isupper()}  # fmt: skip
    labels = fields.get("name") if isinstance(fields.get("name"), list) else None
    for name, value in fields.items():
        here = path if list(fields) == ["data"] else f"{path}.{name}"
        if isinstance(value, bool | int | float | np.number):
            yield here, float(value)
        elif isinstance(value, np.ndarray | list | tuple):
            yield from _entries(value, here, labels)
        elif hasattr(value, "__dataclass_fields__"):
            yield from _numbers(value, here)


def _entries(values: Any, path: str, labels: list[str] | None) -> Iterator[tuple[str, float]]:
    if len(values) > LONGEST:
        return
    for k, value in enumerate(values):
        label = f"{path}.{labels[k]}" if labels is not None and len(labels) == len(values) else f"{path}_{k}"
        if isinstance(value, bool | int | float | np.number):
            yield label, float(value)
        elif hasattr(value, "__dataclass_fields__"):
            yield from _numbers(value, label)


def _resampled(topics: list[Topic], roles: Roles) -> Reading:
    topic_of = {name: topic for topic in topics for row in topic.rows for name in row}
    if not topic_of:
        raise DataError("there are no numbers in its messages")
    selection = select(dict.fromkeys(topic_of, NUMBER), roles)
    used = [topic_of[name] for name in selection.used()]
    moments, step = _clock(used, roles.rate)
    held = set(selection.action.values())
    columns = {n: _at(topic_of[n], n, moments, step, n in held) for n in dict.fromkeys(selection.used())}
    clock = "the clock of the recording"
    selection = replace(
        selection, time=clock, guesses=tuple(g for g in selection.guesses if not g.startswith("time: "))
    )
    seconds = (moments - moments[:1]) / 1e9
    return read_table(Table(columns | {clock: seconds}), selection, roles, "ros")


def _clock(used: list[Topic], rate: float | None) -> tuple[np.ndarray, float]:
    """Times of the rows in nanoseconds, and the step in seconds; rows begin once every topic has begun."""
    slowest = max(used, key=Topic.period)
    start, end = max(topic.times[0] for topic in used), max(topic.times[-1] for topic in used)
    if rate is None:
        if not np.isfinite(slowest.period()):
            raise DataError(f"topic {slowest.name!r} has one message only, so there is no rate: say --rate")
        moments = np.unique(np.array(slowest.times))
        return moments[moments >= start], slowest.period()
    rows = int((end - start) * rate / 1e9 + 1e-6) + 1
    if rows > MOST_ROWS:
        raise DataError(f"{rows} rows at {rate:g} Hz are too many: say a lower --rate")
    return start + np.round(np.arange(rows) * 1e9 / rate).astype(np.int64), 1 / rate


def _at(topic: Topic, name: str, moments: np.ndarray, step: float, held: bool) -> np.ndarray:
    """The last value at or before each time; none where the topic was silent for too long."""
    present = [k for k, row in enumerate(topic.rows) if name in row]
    times = np.array([topic.times[k] for k in present])
    values = np.array([topic.rows[k][name] for k in present])
    moments = moments + int(step * 5e8) if held else moments
    last = np.searchsorted(times, moments, side="right") - 1
    found = np.where(last >= 0, values[np.maximum(last, 0)], np.nan)
    if held:
        return found
    age = (moments - times[np.maximum(last, 0)]) / 1e9
    period = topic.period()
    return np.where(age > SILENT * max(step, period if np.isfinite(period) else 0), np.nan, found)
