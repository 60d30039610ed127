"""Checkpoints: a tree of tensors, arrays and plain values in one safetensors file, with damage detection.

Tensors are stored by their place in the tree; all other values are JSON in the header, next to a digest of both that
covers names, types and shapes. Two generations are kept, so that a damaged newest one costs some work but not the run.
Loading runs no code. Discovery and learning use the same format.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from cbm.errors import DataError
from cbm.runs.files import atomic_write_bytes

FORMAT = "1"
GENERATIONS = 2
ARRAY = "$array"
"""Marks a place in the JSON part to which a tensor belongs."""
Loaded = TypeVar("Loaded")


class Damaged(Exception):
    """A file is not what was written, or does not fit the run."""


def write_tree(path: Path, tree: Mapping[str, Any]) -> None:
    tensors, values = _split(tree)
    text = json.dumps(values)
    header = {"format": FORMAT, "values": text, "digest": _digest(tensors, text)}
    atomic_write_bytes(path, save(tensors, header))


def read_tree(path: Path) -> dict[str, Any]:
    header = _header(path)
    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise Damaged(f"{path}: {error}") from None
    if _digest(tensors, header["values"]) != header["digest"]:
        raise Damaged(f"{path}: is damaged")
    with fitting(path):
        tree = _joined(json.loads(header["values"]), tensors)
        if not isinstance(tree, dict):
            raise TypeError("not a tree")
    return tree


def read_values(path: Path) -> dict[str, Any]:
    """The plain values only, without reading the tensors."""
    with fitting(path):
        values = json.loads(_header(path)["values"])
        if not isinstance(values, dict):
            raise TypeError("not a tree")
    return values


@contextmanager
def fitting(path: Path | str) -> Iterator[None]:
    """Turns errors caused by a state of another run (missing names, other types or shapes) into `Damaged`."""
    try:
        yield
    except Damaged:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, ArithmeticError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise Damaged(f"{path}: does not fit this run ({type(error).__name__}: {text:.200})") from None


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Like `fitting`, if there is no older state to fall back on: a state that does not fit is bad input."""
    try:
        with fitting(path):
            yield
    except Damaged as damage:
        raise DataError(f"{damage}; remove the run to start again") from None


def copy_tensor(target: Tensor, source: Mapping[str, Tensor], name: str) -> None:
    """Copy into a parameter, in place; a plain copy would broadcast a tensor of another shape."""
    if name not in source:
        raise KeyError(f"{name} is missing")
    if source[name].shape != target.shape:
        raise ValueError(f"{name} has shape {tuple(source[name].shape)}, expected {tuple(target.shape)}")
    with torch.no_grad():
        target.copy_(source[name])


class Generations:
    """The numbered checkpoints of one run: `checkpoint/00020000.safetensors` and the one before."""

    def __init__(self, directory: Path, check: Callable[[], None] | None = None):
        """`check` is called before every write, and raises if the run has another owner."""
        self.directory = directory
        self.check = check or (lambda: None)

    def paths(self) -> list[Path]:
        """Newest first."""
        return sorted(self.directory.glob("[0-9]*.safetensors"), reverse=True)

    def write(self, number: int, tree: Mapping[str, Any]) -> None:
        self.check()
        self.directory.mkdir(parents=True, exist_ok=True)
        write_tree(self.directory / f"{number:08d}.safetensors", tree)
        self.keep(GENERATIONS)

    def keep(self, count: int) -> None:
        """Remove older checkpoints, and files cut short by a kill."""
        for path in (*self.paths()[count:], *self.directory.glob(".*.tmp")):
            path.unlink(missing_ok=True)

    def load(self, use: Callable[[dict[str, Any]], Loaded]) -> Loaded | None:
        """`use` of the newest tree that is undamaged and fits; None if nothing was ever saved.

        Reports on the error stream if a newer tree had to be skipped.
        """
        problems = []
        for path in self.paths():
            try:
                tree = read_tree(path)
                with fitting(path):
                    loaded = use(tree)
            except Damaged as damage:
                problems.append(str(damage))
                continue
            if problems:
                print(f"cbm: {problems[0]}; going on from {path.name} before it", file=sys.stderr)
            return loaded
        if problems:
            found = "; ".join(dict.fromkeys(problems))
            raise DataError(f"{self.directory}: no checkpoint can be read ({found}); remove the run to start again")
        return None


def _header(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, "pt") as file:
            header = dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise Damaged(f"{path}: cannot be read ({error})") from None
    if header.get("format") != FORMAT or not {"values", "digest"} <= header.keys():
        raise Damaged(f"{path}: is no checkpoint of this version")
    return header


def _split(tree: Any) -> tuple[dict[str, Tensor], Any]:
    """Tensors by their place in the tree, and the tree with a mark at each of these places."""
    tensors: dict[str, Tensor] = {}

    def walk(node: Any, place: str) -> Any:
        if isinstance(node, Mapping):
            return {key: walk(value, f"{place}/{key}") for key, value in node.items()}
        if isinstance(node, Tensor | np.ndarray):
            assert place not in tensors
            plain = torch.from_numpy(np.ascontiguousarray(node)) if isinstance(node, np.ndarray) else node
            tensors[place] = plain.detach().cpu().contiguous().clone()
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
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
