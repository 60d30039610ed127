"""The state of an unfinished discovery: the results so far, and the state of training.

Stored like every checkpoint (`cbm.runs.checkpoint`): with a digest, in two generations. Discovery can always start
again, so a checkpoint without any sound generation costs time but not the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cbm.checks import is_number
from cbm.errors import DataError
from cbm.runs.checkpoint import Generations

EVERY_SECONDS = 20.0


class Checkpoint:
    """Named results of finished stages, and the tensors of the running one; in memory only if there is no directory."""

    def __init__(self, directory: Path | None, check: Callable[[], None] | None = None):
        self.trees = None if directory is None else Generations(directory, check)
        self.found: dict[str, Tensor] = {}
        self.running: dict[str, Tensor] = {}
        self.notes: dict[str, Any] = {}
        self.problem_with_file: str | None = None
        self._saved = time.perf_counter()
        if self.trees is not None:
            self._load(self.trees)

    @property
    def place(self) -> Path:
        """The path that messages name."""
        return Path("checkpoint") if self.trees is None else self.trees.directory

    def has(self, name: str) -> bool:
        return name in self.found

    def array(self, name: str) -> np.ndarray:
        return np.asarray(self.found[name].numpy())

    def keep(self, **arrays: np.ndarray | Tensor) -> None:
        """Record results of a finished stage and drop the running stage's tensors."""
        for name, value in arrays.items():
            self.found[name] = torch.as_tensor(np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value)
        self.running = {}
        self.write()

    def due(self) -> bool:
        return self.trees is not None and time.perf_counter() - self._saved > EVERY_SECONDS

    def write(self) -> None:
        self._saved = time.perf_counter()
        if self.trees is not None:
            newest = next((int(path.stem) for path in self.trees.paths() if path.stem.isdecimal()), 0)
            self.trees.write(newest + 1, {"found": self.found, "running": self.running, "notes": self.notes})

    def _load(self, trees: Generations) -> None:
        try:
            loaded = trees.load(_checked)
        except DataError as error:
            self.problem_with_file = f"{str(error).removesuffix('; remove the run to start again')}; starting again"
            return
        if loaded is not None:
            self.found, self.running, self.notes = loaded


def _checked(tree: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    found, running, notes = tree["found"], tree["running"], tree["notes"]
    for part in (found, running):
        if not all(isinstance(value, Tensor) for value in part.values()):
            raise TypeError("a tensor is missing")
    if not is_number(notes.get("elapsed", 0.0)) or notes.get("elapsed", 0.0) < 0:
        raise ValueError(f"elapsed is {notes['elapsed']!r:.40}, no time")
    if not isinstance(notes.get("updates", {}), dict):
        raise TypeError("updates is no table")
    return found, running, notes
