"""What the networks see: every input variable as a few piecewise-linear features.

Eight quantile knots per scalar let one linear layer express thresholds ("the gripper is closed"), which a network on
raw numbers learns only slowly. Levels of a discrete variable are their own knots. Features are centred, so that a
dropped input (all zeros) is neutral.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cbm.data.factors import Kind
from cbm.discovery.settings import BINS, NEAR_PEAK

RAW, SINE, COSINE = 0, 1, 2


@dataclass(frozen=True)
class Encoder:
    """Turns columns of numbers into features; `groups` says which input each feature belongs to."""

    source: Tensor
    """(F,) the column that each feature reads."""
    wave: Tensor
    """(F,) whether it reads the number itself, its sine or its cosine."""
    low: Tensor
    high: Tensor
    mean: Tensor
    groups: Tensor
    """(F,) input of each feature: a column, or the action as a whole."""
    partners: Tensor
    """(F,) the other input of a difference; for all other features the same as in `groups`."""
    pairs: Tensor
    """(P, 2) columns whose differences the features see as columns C, C + 1, ..."""
    gains: Tensor
    """(P, 2) factors on the two columns before one is subtracted from the other."""
    columns: int
    """C, the number of columns of the rows that are encoded."""
    inputs: int

    @classmethod
    def fit(
        cls,
        columns: np.ndarray,
        kinds: list[Kind],
        groups: list[int],
        pairs: np.ndarray | None = None,
        units: np.ndarray | None = None,
    ) -> Encoder:
        """Knots from the data, (T, C); columns that share a group are masked together.

        `pairs` (P, 2) are columns whose difference is a feature too, after each is multiplied by its entry in `units`.
        """
        pairs = np.zeros((0, 2), int) if pairs is None else pairs
        gains = np.ones(pairs.shape) if units is None else units[pairs]
        gains = (gains / gains.max(1, keepdims=True)).astype(np.float32)
        rows = [feature for c in range(columns.shape[1]) for feature in _features(c, columns[:, c], kinds[c])]
        for p, (a, b) in enumerate(pairs):
            difference = gains[p, 0] * columns[:, a] - gains[p, 1] * columns[:, b]
            rows += _between(columns.shape[1] + p, RAW, difference, _fine_knots(difference))
        source, wave, low, high, mean = (np.array(part) for part in zip(*rows, strict=True))
        owner = np.array(groups)
        first, second = (np.append(owner, owner[pairs[:, end]])[source.astype(int)] for end in (0, 1))
        low_t, high_t, mean_t = (torch.tensor(part, dtype=torch.float32) for part in (low, high, mean))
        source_t, wave_t, first_t, second_t, pairs_t = (
            torch.tensor(part.astype(int)) for part in (source, wave, first, second, pairs)
        )
        return cls(
            source_t, wave_t, low_t, high_t, mean_t, first_t, second_t, pairs_t, torch.from_numpy(gains),
            columns.shape[1], max(groups) + 1,
        )  # fmt: skip

    def moved(self, move: Callable[[Tensor], Tensor]) -> Encoder:
        """The same encoder with all its tensors moved, for example to another device."""
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        moved: dict[str, Any] = {name: move(part) for name, part in parts.items() if isinstance(part, Tensor)}
        return replace(self, **moved)

    @property
    def features(self) -> int:
        return len(self.source)

    def only(self, features: Tensor) -> Encoder:
        """An encoder of the same rows that computes only these features, in this order; `features` are their
        indices."""
        used, place = torch.unique(self.source[features], return_inverse=True)
        differences = used[used >= self.columns] - self.columns
        single = used[used < self.columns]
        source = torch.cat([single, self.columns + torch.arange(len(differences))])[place]
        parts = {name: getattr(self, name)[features] for name in ("wave", "low", "high", "mean", "groups", "partners")}
        return replace(self, source=source, pairs=self.pairs[differences], gains=self.gains[differences], **parts)

    def of_input(self, j: int) -> Tensor:
        """Indices of the features that are hidden when input j is."""
        return ((self.groups == j) | (self.partners == j)).nonzero()[:, 0]

    def hidden(self, dropped: Tensor) -> Tensor:
        """(B,) dropped inputs -> (B, F) booleans: the features that are hidden with them."""
        gone = self.groups == dropped[:, None]
        return gone | (self.partners == dropped[:, None]) if len(self.pairs) else gone

    def __call__(self, x: Tensor) -> Tensor:
        """(B, C) -> (B, F)."""
        if len(self.pairs):
            ends = x[:, self.pairs] * self.gains
            x = torch.cat([x, ends[..., 0] - ends[..., 1]], 1)
        value = x[:, self.source]
        if bool(self.wave.any()):
            value = torch.where(self.wave == SINE, value.sin(), value)
            value = torch.where(self.wave == COSINE, x[:, self.source].cos(), value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1) - self.mean


def _features(column: int, values: np.ndarray, kind: Kind) -> list[tuple[float, ...]]:
    waves = {SINE: np.sin(values), COSINE: np.cos(values)} if kind == "angle" else {RAW: values}
    rows: list[tuple[float, ...]] = []
    for wave, read in waves.items():
        rows += _between(column, wave, read, _knots(read, BINS if kind != "angle" else BINS // 2))
    return rows


def _between(column: int, wave: int, read: np.ndarray, knots: np.ndarray) -> list[tuple[float, ...]]:
    """One feature for each interval between two knots."""
    return [
        (column, wave, low, high, np.clip((read - low) / (high - low), 0, 1).mean())
        for low, high in itertools.pairwise(knots)
    ]


def _fine_knots(difference: np.ndarray) -> np.ndarray:
    """Quantiles of all values, and of those nearest to the densest point, where small steps count."""
    ordered = np.sort(difference)
    inside = max(1, len(ordered) // 32)
    peak = ordered[np.argmin(ordered[inside:] - ordered[:-inside]) + inside // 2]
    near = difference[np.abs(difference - peak) <= np.quantile(np.abs(difference - peak), NEAR_PEAK)]
    return _apart(np.unique(np.concatenate([_knots(difference, BINS // 2), _knots(near, BINS)])))


def _knots(values: np.ndarray, bins: int) -> np.ndarray:
    """Distinct quantiles, or the levels themselves where there are few."""
    levels = np.unique(values[:10_000])
    if len(levels) <= 2 * bins:
        levels = np.unique(values)
    if len(levels) <= 2 * bins:
        return levels if len(levels) > 1 else np.array([levels[0], levels[0] + 1])
    knots = np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)))
    if len(knots) < bins:  # one value fills several quantiles: spread more knots over the other values
        knots = np.unique(np.concatenate([knots, np.quantile(levels, np.linspace(0, 1, bins + 1))]))
    return _apart(knots)


def _apart(knots: np.ndarray) -> np.ndarray:
    """Drops knots too close to the one before for float32: they would cause a division by zero."""
    gap = 1e-6 * (knots[-1] - knots[0])
    return knots[np.concatenate([[True], np.diff(knots) > gap])]
