"""Rows of a benchmark in a CSV file: written as they are finished, and found again by the same command."""

from __future__ import annotations

import csv
import io
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cbm.errors import DataError
from cbm.runs.files import atomic_write_text

Row = dict[str, Any]


def command() -> str:
    """The command as typed, without the program's path."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])


@dataclass(frozen=True)
class Columns:
    """The columns of a file; all that are neither text nor whole numbers are numbers, possibly missing."""

    key: tuple[str, ...]
    """Columns that identify a row; a row with the same key is not computed again."""
    numbers: tuple[str, ...]
    """What is measured."""
    text: tuple[str, ...]
    whole: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.key, *self.numbers)

    def value(self, column: str, text: str) -> Any:
        if column in self.text:
            return text
        if column in self.whole:
            return int(text)
        return float(text) if text else None


class Store:
    """The file's first line is the command that started it; it is rewritten whole, so it is never torn."""

    def __init__(self, path: Path | None, columns: Columns):
        self.path, self.columns, self.rows = path, columns, list[Row]()
        self.comment = f"# {command()}"
        if path and path.exists():
            lines = path.read_text(encoding="utf-8").splitlines()
            if lines and lines[0].startswith("#"):
                self.comment = lines.pop(0)
            self.rows = [self._parsed(line) for line in csv.DictReader(lines)]

    def _parsed(self, line: dict[str, str]) -> Row:
        if set(line) != set(self.columns.all):
            raise DataError(f"{self.path} is not a file of this benchmark: its columns differ")
        try:
            return {column: self.columns.value(column, line[column]) for column in self.columns.all}
        except (TypeError, ValueError) as error:
            row = ", ".join(line[column] for column in self.columns.text)
            raise DataError(f"{self.path}: cannot read the row of {row}") from error

    def find(self, key: Row) -> Row | None:
        """The row with this key; entries of the key that are None match anything."""
        given = [column for column in self.columns.key if key[column] is not None]
        return next((row for row in self.rows if all(row[column] == key[column] for column in given)), None)

    def add(self, row: Row) -> None:
        self.rows.append(row)
        if self.path:
            text = io.StringIO()
            text.write(self.comment + "\n")
            writer = csv.DictWriter(text, self.columns.all, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
            atomic_write_text(self.path, text.getvalue())
