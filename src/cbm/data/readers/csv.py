"""Tables as text: CSV and TSV, with the separator found in the header."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np

from cbm.data.readers.common import reason
from cbm.data.readers.source import Fraction, Shape, Source
from cbm.data.readers.tables import Arrays, check_header, check_unique, column_name, to_columns
from cbm.data.roles import EMPTY, NUMBER, TEXT, Roles, is_possible, select
from cbm.data.series import Reading, Table, read_table
from cbm.errors import DataError

_WORDS = {"true": 1.0, "false": 0.0} | dict.fromkeys(("", "na", "n/a", "nan", "null", "none", "-"), np.nan)
_BLOCK = 4096
_START = 1_000_000  # bytes, from which the number of rows is estimated
_SEPARATORS = "\t;|"


def read(path: Path, roles: Roles) -> Reading:
    with _opened(path) as (header, rows, reader, _):
        return _read(header, rows, roles, reader)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]], str, IO[str]]]:
    """The header, the rows after it, the name of the reader, and the file itself."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as handle:
            separator = _separator(handle, path)
            rows = (row for row in csv.reader(handle, delimiter=separator, skipinitialspace=separator != "\t") if row)
            header = [column_name(cell) for cell in next(rows, [])]
            check_header(header)
            yield header, rows, "tsv" if separator == "\t" else "csv", handle
    except (csv.Error, UnicodeError) as error:
        raise DataError(f"not a readable CSV file: {reason(error)}") from None


def shape(path: Path) -> Shape:
    """Number of rows, estimated from the length of the first ones."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(_START)
    with _opened(path) as (header, *_):
        lines = max(1, start.count(b"\n"))
        return Shape(lines - 1 if len(start) == size else int(lines * size / len(start)), len(header))


def source(path: Path, roles: Roles, progress: Fraction) -> Source:
    """Finds the kind of each column in one pass over all cells, since text does not declare it."""
    size = max(1, path.stat().st_size)
    with _opened(path) as (header, rows, reader, handle):
        parsed = [_Column(name, roles, keeps=False) for name in header]
        count = 0
        for start, block in _blocks(header, rows, _BLOCK):
            for column, values in zip(parsed, zip(*block, strict=True), strict=True):
                column.add(values, start)
            count = start + len(block)
            progress(min(1.0, handle.buffer.tell() / size))  # type: ignore[attr-defined]
    by_name = {column.name: column for column in parsed}
    whole = frozenset(name for name, column in by_name.items() if column.whole)

    def blocks(columns: Sequence[str], size: int) -> Iterator[Arrays]:
        with _opened(path) as (header, rows, *_):
            places = {name: i for i, name in enumerate(header)}
            for start, block in _blocks(header, rows, size):
                cells = {name: [row[places[name]] for row in block] for name in columns}
                yield {name: by_name[name].parsed(values, start) for name, values in cells.items()}

    kinds = {name: column.kind() for name, column in by_name.items()}
    return Source(reader, count, header, kinds, blocks, whole, check_numbers=lambda name: by_name[name].check_numbers())


def _blocks(header: list[str], rows: Iterator[list[str]], size: int) -> Iterator[tuple[int, list[list[str]]]]:
    """Blocks of rows, each with the number of its first; every row must be as long as the header."""
    start = 0
    while block := list(islice(rows, size)):
        for row, cells in enumerate(block, start):
            if len(cells) != len(header):
                raise DataError(f"row {row} has {len(cells)} cells, but the header has {len(header)}")
        yield start, block
        start += len(block)


def _separator(handle: IO[str], path: Path) -> str:
    """A comma, or the separator that the header has instead."""
    first = handle.readline(1_000_000)
    handle.seek(0)
    if path.suffix.lower() == ".tsv":
        return "\t"
    counts = {mark: first.count(mark) for mark in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda mark: counts[mark])
    return best if counts[best] and "," not in first else ","


def _read(header: list[str], rows: Iterator[list[str]], roles: Roles, reader: str) -> Reading:
    parsed = {i: _Column(name, roles) for i, name in enumerate(header)}
    count = 0
    for start, block in _blocks(header, rows, _BLOCK):
        for i, values in enumerate(zip(*block, strict=True)):
            parsed[i].add(values, start)
        count = start + len(block)
    if not count:
        raise DataError("the table has no rows")
    by_name = {column.name: column for column in parsed.values()}
    selection = select({name: column.kind() for name, column in by_name.items()}, roles)
    check_unique(header, selection.used())
    numbers = set(selection.values())
    columns = {name: by_name[name].values(name in numbers) for name in selection.used()}
    whole = frozenset(name for name in selection.action.values() if by_name[name].whole)
    return read_table(Table(columns, whole), selection, roles, reader)


class _Column:
    """One column, block by block: numbers take far less memory than their text, which is kept only if it may be needed.

    Without `keeps` neither is kept, only what they show about the column.
    """

    def __init__(self, name: str, roles: Roles, keeps: bool = True):
        self.name, self.keeps = name, keeps
        self.filled = False
        self.keeps_text = is_possible(name, "episode", roles) or is_possible(name, "time", roles)
        self.whole = is_possible(name, "action", roles)  # only an action differs as an integer
        self.parts: list[np.ndarray] = []
        self.texts: list[Sequence[str]] = []
        self.bad: tuple[int, str] | None = None

    def add(self, cells: Sequence[str], start: int) -> None:
        if self.keeps_text and self.keeps:
            self.texts.append(cells)
        if self.bad is not None:
            return
        self.whole = self.whole and all(map(_is_whole, cells))
        try:
            numbers = np.array(list(map(float, cells)))
        except ValueError:  # a word, an empty cell, or no number at all: look at each
            numbers = self._look(cells, start)
        self.filled = self.filled or not np.isnan(numbers).all()
        if self.keeps and self.bad is None:
            self.parts.append(numbers)

    def _look(self, cells: Sequence[str], start: int) -> np.ndarray:
        numbers = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            text = cell.strip()
            try:
                numbers[row] = _WORDS[text.lower()] if text.lower() in _WORDS else float(text)
            except ValueError:
                self.bad = (start + row, text)
                self.parts.clear()
                break
        return numbers

    def kind(self) -> str:
        if self.bad is not None:
            return TEXT
        return NUMBER if self.filled else EMPTY

    def parsed(self, cells: Sequence[str], start: int) -> np.ndarray:
        """A block of cells as numbers, or as text if any cell of the column is not a number."""
        if self.bad is not None:
            return np.array([cell.strip() for cell in cells], object)
        try:
            return np.array(list(map(float, cells)))
        except ValueError:
            return self._look(cells, start)

    def check_numbers(self) -> None:
        """Refuse a column that is used as numbers and has a cell that is not one."""
        if self.bad is not None:
            row, cell = self.bad
            raise DataError(f"column {self.name!r}, row {row}: {cell!r:.60} is not a number")

    def values(self, as_numbers: bool) -> np.ndarray:
        if self.bad is None:
            return np.concatenate(self.parts)
        if as_numbers:
            self.check_numbers()
        return np.array([cell.strip() for cells in self.texts for cell in cells], object)


def _is_whole(cell: str) -> bool:
    digits = cell.strip().removeprefix("-")
    return (digits.isdecimal() and len(digits) < 16) or digits.lower() in ("true", "false", "")


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
