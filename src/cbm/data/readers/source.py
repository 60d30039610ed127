"""A table that is read in blocks of rows, as often as need be: what logs larger than memory are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cbm.data.readers.tables import Arrays, check_header, check_unique
from cbm.data.roles import Roles, Selection, select
from cbm.data.series import Table

Fraction = Callable[[float], None]
"""Hears the share of the work that is done, from 0 to 1."""


@dataclass(frozen=True)
class Source:
    """The columns of a table and how to read some of them; only `read` touches the rows."""

    reader: str
    rows: int
    names: Sequence[str]
    """Of all columns, in order."""
    kinds: Mapping[str, str]
    """What the cells of each column hold, as `cbm.data.roles` names it."""
    read: Callable[[Sequence[str], int], Iterator[Arrays]]
    """Blocks of some columns, in order, each of at most so many rows."""
    whole: frozenset[str] = frozenset()
    """Columns of whole numbers."""
    narrow: frozenset[str] = frozenset()
    """Columns of floats that 32 bits hold exactly."""
    about: Arrays = field(default_factory=dict)
    check_numbers: Callable[[str], None] = lambda name: None
    """Refuses a column that cannot be used as numbers, where that is known before it is read."""
    remarked: Callable[[Selection], Selection] = lambda selection: selection
    """Adds what only the cells show."""

    def select(self, roles: Roles) -> Selection:
        """Which column is what; one that is used must be the only one of its name."""
        check_header(list(self.names))
        selection = select(self.kinds, roles)
        check_unique(list(self.names), selection.used())
        for name in selection.values():
            self.check_numbers(name)
        return self.remarked(selection)

    def table(self, used: Sequence[str], rows: int) -> Table:
        """All rows of some columns, in memory."""
        names = list(dict.fromkeys(used))
        blocks = list(self.read(names, rows))
        columns = {name: np.concatenate([block[name] for block in blocks] or [np.empty(0)]) for name in names}
        return Table(columns, self.whole & set(names), dict(self.about))


@dataclass(frozen=True)
class Shape:
    """How large a table is, as far as that shows without reading it."""

    rows: int
    columns: int

    @property
    def cells(self) -> int:
        return self.rows * self.columns


def natural_order(path: Path) -> list[tuple[int, int | str]]:
    """A key to sort files by: part-2 stands before part-10."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts]
