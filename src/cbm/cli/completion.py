"""`cbm completion`: the script with which a shell completes commands and options."""

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
    """Print the script with which a shell completes commands, options and their choices.

    bash: cbm completion bash > ~/.local/share/bash-completion/completions/cbm
    zsh: cbm completion zsh > ~/.zfunc/_cbm, with ~/.zfunc in fpath
    fish: cbm completion fish > ~/.config/fish/completions/cbm.fish
    """

    shell: Positional[Shell]
    """The shell."""


def main(arguments: list[str]) -> None:
    print(script(parse(Options, arguments, "completion").shell), end="")


def script(shell: Shell) -> str:
    """The parser's own completion script, for all commands together."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(
            options_of_all_commands(), prog="cbm", args=["--tyro-print-completion", shell], config=CONF
        )
    # Shells take each line of a help text for a separate choice, so line breaks are removed from the option table.
    broken = re.compile(r"(?m)^COMPLETION_SPEC = .*$")
    return broken.sub(lambda table: re.sub(r"\\+n", " ", table[0]), printed.getvalue())


def options_of_all_commands() -> dict[str, Any]:
    """The options of each command, including --config and --save-config."""
    from cbm.cli.main import COMMANDS

    return {name: with_config(importlib.import_module(f"cbm.cli.{name}").Options) for name in COMMANDS}
