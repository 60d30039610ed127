"""Tables in Arrow's memory format, into which Parquet and Feather files, LeRobot datasets and data frames are
converted.

A column of lists of equal length becomes one column for each position (`state_0`, `state_1`, ...), a column of records
one for each field (`pose.x`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from cbm.data.readers.common import check_memory, optional, reason
from cbm.data.readers.source import Fraction, Shape, Source
from cbm.data.readers.tables import check_header, check_unique, column_name, is_metadata, to_columns
from cbm.data.roles import EMPTY, NUMBER, TEXT, TIME, Roles, select
from cbm.data.series import Arrays, Reading, Table, read_table
from cbm.errors import DataError

METADATA_KEY = b"cbm"


def read(path: Path, roles: Roles) -> Reading:
    """A Feather file, or any file in Arrow's file or stream format."""
    feather = optional("pyarrow.feather", "reading Arrow")
    optional("pyarrow", "reading Arrow")
    try:
        check_memory([path.stat().st_size])
        table = _open(feather, path)
        return from_table(table, roles, "arrow")
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"not a readable Arrow file: {reason(error)}") from None


def _open(feather: Any, path: Path) -> Any:
    ipc = optional("pyarrow.ipc", "reading Arrow")
    try:
        return feather.read_table(path)
    except Exception:
        with ipc.open_stream(str(path)) as stream:
            return stream.read_all()


def shape(path: Path) -> Shape:
    rows, columns = 0, 0
    for batch in _batches(path):
        rows, columns = rows + batch.num_rows, batch.num_columns
    return Shape(rows, columns)


def source(path: Path, roles: Roles | None = None, progress: Fraction | None = None) -> Source:
    """The table of an Arrow file, record batch by record batch."""
    pa = optional("pyarrow", "reading Arrow")
    first = next(_batches(path), None)
    if first is None:
        raise DataError("the table has no rows")
    about, schema = metadata(first.schema), flat(pa.Table.from_batches([first.slice(0, 1)])).schema

    def blocks(columns: Sequence[str], size: int) -> Iterator[Arrays]:
        for batch in _batches(path):
            for start in range(0, batch.num_rows, size):
                yield columns_of(flat(pa.Table.from_batches([batch.slice(start, size)])), columns)
        release()

    kinds = {column_name(field.name): kind_of(field.type) for field in schema}
    names = [column_name(name) for name in schema.names]
    return Source("arrow", shape(path).rows, names, kinds, blocks, whole_columns(schema), narrow_columns(schema), about)


def _batches(path: Path) -> Iterator[Any]:
    """Record batches of a file or a stream, read instead of mapped, so that they do not stay in memory."""
    pa, ipc = optional("pyarrow", "reading Arrow"), optional("pyarrow.ipc", "reading Arrow")
    try:
        with pa.OSFile(str(path)) as file:
            try:
                opened = ipc.open_file(file)
            except pa.ArrowInvalid:
                file.seek(0)
                yield from ipc.open_stream(file)
            else:
                yield from (opened.get_batch(i) for i in range(opened.num_record_batches))
    except (DataError, GeneratorExit):
        raise
    except Exception as error:
        raise DataError(f"not a readable Arrow file: {reason(error)}") from None


def columns_of(table: Any, columns: Sequence[str]) -> Arrays:
    """Some columns of a table as arrays."""
    table = table.rename_columns([column_name(name) for name in table.column_names])
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise DataError(f"column {missing[0]!r}: the lists that it comes from are not of one length")
    return {name: to_numpy(table.column(name)) for name in columns}


def release() -> None:
    """Release the memory that Arrow keeps for a next table: after the last block there is none."""
    optional("pyarrow", "reading Arrow").default_memory_pool().release_unused()


def whole_columns(schema: Any) -> frozenset[str]:
    types = optional("pyarrow.types", "reading Arrow")
    return frozenset(column_name(f.name) for f in schema if types.is_integer(f.type) or types.is_boolean(f.type))


def narrow_columns(schema: Any) -> frozenset[str]:
    """Columns of floats with 32 bits or fewer."""
    types = optional("pyarrow.types", "reading Arrow")
    return frozenset(column_name(f.name) for f in schema if types.is_float32(f.type) or types.is_float16(f.type))


def from_table(table: Any, roles: Roles, reader: str) -> Reading:
    """An Arrow table with its columns selected before any of them is copied."""
    about, table = metadata(table.schema), flat(table)
    names = [column_name(name) for name in table.column_names]
    check_header(names)
    table = table.rename_columns(names)
    selection = select({field.name: kind_of(field.type) for field in table.schema}, roles)
    check_unique(names, selection.used())
    check_lists(table, selection.used())
    return read_table(as_table(table, selection.used(), about), selection, roles, reader)


def check_lists(table: Any, used: Sequence[str]) -> None:
    """Say which row of a column in use has a list of another length."""
    types = optional("pyarrow.types", "reading Arrow")
    for name in used:
        if types.is_nested(table.schema.field(name).type):
            vectors(table.column(name), name)


def as_table(table: Any, used: Sequence[str], about: Arrays) -> Table:
    columns = {name: to_numpy(table.column(name)) for name in dict.fromkeys(used)}
    return Table(columns, whole_columns(table.schema) & set(columns), about)


def metadata(schema: Any) -> Arrays:
    """Arrays without columns in the table, as our own writers store them in its metadata."""
    about = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    found = {name: np.array(about[name]) for name in about if is_metadata(name)}
    names = [column_name(name) for name in schema.names]
    of = [name.removeprefix("obs:") for name in names if name.startswith("obs:")]
    return found | {"of": np.array(of, str)} if found else found


def kind_of(type_: Any) -> str:
    types = optional("pyarrow.types", "reading Arrow")
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_integer(type_) or types.is_floating(type_) or types.is_boolean(type_) or types.is_decimal(type_):
        return NUMBER
    if types.is_duration(type_):
        return NUMBER
    if types.is_null(type_):
        return EMPTY
    return TIME if types.is_timestamp(type_) or types.is_date(type_) else TEXT


def to_numpy(column: Any) -> np.ndarray:
    """Numbers with NaN for null (durations in seconds), datetime64, or objects."""
    types, pa = optional("pyarrow.types", "reading Arrow"), optional("pyarrow", "reading Arrow")
    if types.is_dictionary(column.type):
        column = _decoded(column)
    if types.is_decimal(column.type) or (types.is_boolean(column.type) and column.null_count):
        column = column.cast(pa.float64() if types.is_decimal(column.type) else pa.uint8())
    values = np.asarray(column.to_numpy())
    return values / np.timedelta64(1, "s") if values.dtype.kind == "m" else values


def _decoded(column: Any) -> Any:
    """A column of choices as their values; Arrow cannot decode the short strings of polars itself."""
    types, pa = optional("pyarrow.types", "reading Arrow"), optional("pyarrow", "reading Arrow")
    if types.is_integer(column.type.value_type) or types.is_floating(column.type.value_type):
        return column.cast(column.type.value_type)
    parts = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.large_string())).dictionary_decode()
        for chunk in column.chunks
    ]
    return pa.chunked_array(parts, pa.large_string())


def flat(table: Any) -> Any:
    """Split lists of equal length, and records, into separate columns. Lists of different lengths stay as they are."""
    types, pa = optional("pyarrow.types", "reading Arrow"), optional("pyarrow", "reading Arrow")
    while any(types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    if not any(types.is_nested(field.type) for field in table.schema):
        return table
    columns: dict[str, Any] = {}
    for i, field in enumerate(table.schema):
        name = field.name
        lists = types.is_list(field.type) or types.is_large_list(field.type) or types.is_fixed_size_list(field.type)
        if lists and kind_of(field.type.value_type) == NUMBER and _is_even(table.column(i)):
            columns |= {
                f"{name}_{k}": pa.chunked_array([part]) for k, part in enumerate(_places(table.column(i), name))
            }
        elif name in columns:
            raise DataError(f"column {name!r} occurs more than once")
        else:
            columns[name] = table.column(i)
    return pa.table(columns)


def _is_even(column: Any) -> bool:
    """Whether all lists of a column have one length."""
    compute = optional("pyarrow.compute", "reading Arrow")
    lengths = compute.min_max(compute.list_value_length(column))
    same = lengths["min"].as_py() == lengths["max"].as_py()
    return bool(len(column)) and not column.null_count and same and bool(lengths["min"].as_py())


def _places(column: Any, name: str) -> np.ndarray:
    """(k, T) numbers of a column of lists, which must have equal lengths."""
    values = vectors(column, name)
    return np.ascontiguousarray(values.T)


def vectors(column: Any, name: str) -> np.ndarray:
    """(T, k) numbers of a column of lists of equal length."""
    if not len(column):
        raise DataError("the table has no rows")
    if column.null_count:
        rows = [row for row, cell in enumerate(column.is_valid().to_pylist()) if not cell]
        raise DataError(f"column {name!r}, row {rows[0]}: the list is missing")
    parts = [chunk.flatten() for chunk in column.chunks]
    flat_values = np.concatenate([np.asarray(part.to_numpy(zero_copy_only=False), float) for part in parts])
    compute = optional("pyarrow.compute", "reading Arrow")
    lengths = compute.list_value_length(column).to_numpy()
    if (lengths != lengths[0]).any() or lengths[0] == 0:
        row = int(np.argmax(lengths != lengths[0]))
        raise DataError(
            f"column {name!r}, row {row}: a list of {lengths[row]} numbers, not of {lengths[0]} as in row 0"
        )
    return flat_values.reshape(len(lengths), -1)


def write(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    optional("pyarrow.feather", "writing Arrow").write_feather(table_of(arrays), handle, compression="uncompressed")


def table_of(arrays: Mapping[str, np.ndarray]) -> Any:
    """An Arrow table in our own layout; arrays that fit no column are in its metadata."""
    pyarrow = optional("pyarrow", "writing Arrow")
    about = {name: values.tolist() for name, values in arrays.items() if is_metadata(name)}
    return pyarrow.table(to_columns(arrays)).replace_schema_metadata({METADATA_KEY: json.dumps(about)})
