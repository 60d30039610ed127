"""A log larger than memory: its arrays are memory-mapped files, and only the rows in use are read.

A map is a directory with one `.npy` file for each array of the npz contract, `runs.npy` (the episodes as runs of rows),
`continues.npy` (whether a row begins where the previous row of its episode ended) and `map.json` (names, kinds, ranges,
reading notes, and the state of the source). `cbm.data.convert` creates maps; here they are opened. Nothing is
unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.factors import Factors
from cbm.data.reading_notes import ReadingNotes
from cbm.data.runs import Runs
from cbm.data.statistics import Statistics
from cbm.data.transitions import Transitions
from cbm.data.validate import reward_array
from cbm.errors import DataError
from cbm.runs.files import read_json

ABOUT = "map.json"
SCHEMA = 1
"""Version of map.json and the files beside it; a map of another version is created again."""
BLOCK_CELLS = 2_000_000
"""Numbers per block of rows: a pass over a log holds about ten arrays of this size at a time."""
MOST_ROWS, FEWEST_ROWS = 65_536, 256
"""Largest and smallest number of rows per block, whatever the number of columns."""


def block_rows(columns: int) -> int:
    """Rows per block of a log with this many columns."""
    return min(MOST_ROWS, max(FEWEST_ROWS, BLOCK_CELLS // max(columns, 1)))


def blocks_of(array: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of consecutive rows; those of a mapped file are copies."""
    size = block_rows(int(np.prod(array.shape[1:])))
    for start in range(0, len(array), size):
        yield read_range(array, start, min(len(array), start + size))


def read_range(array: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Consecutive rows; those of a mapped file are read instead of mapped, so that none of its pages stays in
    memory."""
    if not isinstance(array, np.memmap):
        return array[start:stop]
    return read_rows(array, np.arange(start, stop))


def read_rows(array: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows by their indices, in the same way; `array` is a whole file."""
    if not isinstance(array, np.memmap) or array.filename is None:
        return np.asarray(array[index])
    index = np.where(index < 0, index + len(array), index)
    if len(index) and not 0 <= index.min() <= index.max() < len(array):
        raise IndexError(f"row {index.max()} of {len(array)}")
    rows = np.empty((len(index), *array.shape[1:]), array.dtype)
    begin = np.flatnonzero(np.concatenate([[True], np.diff(index) != 1])) if len(index) else index
    width = array.dtype.itemsize * int(np.prod(array.shape[1:]))
    target = rows.reshape(-1).view(np.uint8).data
    with _opened(array.filename) as file:
        for first, last in pairwise([*begin.tolist(), len(index)]):
            file.seek(array.offset + int(index[first]) * width)
            part = target[first * width : last * width]
            while part.nbytes and (done := file.readinto(part)):
                part = part[done:]
            if part.nbytes:
                raise DataError(f"{array.filename} is shorter than it was")
    return rows


def _opened(name: str | os.PathLike[str]) -> FileIO:
    try:
        return FileIO(name)
    except FileNotFoundError:
        raise DataError(f"{name} is gone: the log has changed, and another program has converted it anew") from None


@dataclass(frozen=True, eq=False, repr=False)
class MappedTransitions(Transitions):
    """Transitions whose arrays are mapped files; floats may have 32 bits. `select` returns rows in memory.

    The contents were checked block by block when the map was created.
    """

    known: Statistics = field(kw_only=True)
    episodes: Runs = field(kw_only=True)
    """Returned by `runs`."""
    continued_rows: np.ndarray = field(kw_only=True)
    """(R,) number of rows of each run that continue another row of their episode."""
    continues: np.ndarray = field(kw_only=True)
    """(T,) bool: whether a row is one of these."""

    def __post_init__(self) -> None:
        """Does nothing, so that the arrays are not read."""

    def runs(self) -> Runs:
        return self.episodes

    def statistics(self) -> Statistics:
        return self.known

    def select(self, rows: Any) -> Transitions:
        """Some of the rows, in memory and as 64-bit numbers."""
        index = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else np.asarray(rows)
        index = np.flatnonzero(index) if index.dtype == bool else np.atleast_1d(index)
        if not index.size:
            raise DataError("no rows are selected")
        part: Transitions = object.__new__(Transitions)  # checked when the map was created
        for name in ("obs", "action", "next_obs", "terminated", "truncated", "episode"):
            object.__setattr__(part, name, _rows_of(getattr(self, name), index))
        for name in ("rewards", "context"):
            values = {key: _rows_of(array, index) for key, array in getattr(self, name).items()}
            object.__setattr__(part, name, values)
        for name in ("factors", "truth", "truth_rewards"):
            object.__setattr__(part, name, getattr(self, name))
        return part

    def continued(self) -> Runs:
        """The rows that continue another row of their episode, as runs of only these rows."""
        some = self.continued_rows > 0
        return Runs(self.episodes.episode[some], self.continued_rows[some])

    def places_of_continued(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the log, given by their position among those that continue another row; and the rows that they
        continue.

        `wanted` is sorted.
        """
        found, passed, start = [], 0, 0
        for block in blocks_of(self.continues):
            places = np.flatnonzero(block)
            first, last = np.searchsorted(wanted, [passed, passed + len(places)])
            found.append(start + places[wanted[first:last] - passed])
            passed, start = passed + len(places), start + len(block)
        rows = np.concatenate(found)
        return rows, previous_rows(self.episodes, rows)

    def actions_at(self, rows: np.ndarray) -> np.ndarray:
        """(n, a) the actions of some rows, in memory."""
        values = _rows_of(self.action, rows)
        assert values is not None
        return values


def previous_rows(runs: Runs, rows: np.ndarray) -> np.ndarray:
    """The previous row of each in its episode: the row above or, at the start of a run, the end of an earlier run."""
    before = rows - 1
    run = np.searchsorted(runs.start, rows, "right") - 1
    at_start = np.flatnonzero(runs.start[run] == rows)
    if len(at_start):
        before[at_start] = earlier_ends(runs)[run[at_start]]
    return before


def earlier_ends(runs: Runs) -> np.ndarray:
    """(R,) the last row of the previous run of the same episode; -1: there is none."""
    order = np.argsort(runs.episode, kind="stable")
    same = runs.episode[order[1:]] == runs.episode[order[:-1]]
    ends = np.full(len(order), -1)
    ends[order[1:][same]] = (runs.start + runs.length - 1)[order[:-1][same]]
    return ends


def _rows_of(array: np.ndarray | None, index: np.ndarray) -> np.ndarray | None:
    if array is None:
        return None
    values = read_rows(array, index)
    return values.astype(np.float64) if values.dtype.kind == "f" else values


@dataclass(frozen=True)
class Opened:
    """A map, and the notes on how its source was read."""

    data: MappedTransitions
    understood: ReadingNotes


def open_map(folder: Path) -> Opened:
    """The log in a map."""
    about = read_json(folder / ABOUT)
    try:
        arrays = {name: _mapped(folder / file) for name, file in about["arrays"].items()}
        runs = np.load(folder / "runs.npy", allow_pickle=False)
        return Opened(_transitions(about, arrays, runs), ReadingNotes(**about["understood"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder}: not a usable map ({error}); remove it, and it is made again") from None


def _mapped(path: Path) -> np.ndarray:
    array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _transitions(about: Mapping[str, Any], arrays: Mapping[str, np.ndarray], runs: np.ndarray) -> MappedTransitions:
    truth = about["truth"]
    return MappedTransitions(
        obs=arrays["obs"],
        action=arrays["action"],
        next_obs=arrays["next_obs"],
        factors=Factors.from_json(about["factors"]),
        rewards={name: arrays[reward_array(name)] for name in about["rewards"]},
        context={name: arrays[f"context_{name}"] for name in about["context"]},
        terminated=arrays.get("terminated"),
        truncated=arrays.get("truncated"),
        episode=arrays["episode"],
        truth=None if truth is None else np.array(truth, bool),
        truth_rewards={name: np.array(parents, bool) for name, parents in about["truth_rewards"].items()},
        known=Statistics.from_json(about["statistics"]),
        episodes=Runs(runs[0], runs[1]),
        continued_rows=runs[2],
        continues=arrays["continues"],
    )
