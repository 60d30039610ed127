"""Data frames and other tables in memory: pandas, polars, Arrow, DuckDB, or a dictionary of columns.

They are read through Arrow's interface (`__arrow_c_stream__`) if pyarrow is installed, and otherwise column by column,
so that none of these packages is a dependency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from cbm.data.readers import arrow
from cbm.data.readers.common import reason
from cbm.data.readers.tables import check_unique, column_name
from cbm.data.roles import NUMBER, TEXT, TIME, Roles, is_possible, select
from cbm.data.series import Reading, Table, read_table
from cbm.errors import DataError

CONTRACT = ("obs", "action", "next_obs", "reward", "episode", "terminated", "truncated")


def is_frame(source: Any) -> bool:
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__") or _has_columns(source)


def _has_columns(source: Any) -> bool:
    return hasattr(source, "shape") and hasattr(source, "__getitem__") and hasattr(source, "columns")


def read(frame: Any, roles: Roles) -> Reading:
    """One table with a row for each time step."""
    _check_names(frame)
    try:
        table = _to_arrow(frame)
        if table is not None:
            return arrow.from_table(table, roles, "frame")
        return _by_columns(columns_of(frame), roles)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"the table cannot be read: {reason(error)}") from None


def _check_names(frame: Any) -> None:
    """A table of pandas may have several columns of one name, and gives all of them for it."""
    names = [str(name) for name in getattr(frame, "columns", ())] if hasattr(frame, "iloc") else []
    check_unique(names, names)


def _has_zero_bytes(frame: Any) -> bool:
    """Whether a column's name has a zero byte: Arrow's interface ends the name there, and polars crashes."""
    columns = getattr(frame, "columns", ())
    return isinstance(columns, list) and any("\0" in str(name) for name in columns)


def read_episodes(frames: Mapping[Any, Any], roles: Roles) -> Reading:
    """Several tables, each an episode named by its key; they must have the same columns."""
    tables: list[dict[str, np.ndarray]] = []
    episode: list[str] = []
    for key, frame in frames.items():
        _check_names(frame)
        columns = columns_of(frame)
        tables.append(columns)
        first = list(tables[0])
        if list(columns) != first:
            lone = sorted(set(columns) ^ set(first) or {"the order of its columns"})[0]
            raise DataError(f"table {key!r}: {lone!r} differs from the first table")
        episode += [str(key)] * len(next(iter(columns.values()), ()))
    repeated = {} if roles.episode else dict.fromkeys(_repeats_key(tables), "each table is an episode")
    together = {name: np.concatenate([table[name] for table in tables]) for name in tables[0] if name not in repeated}
    label = "episode" if "episode" not in together else "table"
    named = replace(roles, episode=roles.episode or (label,))
    reading = _by_columns(together | {label: np.array(episode, object)}, named)
    reading.understood.ignored |= {name: why for name, why in repeated.items() if name != label}
    return reading


def _repeats_key(tables: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
    """Columns called like an episode, with one value in each table, as the parts of a grouped table have them."""
    called = [name for name in tables[0] if is_possible(name, "episode", Roles())]
    return [name for name in called if all(len(set(table[name].tolist())) == 1 for table in tables)]


def columns_of(frame: Any) -> dict[str, np.ndarray]:
    """Columns by name, of any object whose columns become arrays; an index other than 0, 1, ... is a column, too."""
    if isinstance(frame, Mapping):
        return {column_name(str(name)): _values(values) for name, values in frame.items()}
    if hasattr(frame, "column_names"):
        return {column_name(str(name)): arrow.to_numpy(frame.column(name)) for name in frame.column_names}
    columns = {column_name(str(name)): _values(frame[name]) for name in frame.columns}
    index = getattr(frame, "index", None)
    if index is not None and type(index).__name__ != "RangeIndex":
        columns.setdefault(str(getattr(index, "name", None) or "__index_level_0__"), _values(index))
    return columns


def _values(column: Any) -> np.ndarray:
    """A column as an array; durations in seconds."""
    values = np.asarray(column)
    return values / np.timedelta64(1, "s") if values.dtype.kind == "m" else values


def _to_arrow(frame: Any) -> Any:
    """The table in Arrow's format; None: it has to be read column by column, which names a cell that is no number."""
    if find_spec("pyarrow") is None or not hasattr(frame, "__arrow_c_stream__") or _has_zero_bytes(frame):
        return None
    import pyarrow

    if isinstance(frame, pyarrow.Table):
        return frame
    try:
        return pyarrow.table(frame)
    except Exception:
        if _has_columns(frame):
            return None
        raise


def _by_columns(columns: Mapping[str, np.ndarray], roles: Roles) -> Reading:
    for name, values in columns.items():
        if values.ndim != 1:
            raise DataError(f"column {name!r} has {values.ndim} dimensions, not one")
    if len({len(values) for values in columns.values()}) > 1:
        raise DataError("the columns differ in length")
    selection = select({name: _kind(values) for name, values in columns.items()}, roles)
    whole = frozenset(name for name, values in columns.items() if values.dtype.kind in "iub")
    return read_table(Table(columns, whole), selection, roles, "frame")


def _kind(values: np.ndarray) -> str:
    if values.dtype.kind == "O":
        cells = [cell for cell in values[:100].tolist() if cell is not None and cell == cell]
        return NUMBER if cells and all(isinstance(c, bool | int | float | np.number) for c in cells) else TEXT
    return {"M": TIME}.get(values.dtype.kind, NUMBER if values.dtype.kind in "fiub" else TEXT)
