"""Where the results of a sweep are: a run directory for each cell, and beside them what was printed and timed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from cbm.errors import DataError
from cbm.jobs import Job, Store
from cbm.jobs.store import unpacked
from cbm.runs.directory import make_directories
from cbm.runs.files import atomic_write_text, read_json, write_failed
from cbm.runs.lock import Lock
from cbm.sweep.tree import to_directory

RUNS, RESULTS, FAILED, HOLDERS = "runs", ".results", "failed", ".holders"


class RunStore(Store):
    """Results of a sweep's jobs: their files go into run directories, and only the rest is kept as arrays.

    Nothing is written by who has lost the sweep to another process.
    """

    def __init__(self, path: Path, lock: Lock, jobs: Mapping[str, str]) -> None:
        self.lock, self.directories = lock, {key: path / RUNS / name for key, name in jobs.items()}
        super().__init__(path / RESULTS)

    def find(self, key: str) -> dict[str, np.ndarray] | None:
        """None also where the run directory was removed by hand: then its job runs again."""
        return super().find(key) if self.directories[key].is_dir() and self.holder(key) in (key, None) else None

    def holder(self, key: str) -> str | None:
        """The job whose result the run directory of a job holds; None: unknown."""
        file = self._holder_file(key)
        return file.read_text(encoding="utf-8").strip() if file.is_file() else None

    def _holder_file(self, key: str) -> Path:
        return self.directories[key].parent.parent / HOLDERS / f"{self.directories[key].name}.txt"

    def check_directories(self) -> None:
        """Refuse to overwrite runs made with other options, other data or another version."""
        for key, directory in self.directories.items():
            if directory.is_dir() and self.holder(key) not in (key, None):
                raise DataError(
                    f"{directory} holds a run with other options, of other data or of another version; choose another "
                    "--out, or remove it"
                )

    def put(self, key: str, arrays: Mapping[str, np.ndarray]) -> None:
        self.lock.check()
        try:
            to_directory(arrays, self.directories[key])
        except OSError as error:
            raise write_failed(self.directories[key], error) from error
        make_directories(self._holder_file(key).parent)
        atomic_write_text(self._holder_file(key), key + "\n")
        super().put(key, {name: arrays[name] for name in ("printed", "seconds")})

    def put_packed(self, key: str, data: bytes) -> None:
        self.put(key, unpacked(data))

    def adopt(self, key: str, token: str) -> None:
        file = self.attempt_file(key, token)
        self.put(key, unpacked(file.read_bytes()))
        file.unlink()


def runs_in(directory: Path) -> list[Path] | None:
    """The finished runs of a sweep that have something to show; None where the directory is no sweep."""
    file = directory / "config.json"
    config = read_json(file) if file.is_file() else None
    if not isinstance(config, dict) or config.get("command") != "sweep":
        return None
    runs = sorted(path for path in (directory / RUNS).glob("*") if not path.name.startswith("."))
    return [run for run in runs if (run / "graph.json").is_file() or (run / "eval.csv").is_file()]


def names_by_key(jobs: list[Job], names: list[str]) -> dict[str, str]:
    return {job.key: name for job, name in zip(jobs, names, strict=True)}
