"""What the models see: every input variable as a few piecewise-linear features.

Eight quantile knots per scalar let one linear layer express thresholds ("the gripper is closed"),
which a network fed with raw numbers learns only slowly. Levels of a discrete variable are their own
knots. Features are centred, so that a dropped input (all zeros) is a neutral one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cbm.factors import Kind

BINS = 8
RAW, SINE, COSINE = 0, 1, 2


@dataclass(frozen=True)
class Encoder:
    """Turns columns of numbers into features; `groups` says which input each feature belongs to."""

    source: Tensor
    """(F,) column each feature reads."""
    wave: Tensor
    """(F,) whether the number itself, its sine or its cosine is read."""
    low: Tensor
    high: Tensor
    mean: Tensor
    groups: Tensor
    """(F,) input index of each feature: a column, or the one action node."""
    inputs: int

    @classmethod
    def fit(cls, columns: np.ndarray, kinds: list[Kind], groups: list[int]) -> Encoder:
        """Knots from the data, (T, C); columns that share a group are masked together."""
        rows = [feature for c in range(columns.shape[1]) for feature in _features(c, columns[:, c], kinds[c])]
        source, wave, low, high, mean = (np.array(part) for part in zip(*rows, strict=True))
        group = np.array(groups)[source.astype(int)]
        as_float = [torch.tensor(part, dtype=torch.float32) for part in (low, high, mean)]
        as_index = [torch.tensor(part.astype(int)) for part in (source, wave, group)]
        return cls(as_index[0], as_index[1], as_float[0], as_float[1], as_float[2], as_index[2], max(groups) + 1)

    @property
    def features(self) -> int:
        return len(self.source)

    def __call__(self, x: Tensor) -> Tensor:
        """(B, C) -> (B, F)."""
        value = x[:, self.source]
        if bool(self.wave.any()):
            value = torch.where(self.wave == SINE, value.sin(), value)
            value = torch.where(self.wave == COSINE, x[:, self.source].cos(), value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1) - self.mean


def _features(column: int, values: np.ndarray, kind: Kind) -> list[tuple[float, ...]]:
    waves = {SINE: np.sin(values), COSINE: np.cos(values)} if kind == "angle" else {RAW: values}
    rows: list[tuple[float, ...]] = []
    for wave, read in waves.items():
        knots = _knots(read, BINS if kind != "angle" else BINS // 2)
        for low, high in itertools.pairwise(knots):
            mean = np.clip((read - low) / (high - low), 0, 1).mean()
            rows.append((column, wave, low, high, mean))
    return rows


def _knots(values: np.ndarray, bins: int) -> np.ndarray:
    """Distinct quantiles, or the levels themselves where there are few."""
    levels = np.unique(values[:10_000])
    if len(levels) <= 2 * bins:
        levels = np.unique(values)
    if len(levels) <= 2 * bins:
        return levels if len(levels) > 1 else np.array([levels[0], levels[0] + 1])
    knots = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    if len(knots) < bins:  # a value that fills several quantiles: spread the rest over the other values
        knots = np.unique(np.concatenate([knots, np.quantile(levels, np.linspace(0, 1, bins + 1))]))
    gap = 1e-6 * (knots[-1] - knots[0])  # knots closer than float32 can tell apart would divide by zero
    return knots[np.concatenate([[True], np.diff(knots) > gap])]
