"""Parquet files: only the columns that are used are read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from cbm.data.readers import arrow
from cbm.data.readers.common import check_memory, optional, reason
from cbm.data.readers.tables import check_header, check_unique, column_name
from cbm.data.roles import Roles, select
from cbm.data.series import Reading, read_table
from cbm.errors import DataError


def read(path: Path, roles: Roles) -> Reading:
    parquet = optional("pyarrow.parquet", "reading Parquet")
    try:
        with parquet.ParquetFile(path) as file:
            return _read(file, roles)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"not a readable Parquet file: {reason(error)}") from None


def _read(file: Any, roles: Roles) -> Reading:
    schema = file.schema_arrow
    check_memory(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
    types = optional("pyarrow.types", "reading Parquet")
    if any(types.is_nested(field.type) for field in schema):
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


def write(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    parquet = optional("pyarrow.parquet", "writing Parquet")
    parquet.write_table(arrow.table_of(arrays), handle)
