"""Notes on how a reader understood a log: its rows, its clock, guesses, and what was left out and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

SHOWN = 5
"""Rows or columns named in one sentence, at most."""
LISTED = 100_000
"""Rows kept in each list below, at most, so that the notes do not grow with the log."""


@dataclass
class ReadingNotes:
    """Filled by the readers; shown by `cbm check` and before `cbm discover`."""

    reader: str
    """Name of the reader in the table of readers."""
    rows: int = 0
    """Number of rows of the source, before pairing."""
    paired: bool = False
    """Whether rows were paired with the next one; otherwise each row contains both states."""
    episode: str = ""
    """Source of the episodes: a column, flags, the format, or nothing."""
    time: str | None = None
    step: float | None = None
    """Median difference of the time column between neighbouring rows."""
    guesses: list[str] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    """Number of empty cells in each column in use."""
    missing_rows: list[int] = field(default_factory=list)
    dropped: int = 0
    """Number of pairs, or rows, left out because of an empty cell."""
    gaps: list[int] = field(default_factory=list)
    """Rows after which time skips; their pairs are left out."""
    repeated: list[int] = field(default_factory=list)
    """Rows after which time stands still; their pairs are left out."""
    restarts: list[int] = field(default_factory=list)
    """Rows after which time goes back: a new episode begins there."""
    sorted_by_time: bool = False
    jumps: list[int] = field(default_factory=list)
    """If there are no episodes: rows after which the state jumps as it does nowhere else."""
    first_empty: dict[str, int] = field(default_factory=dict)
    """First row with an empty cell, of each column that has one."""
    not_listed: dict[str, int] = field(default_factory=dict)
    """For long lists above: the number of rows that they do not contain."""

    def note(self, name: str, rows: np.ndarray) -> None:
        """Add rows to one of the lists; beyond the first `LISTED` they are only counted."""
        known: list[int] = getattr(self, name)
        room = max(0, LISTED - len(known))
        known += rows[:room].tolist()
        if len(rows) > room:
            self.not_listed[name] = self.not_listed.get(name, 0) + len(rows) - room

    def _count(self, name: str) -> int:
        return len(getattr(self, name)) + self.not_listed.get(name, 0)

    def _times(self, name: str) -> str:
        count = self._count(name)
        return "once" if count == 1 else f"{count} times"

    def _rows(self, name: str) -> str:
        """row 3; rows 3, 5, 7 and 12 more."""
        return f"row{'s' if self._count(name) > 1 else ''} {_listing_of(getattr(self, name), self._count(name))}"

    def sentences(self) -> list[str]:
        """What a user must know about how the log was read; empty if nothing had to be guessed or left out."""
        said = [f"guessed {guess}" if ": not clear" not in guess else guess for guess in self.guesses]
        if self.ignored:
            said.append(f"ignored: {listing([f'{n!r} ({why})' for n, why in self.ignored.items()])}")
        if self.missing:
            columns = listing([f"{name!r} ({count})" for name, count in self.missing.items()])
            what = "pairs of rows" if self.paired else "rows"
            said.append(
                f"{sum(self.missing.values())} empty cells in {columns}, {self._rows('missing_rows')}: "
                f"{self.dropped} {what} left out"
            )
        clock = f"time {self.time!r}"
        if self.gaps:
            said.append(f"{clock} skips {self._times('gaps')}, after {self._rows('gaps')}: these rows are not paired")
        if self.repeated:
            said.append(f"{clock} stands still {self._times('repeated')}, after {self._rows('repeated')}: not paired")
        if self.restarts:
            where = f"{self._times('restarts')}, after {self._rows('restarts')}"
            said.append(f"{clock} goes back {where}: new episodes begin there")
        if self.sorted_by_time:
            said.append(f"rows were sorted by episode and {clock}")
        if self.jumps:
            every = _spacing(self.jumps)
            said.append(
                f"no episode column, and the state jumps {self._times('jumps')} as it does nowhere else, "
                f"after {self._rows('jumps')}{every}: if episodes begin there, name their column (--episode), "
                "since pairs across them give false edges"
            )
        return said

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def listing(names: Sequence[str], shown: int = SHOWN) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _listing_of(rows: Sequence[int], count: int) -> str:
    rest = count - min(SHOWN, len(rows))
    return ", ".join(map(str, rows[:SHOWN])) + (f" and {rest} more" if rest > 0 else "")


def _spacing(rows: Sequence[int]) -> str:
    """Jumps at even distances are the ends of episodes of equal length."""
    steps = {b - a for a, b in pairwise(rows)}
    return f" (every {steps.pop()} rows)" if len(steps) == 1 and len(rows) > 2 else ""
