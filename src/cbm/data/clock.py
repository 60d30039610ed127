"""Whether a column of times says which row follows which: the length of a step, gaps, rows of one time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import Selection
from cbm.errors import DataError

TOLERANCE = 0.5
"""Tolerance of the distance between neighbouring rows, as a share of a step."""
CREDIBLE = 0.5
"""A guessed time column that would leave out more than this share of the pairs is rejected."""


def no_times(name: str, error: DataError) -> str:
    """Why a guessed column is no clock: the first cell that is neither a number nor a date."""
    return str(error).removeprefix(f"column {name!r}").removeprefix(", ").strip()


def without_time(selection: Selection, why: str) -> Selection:
    guesses = tuple(guess for guess in selection.guesses if not guess.startswith("time: "))
    return replace(selection, time=None, guesses=guesses, ignored=selection.ignored | {str(selection.time): why})


def check_not_shuffled(selection: Selection, time: np.ndarray) -> None:
    """Refuse rows that are in another order than a column which, sorted, is a perfect clock: pairs of neighbouring rows
    would mean nothing."""
    steps = np.diff(np.sort(time[np.isfinite(time)]))
    step = np.median(steps) if len(steps) else 0.0
    if not selection.episode and step > 0 and (np.abs(steps - step) <= TOLERANCE * step).mean() >= CREDIBLE:
        raise DataError(
            f"the rows are not in the order of {selection.time!r}, which seems to be their clock: sort the log by it, "
            "or name it with --obs if it is part of the state"
        )


def alone_in_time(stands: np.ndarray) -> np.ndarray:
    """(T,) whether no neighbouring row has the same time; `stands` (T-1,). Which row follows which is unknown there."""
    return np.asarray(~(np.append(stands, False) | np.append(False, stands)))


def not_alone(selection: Selection, row: int, other: int, time: float) -> str:
    rows = f"rows {min(row, other)} and {max(row, other)}"
    where = "in one episode " if selection.episode else ""
    return (
        f"most rows share their time with another row: {rows} {where}are both at {selection.time!r} {time:g}. If "
        "several recordings are mixed, name the columns that tell them apart (--episode run robot); if the clock is "
        "too coarse, name another one"
    )


@dataclass(frozen=True)
class Steps:
    """(T-1,) booleans: how time changes from a row to the next of its episode."""

    even: np.ndarray
    """By one step, within the tolerance: these rows are paired."""
    back: np.ndarray
    skips: np.ndarray
    stands: np.ndarray

    @classmethod
    def of(cls, steps: np.ndarray, follows: np.ndarray, step: float) -> Steps:
        even = follows & (steps > 0) & (np.abs(steps - step) <= TOLERANCE * step)
        back = follows & (steps < 0)
        return cls(even, back, follows & ~even & ~back & (steps != 0), follows & (steps == 0))

    def report(self, rows: np.ndarray, understood: ReadingNotes) -> None:
        """Record the rows after which time is irregular."""
        understood.note("gaps", rows[self.skips])
        understood.note("repeated", rows[self.stands])
        understood.note("restarts", rows[self.back])
