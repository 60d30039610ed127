"""Checkpoints of a learning run: everything that changes, in files whose damage is noticed.

`checkpoint/00020000.safetensors` holds the tensors of step 20 000, with all other values as JSON in its header. Two
generations are kept, so that a damaged newest one costs some steps and not the run. The replay is in files of its
own, `rows-FIRST-END.safetensors`, that are written once: a checkpoint only adds the rows that are new. Loading runs
no code.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cbm.errors import DataError
from cbm.learning.replay import Replay
from cbm.runs.files import atomic_write_bytes

GENERATIONS = 2
ARRAY = "$array"
"""Marks a place in the JSON part where a tensor belongs."""


class Damaged(Exception):
    """A file is not what was written."""


class Snapshots:
    """The directory `checkpoint/` of one run."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.chunks: list[dict[str, Any]] = []
        """Replay files that the run needs, oldest first."""

    def generations(self) -> list[Path]:
        """Checkpoints, newest first."""
        return sorted(self.directory.glob("[0-9]*.safetensors"), reverse=True)

    def write(self, number: int, state: Mapping[str, Any], replay: Replay) -> None:
        """Rows first: a checkpoint never speaks of rows that are not on disk."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self._write_rows(replay)
        tensors, values = _split({**state, "chunks": self.chunks})
        header = {"values": json.dumps(values), "digest": _digest(tensors, json.dumps(values))}
        atomic_write_bytes(self.directory / f"{number:08d}.safetensors", save(tensors, header))
        self._tidy(GENERATIONS)

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

    def _tidy(self, keep: int) -> None:
        """Remove generations beyond the newest, rows that none of those left needs, and files that a kill cut short."""
        for path in (*self.generations()[keep:], *self._half_written()):
            path.unlink(missing_ok=True)
        needed = {chunk["file"] for chunk in self.chunks}
        for path in self.generations():
            try:
                needed |= {chunk["file"] for chunk in _values(path)["chunks"]}
            except Damaged:
                continue
        for path in self.directory.glob("rows-*.safetensors"):
            if path.name not in needed:
                path.unlink(missing_ok=True)

    def _half_written(self) -> Iterator[Path]:
        return self.directory.glob(".*.tmp")

    def finish(self) -> None:
        """Only the last state stays: a finished run never needs its rows again."""
        self.chunks = []
        for path in (*self.generations()[1:], *self.directory.glob("rows-*.safetensors"), *self._half_written()):
            path.unlink(missing_ok=True)

    def load(self, replay: Replay | None) -> dict[str, Any] | None:
        """The newest state that is sound, its rows in `replay`; None where nothing was ever saved.

        Says on the error stream when it had to pass one over.
        """
        problems = []
        for path in self.generations():
            try:
                state = _read(path)
                self.chunks = state.pop("chunks")
                if replay is not None:
                    self._read_rows(replay)
            except Damaged as damage:
                problems.append(str(damage))
                continue
            if problems:
                print(f"cbm: {problems[0]}; going on from {path.name} before it", file=sys.stderr)
            return state
        if problems:
            found = "; ".join(dict.fromkeys(problems))  # older rows are in all of them
            raise DataError(f"{self.directory}: no checkpoint can be read ({found}); remove the run to start again")
        return None

    def _read_rows(self, replay: Replay) -> None:
        replay.total = self.chunks[0]["first"] if self.chunks else 0
        for chunk in self.chunks:
            path = self.directory / chunk["file"]
            try:
                found = hashlib.sha256(path.read_bytes()).hexdigest()
            except OSError as error:
                raise Damaged(f"{path}: {error.strerror or error}") from None
            if found != chunk["sha256"]:
                raise Damaged(f"{path}: is damaged")
            with safe_open(path, "np") as file:
                replay.put(*(file.get_tensor(name) for name in ("rows", "episode", "source")))


def _read(path: Path) -> dict[str, Any]:
    values = _values(path)
    try:
        with safe_open(path, "pt") as file:
            digest = (file.metadata() or {}).get("digest")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise Damaged(f"{path}: {error}") from None
    if _digest(tensors, json.dumps(values)) != digest:
        raise Damaged(f"{path}: is damaged")
    state: dict[str, Any] = _joined(values, tensors)
    return state


def _values(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, "pt") as file:
            values: dict[str, Any] = json.loads((file.metadata() or {})["values"])
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise Damaged(f"{path}: cannot be read ({error})") from None
    return values


def _split(tree: Any) -> tuple[dict[str, Tensor], Any]:
    """Tensors by their place in the tree, and the tree with a mark in each of these places."""
    tensors: dict[str, Tensor] = {}

    def walk(node: Any, place: str) -> Any:
        if isinstance(node, Mapping):
            return {key: walk(value, f"{place}/{key}") for key, value in node.items()}
        if isinstance(node, Tensor | np.ndarray):
            assert place not in tensors
            plain = torch.from_numpy(np.ascontiguousarray(node)) if isinstance(node, np.ndarray) else node
            tensors[place] = plain.detach().contiguous().clone()
            return {ARRAY: place, "numpy": isinstance(node, np.ndarray)}
        return node

    return tensors, walk(tree, "")


def _joined(node: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(node, dict):
        return node
    if ARRAY in node:
        tensor = tensors[node[ARRAY]]
        return tensor.numpy() if node["numpy"] else tensor
    return {key: _joined(value, tensors) for key, value in node.items()}


def _digest(tensors: dict[str, Tensor], values: str) -> str:
    digest = hashlib.sha256(values.encode())
    for part in _in_order(tensors):
        digest.update(part)
    return digest.hexdigest()


def _in_order(tensors: dict[str, Tensor]) -> Iterator[bytes]:
    for name in sorted(tensors):
        yield name.encode()
        yield tensors[name].numpy().tobytes()
