"""Checkpoints of a learning run, with the rows of its replay buffer.

The state is a tree like every checkpoint (`cbm.runs.checkpoint`). The replay buffer is stored in separate files,
`rows-FIRST-END.safetensors`, each written once: a checkpoint only adds the rows that are new.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from cbm.learning.replay import Replay
from cbm.runs.checkpoint import Damaged, Generations, read_values
from cbm.runs.files import atomic_write_bytes


class Snapshots:
    """The directory `checkpoint/` of one run."""

    def __init__(self, directory: Path, check: Callable[[], None] | None = None):
        self.directory = directory
        self.trees = Generations(directory, check)
        self.chunks: list[dict[str, Any]] = []
        """Files of the replay buffer that the run needs, oldest first."""

    def generations(self) -> list[Path]:
        """Checkpoints, newest first."""
        return self.trees.paths()

    def write(self, number: int, state: Mapping[str, Any], replay: Replay) -> None:
        """Writes the rows first, so that a checkpoint never refers to rows that are not on disk."""
        self.trees.check()
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write_rows(replay)
        self.trees.write(number, {**state, "chunks": self.chunks})
        self._remove_rows()

    def _write_rows(self, replay: Replay) -> None:
        have = self.chunks[-1]["end"] if self.chunks else 0
        oldest = replay.total - len(replay)
        if replay.total > have:
            first = max(have, oldest)
            rows = {name: torch.from_numpy(part) for name, part in replay.numbered(first, replay.total).items()}
            data = save(rows)
            name = f"rows-{first:09d}-{replay.total:09d}.safetensors"
            atomic_write_bytes(self.directory / name, data)
            entry = {"file": name, "first": first, "end": replay.total, "sha256": hashlib.sha256(data).hexdigest()}
            self.chunks = [*self.chunks, entry]
        self.chunks = [chunk for chunk in self.chunks if chunk["end"] > oldest]

    def _remove_rows(self) -> None:
        """Delete files of rows that no remaining generation needs."""
        needed = {chunk["file"] for chunk in self.chunks}
        for path in self.generations():
            try:
                needed |= {chunk["file"] for chunk in read_values(path)["chunks"]}
            except (Damaged, LookupError, TypeError):
                continue
        for path in self.directory.glob("rows-*.safetensors"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def finish(self) -> None:
        """Keep only the last state: a finished run never needs its rows again."""
        self.chunks = []
        self.trees.keep(1)
        for path in self.directory.glob("rows-*.safetensors"):
            path.unlink(missing_ok=True)

    def load(self, replay: Replay | None) -> dict[str, Any] | None:
        """The newest undamaged state, with its rows put into `replay`; None if nothing was ever saved."""

        def use(state: dict[str, Any]) -> dict[str, Any]:
            self.chunks = state.pop("chunks")
            if replay is not None:
                self._read_rows(replay)
            return state

        return self.trees.load(use)

    def _read_rows(self, replay: Replay) -> None:
        replay.total = self.chunks[0]["first"] if self.chunks else 0
        for chunk in self.chunks:
            path = self.directory / Path(chunk["file"]).name
            try:
                found = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError as error:
                raise Damaged(f"{path}: {error.strerror or error}") from None
            if found != chunk["sha256"]:
                raise Damaged(f"{path}: is damaged")
            with safe_open(path, "np") as file:
                replay.put(*(file.get_tensor(name) for name in ("rows", "episode", "source")))
