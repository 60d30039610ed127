"""Data frames and other tables in memory: pandas, polars, Arrow, DuckDB, or a dictionary of columns.

They are read through Arrow's interface (`__arrow_c_stream__`) if pyarrow is installed, and otherwise column by column,
so that none of these packages is a dependency.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from cbm.data.readers import arrow
from cbm.data.readers.common import reason
from cbm.data.readers.tables import column_name
from cbm.data.roles import NUMBER, TEXT, TIME, Roles, select
from cbm.data.series import Reading, Table, read_table
from cbm.errors import DataError

CONTRACT = ("obs", "action", "next_obs", "reward", "episode", "terminated", "truncated")


def is_frame(source: Any) -> bool:
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__dataframe__") or _has_columns(source)


def _has_columns(source: Any) -> bool:
    return hasattr(source, "columns") and hasattr(source, "__getitem__") and hasattr(source, "shape")


def read(frame: Any, roles: Roles) -> Reading:
    """One table with a row for each time step."""
    try:
        if find_spec("pyarrow") is not None and hasattr(frame, "__arrow_c_stream__") and not _has_zero_bytes(frame):
            return arrow.from_table(_to_arrow(frame), roles, "frame")
        return _by_columns(columns_of(frame), roles)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"the table cannot be read: {reason(error)}") from None


def _has_zero_bytes(frame: Any) -> bool:
    """Whether a column's name has a zero byte: Arrow's interface ends the name there, and polars crashes."""
    columns = getattr(frame, "columns", ())
    return isinstance(columns, list) and any("\0" in str(name) for name in columns)


def read_episodes(frames: Mapping[Any, Any], roles: Roles) -> Reading:
    """Several tables, each an episode named by its key; they must have the same columns."""
    first: list[str] = []
    parts: dict[str, list[np.ndarray]] = {}
    episode: list[str] = []
    for key, frame in frames.items():
        columns = columns_of(frame)
        first = first or list(columns)
        if list(columns) != first:
            lone = sorted(set(columns) ^ set(first) or {"the order of its columns"})[0]
            raise DataError(f"table {key!r}: {lone!r} differs from the first table")
        for name, values in columns.items():
            parts.setdefault(name, []).append(values)
        episode += [str(key)] * len(next(iter(columns.values()), ()))
    together = {name: np.concatenate(values) for name, values in parts.items()}
    label = "episode" if "episode" not in together else "table"
    given = Roles(roles.obs, roles.action, roles.reward, roles.episode or (label,), roles.time, roles.missing)
    return _by_columns(together | {label: np.array(episode, object)}, given)


def columns_of(frame: Any) -> dict[str, np.ndarray]:
    """Columns by name, of any object whose columns become arrays; an index other than 0, 1, ... is a column, too."""
    if isinstance(frame, Mapping):
        return {column_name(str(name)): np.asarray(values) for name, values in frame.items()}
    if hasattr(frame, "column_names"):
        return {column_name(str(name)): arrow.to_numpy(frame.column(name)) for name in frame.column_names}
    columns = {column_name(str(name)): np.asarray(frame[name]) for name in frame.columns}
    index = getattr(frame, "index", None)
    if index is not None and type(index).__name__ != "RangeIndex":
        columns.setdefault(str(getattr(index, "name", None) or "__index_level_0__"), np.asarray(index))
    return columns


def _to_arrow(frame: Any) -> Any:
    import pyarrow

    return frame if isinstance(frame, pyarrow.Table) else pyarrow.table(frame)


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
