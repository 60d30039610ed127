"""Normalises the inputs of a policy by the mean and deviation of what was seen, until frozen."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cbm.errors import DataError

_CONSTANT = 1e-6
"""A column whose deviation is below this share of its mean cannot be told from 32-bit rounding."""


class Normaliser:
    """(x - mean) / deviation, clipped at ±`clip`; columns that never changed give 0.

    Before it has seen any row it only clips. Once frozen it ignores further rows, so that the inputs of trained
    networks keep their meaning.
    """

    def __init__(self, size: int, clip: float = 5.0, device: torch.device | str = "cpu"):
        self.size, self.clip, self.frozen, self.device = size, clip, False, device
        self._count = 0
        self._mean: NDArray[np.float64] = np.zeros(size)
        self._squares: NDArray[np.float64] = np.zeros(size)  # sum of squared deviations from the mean
        self._prepare()

    def update(self, rows: NDArray[np.float64]) -> None:
        """Include (n, size) rows; the result does not depend on how rows are divided between calls."""
        if rows.ndim != 2 or rows.shape[1] != self.size:
            raise DataError(f"inputs: shape {rows.shape}, expected (n, {self.size})")
        if self.frozen or not len(rows):
            return
        total = self._count + len(rows)
        mean = rows.mean(0)
        apart = mean - self._mean
        self._squares += ((rows - mean) ** 2).sum(0) + apart**2 * self._count * len(rows) / total
        self._mean += apart * len(rows) / total
        self._count = total
        self._prepare()

    def freeze(self) -> None:
        self.frozen = True

    def _prepare(self) -> None:
        """Compute what a call needs, in 32 bits and on the device of the rows."""
        spread = np.sqrt(self._squares / max(self._count, 1))
        varies = spread > _CONSTANT * np.abs(self._mean)
        scale = np.divide(1.0, spread, out=np.zeros(self.size), where=varies) if self._count else np.ones(self.size)
        self._centre = torch.from_numpy(self._mean.astype(np.float32)).to(self.device)
        self._scale = torch.from_numpy(scale.astype(np.float32)).to(self.device)

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, size) -> (n, size)."""
        return (rows - self._centre).mul_(self._scale).clamp_(-self.clip, self.clip)

    def tensors(self) -> dict[str, Tensor]:
        return {
            "count": torch.tensor(self._count),
            "mean": torch.from_numpy(self._mean.copy()),
            "squares": torch.from_numpy(self._squares.copy()),
            "frozen": torch.tensor(self.frozen),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self._count, self.frozen = int(tensors["count"]), bool(tensors["frozen"])
        self._mean = tensors["mean"].cpu().numpy().copy()
        self._squares = tensors["squares"].cpu().numpy().copy()
        self._prepare()
