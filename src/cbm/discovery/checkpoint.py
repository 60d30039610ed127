"""The state of an unfinished discovery in one file: what is already found, and where training stands.

A safetensors file, written beside the old one and renamed over it, so that a killed run finds either the
last state or the one before, never half of one. Loading it runs no code.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cbm.runs.files import atomic_write_bytes

EVERY_SECONDS = 20.0


class Checkpoint:
    """Named results of finished stages, and the tensors of the running one; kept in memory without a path."""

    def __init__(self, path: Path | None):
        self.path = path
        self.found: dict[str, Tensor] = {}
        self.running: dict[str, Tensor] = {}
        self.notes: dict[str, Any] = {}
        self.problem_with_file: str | None = None
        self._saved = time.perf_counter()
        if path is not None and path.exists():
            self._load(path)

    def has(self, name: str) -> bool:
        return name in self.found

    def array(self, name: str) -> np.ndarray:
        return np.asarray(self.found[name].numpy())

    def keep(self, **arrays: np.ndarray | Tensor) -> None:
        """Record results of a finished stage; the running stage's tensors are dropped."""
        for name, value in arrays.items():
            self.found[name] = torch.as_tensor(np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value)
        self.running = {}
        self.write()

    def due(self) -> bool:
        return self.path is not None and time.perf_counter() - self._saved > EVERY_SECONDS

    def write(self) -> None:
        self._saved = time.perf_counter()
        if self.path is None:
            return
        tensors = {f"found/{k}": v.detach().contiguous().clone() for k, v in self.found.items()}
        tensors |= {f"running/{k}": v.detach().contiguous().clone() for k, v in self.running.items()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_bytes(self.path, save(tensors, {"notes": json.dumps(self.notes)}))

    def _load(self, path: Path) -> None:
        try:
            with safe_open(path, "pt") as file:
                self.notes = json.loads((file.metadata() or {}).get("notes", "{}"))
                for key in file.keys():  # noqa: SIM118
                    place, name = key.split("/", 1)
                    (self.found if place == "found" else self.running)[name] = file.get_tensor(key)
        except (SafetensorError, OSError, ValueError) as error:
            self.found, self.running, self.notes = {}, {}, {}
            self.problem_with_file = f"{path} cannot be read ({error}); starting again"
