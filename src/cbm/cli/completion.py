"""`cbm completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from dataclasses import dataclass
from typing import Any, Literal

import tyro
from tyro.conf import Positional

from cbm.cli.arguments import CONF, parse
from cbm.cli.config_file import with_config

Shell = Literal["bash", "zsh", "fish"]


@dataclass(frozen=True)
class Options:
    """Print the script that makes a shell complete commands, options and their choices.

    bash: cbm completion bash > ~/.local/share/bash-completion/completions/cbm
    zsh: cbm completion zsh > ~/.zfunc/_cbm, with ~/.zfunc in fpath
    fish: cbm completion fish > ~/.config/fish/completions/cbm.fish
    """

    shell: Positional[Shell]
    """Which shell."""


def main(arguments: list[str]) -> None:
    print(script(parse(Options, arguments, "completion").shell), end="")


def script(shell: Shell) -> str:
    """The parser's own script for all commands at once."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(
            options_of_all_commands(), prog="cbm", args=["--tyro-print-completion", shell], config=CONF
        )
    # Shells take each line of a help text for a choice of its own, so line breaks in the table of options go.
    broken = re.compile(r"(?m)^COMPLETION_SPEC = .*$")
    return broken.sub(lambda table: re.sub(r"\\+n", " ", table[0]), printed.getvalue())


def options_of_all_commands() -> dict[str, Any]:
    """The options of each command, those for files of options included."""
    from cbm.cli.main import COMMANDS

    return {name: with_config(importlib.import_module(f"cbm.cli.{name}").Options) for name in COMMANDS}
