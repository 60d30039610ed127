"""What a job is, and how it is called wherever it runs."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cbm.errors import DataError, WriteError
from cbm.jobs.files import check_name, plain_arrays
from cbm.jobs.shared import Shared

Cause = Literal["data", "write", "other"]
"""Cause of a job's error: its input, a failed write, or anything else. The first two would recur in another attempt."""
_FUNCTION = re.compile(r"cbm(\.[A-Za-z_]\w*)+:[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Job:
    """One call `function(shared, **options)`, which returns a dict of arrays and depends on nothing else."""

    key: str
    """Name of the result, unique within a store and safe as a file name."""
    function: str
    """`package.module:function`. It must be in the package cbm: a request never runs code from elsewhere."""
    options: dict[str, Any]
    """Keyword arguments. Only JSON values, since they are sent to other processes as text."""

    def __post_init__(self) -> None:
        check_name(self.key, "a job's key")
        if not isinstance(self.function, str) or not _FUNCTION.fullmatch(self.function):
            raise ValueError(f"job {self.key!r}: function must be 'cbm.module:function', not {self.function!r}")
        try:
            same = isinstance(self.options, dict) and json.loads(self.options_text()) == self.options
        except (TypeError, ValueError):
            same = False
        if not same:
            raise ValueError(f"job {self.key!r}: options must be a dict of finite JSON values, not {self.options!r}")

    def options_text(self) -> str:
        return json.dumps(self.options, allow_nan=False)

    def call(self, shared: Shared) -> dict[str, np.ndarray]:
        """Run the function here, with one thread and with the options as another process would receive them."""
        module, name = self.function.split(":")
        function = getattr(importlib.import_module(module), name)
        with _one_torch_thread():
            result = function(shared, **json.loads(self.options_text()))
        return plain_arrays(result, f"the result of job {self.key!r}")


def cause_of(error: BaseException) -> Cause:
    return "data" if isinstance(error, DataError) else "write" if isinstance(error, WriteError) else "other"


def job_error(key: str, cause: Cause, message: str, trace: str) -> Exception:
    """The exception for a job that raised: a DataError or a WriteError if it was one, else a RuntimeError."""
    if cause == "other":
        return RuntimeError(f"job {key!r} failed:\n{trace.rstrip()}")
    error = DataError(message) if cause == "data" else WriteError(f"job {key!r}: {message}")
    error.add_note(f"raised by job {key!r}:\n{trace.rstrip()}")
    return error


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """With more threads torch sums in another order and rounds differently. Does not import torch."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
