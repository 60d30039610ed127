"""Shared by formats with named arrays: arrays of each episode become the columns of one table.

The format defines the roles, so nothing is guessed; roles named by the user replace them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cbm.data.roles import NUMBER, TEXT, Roles, Selection, select
from cbm.data.series import Reading, Table, read_table
from cbm.errors import DataError

NEXT = "next_obs:"
"""Prefix of the column of a variable after the step."""


@dataclass
class Columns:
    """Columns of a log whose format defines their roles; filled part by part, then read."""

    reader: str
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    obs: dict[str, str] = field(default_factory=dict)
    next_obs: dict[str, str] = field(default_factory=dict)
    action: dict[str, str] = field(default_factory=dict)
    reward: dict[str, str] = field(default_factory=dict)
    episode: tuple[str, ...] = ()
    time: str | None = None
    flags: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """What the log holds besides, such as pictures, with the reason."""

    def add(self, name: str, values: np.ndarray, names: Sequence[str] | None = None) -> dict[str, str]:
        """Add the columns of an array (T,) or (T, ...), one for each number of a row; returns them by label."""
        rows = values.reshape(len(values), -1)
        labels = list(names) if names is not None else [name] if rows.shape[1] == 1 else \
            [f"{name}_{k}" for k in range(rows.shape[1])]  # fmt: skip
        added: dict[str, str] = {}
        for k, label in enumerate(labels):
            if label in self.columns:
                raise DataError(f"two arrays give a column {label!r}")
            self.columns[label] = rows[:, k]
            added[label] = label
            if rows.dtype.kind in "iub":
                self.whole.add(label)
        return added

    def add_next(self, labels: Sequence[str], values: np.ndarray) -> None:
        rows = values.reshape(len(values), -1)
        if rows.shape[1] != len(labels):
            raise DataError(f"{rows.shape[1]} numbers after a step, {len(labels)} before it")
        for k, label in enumerate(labels):
            self.columns[NEXT + label] = rows[:, k]
            self.next_obs[label] = NEXT + label

    def read(self, roles: Roles) -> Reading:
        if not self.columns:
            raise DataError("there is no array of numbers in it")
        lengths = {len(values) for values in self.columns.values()}
        if len(lengths) > 1:
            raise DataError(f"its arrays differ in length: {', '.join(map(str, sorted(lengths)))} rows")
        if not self.action and not roles.action:
            raise DataError("there is no action in it; say which columns are the action: --action NAME")
        known = Selection(
            self.obs, self.next_obs, self.action, self.reward, {}, self.episode, self.time, flags=self.flags
        )  # fmt: skip
        kinds = {name: NUMBER if values.dtype.kind in "fiub" else TEXT for name, values in self.columns.items()}
        selection = select(kinds, roles, known)
        ignored = {n: why for n, why in selection.ignored.items() if not n.startswith(NEXT)} | self.left_out
        table = Table(self.columns, frozenset(self.whole))
        reading = read_table(table, selection, roles, self.reader)
        reading.understood.ignored = ignored
        return reading


def joined(parts: Sequence[np.ndarray], name: str) -> np.ndarray:
    """The arrays of all episodes, concatenated."""
    if len({part.shape[1:] for part in parts}) > 1:
        raise DataError(f"array {name!r} has rows of different shapes in different episodes")
    return np.concatenate(parts)


def is_vector(shape: tuple[int, ...]) -> bool:
    """Whether an array has rows of numbers, and not pictures."""
    return len(shape) in (1, 2)


def same_names(episodes: Sequence[tuple[str, Mapping[str, object]]]) -> list[str]:
    """Names that all episodes have; a name that only some have is an error."""
    first, names = episodes[0][0], set(episodes[0][1])
    for key, arrays in episodes:
        if set(arrays) != names:
            lone = sorted(set(arrays) ^ names)[0]
            raise DataError(f"{lone!r} is in one of the episodes {first!r} and {key!r} only")
    return [name for name in episodes[0][1] if name in names]
