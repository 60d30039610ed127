"""The options that name the columns of a log, and the lines that say how it was read."""

from __future__ import annotations

from dataclasses import dataclass
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
    """The log: a file (.npz .csv .tsv .parquet .arrow .hdf5 .mcap), a LeRobot, Minari or ROS 2 directory,
    or minari:NAME."""
    obs: Columns = ()
    """Columns of the state: names or globs. Left out: what the format says, else every other column of numbers."""
    action: Columns = ()
    """Columns of the action. Left out: by their names, if only one guess is possible. So are the next three."""
    reward: Columns = ()
    """Columns of rewards."""
    episode: Columns = ()
    """Column that numbers or names the episodes; several together do so, too."""
    time: Columns = ()
    """Column of time: only rows one step apart are paired."""
    missing: Missing = "drop"
    """drop: empty cells take the pairs of rows with them that they touch. refuse: they are an error."""
    rate: MaybeFloat = None
    """Rows a second of a ROS 2 bag. Left out: that of the slowest topic used."""
    reader: MaybeText = None
    """Kind of the log, where its name does not show it: csv, parquet, arrow, lerobot, robomimic, d4rl, minari, ros."""


def roles_of(options: LogOptions) -> Roles:
    """The columns that the options name, and how to read them."""
    if options.rate is not None and not 0 < options.rate < 1e6:
        raise DataError(f"--rate: must be more than 0 and less than 1e6, not {options.rate:g}")
    return Roles(
        options.obs, options.action, options.reward, options.episode, options.time,
        options.missing, options.rate, options.reader,
    )  # fmt: skip


def load(source: str, roles: Roles, allow_constant: bool) -> Log:
    from cbm.data.log import read_log

    try:
        return read_log(source, roles, allow_constant=allow_constant)
    except DataError as error:
        raise DataError(str(error).replace("set allow_constant", "pass --allow-constant")) from None
