"""Inputs of a policy in units of their own spread: mean and variance of what was seen, until frozen."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cbm.errors import DataError

_CONSTANT = 1e-6
"""A column whose spread is below this share of its mean cannot be told from rounding in 32 bits."""


class Normaliser:
    """(x - mean) / spread, cut off at ±`clip`; columns that never changed give 0.

    Before it has seen any row it only cuts off. Once frozen, further rows change nothing, so that what a network
    has learned keeps its meaning.
    """

    def __init__(self, size: int, clip: float = 5.0, device: torch.device | str = "cpu"):
        self.size, self.clip, self.frozen, self.device = size, clip, False, device
        self._count = 0
        self._mean: NDArray[np.float64] = np.zeros(size)
        self._squares: NDArray[np.float64] = np.zeros(size)  # sum of squared deviations from the mean
        self._prepare()

    def update(self, rows: NDArray[np.float64]) -> None:
        """Take (n, size) rows into account; the result does not depend on how the rows were cut into calls."""
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
        """What a call needs, in 32 bits and where the rows are."""
        spread = np.sqrt(self._squares / max(self._count, 1))
        varies = spread > _CONSTANT * np.abs(self._mean)
        scale = np.divide(1.0, spread, out=np.zeros(self.size), where=varies) if self._count else np.ones(self.size)
        self._centre = torch.from_numpy(self._mean.astype(np.float32)).to(self.device)
        self._scale = torch.from_numpy(scale.astype(np.float32)).to(self.device)

    def __call__(self, rows: Tensor) -> Tensor:
        """(n, size) in, (n, size) out."""
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
