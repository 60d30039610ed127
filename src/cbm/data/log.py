"""A log from any source: a file, a dataset, a data frame, a replay buffer, or arrays by name."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data import convert, readers
from cbm.data.readers import buffers, frames
from cbm.data.readers.common import available_memory
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.data.transitions import Transitions, shown_path
from cbm.errors import DataError

EXPECTED = (
    "expected Transitions, the name of a file, a table (pandas, polars, Arrow), a dictionary of arrays or tables, "
    "or a replay buffer"
)


BYTES_A_CELL = 40
"""Memory per number of a table while it is read: in the table, in both states, and in copies of these."""
DEFAULT_SHARE, DEFAULT_MEMORY = 0.5, 2 * 10**9
"""Default limit for a log, as a share of the free memory, and in bytes if the system does not report free memory."""


@dataclass(frozen=True)
class Limit:
    """How much memory a log may take, and where its memory map is kept if it would take more."""

    memory: int | None = None
    """Bytes; None: half of the free memory."""
    maps: Path | None = None
    """Directory of maps, which are reused; None: a temporary one, removed together with the log."""
    begin: Callable[[int, int, Path], None] = lambda rows, size, place: None
    """Called before a conversion with the number of rows, the bytes that they would take, and the path of the map."""
    scan: Callable[[float], None] = lambda done: None
    """Receives the progress of the first pass over a text table."""
    write: Callable[[float], None] = lambda done: None
    """Receives the progress of the conversion."""


@dataclass(frozen=True)
class Log:
    """Transitions, and how they were read."""

    data: Transitions
    understood: ReadingNotes


def read_log(
    source: Any, roles: Roles | None = None, *, allow_constant: bool = False, limit: Limit | None = None
) -> Log:
    """Reads any log; error messages begin with the name of the file, if there is one.

    A table that would take more memory than `limit` allows is converted to a map on disk, block by block.
    """
    roles = roles or Roles()
    where = f"{shown_path(source)}: " if isinstance(source, str | os.PathLike) else ""
    try:
        log = _mapped(source, roles, limit or Limit()) if where else None
        if log is None:
            reading = _reading(source, roles)
            log = Log(Transitions.from_arrays(reading.arrays), reading.understood)
        if not allow_constant:
            log.data.check_varies()
        return log
    except DataError as error:
        text = "".join(c if c.isprintable() else "?" for c in str(error))  # the message may quote column names
        raise DataError(f"{where}{text}") from None


def _mapped(source: str | os.PathLike[str], roles: Roles, limit: Limit) -> Log | None:
    """The log through a map; None if it fits into memory, or if its format cannot be read in blocks."""
    table = readers.large(source, roles)
    memory = limit.memory or default_memory()
    if table is None or table.shape.cells * BYTES_A_CELL <= memory:
        return None
    state = convert.source_state(table.path, table.files)
    folder = None if limit.maps is None else convert.map_folder(limit.maps, table.path, roles, state)
    opened = None if folder is None else convert.stored_map(folder, state)
    if opened is None:
        place = folder or Path(tempfile.mkdtemp(prefix="cbm-map-")) / "map"
        limit.begin(table.shape.rows, table.shape.cells * BYTES_A_CELL, place)
        try:
            opened = convert.make_map(table.open(limit.scan), roles, place, state, memory, limit.write)
        except BaseException:
            if folder is None:
                shutil.rmtree(place.parent, ignore_errors=True)
            raise
        if folder is None:
            weakref.finalize(opened.data, shutil.rmtree, place.parent, True)  # at the end of the program at the latest
    return Log(opened.data, opened.understood)


def default_memory() -> int:
    """Half of the memory that is free."""
    free = available_memory()
    return DEFAULT_MEMORY if free is None else int(free * DEFAULT_SHARE)


def as_transitions(source: Any, roles: Roles | None = None) -> Transitions:
    """For functions that accept any log: reads it and reports on the error stream what had to be guessed."""
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
    """Arrays of the npz contract by name, one table for each episode, or columns by name."""
    if "obs" in source and not roles.obs and np.ndim(source["obs"]) == 2:
        if roles.named:
            raise DataError("arrays by name have no columns to choose from: obs=, action= and so on are for tables")
        return Reading(dict(source), ReadingNotes("arrays", len(source["obs"]), episode="the arrays"))
    if source and all(frames.is_frame(part) and np.ndim(part) == 2 for part in source.values()):
        return frames.read_episodes(source, roles)
    if source and all(np.ndim(part) == 1 for part in source.values()):
        return frames.read(source, roles)
    if source and all(isinstance(part, np.ndarray) for part in source.values()):
        return Reading(dict(source), ReadingNotes("arrays"))  # what they should be called is said there
    kinds = ", ".join(f"{key!r}: {type(part).__name__}" for key, part in list(source.items())[:4])
    raise TypeError(f"{EXPECTED}; got a dictionary of {kinds or 'nothing'}")
