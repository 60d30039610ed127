"""CSV files: a table of transitions as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from cbm.data.readers.common import reason
from cbm.data.readers.tables import Arrays, check_header, column_name, from_columns, parse_cells, to_columns
from cbm.errors import DataError


def read(path: Path) -> Arrays:
    try:
        with open(path, newline="", encoding="utf-8-sig") as handle:
            rows = (row for row in csv.reader(handle, skipinitialspace=True) if row)
            header = [column_name(cell) for cell in next(rows, [])]
            check_header(header)
            return from_columns(parse_cells(header, rows))
    except (csv.Error, UnicodeError) as error:
        raise DataError(f"not a readable CSV file: {reason(error)}") from None


def write(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    columns = to_columns(arrays)
    text = io.TextIOWrapper(handle, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    # Python writes the shortest digits that give the same double, and keeps 1.0 apart from the integer 1
    writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    text.detach()  # the file is closed by who opened it
