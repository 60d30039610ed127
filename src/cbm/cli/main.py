"""The program `cbm`: finds the command, runs it, and turns errors into one line and an exit code.

The commands are in `cbm.cli`, one module each with a `main(arguments)`. Only the requested one is imported, so that
`cbm --help` is immediate and only commands that use torch wait for it.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from cbm.errors import DataError, WriteError

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

COMMANDS = {
    "demo": "the whole story on two built-in worlds, in a few minutes",
    "envs": "list the built-in worlds: tasks, variables, whether the true graph is known",
    "collect": "make a log of transitions from a built-in world",
    "verify": "find the true graph of a built-in world by intervening on it",
    "render": "draw a built-in world: a picture or an animation",
    "check": "say what was understood of a log, and what looks wrong with it",
    "discover": "learn the causal graph of a log and, for each reward, the state it needs",
    "learn": "learn policies on the state that each task needs",
    "sweep": "run a command over seeds and options, on this machine or on a cluster",
    "evaluate": "measure a learned policy in and out of distribution, and how far models predict",
    "abstract": "say which variables a reward needs, and why each one is kept or dropped",
    "export": "write the graph for another tool: networkx, DOT, GraphML, CSV, tigramite, ...",
    "report": "make one HTML page of one or several runs",
    "bench": "measure accuracy and speed on systems with known answers",
    "completion": "print what makes bash, zsh or fish complete commands and options",
}

HELP = """\
usage: cbm COMMAND [options]

Causal graphs from logged transitions, and the smallest state each reward needs.

commands:
{commands}

`cbm COMMAND --help` explains the options of one command. To begin: cbm demo
Options in a file: cbm COMMAND --config run.toml, written by --save-config run.toml
Your own log: cbm check log.csv, then cbm discover log.csv --out runs/mine

exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without UTF-8 shows "?" rather than a traceback
            stream.reconfigure(errors="replace")
    try:
        _dispatch(arguments)
        sys.stdout.flush()
        return OK
    except SystemExit as stop:  # --help of a command, after it was printed
        return stop.code if isinstance(stop.code, int) else OK
    except DataError as error:
        _complain(str(error))
        return BAD_INPUT
    except KeyboardInterrupt as stop:
        _complain(f"interrupted; {stop}" if str(stop) else "interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader has stopped, as in `cbm export ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except WriteError as error:
        _complain(str(error))
        return FAILED
    except OSError as error:
        _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return FAILED
    except FloatingPointError as error:  # training diverged
        _complain(str(error))
        return FAILED
    except Exception as error:
        if os.environ.get("CBM_DEBUG"):
            traceback.print_exc()
        hint = "" if os.environ.get("CBM_DEBUG") else " (CBM_DEBUG=1 shows where)"
        _complain(f"internal error: {type(error).__name__}: {error}{hint}")
        return FAILED


def _dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP.format(commands="\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items())), end="")
        return
    name, *rest = arguments
    if name in ("-V", "--version"):
        import cbm

        print(f"cbm {cbm.__version__}")
        return
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else f"; the commands are {', '.join(COMMANDS)}"
        raise DataError(f"unknown command {name!r}{meant}")
    importlib.import_module(f"cbm.cli.{name}").main(rest)


def _complain(message: str) -> None:
    """Print one line to the error stream, without control characters: a message may quote a damaged file."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(message.split()))
    print(f"cbm: {text}", file=sys.stderr)
