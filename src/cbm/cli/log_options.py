"""The options that name the columns of a log, and the lines that say how it was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from cbm.data.roles import Roles
from cbm.errors import DataError

if TYPE_CHECKING:
    from typing import Any

    from cbm.data.log import Log

Columns = Annotated[tuple[str, ...], arg(metavar="COLUMN [COLUMN ...]", help_behavior_hint="")]
Missing = Literal["drop", "refuse"]


def roles_of(options: Any) -> Roles:
    """From the options of a command that has the fields of `Roles`."""
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
