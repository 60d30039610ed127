"""Ranges, kinds and copies of a log's columns, from memory or from blocks of rows in one pass."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cbm.data.factors import MAX_CATEGORIES, Kind, kind_of_counts

Arrays = dict[str, np.ndarray]
STATE = ("obs", "next_obs")
"""The two arrays whose columns are the variables; they share one range."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of each column over all rows. Arrays are named as in an npz file; `obs` stands for both states."""

    low: Arrays
    """Lowest value of each column."""
    high: Arrays
    changed: np.ndarray
    """(d,) share of the rows in which a variable changes."""

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Statistics:
        gathered = Gathering()
        gathered.add(arrays)
        return gathered.statistics()

    def constant(self, name: str) -> np.ndarray:
        """Booleans, one for each column: whether it has the same value in all rows."""
        return np.asarray(self.low[name] == self.high[name])

    def to_json(self) -> dict[str, Any]:
        ranges = {side: {name: v.tolist() for name, v in getattr(self, side).items()} for side in ("low", "high")}
        return {**ranges, "changed": self.changed.tolist()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Statistics:
        low, high = ({name: np.array(v, float) for name, v in stored[side].items()} for side in ("low", "high"))
        return cls(low, high, np.array(stored["changed"], float))


@dataclass
class Gathering:
    """Statistics from consecutive blocks of rows; `arrays` have rows along their first axis."""

    rows: int = 0
    low: Arrays = field(default_factory=dict)
    high: Arrays = field(default_factory=dict)
    changed: np.ndarray = field(default_factory=lambda: np.zeros(0, int))

    def add(self, arrays: Mapping[str, np.ndarray]) -> None:
        for name, values in arrays.items():
            columns = values if values.ndim == 2 else values[:, None]
            key = "obs" if name in STATE else name
            low, high = columns.min(0), columns.max(0)
            self.low[key] = np.minimum(self.low[key], low) if key in self.low else low
            self.high[key] = np.maximum(self.high[key], high) if key in self.high else high
        changed = (arrays["obs"] != arrays["next_obs"]).sum(0)
        self.changed = self.changed + changed if self.rows else changed
        self.rows += len(arrays["obs"])

    def statistics(self) -> Statistics:
        return Statistics(self.low, self.high, self.changed / max(self.rows, 1))


@dataclass
class Levels:
    """How often each value of each column occurs, as long as there are few values; this shows the kinds of
    variables."""

    counts: list[dict[float, int] | None]
    """For each column, counts by value; None: more values than a categorical variable has."""

    @classmethod
    def of(cls, columns: int) -> Levels:
        return cls([{} for _ in range(columns)])

    def add(self, *blocks: np.ndarray) -> None:
        """One more block (rows, columns) of each array."""
        for i, seen in enumerate(self.counts):
            if seen is None:
                continue
            values = np.concatenate([block[:, i] for block in blocks])
            levels, counts = np.unique(values, return_counts=True)
            if len(levels) > MAX_CATEGORIES:
                self.counts[i] = None
                continue
            for level, count in zip(levels.tolist(), counts.tolist(), strict=True):
                seen[level] = seen.get(level, 0) + count
            if len(seen) > MAX_CATEGORIES:
                self.counts[i] = None

    def kinds(self, rows: int) -> tuple[Kind, ...]:
        return tuple("continuous" if c is None else kind_of_counts(list(c.values()), 2 * rows) for c in self.counts)


@dataclass
class Copies:
    """Groups of columns that have been equal in all blocks so far; after the first block few groups remain."""

    groups: list[list[int]]

    @classmethod
    def of(cls, columns: int) -> Copies:
        return cls([list(range(columns))])

    def add(self, *blocks: np.ndarray) -> None:
        """One more block (rows, columns) of each array; groups are split where their columns differ."""
        cut: list[list[int]] = []
        for group in self.groups:
            parts: dict[bytes, list[int]] = {}
            for i in group if len(group) > 1 else ():
                digest = hashlib.sha256()
                for block in blocks:
                    digest.update((block[:, i] + 0.0).tobytes())  # -0.0 becomes 0.0
                parts.setdefault(digest.digest(), []).append(i)
            cut += [part for part in parts.values() if len(part) > 1]
        self.groups = cut

    def pairs(self, names: Sequence[str], constant: np.ndarray) -> list[tuple[str, str]]:
        """(first, copy) in the order of the copies; constant columns are not copies."""
        found = sorted((i, group[0]) for group in self.groups for i in group[1:] if not constant[i])
        return [(names[first], names[i]) for i, first in found]
