"""Arrays that all jobs of a run read. They are on disk once and memory-mapped by every process, not sent to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cbm.errors import DataError
from cbm.jobs.files import check_name, plain_arrays
from cbm.runs.files import atomic_file


class Shared:
    """The arrays `<name>.npy` of one directory, read-only; each is mapped when first used."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        if not self.path.is_dir():
            raise DataError(f"no directory of shared arrays: {self.path}")
        self._open: dict[str, np.ndarray] = {}

    @classmethod
    def write(cls, path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> Shared:
        """Add arrays to the directory. Replacing one does not affect processes that are reading the old one."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in plain_arrays(arrays, "shared arrays").items():
            with atomic_file(folder / f"{name}.npy") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
        return cls(folder)

    def names(self) -> list[str]:
        return sorted(file.stem for file in self.path.glob("*.npy") if not file.name.startswith("."))

    def __contains__(self, name: str) -> bool:
        return name in self._open or self.file(name).is_file()

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._open:
            self._open[name] = self._map(name)
        return self._open[name]

    def _map(self, name: str) -> np.ndarray:
        file = self.file(name)
        try:
            # asarray: still the mapped memory, but without the memmap class, which every result would inherit.
            return np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError:
            raise KeyError(f"no shared array {name!r} in {self.path}") from None
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"cannot read {file}: {error}") from error

    def file(self, name: str) -> Path:
        check_name(name, "the name of a shared array")
        return self.path / f"{name}.npy"
