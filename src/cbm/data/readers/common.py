"""Shared by several readers: optional packages, messages of parsers, and a check of the available memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from cbm.errors import DataError

MEMORY_SHARE = 0.8


def optional(module: str, purpose: str) -> Any:
    """Import an optional package where it is used, so that other formats do not need it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise DataError(f"{purpose} needs {package}, which is not installed: pip install {package}") from None


def array_of(item: Any, name: str) -> np.ndarray:
    """Numbers of an array in an HDF5 file; groups, text, references and objects are refused by name."""
    if not hasattr(item, "dtype") or not hasattr(item, "shape") or item.shape == ():
        raise DataError(f"{name!r} is not an array of rows")
    if item.dtype.kind not in "fiub":
        raise DataError(f"array {name!r} is not numeric: its dtype is {str(item.dtype)!r:.60}")
    return np.asarray(item[()])


def reason(error: BaseException) -> str:
    """A parser's message as one printable line: it may quote damaged bytes."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(str(error).split()))
    return f"{text:.200}" if text else type(error).__name__


def check_memory(sizes: Iterable[int]) -> None:
    needed, available = sum(sizes), available_memory()
    if available is not None and needed > MEMORY_SHARE * available:
        raise DataError(
            f"its arrays take {needed / 1e9:.1f} GB unpacked, more than {MEMORY_SHARE:.0%} of the "
            f"{available / 1e9:.1f} GB of free memory"
        )


def available_memory() -> int | None:
    """Bytes that can be used without swapping, or None if the system does not report it."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None
