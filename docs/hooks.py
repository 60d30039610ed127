"""Pages of the site that are made when it is built: the reference of the command line, from the options themselves."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import typing
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from mkdocs.structure.files import File, Files

from cbm.cli.main import COMMANDS

INTRODUCTION = """\
# Commands

Every command with every option, made from the program itself when this site was built. The page
[The command line](../guide/commands.md) shows each command once, with what it prints.

All commands also take `--config FILE.toml`, which reads options from a file, and `--save-config FILE.toml`, which
writes them ([option files](../guide/trackers.md#keep-options-in-a-file)), and `--help`.

"""


def on_files(files: Files, config: Any) -> Files:
    """Called by mkdocs before it reads any page."""
    files.append(File.generated(config, "reference/cli.md", content=command_line()))
    return files


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Options are not broken at their dashes."""
    return re.sub(r"<code>(--?[^<]{1,40})</code>", r'<code class="option">\1</code>', html)


def command_line() -> str:
    """The page as Markdown."""
    return INTRODUCTION + "\n".join(_command(name, text) for name, text in COMMANDS.items())


def _command(name: str, text: str) -> str:
    options = importlib.import_module(f"cbm.cli.{name}").Options
    said = _docstrings(options)
    hints = typing.get_type_hints(options, include_extras=True)
    rows = [_row(entry, hints[entry.name], said.get(entry.name, "")) for entry in fields(options)]
    about = re.sub(r"(?m)^(Example: )?(cbm .*|(?:bash|zsh|fish): cbm .*)$", _example, inspect.getdoc(options) or text)
    about = re.sub(r"(?m)^Example: (cbm .*)$", r"```\n\1\n```", about)
    return f"## cbm {name}\n\n{about}\n\n| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _example(line: re.Match[str]) -> str:
    return f"```\n{line[2]}\n```" if line[1] else f"- `{line[2]}`"


def _row(entry: Any, hint: Any, said: str) -> str:
    positional = "Positional" in str(hint) or "_PositionalCall" in str(hint)
    name = entry.name.upper() if positional else f"--{entry.name.replace('_', '-')}"
    choices = _choices(hint)
    shown = f" {'|'.join(map(str, choices))}" if choices else _kind(hint)
    required = entry.default is MISSING and entry.default_factory is MISSING
    plain = required or entry.default is None or entry.default is False or entry.default == ()
    default = "" if plain else f" Default: `{entry.default}`."
    text = " ".join(said.split()) + (" **Required.**" if required else "") + default
    label = name if positional else f"{name}{shown}"
    return f"| `{label}` | {_cell(text)} |"


def _cell(text: str) -> str:
    """Bars would end a cell of a table, except in code."""
    parts = text.split("`")
    return "`".join(part if k % 2 else part.replace("|", r"\|") for k, part in enumerate(parts))


def _plain(hint: Any) -> Any:
    """Without annotations and without None."""
    while typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if type(None) in typing.get_args(hint) and len(parts) == 1:
        return _plain(parts[0])
    return hint


def _choices(hint: Any) -> tuple[Any, ...]:
    plain = _plain(hint)
    return typing.get_args(plain) if typing.get_origin(plain) is Literal else ()


def _kind(hint: Any) -> str:
    plain = _plain(hint)
    return {int: " N", float: " NUMBER", str: " TEXT", Path: " PATH", bool: ""}.get(plain, " ...")


def _docstrings(options: type) -> dict[str, str]:
    """The text under each field of a dataclass, those it inherits among them."""
    found: dict[str, str] = {}
    for base in options.__bases__:
        if is_dataclass(base):
            found |= _docstrings(base)
    [body] = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(body, ast.ClassDef)
    for field, text in zip(body.body, body.body[1:]):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = str(text.value.value)
    return found
