"""A log from wherever it is: a file, a dataset, a data frame, a replay buffer, or arrays by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbm.data import readers
from cbm.data.readers import buffers, frames
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.data.transitions import Transitions, shown_path
from cbm.errors import DataError

EXPECTED = (
    "expected Transitions, the name of a file, a table (pandas, polars, Arrow), a dictionary of arrays or tables, "
    "or a replay buffer"
)


@dataclass(frozen=True)
class Log:
    """Transitions, and how they were read."""

    data: Transitions
    understood: ReadingNotes


def read_log(source: Any, roles: Roles | None = None, *, allow_constant: bool = False) -> Log:
    """Any log; the message of an error begins with the name of the file, where there is one."""
    roles = roles or Roles()
    where = f"{shown_path(source)}: " if isinstance(source, str | os.PathLike) else ""
    try:
        reading = _reading(source, roles)
        data = Transitions.from_arrays(reading.arrays)
        if not allow_constant:
            data.check_varies()
        return Log(data, reading.understood)
    except DataError as error:
        text = "".join(c if c.isprintable() else "?" for c in str(error))  # it may quote the names of columns
        raise DataError(f"{where}{text}") from None


def as_transitions(source: Any, roles: Roles | None = None) -> Transitions:
    """For functions that take any log: reads it and says on the error stream what was left to chance."""
    if isinstance(source, Transitions):
        if roles is not None and roles.named:
            raise TypeError(
                "Transitions have their columns already: obs, action, reward, episode and time are for tables"
            )
        return source
    log = read_log(source, roles)
    for sentence in log.understood.sentences():
        print(f"cbm: {sentence}", file=sys.stderr)
    return log.data


def _reading(source: Any, roles: Roles) -> Reading:
    if isinstance(source, str | os.PathLike):
        return readers.read(source, roles)
    if buffers.is_buffer(source):
        return buffers.read(source, roles)
    if isinstance(source, Mapping):
        return _from_mapping(source, roles)
    if frames.is_frame(source):
        return frames.read(source, roles)
    raise TypeError(f"{EXPECTED}; got {type(source).__name__}")


def _from_mapping(source: Mapping[Any, Any], roles: Roles) -> Reading:
    """Arrays of the contract by name, one table for each episode, or columns by name."""
    if "obs" in source and not roles.obs and np.ndim(source["obs"]) == 2:
        if roles.named:
            raise DataError("arrays by name have no columns to choose from: obs=, action= and so on are for tables")
        return Reading(dict(source), ReadingNotes("arrays", len(source["obs"]), episode="the arrays"))
    if source and all(frames.is_frame(part) and np.ndim(part) == 2 for part in source.values()):
        return frames.read_episodes(source, roles)
    if source and all(np.ndim(part) == 1 for part in source.values()):
        return frames.read(source, roles)
    kinds = ", ".join(f"{key!r}: {type(part).__name__}" for key, part in list(source.items())[:4])
    raise TypeError(f"{EXPECTED}; got a dictionary of {kinds or 'nothing'}")
