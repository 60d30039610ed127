"""Options in a TOML file: `--config run.toml` reads them, `--save-config run.toml` writes them.

Keys are the names of the options. The command line overrides the file, and a key that is not an option of the command
is an error.
"""

from __future__ import annotations

import json
import math
import tomllib
import types
import typing
from dataclasses import MISSING, field, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union

import tyro
from tyro.conf import arg

from cbm.errors import DataError, unknown_name
from cbm.runs.files import atomic_write_text

OWN = ("config", "save_config")
T = TypeVar("T")


def with_config(options: type[T]) -> type[T]:
    """The same options, plus the two that read and write a file of options."""
    read = Annotated[
        Path | None,
        arg(
            help="TOML file of options. The command line replaces its values, whole lists too.",
            help_behavior_hint="",
        ),
    ]
    written = Annotated[
        Path | None,
        arg(help="Write all options of this call to a TOML file for --config, then run.", help_behavior_hint=""),
    ]
    extended = make_dataclass(
        options.__name__,
        [("config", read, field(default=None)), ("save_config", written, field(default=None))],
        bases=(options,),
        frozen=True,
    )
    extended.__doc__ = options.__doc__
    return extended


def config_path(arguments: list[str]) -> Path | None:
    """The file given by `--config FILE` or `--config=FILE`, if there is one."""
    found = []
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == "--config":
            found.append(value if equals else next(iter(arguments[place + 1 : place + 2]), ""))
    if len(found) > 1:
        raise DataError("--config: given twice; one file holds all options")
    return Path(found[0]) if found and found[0] else None


def defaults_from(options: type[T], path: Path, arguments: list[str], command: str) -> T:
    """Options with the values of a file, except those that are given on the command line."""
    content = _read(path, command)
    hints = typing.get_type_hints(options)
    flags = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
    given = {flag.removeprefix("--").replace("-", "_") for flag in flags}
    values: dict[str, Any] = {}
    for entry in fields(options):  # type: ignore[arg-type]
        told = entry.name in content
        value = _converted(content[entry.name], hints[entry.name], f"{path}: {entry.name}") if told else None
        if told and entry.name not in given:
            values[entry.name] = value
        elif entry.default is MISSING and entry.default_factory is MISSING:
            values[entry.name] = tyro.MISSING
    known = [entry.name for entry in fields(options) if entry.name not in OWN]  # type: ignore[arg-type]
    for key in content:
        if key not in known:
            raise unknown_name(f"{path}: cbm {command} has no option", key, known)
    return options(**values)


def _read(path: Path, command: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a TOML file ({error})") from error
    keys = {key.replace("-", "_"): value for key, value in content.items()}
    if len(keys) < len(content):
        twice = next(key for key in content if "-" in key and key.replace("-", "_") in content)
        raise DataError(f"{path}: {twice!r} is there twice, with - and with _")
    meant = keys.pop("command", command)
    if meant != command:
        raise DataError(f"{path}: holds options of `cbm {meant}`, not of `cbm {command}`")
    return keys


def _converted(value: Any, hint: Any, where: str) -> Any:
    """A value from the file, converted to the type of the option."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _converted(value, inner[0], where)
    if origin in (Union, types.UnionType):
        return _converted(value, next(part for part in inner if part is not types.NoneType), where)
    if origin is Literal:
        if value not in inner:
            raise DataError(f"{where}: {value!r} is not one of {', '.join(map(repr, inner))}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise DataError(f"{where}: must be a list, not {value!r}")
        return tuple(_converted(item, inner[0], where) for item in value)
    return _scalar(value, hint, where)


def _scalar(value: Any, hint: Any, where: str) -> Any:
    accepted: dict[Any, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float), str: (str,), Path: (str,)}
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "text, a path"}
    if hint not in accepted:
        raise DataError(f"{where}: cannot be set in a file")
    if not isinstance(value, accepted[hint]) or (isinstance(value, bool) and hint is not bool):
        raise DataError(f"{where}: must be {names[hint]}, not {value!r}")
    return hint(value)


def write_config(options: Any, path: Path, command: str) -> None:
    """Every option of a call with its value; options without a value are left out of the file."""
    lines = [f"# cbm {command} --config {path.name}", f"command = {json.dumps(command)}"]
    for entry in fields(options):
        value = getattr(options, entry.name)
        if entry.name not in OWN and value is not None:
            lines.append(f"{entry.name} = {_toml(value)}")
    atomic_write_text(path, "\n".join(lines) + "\n")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
