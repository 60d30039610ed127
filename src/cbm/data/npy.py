"""`.npy` files that are written block by block, and statistics of one without reading it into memory."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import DTypeLike

from cbm.data.mapped import blocks_of
from cbm.runs.files import write_failed

_DIGITS = 16  # bits of a float that are examined in one pass over a file


class NpyWriter:
    """A file that grows by rows; their number is written into its header at the end."""

    def __init__(self, path: Path, dtype: DTypeLike, columns: int | None = None):
        self.path, self.dtype, self.rows = path, np.dtype(dtype), 0
        self.inner = () if columns is None else (columns,)
        try:
            self.file = open(path, "xb")  # noqa: SIM115 - closed in __exit__
        except OSError as error:
            raise write_failed(path, error) from error
        self._header()
        self.begin = self.file.tell()

    def _header(self) -> None:
        about = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False}
        # NumPy leaves room for a longer first axis, so that the header keeps its length.
        np.lib.format.write_array_header_1_0(self.file, about | {"shape": (self.rows, *self.inner)})

    def add(self, block: np.ndarray) -> None:
        try:
            self.file.write(np.ascontiguousarray(block, self.dtype).data)
        except OSError as error:
            raise write_failed(self.path, error) from error
        self.rows += len(block)

    def __enter__(self) -> NpyWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.file.seek(0)
                self._header()
                assert self.file.tell() == self.begin
                self.file.flush()
                os.fsync(self.file.fileno())
        except OSError as failed:
            raise write_failed(self.path, failed) from failed
        finally:
            self.file.close()

    def mapped(self) -> np.ndarray:
        """The finished file, mapped read-only."""
        array: np.ndarray = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return array


def median(values: np.ndarray) -> float:
    """The exact median of a mapped file of positive floats, in a few passes: such floats sort like their bits."""
    middle = (len(values) - 1) // 2
    low = _at(values, middle)
    return low if len(values) % 2 else float((low + _at(values, middle + 1)) / 2)


def _at(values: np.ndarray, place: int) -> float:
    """The value at a place in sorted order: its bits from the highest on, by counting how many values begin with each
    prefix."""
    known, rest = np.uint64(0), 64
    while rest:
        shift = np.uint64(rest - _DIGITS)
        counts = np.zeros(1 << _DIGITS, np.int64)
        for block in blocks_of(values):
            bits = block.view(np.uint64)
            same = bits if rest == 64 else bits[(bits >> np.uint64(rest)) == known]
            digits = (same >> shift) & np.uint64((1 << _DIGITS) - 1)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << _DIGITS)
        passed = np.cumsum(counts)
        digit = int(np.searchsorted(passed, place, "right"))
        place -= int(passed[digit - 1]) if digit else 0
        known, rest = (known << np.uint64(_DIGITS)) | np.uint64(digit), rest - _DIGITS
    return float(known.view(np.float64))
