"""Checks output paths before any work is done, and creates them when the work can begin."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from cbm.errors import DataError, WriteError
from cbm.runs.directory import remove_empty
from cbm.runs.files import sweep_temporary


def check_file(path: Path, *, force: bool, suffixes: tuple[str, ...] = ()) -> None:
    """Refuse a file that could not be written in the end, or that would be overwritten."""
    if suffixes and path.suffix.lower() not in suffixes:
        raise DataError(f"{path}: unknown kind of file {path.suffix!r} (one of {', '.join(suffixes)})")
    if path.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        raise DataError(f"{path}: writing Parquet needs pyarrow, which is not installed: pip install pyarrow")
    with _path_errors(path):
        if path.is_dir():
            raise DataError(f"{path}: is a directory, not a file")
        if path.exists() and not force:
            raise DataError(f"{path}: exists already (--force overwrites it)")
        _check_writable(path, path.parent)
        sweep_temporary(path.parent.glob(f".{glob.escape(path.name)}.*.tmp"))  # of commands that were killed


def check_run(path: Path) -> None:
    """Refuse a run directory that could not be created, or that contains something else."""
    with _path_errors(path):
        if path.is_dir():
            visible = [entry.name for entry in path.iterdir() if not entry.name.startswith(".")]
            if visible and "config.json" not in visible:
                raise DataError(f"{path}: is a directory with other things in it, not a run (no config.json)")
            _check_writable(path, path)
        elif path.exists():
            raise DataError(f"{path}: is a file, not a run directory")
        else:
            _check_writable(path, path.parent)


@contextmanager
def made_directory(path: Path) -> Iterator[None]:
    """Create the directory and its parents; if the input turns out to be bad, remove those that are still empty."""
    made = [place for place in (path, *path.parents) if not place.exists()]
    with _path_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except (DataError, WriteError):
        remove_empty(made)
        raise


def _check_writable(path: Path, directory: Path) -> None:
    """Write a temporary file to the nearest existing directory; permission bits alone are not reliable."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    if not directory.is_dir():
        raise DataError(f"{path}: cannot be made, {directory} is not a directory")
    with tempfile.TemporaryFile(dir=directory):
        pass


@contextmanager
def _path_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        raise DataError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}") from None
