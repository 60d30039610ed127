"""How a table of text is written: what stands before its header, its names, and what separates its cells."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cbm.data.readers.common import reason
from cbm.data.readers.tables import check_header, column_name
from cbm.errors import DataError

SEPARATORS = ",\t;|"
"""The first is taken where nothing shows another."""
_LINE = 1_000_000  # characters of a line that are looked at
_NOTES = 1000  # lines of notes that may stand before a header
_QUOTED = re.compile(r'"[^"]*"')
_EXCEL = re.compile(r'"?sep=(.)"?', re.IGNORECASE)


@dataclass(frozen=True)
class TextTable:
    """A table whose rows have not been read yet."""

    header: list[str]
    rows: Iterator[list[str]]
    separator: str
    handle: IO[str]

    @property
    def reader(self) -> str:
        return "tsv" if self.separator == "\t" else "csv"

    @property
    def decimal_commas(self) -> bool:
        """Whether a comma can stand in a number."""
        return self.separator != ","


@contextmanager
def opened(path: Path) -> Iterator[TextTable]:
    try:
        with open(path, newline="", encoding="utf-8-sig") as handle:
            skipped, names, separator = _layout(handle, path)
            handle.seek(0)
            for _ in range(skipped):
                handle.readline(_LINE)
            rows = _rows(handle, separator)
            header = [column_name(cell) for cell in (next(rows, []) if names is None else names)]
            _check_names(header)
            yield TextTable(header, rows, separator, handle)
    except UnicodeDecodeError as error:
        raise DataError(
            f"not a readable CSV file: byte 0x{error.object[error.start]:02x} is not UTF-8; save it as UTF-8 text"
        ) from None
    except (csv.Error, UnicodeError) as error:
        raise DataError(f"not a readable CSV file: {reason(error)}") from None


def _rows(lines: Iterator[str], separator: str) -> Iterator[list[str]]:
    """Lines that hold nothing are no rows."""
    # strict, since otherwise a quote that is never closed would take all further rows into one cell
    parsed = csv.reader(lines, delimiter=separator, skipinitialspace=separator != "\t", strict=True)
    return (row for row in parsed if len(row) > 1 or (row and row[0].strip()))


def _layout(handle: IO[str], path: Path) -> tuple[int, list[str] | None, str]:
    """Lines to skip, the names where a note holds them, and the separator."""
    skipped, line = 0, handle.readline(_LINE)
    told = _EXCEL.fullmatch(line.strip())
    if told:
        skipped, line = 1, handle.readline(_LINE)
    note = ""
    while line and (line.lstrip().startswith("#") or not line.strip()) and skipped < _NOTES:
        note = line.strip() or note
        skipped, line = skipped + 1, handle.readline(_LINE)
    separator = told[1] if told else "\t" if path.suffix.lower() == ".tsv" else _separator(line, handle.readline(_LINE))
    names = next(_rows(iter([note.lstrip("# ") if note[1:2] == " " else note.lstrip("#")]), separator), [])
    cells = next(_rows(iter([line]), separator), [])
    is_header = len(names) == len(cells) > 1 and any(map(_is_number, cells))  # a row of numbers follows the names
    return skipped, names if is_header else None, separator


def _separator(header: str, first: str) -> str:
    """What the header and the first row have as often as each other; quoted cells do not count."""
    header, first = _QUOTED.sub("", header), _QUOTED.sub("", first)
    there = [mark for mark in SEPARATORS if mark in header]
    even = [mark for mark in there if header.count(mark) == first.count(mark)]
    return max(even, key=header.count) if even else (there or SEPARATORS)[0]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check_names(header: list[str]) -> None:
    check_header(header)
    counted = [str(i) for i in range(len(header))]
    if header and header not in (counted, ["", *counted[:-1]]) and all(map(_is_number, header)):
        raise DataError("the first line holds numbers: a table needs a line with the names of its columns before them")
    if len(header) == 1 and len(header[0].split()) > 1:
        raise DataError(f"the header is one column, {header[0]!r:.60}: separate the columns by a comma, tab, ; or |")
