"""The episodes of a log as runs of rows: all that must be known about all rows in order to select some.

A log of a billion rows has far fewer episodes, and a run is two numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Runs:
    """Consecutive rows of one episode, run by run; an episode may continue in a later run."""

    episode: np.ndarray
    """(R,) int64: the episode of each run."""
    length: np.ndarray
    """(R,) int64: number of rows, at least one."""

    @classmethod
    def of(cls, episode: np.ndarray) -> Runs:
        start = starts_of(episode)
        return cls(episode[start], np.diff(np.append(start, len(episode))))

    @classmethod
    def joined(cls, parts: list[Runs]) -> Runs:
        """Runs of consecutive blocks: an episode that continues in the next block is one run."""
        episode = np.concatenate([part.episode for part in parts])
        length = np.concatenate([part.length for part in parts])
        start = starts_of(episode)
        return cls(episode[start], np.add.reduceat(length, start) if len(start) else length)

    @property
    def rows(self) -> int:
        return int(self.length.sum())

    @property
    def start(self) -> np.ndarray:
        """(R,) the first row of each run."""
        return np.asarray(np.cumsum(self.length) - self.length)

    @property
    def episodes(self) -> int:
        return len(np.unique(self.episode))


def starts_of(episode: np.ndarray) -> np.ndarray:
    """Rows whose episode differs from that of the row before."""
    if not len(episode):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], episode[1:] != episode[:-1]]))


def expanded(start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The rows start, start + 1, ... of several ranges, one range after the other."""
    first = np.cumsum(length) - length
    return np.repeat(start - first, length) + np.arange(int(length.sum()))
