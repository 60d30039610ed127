"""Replay and rollout buffers of Stable-Baselines3 and Tianshou, in memory. Their pickles are never read.

They are recognised by their attributes, so neither library is imported, and CleanRL's buffers, which have the same
attributes, can be read too. Rows stay in time order, one copy of the environment after the other; a full buffer begins
at its oldest row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.data.readers.common import reason
from cbm.data.readers.episodes import Columns
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.errors import DataError


def is_buffer(source: Any) -> bool:
    return _is_sb3(source) or _is_tianshou(source)


def _is_sb3(source: Any) -> bool:
    return all(hasattr(source, name) for name in ("observations", "actions", "rewards", "pos", "full"))


def _is_tianshou(source: Any) -> bool:
    return hasattr(source, "sample_indices") and hasattr(source, "maxsize") and hasattr(source, "prev")


def read(buffer: Any, roles: Roles) -> Reading:
    try:
        columns = _from_sb3(buffer) if _is_sb3(buffer) else _from_tianshou(buffer)
        return columns.read(roles)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"the buffer cannot be read: {reason(error)}") from None


def _from_sb3(buffer: Any) -> Columns:
    if getattr(buffer, "generator_ready", False):
        raise DataError("the rollout buffer has been shuffled for training; read it before the update")
    size = len(buffer.rewards)
    order = np.roll(np.arange(size), -int(buffer.pos)) if buffer.full else np.arange(int(buffer.pos))
    if len(order) < 2:
        raise DataError(f"the buffer holds {len(order)} steps, which is too few")
    columns = Columns("buffer")
    replay = hasattr(buffer, "next_observations")
    later = _parts(buffer.next_observations) if replay and not _overlaps(buffer) else {}
    for name, values in _parts(buffer.observations).items():
        labels = columns.add(name, _by_copy(values, order))
        columns.obs |= labels
        if name in later:
            columns.add_next(list(labels), _by_copy(later[name], order))
    columns.action = columns.add("action", _by_copy(buffer.actions, order))
    columns.reward = columns.add("reward", _by_copy(buffer.rewards, order))
    ended = _ends(buffer, order, columns)
    episode: np.ndarray = np.zeros(ended.shape, int)
    episode[1:] = np.cumsum(ended[:-1], axis=0)
    episode += np.concatenate([[0], np.cumsum(episode[-1] + 1)[:-1]])  # numbers of one copy after those of another
    columns.episode = tuple(columns.add("episode", episode.T.reshape(-1)))
    return columns


def _overlaps(buffer: Any) -> bool:
    """With `optimize_memory_usage` the next observation is stored in the next row, so rows are paired as in a log."""
    return bool(getattr(buffer, "optimize_memory_usage", False))


def _ends(buffer: Any, order: np.ndarray, columns: Columns) -> np.ndarray:
    """(T, copies) booleans: rows that end an episode."""
    if hasattr(buffer, "dones"):
        done = np.asarray(buffer.dones)[order].astype(bool)
        timeout = np.asarray(getattr(buffer, "timeouts", np.zeros_like(buffer.dones)))[order].astype(bool)
        columns.add("terminated", (done & ~timeout).T.reshape(-1))
        columns.add("truncated", (done & timeout).T.reshape(-1))
        columns.flags = {"terminated": "terminated", "truncated": "truncated"}
        return done
    starts = np.asarray(buffer.episode_starts)[order].astype(bool)
    return np.concatenate([starts[1:], np.zeros((1, starts.shape[1]), bool)])


def _by_copy(values: Any, order: np.ndarray) -> np.ndarray:
    """(T, copies, ...) as rows, all of the first copy before those of the second."""
    part = np.asarray(values)[order]
    part = part[..., None] if part.ndim == 2 else part
    return np.swapaxes(part, 0, 1).reshape(part.shape[0] * part.shape[1], -1)


def _parts(values: Any) -> dict[str, np.ndarray]:
    """Observations by the keys of their space, or `obs` alone."""
    return {str(key): np.asarray(value) for key, value in values.items()} if hasattr(values, "items") else \
        {"obs": np.asarray(values)}  # fmt: skip


def _from_tianshou(buffer: Any) -> Columns:
    indices = np.asarray(buffer.sample_indices(0))
    if len(indices) < 2:
        raise DataError(f"the buffer holds {len(indices)} steps, which is too few")
    batch, columns = buffer[indices], Columns("buffer")
    later = _parts(batch.obs_next)
    for name, values in _parts(batch.obs).items():
        labels = columns.add(name, values)
        columns.obs |= labels
        columns.add_next(list(labels), later[name])
    columns.action = columns.add("action", np.asarray(batch.act))
    columns.reward = columns.add("reward", np.asarray(batch.rew))
    for flag in ("terminated", "truncated"):
        columns.flags |= {flag: next(iter(columns.add(flag, np.asarray(getattr(batch, flag)))))}
    follows = np.asarray(buffer.prev(indices[1:])) == indices[:-1]  # false at the start of an episode or of a copy
    episode = np.concatenate([[0], np.cumsum(~follows | np.asarray(batch.done)[:-1].astype(bool))])
    columns.episode = tuple(columns.add("episode", episode))
    return columns
