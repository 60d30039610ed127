"""The replay buffer: every transition of a run in one growing table, from which policies and methods learn.

A row holds the rewards of all tasks, so one table serves all of them. Rows are numbered from 0 in the order in which
they were added; beyond the capacity the oldest are overwritten. Checkpoints store rows by number, so that each one only
adds new rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cbm.agents.base import Sample
from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.learning.vector_env import Moves

CHUNK = 50_000
"""Rows by which the table grows, at least."""
HELD_OUT = 5
"""One episode in this many is held out, for methods to measure on."""
FEWEST = 50
"""Rows needed to learn from, and as many to measure on, before methods are updated."""
MOST = 400_000
"""Rows that methods get at a time, at most; more add little information, and cost memory."""
EVERYONE = -1
"""Source of rows that belong to no task, such as demonstrations."""


class Replay:
    """Columns of a row: obs, context, action, next_obs, next_context, one reward for each task, terminated."""

    def __init__(self, factors: Factors, context_names: tuple[str, ...], tasks: tuple[str, ...], capacity: int):
        self.factors, self.context_names, self.tasks, self.capacity = factors, context_names, tasks, capacity
        d, c, a = len(factors), len(context_names), len(factors.action_names)
        names = ("obs", "context", "action", "next_obs", "next_context", "rewards", "terminated")
        ends = np.cumsum([0, d, c, a, d, c, len(tasks), 1])
        self.columns = {name: slice(int(i), int(j)) for name, i, j in zip(names, ends[:-1], ends[1:])}
        self.width = int(ends[-1])
        self.total = 0
        """Number of rows ever added."""
        self.rows = np.empty((0, self.width), np.float32)
        self.episode = np.empty(0, np.int64)
        self.source = np.empty(0, np.int16)
        self._cache: dict[bool, tuple[int, int, Transitions]] = {}

    def __len__(self) -> int:
        return min(self.total, self.capacity)

    def add(self, moves: Moves, source: int = EVERYONE) -> None:
        """One row for each copy; `source` is the position of the task whose policy acted."""
        parts = [moves.obs, moves.context, moves.action, moves.next_obs, moves.next_context]
        parts += [moves.rewards[task][:, None] for task in self.tasks]
        block = np.concatenate([*parts, moves.terminated[:, None]], axis=1, dtype=np.float32, casting="same_kind")
        self.put(block, moves.episode, np.full(len(block), source, np.int16))

    def put(self, rows: np.ndarray, episode: np.ndarray, source: np.ndarray) -> None:
        """Add rows as returned by `numbered`."""
        self._grow(min(self.capacity, self.total + len(rows)))
        at = (self.total + np.arange(len(rows))) % self.capacity
        self.rows[at], self.episode[at], self.source[at] = rows, episode, source
        self.total += len(rows)

    def _grow(self, needed: int) -> None:
        have = len(self.rows)
        if needed <= have:
            return
        size = min(self.capacity, max(needed, have + max(CHUNK, have // 2)))
        for name in ("rows", "episode", "source"):
            old = getattr(self, name)
            new = np.empty((size, *old.shape[1:]), old.dtype)
            new[:have] = old
            setattr(self, name, new)

    def numbered(self, first: int, end: int) -> dict[str, np.ndarray]:
        """The rows with these numbers, without those that have been overwritten."""
        at = np.arange(max(first, self.total - len(self)), end) % self.capacity
        return {"rows": self.rows[at], "episode": self.episode[at], "source": self.source[at]}

    # For policies

    def sample(self, n: int, task: str, rng: np.random.Generator, source: int | None = None) -> Sample:
        """n rows drawn with replacement, from all of them or only from one source and from rows without a task."""
        if source is None:
            at = rng.integers(len(self), size=n)
        else:
            own = self.source[: len(self)]
            own_rows = np.flatnonzero((own == source) | (own == EVERYONE))
            at = own_rows[rng.integers(len(own_rows), size=n)]
        block = torch.from_numpy(self.rows[at])
        parts = {name: block[:, columns] for name, columns in self.columns.items()}
        reward = parts.pop("rewards")[:, self.tasks.index(task)]
        return Sample(reward=reward, terminated=parts.pop("terminated")[:, 0], **parts)

    def inputs(self) -> np.ndarray:
        """(rows, d + c): the inputs that policies have seen so far."""
        seen = self.rows[: len(self)]
        parts = [seen[:, self.columns["obs"]], seen[:, self.columns["context"]]]
        return np.concatenate(parts, axis=1, dtype=np.float64)

    # For methods

    def transitions(self, held_out: bool, most: int = MOST) -> Transitions:
        """Rows of the training episodes, or of the held-out ones (every fifth), in the order in which they were added.

        With more than `most` rows, whole episodes are left out evenly over the run.
        """
        stored = self._cache.get(held_out)
        if stored is None or stored[:2] != (self.total, most):
            self._cache[held_out] = stored = (self.total, most, self._transitions(held_out, most))
        return stored[2]

    @property
    def measurable(self) -> bool:
        """Whether there are enough training and held-out rows for methods to learn and measure."""
        held = self.episode[: len(self)] % HELD_OUT == HELD_OUT - 1
        return min(held.sum(), (~held).sum()) >= FEWEST

    def forget(self) -> None:
        """Drop the copies that `transitions` caches."""
        self._cache = {}

    def _transitions(self, held_out: bool, most: int) -> Transitions:
        at = (self.total - len(self) + np.arange(len(self))) % self.capacity
        episode = self.episode[at]
        selected = (episode % HELD_OUT == HELD_OUT - 1) == held_out
        if selected.sum() > most:
            selected &= _thinned(episode, selected, most)
        rows, episode = self.rows[at[selected]].astype(np.float64), episode[selected]
        parts: dict[str, Any] = {name: rows[:, columns] for name, columns in self.columns.items()}
        return Transitions(
            obs=parts["obs"],
            action=parts["action"],
            next_obs=parts["next_obs"],
            factors=self.factors,
            rewards={task: parts["rewards"][:, k] for k, task in enumerate(self.tasks)},
            context={name: parts["next_context"][:, k] for k, name in enumerate(self.context_names)},
            terminated=parts["terminated"][:, 0] > 0,
            episode=episode,
        )


def _thinned(episode: np.ndarray, selected: np.ndarray, most: int) -> np.ndarray:
    """Rows of evenly chosen episodes, about `most` of them."""
    names = np.unique(episode[selected])
    count = max(1, int(len(names) * most / selected.sum()))
    return np.isin(episode, names[np.linspace(0, len(names) - 1, count).astype(int)])
