"""The table of a sweep: a row for each cell, what was chosen, and the numbers that its command printed as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cbm.runs.files import atomic_write_text
from cbm.sweep.grid import Cell

Row = dict[str, Any]
LONGEST_LIST = 60  # entries of a list of names that stand in one cell
TIMED = ("seconds", "minutes")
"""Keys of numbers that differ from run to run: they go into a file of their own."""
PLACES = ("run", "graph", "report", "out", "file", "finished", "command")
"""Keys that say where something is, not what came out."""


def rows_of(cells: list[Cell], printed: Mapping[str, str | None]) -> list[Row]:
    """`printed`: by the cell's name, the JSON text, or None where the cell is missing."""
    rows = []
    for cell in cells:
        text = printed.get(cell.name)
        row: Row = {"cell": cell.name, **cell.choice, "seed": cell.seed, "state": "failed" if text is None else "done"}
        rows.append(row | (dict(_flat(_read(text))) if text is not None else {}))
    return rows


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested objects by their path; short lists of names as one text, other lists left out."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in (*TIMED, *PLACES):
                yield from _flat(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        if len(value) <= LONGEST_LIST and all(isinstance(item, str) for item in value):
            yield path, " ".join(value)
    elif value is not None:
        yield path, value


def columns_of(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def write_csv(path: Path, rows: list[Row], columns: list[str] | None = None) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns or columns_of(rows), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows(rows)
    atomic_write_text(path, text.getvalue())


def interesting(rows: list[Row], most: int) -> list[str]:
    """Columns worth printing: numbers that are not the same everywhere, those of most rows first."""
    fixed = {"cell", "seed", "state"}
    numbers = [
        column
        for column in columns_of(rows)
        if column not in fixed and any(isinstance(row.get(column), int | float) for row in rows)
    ]
    varied = [column for column in numbers if len({str(row.get(column)) for row in rows}) > 1]
    return sorted(varied, key=lambda column: -sum(column in row for row in rows))[:most]
