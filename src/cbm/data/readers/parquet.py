"""Parquet files: a table of transitions, and in its metadata what a table has no columns for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from cbm.data.readers.common import check_memory, optional, reason
from cbm.data.readers.tables import (
    Arrays,
    check_header,
    column_name,
    from_columns,
    is_known_column,
    is_metadata,
    to_columns,
)
from cbm.errors import DataError

_METADATA_KEY = b"cbm"


def read(path: Path) -> Arrays:
    parquet = optional("pyarrow.parquet", "reading Parquet")
    try:
        with parquet.ParquetFile(path) as file:
            header = [column_name(name) for name in file.schema_arrow.names]
            check_header(header)
            check_memory(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
            used = [(raw, name) for raw, name in zip(file.schema_arrow.names, header, strict=True)
                    if is_known_column(name)]  # fmt: skip
            table = file.read(columns=[raw for raw, _ in used])
            columns = {name: table.column(raw).to_numpy() for raw, name in used}
            about = json.loads((file.schema_arrow.metadata or {}).get(_METADATA_KEY, b"{}"))
            extra = {name: np.array(about[name]) for name in about if is_metadata(name)}
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"not a readable Parquet file: {reason(error)}") from None
    return from_columns(columns) | extra


def write(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    pyarrow = optional("pyarrow", "writing Parquet")
    columns = to_columns(arrays)
    about = {name: values.tolist() for name, values in arrays.items() if is_metadata(name)}
    table = pyarrow.table(columns).replace_schema_metadata({_METADATA_KEY: json.dumps(about)})
    optional("pyarrow.parquet", "writing Parquet").write_table(table, handle)
