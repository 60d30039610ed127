"""A directory or a file as arrays, and back: how runs and inputs travel where no disk is shared."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import numpy as np

from cbm.errors import DataError


def files_of(path: Path) -> list[tuple[str, Path]]:
    """Relative name and place of each file, in a fixed order; a file is a tree of one."""
    if path.is_file():
        return [(path.name, path)]
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.is_symlink())
    return [(file.relative_to(path).as_posix(), file) for file in files]


def digest(path: Path) -> str:
    """Of names and contents."""
    total = hashlib.sha256()
    for name, file in files_of(path):
        with file.open("rb") as handle:
            total.update(f"{name} {hashlib.file_digest(handle, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def to_arrays(path: Path) -> dict[str, np.ndarray]:
    """`names` (n,), `sizes` (n,) and all bytes after each other."""
    files = files_of(path)
    contents = [np.frombuffer(file.read_bytes(), np.uint8) for _, file in files]
    return {
        "names": np.array([name for name, _ in files], dtype=np.str_),
        "sizes": np.array([len(content) for content in contents], np.int64),
        "bytes": np.concatenate([np.zeros(0, np.uint8), *contents]),
    }


def to_directory(arrays: Mapping[str, np.ndarray], path: Path) -> None:
    """Make the directory anew, under another name first: it is whole or not there."""
    landing = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(landing, ignore_errors=True)
    landing.mkdir(parents=True)
    start = 0
    for name, size in zip(arrays["names"].tolist(), arrays["sizes"].tolist(), strict=True):
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise DataError(f"a result has a file {name!r}, outside its directory")
        file = landing / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(arrays["bytes"][start : start + size].tobytes())
        start += size
    shutil.rmtree(path, ignore_errors=True)
    landing.rename(path)
