"""What all files of jobs share: safe names, and arrays that need no pickle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")  # 200: with suffix and temporary name below the usual limit of 255


def check_name(name: str, what: str) -> None:
    """Refuse names that are not safe as file names on every system."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{what} must be 1 to 200 letters, digits, '.', '_' or '-', not {name!r}")


def plain_arrays(arrays: Mapping[str, Any], what: str) -> dict[str, np.ndarray]:
    """The same as plain arrays of numbers, booleans or text, none of which needs pickle."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"{what} must be a dict of arrays, not {type(arrays).__name__}")
    for name in arrays:
        check_name(name, f"an array's name in {what}")
    plain = {name: np.asarray(value) for name, value in arrays.items()}
    for name, array in plain.items():
        if array.dtype.kind not in "biufcSU":
            raise TypeError(f"{what}: {name!r} has dtype {array.dtype}, only numbers, booleans and text can be stored")
    return plain
