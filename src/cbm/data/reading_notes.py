"""What a reader made of a log: its rows, its clock, what was guessed, what was left out and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

SHOWN = 5
"""So many rows or columns are named in one sentence."""


@dataclass
class ReadingNotes:
    """Filled by the readers, shown by `cbm check` and before `cbm discover`."""

    reader: str
    """Name of the reader in the table of readers."""
    rows: int = 0
    """Rows of the source, before pairing."""
    paired: bool = False
    """Whether rows were paired with the next one; otherwise each row holds both states."""
    episode: str = ""
    """Where the episodes come from: a column, flags, the format, or nothing."""
    time: str | None = None
    step: float | None = None
    """Median difference of the time column between neighbouring rows."""
    guesses: list[str] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    """Empty cells of each column that is used."""
    missing_rows: list[int] = field(default_factory=list)
    dropped: int = 0
    """Pairs, or rows, that were left out for an empty cell."""
    gaps: list[int] = field(default_factory=list)
    """Rows after which time skips; their pairs are left out."""
    repeated: list[int] = field(default_factory=list)
    """Rows after which time stands still; their pairs are left out."""
    restarts: list[int] = field(default_factory=list)
    """Rows after which time goes back: a new episode begins."""
    sorted_by_time: bool = False
    jumps: list[int] = field(default_factory=list)
    """Without episodes: rows after which the state jumps as it does nowhere else."""

    def sentences(self) -> list[str]:
        """What a user must know of how the log was read; nothing where nothing was left to chance."""
        said = [f"guessed {guess}" if ": not clear" not in guess else guess for guess in self.guesses]
        if self.ignored:
            said.append(f"ignored: {listing([f'{n!r} ({why})' for n, why in self.ignored.items()])}")
        if self.missing:
            columns = listing([f"{name!r} ({count})" for name, count in self.missing.items()])
            what = "pairs of rows" if self.paired else "rows"
            said.append(
                f"{sum(self.missing.values())} empty cells in {columns}, {_rows(self.missing_rows)}: "
                f"{self.dropped} {what} left out"
            )
        clock = f"time {self.time!r}"
        if self.gaps:
            said.append(f"{clock} skips {_times(self.gaps)}, {_after(self.gaps)}: these rows are not paired")
        if self.repeated:
            said.append(f"{clock} stands still {_times(self.repeated)}, {_after(self.repeated)}: not paired")
        if self.restarts:
            said.append(f"{clock} goes back {_times(self.restarts)}, {_after(self.restarts)}: new episodes begin there")
        if self.sorted_by_time:
            said.append(f"rows were sorted by episode and {clock}")
        if self.jumps:
            every = _spacing(self.jumps)
            said.append(
                f"no episode column, and the state jumps {_times(self.jumps)} as it does nowhere else, "
                f"{_after(self.jumps)}{every}: if episodes begin there, name their column (--episode), "
                "since pairs across them give false edges"
            )
        return said

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def listing(names: Sequence[str], shown: int = SHOWN) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _rows(rows: Sequence[int]) -> str:
    return f"row{'s' if len(rows) > 1 else ''} {listing([str(row) for row in rows])}"


def _after(rows: Sequence[int]) -> str:
    return f"after {_rows(rows)}"


def _times(rows: Sequence[int]) -> str:
    return "once" if len(rows) == 1 else f"{len(rows)} times"


def _spacing(rows: Sequence[int]) -> str:
    """Jumps at even distances are the ends of episodes of one length."""
    steps = {b - a for a, b in pairwise(rows)}
    return f" (every {steps.pop()} rows)" if len(steps) == 1 and len(rows) > 2 else ""
