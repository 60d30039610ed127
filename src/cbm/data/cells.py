"""Converts the cells of a column to numbers and times. Rows count from 0, as in the source; a block gives its first
row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np

from cbm.errors import DataError


def numbers_of(name: str, values: np.ndarray, first_row: int = 0) -> np.ndarray:
    """A column of finite numbers, NaN where a cell is empty; error messages give the row in the source."""
    values = as_numbers(name, values, first_row)
    infinite: np.ndarray = np.flatnonzero(np.isinf(values)) if values.dtype.kind == "f" else np.empty(0, int)
    if len(infinite):
        row = infinite[0]
        raise DataError(not_finite(name, first_row + row, values[row], len(infinite)))
    return values


def as_numbers(name: str, values: np.ndarray, first_row: int = 0) -> np.ndarray:
    """A column of numbers, finite or not."""
    if values.dtype.kind == "O":
        values = _from_objects(name, values, first_row)
    if values.dtype.kind not in "fiub":
        raise DataError(f"column {name!r} is not numeric: row {first_row} is {_cell(values[0])}")
    return values


def not_finite(name: str, row: int, value: float, count: int) -> str:
    return f"column {name!r}, row {row}: {value} is not finite ({such_rows(count)})"


def such_rows(count: int) -> str:
    return f"{count} such row{'' if count == 1 else 's'}"


def _from_objects(name: str, values: np.ndarray, first_row: int) -> np.ndarray:
    """Numbers and booleans, with NaN for empty cells."""
    numbers = np.full(len(values), np.nan)
    for row, cell in enumerate(values.tolist()):
        if cell is None or cell != cell:
            continue
        if not isinstance(cell, bool | int | float | np.number | np.bool_):
            raise DataError(f"column {name!r} is not numeric: row {first_row + row} is {_cell(cell)}")
        numbers[row] = float(cell)
    return numbers


def _cell(value: object) -> str:
    return f"{value!r:.60}"


def times(name: str, values: np.ndarray, first_row: int = 0, origin: Any = None) -> np.ndarray:
    """Times as numbers, NaN where a cell is empty: dates in seconds since `origin`, or since the earliest date."""
    if values.dtype.kind in "iufb":
        return values.astype(float)
    moments = as_moments(name, values, first_row)
    origin = earliest(moments) if origin is None else origin
    if origin is None:
        raise DataError(f"column {name!r} is empty: no row has a time")
    return seconds_since(moments, origin)


def as_moments(name: str, values: np.ndarray, first_row: int = 0) -> np.ndarray:
    """Dates of Arrow or NumPy unchanged, dates as text in seconds."""
    if values.dtype.kind == "M":
        return values
    return np.array([_seconds(name, row, cell) for row, cell in enumerate(values.tolist(), first_row)])


def earliest(moments: np.ndarray) -> Any:
    """The earliest date; None if there is none."""
    there = moments[~np.isnat(moments)] if moments.dtype.kind == "M" else moments[np.isfinite(moments)]
    return there.min() if len(there) else None


def seconds_since(moments: np.ndarray, origin: Any) -> np.ndarray:
    if moments.dtype.kind != "M":
        return np.asarray(moments - origin)
    return np.where(np.isnat(moments), np.nan, (moments - origin) / np.timedelta64(1, "s"))


def _seconds(name: str, row: int, cell: object) -> float:
    """Seconds of one date in ISO 8601."""
    text = str(cell).strip() if cell is not None else ""
    if not text:
        return np.nan
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()  # without a zone: UTC
    except (ValueError, OverflowError, OSError):
        raise DataError(f"column {name!r}, row {row}: {text!r:.60} is neither a number nor a date (ISO 8601)") from None
