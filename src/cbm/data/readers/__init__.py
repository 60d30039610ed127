"""Files of transitions, in and out: one module for each format, and the table that lists them.

Every reader returns the arrays of the npz contract by name (`obs`, `action`, `next_obs`, `reward_<name>`,
`episode`, `names`, ...) and every writer takes them; `cbm.data.transitions` gives them meaning and checks their
contents. Nothing here unpickles. Whatever a damaged file makes a parser raise leaves as a `DataError`. The
layout of CSV and Parquet tables is described in `cbm.data.readers.tables`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from cbm.data.readers import csv, minari, npz, parquet
from cbm.data.readers.common import reason
from cbm.data.readers.tables import Arrays
from cbm.errors import DataError, WriteError
from cbm.runs.files import atomic_file


class Format(NamedTuple):
    """How files of one kind are read and written."""

    read: Callable[[Path], Arrays]
    write: Callable[[IO[bytes], Mapping[str, np.ndarray]], None]


FORMATS = {
    ".npz": Format(npz.read, npz.write),
    ".csv": Format(csv.read, csv.write),
    ".parquet": Format(parquet.read, parquet.write),
}
"""By suffix: a new format is one module and one line here."""
SUFFIXES = tuple(FORMATS)
MINARI = "minari:"
"""In front of the name of a Minari dataset, which is no file."""


def read(path: str | os.PathLike[str]) -> Arrays:
    """Arrays of a file, by its suffix, or of a Minari dataset, by the prefix `minari:`."""
    if isinstance(path, str) and path.startswith(MINARI):
        return minari.read(path.removeprefix(MINARI))
    file = Path(path)
    try:
        if file.is_dir():
            raise DataError("is a directory, not a file")
        if not file.exists():
            raise DataError("no such file")
        if not file.is_file():
            raise DataError("is not a regular file")
        reader = FORMATS[_suffix(path)].read
        if file.stat().st_size == 0:
            raise DataError("the file is empty (0 bytes)")
        return reader(file)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or reason(error)}") from None


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write under a temporary name in the same directory, then rename: a file is whole or not there."""
    writer = FORMATS[_suffix(path)].write
    try:
        with atomic_file(path) as handle:
            writer(handle, arrays)
    except (DataError, WriteError) as error:
        because = error.__cause__
        if isinstance(because, OSError):
            raise type(error)(f"cannot be written: {because.strerror or reason(because)}") from None
        raise
    except ValueError as error:  # a path with a zero byte
        raise DataError(f"cannot be written: {reason(error)}") from None


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"unknown kind of file {suffix!r} (one of {', '.join(SUFFIXES)}, or {MINARI}NAME)")
    return suffix
