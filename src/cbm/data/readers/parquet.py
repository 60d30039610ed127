"""Parquet: one file, or a directory of files whose rows follow each other. Only the columns in use are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

import numpy as np

from cbm.data.readers import arrow
from cbm.data.readers.common import check_memory, optional, reason
from cbm.data.readers.source import Fraction, Shape, Source, natural_order
from cbm.data.readers.tables import Arrays, check_header, check_unique, column_name
from cbm.data.roles import NUMBER, TEXT, Roles, select
from cbm.data.series import Reading, read_table
from cbm.errors import DataError

SUFFIXES = (".parquet", ".pq")
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
BUFFER = 1 << 20
"""Bytes read ahead of each column, so that a row group need not fit into memory."""
BLOCK = 65_536
"""Rows per block when all rows are read into memory."""


def is_directory(path: Path) -> bool:
    return bool(files_of(path))


def files_of(path: Path) -> list[Path]:
    """The file itself, or all files in a directory and its subdirectories, in the order of their names and numbers."""
    if not path.is_dir():
        return [path]
    inside = [file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file()]
    shown = [f for f in inside if not any(part.startswith((".", "_")) for part in f.relative_to(path).parts)]
    return sorted(shown, key=natural_order)


def partition_of(path: Path, file: Path) -> dict[str, str]:
    """Columns with one value in a whole file, from the names of its directories: `episode=3/part-0.parquet`."""
    parts = file.relative_to(path).parts[:-1] if path.is_dir() else ()
    pairs = [part.partition("=") for part in parts if "=" in part]
    return {unquote(name): "" if value == _NO_VALUE else unquote(value) for name, _, value in pairs if name}


class _Partitions:
    """The columns that the names of directories add to those of the files."""

    def __init__(self, path: Path, files: Sequence[Path]):
        self.of = {file: partition_of(path, file) for file in files}
        self.names = list(next(iter(self.of.values()), {}))
        for file, values in self.of.items():
            if list(values) != self.names:
                said = [", ".join(map(repr, names)) or "none" for names in (values, self.names)]
                raise DataError(
                    f"{file.name} is in directories with the columns {said[0]}, the first file with {said[1]}"
                )
        cells = {name: [values[name] for values in self.of.values()] for name in self.names}
        self.numbers = {name for name in self.names if all(map(_is_number, cells[name]))}

    def without(self, kinds: Mapping[str, str]) -> None:
        """A column that the files have themselves counts as there."""
        self.names = [name for name in self.names if name not in kinds]

    def kinds(self) -> dict[str, str]:
        return {name: NUMBER if name in self.numbers else TEXT for name in self.names}

    def arrays(self, file: Path, names: Sequence[str], rows: int) -> Arrays:
        values = {name: self.of[file][name] for name in names if name in self.names}
        numbers = self.numbers
        return {n: np.full(rows, float(v)) if n in numbers else np.full(rows, v, object) for n, v in values.items()}


def _is_number(text: str) -> bool:
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False


def read(path: Path, roles: Roles) -> Reading:
    parquet = optional("pyarrow.parquet", "reading Parquet")
    try:
        if path.is_dir():
            return _read_directory(path, roles)
        with parquet.ParquetFile(path) as file:
            return _read(file, roles)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"not a readable Parquet file: {reason(error)}") from None


def _read(file: Any, roles: Roles) -> Reading:
    schema = file.schema_arrow
    check_memory(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
    if _is_nested(schema):
        return arrow.from_table(file.read(), roles, "parquet")
    header = [column_name(name) for name in schema.names]
    check_header(header)
    selection = select({n: arrow.kind_of(field.type) for n, field in zip(header, schema, strict=True)}, roles)
    check_unique(header, selection.used())
    used = set(selection.used())
    raw = [name for name, clean in zip(schema.names, header, strict=True) if clean in used]
    table = file.read(columns=raw)
    table = table.rename_columns([column_name(name) for name in table.column_names])
    return read_table(arrow.as_table(table, list(used), arrow.metadata(schema)), selection, roles, "parquet")


def _read_directory(path: Path, roles: Roles) -> Reading:
    whole = source(path)
    selection = whole.select(roles)
    check_memory([8 * whole.rows * len(selection.used())])
    return read_table(whole.table(selection.used(), BLOCK), selection, roles, "parquet")


def _is_nested(schema: Any) -> bool:
    types = optional("pyarrow.types", "reading Parquet")
    return any(types.is_nested(field.type) for field in schema)


def shape(path: Path) -> Shape:
    """Size of the table from the footers of the files; a list counts as one column here."""
    parquet = optional("pyarrow.parquet", "reading Parquet")
    about = [_metadata(parquet, file) for file in files_of(path)]
    return Shape(sum(part.num_rows for part in about), max(part.num_columns for part in about))


def _metadata(parquet: Any, file: Path) -> Any:
    try:
        return parquet.read_metadata(file)
    except Exception as error:
        raise DataError(f"not a readable Parquet file: {file.name}: {reason(error)}") from None


def source(path: Path, roles: Roles | None = None, progress: Fraction | None = None) -> Source:
    """All files as one table; they must have the same columns with the same kinds of cells."""
    parquet = optional("pyarrow.parquet", "reading Parquet")
    files = files_of(path)
    first: Mapping[str, str] = {}
    names: list[str] = []
    whole: set[str] = set()
    narrow: set[str] = set()
    rows, about, nested = 0, {}, False
    partitions = _Partitions(path, files)
    for file in files:
        with parquet.ParquetFile(file) as opened:
            schema = _flat_schema(opened)
            rows, nested = rows + opened.metadata.num_rows, nested or _is_nested(opened.schema_arrow)
        kinds = {column_name(field.name): arrow.kind_of(field.type) for field in schema}
        if not first:
            first, names, about = kinds, [column_name(name) for name in schema.names], arrow.metadata(schema)
            whole, narrow = set(kinds), set(kinds)
            partitions.without(kinds)
        _check_same(first, kinds, file.name)
        whole &= arrow.whole_columns(schema)
        narrow &= arrow.narrow_columns(schema)

    def blocks(columns: Sequence[str], size: int) -> Iterator[Arrays]:
        for file in files:
            yield from _blocks(parquet, file, columns, size, nested, partitions)
        arrow.release()

    names, kinds = [*names, *partitions.names], {**first, **partitions.kinds()}
    return Source("parquet", rows, names, kinds, blocks, frozenset(whole), frozenset(narrow), about)


def _flat_schema(opened: Any) -> Any:
    """The schema with a column for each position of a list, as seen in the first row."""
    if not _is_nested(opened.schema_arrow):
        return opened.schema_arrow
    pa = optional("pyarrow", "reading Parquet")
    start = next(opened.iter_batches(batch_size=1), None)
    if start is None:
        raise DataError("the table has no rows")
    return arrow.flat(pa.Table.from_batches([start])).schema.with_metadata(opened.schema_arrow.metadata)


def _check_same(first: Mapping[str, str], kinds: Mapping[str, str], file: str) -> None:
    lone = [name for name in (*first, *kinds) if (name in first) != (name in kinds)]
    if lone:
        has, lacks = ("the first file", file) if lone[0] in first else (file, "the first file")
        raise DataError(f"column {lone[0]!r} is in {has}, but not in {lacks}")
    for name, kind in kinds.items():
        if kind != first[name]:
            raise DataError(f"column {name!r} holds {kind} in {file}, but {first[name]} in the first file")


def _blocks(
    parquet: Any, file: Path, columns: Sequence[str], size: int, nested: bool, partitions: _Partitions
) -> Iterator[Arrays]:
    pa = optional("pyarrow", "reading Parquet")
    told = partitions.arrays(file, columns, 0)
    inside = [name for name in columns if name not in told]
    wanted = set(inside)
    try:
        with parquet.ParquetFile(file, buffer_size=BUFFER) as opened:
            raw = None if nested else [name for name in opened.schema_arrow.names if column_name(name) in wanted]
            for batch in opened.iter_batches(batch_size=size, columns=raw, use_threads=False):
                table = pa.Table.from_batches([batch])
                arrays = arrow.columns_of(arrow.flat(table) if nested else table, inside)
                yield arrays | partitions.arrays(file, columns, batch.num_rows)
    except (DataError, GeneratorExit):
        raise
    except Exception as error:
        raise DataError(f"not a readable Parquet file: {file.name}: {reason(error)}") from None


def write(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    parquet = optional("pyarrow.parquet", "writing Parquet")
    parquet.write_table(arrow.table_of(arrays), handle)
