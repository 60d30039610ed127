"""A table that is read in blocks of rows, repeatedly if needed: the source of logs larger than memory."""

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
"""Called with the fraction of the work that is done."""


@dataclass(frozen=True)
class Source:
    """The columns of a table and how to read some of them; only `read` touches the rows."""

    reader: str
    rows: int
    names: Sequence[str]
    """Names of all columns, in order."""
    kinds: Mapping[str, str]
    """Kind of each column's cells, as named in `cbm.data.roles`."""
    read: Callable[[Sequence[str], int], Iterator[Arrays]]
    """Blocks of the given columns, in order, each with at most the given number of rows."""
    whole: frozenset[str] = frozenset()
    """Columns of whole numbers."""
    narrow: frozenset[str] = frozenset()
    """Columns of floats that 32 bits hold exactly."""
    about: Arrays = field(default_factory=dict)
    check_numbers: Callable[[str], None] = lambda name: None
    """Refuses a column that cannot be used as numbers, if that is known before it is read."""
    remarked: Callable[[Selection], Selection] = lambda selection: selection
    """Adds remarks that need the cells, not only the header."""

    def select(self, roles: Roles) -> Selection:
        """The roles of the columns; the names of columns in use must be unique."""
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
    """The size of a table, as far as it is known without reading it."""

    rows: int
    columns: int

    @property
    def cells(self) -> int:
        return self.rows * self.columns


def natural_order(path: Path) -> list[tuple[int, int | str]]:
    """Sort key of files that puts part-2 before part-10."""
    parts = re.split(r"(\d+)", path.as_posix())
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts]
