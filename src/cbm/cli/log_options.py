"""The options that name the columns of a log, and loading a log with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from cbm.cli.arguments import MaybeFloat, MaybeText
from cbm.data.roles import Roles
from cbm.errors import DataError

if TYPE_CHECKING:
    from cbm.data.log import Log

Columns = Annotated[tuple[str, ...], arg(metavar="COLUMN [COLUMN ...]", help_behavior_hint="")]
Missing = Literal["drop", "refuse"]


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """The options of every command that reads a log."""

    data: Positional[str]
    """The log: a file (.npz .csv .tsv .parquet .arrow .hdf5 .mcap), a directory of Parquet files, a LeRobot, Minari or
    ROS 2 directory, or minari:NAME."""
    obs: Columns = ()
    """Columns of the state: names or globs. Default: given by the format, otherwise all other numeric columns."""
    action: Columns = ()
    """Columns of the action. Default: guessed from their names, if there is only one possible guess; the same holds for
    the next three options."""
    reward: Columns = ()
    """Columns of rewards."""
    episode: Columns = ()
    """Column that numbers or names the episodes; several columns together may do so, too."""
    time: Columns = ()
    """Column of time; only rows one time step apart are paired."""
    missing: Missing = "drop"
    """drop: an empty cell drops every pair of rows that it touches. refuse: empty cells are an error."""
    rate: MaybeFloat = None
    """Rows per second of a ROS 2 bag. Default: the rate of the slowest topic used."""
    reader: MaybeText = None
    """Format of the log, if its name does not show it: npz, csv, tsv, parquet, arrow, lerobot, robomimic, d4rl, minari,
    ros."""
    memory: MaybeText = None
    """Largest log to read into memory, such as 2GB. A larger table is memory-mapped on disk: discover keeps the map in
    .cbm-maps beside the run directory and reuses it. Default: half of the free memory."""


def roles_of(options: LogOptions) -> Roles:
    """The columns that the options name, and how to read them."""
    if options.rate is not None and not 0 < options.rate < 1e6:
        raise DataError(f"--rate: must be more than 0 and less than 1e6, not {options.rate:g}")
    return Roles(
        options.obs, options.action, options.reward, options.episode, options.time,
        options.missing, options.rate, options.reader,
    )  # fmt: skip


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_STAGES = {"looking": "looking at the log", "converting": "converting the log"}


def memory_of(text: str | None) -> int | None:
    """Bytes given as 2GB, 500 MB or a plain number."""
    if text is None:
        return None
    size = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", text, re.IGNORECASE)
    unit = "" if size is None else size[2].upper()
    unit = f"{unit}B" if unit in ("K", "M", "G", "T") else unit
    if size is None or float(size[1]) * _UNITS[unit] < 1:
        raise DataError(f"--memory: {text!r:.40} is not a size such as 2GB or 500MB")
    return int(float(size[1]) * _UNITS[unit])


def load(
    source: str, roles: Roles, allow_constant: bool, memory: str | None = None, maps: Path | None = None,
    quiet: bool = True,
) -> Log:  # fmt: skip
    """The log; one that does not fit into `memory` is memory-mapped in `maps`, with a progress bar."""
    from cbm.cli.console import Stages, warn
    from cbm.data.log import Limit, read_log

    allowed = memory_of(memory)
    try:
        with Stages(_STAGES, quiet) as stages:

            def begin(rows: int, size: int, place: Path) -> None:
                kept = place if maps is not None else "a temporary map"
                warn(f"{rows:,} rows would take {size / 1e9:.1f} GB of memory: they are read through {kept}")

            limit = Limit(
                allowed, maps, begin, lambda done: stages("looking", done), lambda done: stages("converting", done)
            )
            return read_log(source, roles, allow_constant=allow_constant, limit=limit)
    except DataError as error:
        raise DataError(str(error).replace("set allow_constant", "pass --allow-constant")) from None
