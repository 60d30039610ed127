"""Results of jobs by key, on disk or in memory."""

from __future__ import annotations

import hashlib
import io
import os
import time
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from cbm.errors import DataError
from cbm.jobs.files import check_name, plain_arrays
from cbm.runs.files import atomic_file, atomic_write_bytes, write_failed

_DIGEST = "sha256"
_ABANDONED = 600.0  # seconds without a write after which a temporary file is considered abandoned


class Store:
    """One `<key>.npz` per result in a directory; without a directory the results stay in memory.

    A key stands for one job with all its options and data: if these change, the key or the directory must change too,
    since a stored result is never computed again.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._memory: dict[str, dict[str, np.ndarray]] = {}
        if self.path is not None:
            self.path.mkdir(parents=True, exist_ok=True)
            self._sweep()

    def has(self, key: str) -> bool:
        return self.find(key) is not None

    def get(self, key: str) -> dict[str, np.ndarray]:
        arrays = self.find(key)
        if arrays is None:
            raise KeyError(f"no result {key!r} in {self.path or 'memory'}")
        return arrays

    def find(self, key: str) -> dict[str, np.ndarray] | None:
        """The result, or None; a damaged file is removed, so that its job runs again."""
        check_name(key, "a job's key")
        if self.path is None:
            stored = self._memory.get(key)
            return None if stored is None else {name: array.copy() for name, array in stored.items()}
        file = self.file(key)
        try:
            data = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"cannot read {file}: {error.strerror or error}") from error
        try:
            return unpacked(data)
        except Exception as error:  # numpy and zipfile may raise almost anything on damaged bytes
            file.unlink(missing_ok=True)
            warnings.warn(f"{file} is damaged ({error}); it is removed and its job counts as not done", stacklevel=2)
            return None

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        check_name(key, "a job's key")
        plain = plain_arrays(arrays, f"the result of {key!r}")
        if self.path is None:
            self._memory[key] = {name: array.copy() for name, array in plain.items()}
        else:
            with atomic_file(self.file(key)) as target:
                pack(target, plain)

    def put_packed(self, key: str, data: bytes) -> None:
        """Store a result packed by another machine, after checking it."""
        check_name(key, "a job's key")
        arrays = unpacked(data)
        if self.path is None:
            self._memory[key] = arrays
        else:
            atomic_write_bytes(self.file(key), data)

    def file(self, key: str) -> Path:
        """Path of the result."""
        assert self.path is not None
        return self.path / f"{key}.npz"

    def attempt_file(self, key: str, token: str) -> Path:
        """Path to which one attempt at a job may write its result, so that it need not go through a pipe."""
        assert self.path is not None
        return self.path / f".{key}.npz.{token}.tmp"

    def adopt(self, key: str, token: str) -> None:
        """Make the result of this attempt that of the job."""
        try:
            os.replace(self.attempt_file(key, token), self.file(key))
        except OSError as error:
            raise write_failed(self.file(key), error) from error

    def _sweep(self) -> None:
        """Remove files left by killed processes; by age, since a process may run on another machine."""
        assert self.path is not None
        for file in self.path.glob(".*.npz.*.tmp"):
            try:
                if time.time() - file.stat().st_mtime > _ABANDONED:
                    file.unlink()
            except FileNotFoundError:
                pass  # its writer has just finished


def write_attempt(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a result under the name of an attempt; nobody reads it before it is adopted, whole and flushed."""
    try:
        with open(file, "wb") as target:
            pack(target, arrays)
            target.flush()
            os.fsync(target.fileno())
    except OSError as error:
        raise write_failed(file, error) from error


def pack(target: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """An .npz that `numpy.load` reads, with a digest of its arrays as one more array."""
    plain = plain_arrays(arrays, "a result")
    if _DIGEST in plain:
        raise ValueError(f"a result: the name {_DIGEST!r} is taken by the digest")
    plain[_DIGEST] = np.array(_digest(plain))
    # By hand and not by numpy.savez, which cannot store an array with the name "file".
    with zipfile.ZipFile(target, "w") as archive:
        for name, array in plain.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    pack(buffer, arrays)
    return buffer.getvalue()


def unpacked(data: bytes) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.namelist():
            with archive.open(entry) as member:
                arrays[entry.removesuffix(".npy")] = np.lib.format.read_array(member, allow_pickle=False)
    if str(arrays.pop(_DIGEST)) != _digest(arrays):
        raise ValueError("the digest does not fit")
    return arrays


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
