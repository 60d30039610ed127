"""Reading and writing logs: one module for each format, and the table that lists them.

Every reader gets a path and the roles named by the user, and returns the arrays of the npz contract by name (`obs`,
`action`, `next_obs`, `reward_<name>`, `episode`, `names`, ...) with reading notes; every writer gets the arrays.
`cbm.data.transitions` interprets them and checks their contents. Nothing here unpickles or runs anything in a file.
Whatever a damaged file makes a parser raise becomes a `DataError`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from cbm.data.readers import arrow, csv, foreign, hdf5, lerobot, minari, npz, parquet, ros
from cbm.data.readers.common import reason
from cbm.data.readers.source import Fraction, Shape, Source
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.errors import DataError, WriteError, unknown_name
from cbm.runs.files import atomic_file

Write = Callable[[IO[bytes], Mapping[str, np.ndarray]], None]


class Reader(NamedTuple):
    """How logs of one format are read and, if possible, written."""

    what: str
    read: Callable[[Path, Roles], Reading]
    suffixes: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    """First bytes of such a file; empty for text."""
    write: Write | None = None
    shape: Callable[[Path], Shape] | None = None
    """The size of the table; None: logs of this format are always read into memory."""
    source: Callable[[Path, Roles, Fraction], Source] | None = None
    """The table in blocks of rows."""


class Large(NamedTuple):
    """A log that can be read in blocks of rows."""

    path: Path
    files: list[Path]
    shape: Shape
    open: Callable[[Fraction], Source]


HDF5_MAGIC = (b"\x89HDF\r\n\x1a\n",)
READERS = {
    "npz": Reader("a NumPy archive", npz.read, (".npz",), (b"PK\x03\x04", b"PK\x05\x06"), npz.write),
    "csv": Reader("a CSV table", csv.read, (".csv",), (), csv.write, csv.shape, csv.source),
    "tsv": Reader("a TSV table", csv.read, (".tsv",), (), csv.write_tabs, csv.shape, csv.source),
    "parquet": Reader("a Parquet file", parquet.read, parquet.SUFFIXES, (b"PAR1",), parquet.write, parquet.shape,
                      parquet.source),
    "arrow": Reader("an Arrow file", arrow.read, (".arrow", ".feather", ".ipc"), (b"ARROW1", b"\xff\xff\xff\xff"),
                    arrow.write, arrow.shape, arrow.source),
    "lerobot": Reader("a LeRobot dataset", lerobot.read),
    "robomimic": Reader("a robomimic HDF5 file", hdf5.read, (".hdf5", ".h5"), HDF5_MAGIC),
    "d4rl": Reader("a D4RL HDF5 file", hdf5.read, (".hdf5", ".h5"), HDF5_MAGIC),
    "minari": Reader("a Minari HDF5 file", hdf5.read, (".hdf5", ".h5"), HDF5_MAGIC),
    "ros": Reader("a ROS 2 bag or MCAP file", ros.read, (".mcap", ".db3"), (b"\x89MCAP0\r\n", b"SQLite format 3\0")),
}  # fmt: skip
"""By name: a new format needs one module and one line here. HDF5 files are recognised by their contents."""
SUFFIXES = tuple(suffix for reader in READERS.values() if reader.write for suffix in reader.suffixes)
"""Suffixes of the files that can be written."""
READABLE = tuple(dict.fromkeys(suffix for reader in READERS.values() for suffix in reader.suffixes))
MINARI = "minari:"
"""Prefix of the name of a Minari dataset, which is not a file."""
PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".joblib", ".npy")


def read(path: str | os.PathLike[str], roles: Roles | None = None) -> Reading:
    """A log, by the reader that its name and first bytes imply, or that the roles name."""
    roles = roles or Roles()
    if isinstance(path, str) and path.startswith(MINARI):
        return minari.read(path.removeprefix(MINARI), roles)
    with _path_errors():
        file = _resolved(Path(path))
        return READERS[_kind(file, roles)].read(file, roles)


def large(path: str | os.PathLike[str], roles: Roles) -> Large | None:
    """The same log in blocks of rows; None if its format has none, or if it cannot be identified (`read` says why)."""
    if isinstance(path, str) and path.startswith(MINARI):
        return None
    with _path_errors():
        file = _resolved(Path(path))
        reader = READERS[_kind(file, roles)]
        if reader.shape is None or reader.source is None:
            return None
        open_source = reader.source
        files = parquet.files_of(file) if file.is_dir() else [file]
        return Large(file, files, reader.shape(file), lambda progress: open_source(file, roles, progress))


@contextmanager
def _path_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or reason(error)}") from None
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"cannot be read: {reason(error)}") from None  # a path with a zero byte


def _resolved(path: Path) -> Path:
    """The file or directory that is read: a Minari dataset is the HDF5 file in its directory."""
    if not path.exists():
        raise DataError("no such file")
    if path.is_dir() and (path / "data" / "main_data.hdf5").is_file():
        return path / "data" / "main_data.hdf5"
    return path


def _kind(path: Path, roles: Roles) -> str:
    """Name of the reader."""
    if roles.reader is not None and roles.reader not in READERS:
        raise unknown_name("unknown reader", roles.reader, READERS)
    if path.is_dir():
        return _directory_kind(path, roles)
    if not path.is_file():
        raise DataError("is not a regular file")
    if (strange := foreign.advice(path)) is not None:
        raise DataError(strange)
    by_name = next((name for name, reader in READERS.items() if path.suffix.lower() in reader.suffixes), None)
    if by_name is None and roles.reader is None:
        raise DataError(_unknown(path))
    if path.stat().st_size == 0:
        raise DataError("the file is empty (0 bytes)")
    chosen, shown = roles.reader or str(by_name), _by_magic(path)
    if shown is not None and READERS[shown].magic != READERS[chosen].magic:
        raise DataError(f"is {READERS[shown].what}, not {READERS[chosen].what}: --reader {shown}")
    return chosen


def _directory_kind(path: Path, roles: Roles) -> str:
    kinds = {"lerobot": lerobot.is_dataset, "ros": ros.is_bag, "parquet": parquet.is_directory}
    shown = next((name for name, is_it in kinds.items() if is_it(path)), None)
    if shown is None and any(path.glob("*.[ct]sv")):
        raise DataError("is a directory of CSV files: join them into one, with a column that names the run")
    if shown is None:
        raise DataError(
            "is a directory, but no LeRobot dataset (meta/info.json), ROS 2 bag (metadata.yaml) or Minari dataset "
            "(data/main_data.hdf5), and it has no Parquet files in it"
        )
    if roles.reader not in (None, shown):
        raise DataError(f"is {READERS[shown].what}, not {READERS[str(roles.reader)].what}: --reader {shown}")
    return shown


def _by_magic(path: Path) -> str | None:
    with open(path, "rb") as file:
        start = file.read(16)
    names = (name for name, reader in READERS.items() if reader.magic and start.startswith(reader.magic))
    return next(names, None)


def _unknown(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in PICKLES and suffix != ".npy":
        return f"a file {suffix!r} is a pickle, and reading one can run any code: save the log as .npz or .parquet"
    shown = _by_magic(path)
    hint = f"it looks like {READERS[shown].what}: --reader {shown}" if shown else f"one of {', '.join(READABLE)}"
    hint = f"if it is a table of text: --reader csv; else {hint}" if suffix in foreign.TABLES else hint
    return f"unknown kind of file {suffix!r} ({hint}, or {MINARI}NAME)"


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write under a temporary name in the same directory, then rename, so that the file is complete or absent."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"unknown kind of file {suffix!r} (one of {', '.join(SUFFIXES)})")
    writer = next(reader.write for reader in READERS.values() if suffix in reader.suffixes)
    assert writer is not None
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
