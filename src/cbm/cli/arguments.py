"""From a command's arguments to its frozen `Options`, with one-line errors."""

from __future__ import annotations

import contextlib
import io
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from tyro.conf import DisallowNone, FlagCreatePairsOff, Positional, PositionalMetavarFromFieldName, arg

from cbm.checks import is_number
from cbm.cli.config_file import config_path, defaults_from, with_config, write_config
from cbm.errors import DataError
from cbm.runs.trackers import TrackerName

# Optional options whose help text states the default itself, better than "(default: None)" would.
_said = arg(help_behavior_hint="")
Flag = Annotated[bool, _said]
MaybeFloat = Annotated[float | None, _said]
MaybeInt = Annotated[int | None, _said]
MaybePath = Annotated[Path | None, _said]
MaybeText = Annotated[str | None, _said]
Paths = Annotated[Positional[tuple[Path, ...]], _said]
MaybeTracker = Annotated[TrackerName | None, _said]

Device = Annotated[
    str,
    arg(
        metavar="auto|cpu|cuda[:N]",
        help="Device of the networks. cpu: the reference, and faster for small networks. cuda: the first GPU, or GPU "
        "number N. auto: a GPU if there is one. A run may be resumed on another device.",
    ),
]

T = TypeVar("T")


def parse(options: type[T], arguments: list[str], command: str) -> T:
    """The options in these arguments; raises DataError if they are invalid, and --help ends the program.

    `--config FILE` supplies options that the arguments do not give; `--save-config FILE` writes all of them.
    """
    extended = with_config(options)
    path = config_path(arguments)
    default = None if path is None else defaults_from(extended, path, arguments, command)
    parsed: Any = _parse(extended, arguments, command, default)
    if parsed.save_config is not None:
        write_config(parsed, parsed.save_config, command)
    result: T = parsed
    return result


CONF = (FlagCreatePairsOff, PositionalMetavarFromFieldName, DisallowNone)


def _parse(options: type[T], arguments: list[str], command: str, default: T | None) -> T:
    errors = io.StringIO()
    more: dict[str, Any] = {} if default is None else {"default": default}
    for_help = "-h" in arguments or "--help" in arguments
    try:
        with contextlib.redirect_stderr(errors), contextlib.nullcontext() if for_help else _wide():
            return tyro.cli(
                options,
                args=arguments,
                prog=f"cbm {command}",
                config=CONF,
                **more,
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise DataError(f"{one_line(errors.getvalue())} (see cbm {command} --help)") from None


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    """Pretend that the terminal is very wide, so that the parser does not wrap its messages."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "4000"
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before


REPHRASED = (
    (r"^Error parsing (.*?): (?:no type matching .* Got errors:.*?>: )?(.*)$", r"\1: \2"),
    (r"invalid literal for int\(\) with base 10: (.*)$", r"\1 is not a whole number"),
    (r"could not convert string to float: (.*)$", r"\1 is not a number"),
    (
        r"^invalid choice (.*) for argument '(.*)'\. Expected one of \((.*?),?\)\.$",
        r"\2: \1 is not one of \3",
    ),
    (r"^Missing value for argument '(.*)'\. Expected 1 values\.$", r"\1: a value is missing"),
    (r"^Unrecognized options: ", "unknown: "),
)


def one_line(box: str) -> str:
    """The parser's multi-line error box as one sentence, without the help text in it."""
    said, *more = _sections(box)
    if said.startswith("Missing from"):
        return f"missing: {', '.join(_entries(said))}"
    sentence = " ".join(said.split())
    for pattern, replacement in REPHRASED:
        sentence = re.sub(pattern, replacement, sentence)
    close = [_entries(part) for part in more if part.startswith("Perhaps you meant")]
    if close:
        sentence += f"; did you mean {' or '.join(entry.split()[0] for entry in close[0])}?"
    return sentence or "the arguments cannot be read"


def _sections(box: str) -> list[str]:
    """Parts between horizontal rules; the frame is drawn with lines, or with spaces under a title."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│").rstrip() for line in text.splitlines() if not line.startswith(("╭", "╰"))]
    parts = re.split(r"(?m)^ *[─-]{8,}$", "\n".join(lines))
    framed = "╭" in text
    return [textwrap.dedent(part).strip() for part in (parts if framed else parts[1:])] or [""]


def _entries(section: str) -> list[str]:
    """Items of an indented list; their explanations are indented more."""
    return [line.strip() for line in section.splitlines() if re.match(r" {4}\S", line)]


def at_least(name: str, value: float | None, low: float, *, above: bool = False) -> None:
    """Refuse a number below `low` (or equal to it, with `above`), and any value that is not a number."""
    if value is None:
        return
    if not is_number(value) or value < low or (above and value == low):
        shown = f"{value!r:.40}" if isinstance(value, int) else f"{value:g}"
        raise DataError(f"{name}: must be {'more than' if above else 'at least'} {low:g}, not {shown}")


def check_seed(value: int | None, name: str = "--seed") -> None:
    """Refuse seeds that no random generator accepts."""
    at_least(name, value, 0)
    if value is not None and value >= 2**63:
        raise DataError(f"{name}: must be less than 2^63")


def together(**given: Any) -> None:
    """Refuse two options that exclude each other."""
    names = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise DataError(f"{' and '.join(names)} cannot be given together")
