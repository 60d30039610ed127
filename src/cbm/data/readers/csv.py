"""Tables as text: CSV and TSV, with the separator found in the header."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from cbm.data.readers.dialect import TextTable, opened
from cbm.data.readers.source import Fraction, Shape, Source
from cbm.data.readers.tables import Arrays, check_unique, to_columns
from cbm.data.readers.text_column import TextColumn, check_some_numbers, remarked
from cbm.data.roles import Roles, select
from cbm.data.series import Reading, Table, read_table
from cbm.errors import DataError

_BLOCK = 4096
_START = 1_000_000  # bytes, from which the number of rows is estimated


def read(path: Path, roles: Roles) -> Reading:
    with opened(path) as table:
        return _read(table, roles)


def shape(path: Path) -> Shape:
    """Number of rows, estimated from the length of the first ones."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(_START)
    with opened(path) as table:
        lines = max(1, start.count(b"\n"))
        return Shape(lines - 1 if len(start) == size else int(lines * size / len(start)), len(table.header))


def source(path: Path, roles: Roles, progress: Fraction) -> Source:
    """Finds the kind of each column in one pass over all cells, since text does not declare it."""
    size = max(1, path.stat().st_size)
    with opened(path) as table:
        parsed = [TextColumn(name, roles, table.decimal_commas, keeps=False) for name in table.header]
        count = 0
        for start, block in _blocks(table, _BLOCK):
            for column, values in zip(parsed, zip(*block, strict=True), strict=True):
                column.add(values, start)
            count = start + len(block)
            progress(min(1.0, table.handle.buffer.tell() / size))  # type: ignore[attr-defined]
    check_some_numbers(parsed)
    by_name = {column.name: column for column in parsed}

    def blocks(columns: Sequence[str], size: int) -> Iterator[Arrays]:
        with opened(path) as table:
            places = {name: i for i, name in enumerate(table.header)}
            for start, block in _blocks(table, size):
                cells = {name: [row[places[name]] for row in block] for name in columns}
                yield {name: by_name[name].parsed(values, start) for name, values in cells.items()}

    return Source(
        table.reader,
        count,
        table.header,
        {name: column.kind() for name, column in by_name.items()},
        blocks,
        frozenset(name for name, column in by_name.items() if column.whole),
        check_numbers=lambda name: by_name[name].check_numbers(),
        remarked=lambda selection: remarked(selection, by_name),
    )


def _blocks(table: TextTable, size: int) -> Iterator[tuple[int, list[list[str]]]]:
    """So many rows at a time, with the number of their first; every row must be as long as the header."""
    start, width = 0, len(table.header)
    while block := list(islice(table.rows, size)):
        for row, cells in enumerate(block, start):
            if len(cells) != width:
                raise DataError(f"row {row} has {len(cells)} cells, but the header has {width}")
        yield start, block
        start += len(block)


def _read(table: TextTable, roles: Roles) -> Reading:
    parsed = [TextColumn(name, roles, table.decimal_commas) for name in table.header]
    count = 0
    for start, block in _blocks(table, _BLOCK):
        for column, values in zip(parsed, zip(*block, strict=True), strict=True):
            column.add(values, start)
        count = start + len(block)
    if not count:
        raise DataError("the table has no rows")
    check_some_numbers(parsed)
    by_name = {column.name: column for column in parsed}
    selection = select({name: column.kind() for name, column in by_name.items()}, roles)
    check_unique(table.header, selection.used())
    numbers = set(selection.values())
    columns = {name: by_name[name].values(name in numbers) for name in selection.used()}
    whole = frozenset(name for name in selection.action.values() if by_name[name].whole)
    return read_table(Table(columns, whole), remarked(selection, by_name), roles, table.reader)


def writer(delimiter: str) -> Callable[[IO[bytes], Mapping[str, np.ndarray]], None]:
    def write(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
        columns = to_columns(arrays)
        text = io.TextIOWrapper(handle, encoding="utf-8", newline="", write_through=True)
        lines = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        lines.writerow(columns)
        # Python writes the shortest digits that give the same double, and keeps 1.0 apart from the integer 1
        lines.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
        text.detach()  # the file is closed by who opened it

    return write


write = writer(",")
write_tabs = writer("\t")
