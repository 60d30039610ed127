"""`cbm bench`: measurements on systems with known answers; each is a module of `benchmarks` in the repository."""

from __future__ import annotations

import contextlib
import importlib
import sys
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

import cbm
from cbm.cli.arguments import Flag, MaybePath, check_seed, parse
from cbm.cli.console import heading, print_json, show
from cbm.cli.paths import check_file
from cbm.errors import DataError

CHECKOUT = Path(cbm.__file__).resolve().parents[2]
"""The repository of an editable installation: src/cbm/__init__.py is two folders below it."""
BENCHMARKS = ("discovery", "engine", "prediction", "worlds", "sac")
LONG = ("calibration", "partitions", "table1", "tasks")
"""These take hours and run only if named."""


@dataclass(frozen=True)
class Options:
    """Run all short measurements, or one: cbm bench discovery, engine, prediction, worlds or sac.

    calibration, partitions, table1 and tasks take hours and run only if named.

    Each has options of its own: cbm bench discovery --help
    """

    seed: int = 0
    """Seed of everything random."""
    quick: Flag = False
    """Run a small version that only checks that everything works; its numbers mean little."""
    out: MaybePath = None
    """Directory for the numbers: one CSV file for each measurement."""
    json: Flag = False
    """Print the results as one JSON object."""


def main(arguments: list[str]) -> None:
    if arguments and not arguments[0].startswith("-"):
        _one(arguments[0], arguments[1:])
        return
    options = parse(Options, arguments, "bench")
    check_seed(options.seed)
    if options.out is not None:
        check_file(options.out / "discovery.csv", force=True)
        options.out.mkdir(parents=True, exist_ok=True)
    modules = {name: _module(name) for name in BENCHMARKS}  # missing packages are reported before hours of work
    results = {}
    for name, module in modules.items():
        if not options.json:
            heading(f"{name}\n")
        out = None if options.out is None else options.out / f"{name}.csv"
        chosen = module.Options(seed=options.seed, quick=options.quick, out=out)
        results[name] = _measure(module, chosen, options.json)
        if not options.json:
            show()
    if options.json:
        print_json(results)


def _one(name: str, arguments: list[str]) -> None:
    if name not in (*BENCHMARKS, *LONG):
        raise DataError(f"unknown benchmark {name!r}; choose one of {', '.join((*BENCHMARKS, *LONG))}")
    module = _module(name)
    json = Annotated[bool, arg(help="Print the result as JSON.", help_behavior_hint="")]
    # Its own options, and --json, which is the same for all commands.
    both = make_dataclass("Both", [("json", json, False)], bases=(module.Options,), frozen=True)
    both.__doc__ = module.Options.__doc__
    parsed: Any = parse(both, arguments, f"bench {name}")
    check_seed(parsed.seed)
    own = module.Options(**{field.name: getattr(parsed, field.name) for field in fields(module.Options)})
    result = _measure(module, own, parsed.json)
    if parsed.json:
        print_json(result)


def _module(name: str) -> Any:
    if not (CHECKOUT / "benchmarks" / "__init__.py").is_file():
        raise DataError("benchmarks are in the repository, not in the installed package: clone it, then pip install -e")
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        needed = error.name or ""
        if needed == f"benchmarks.{name}":
            raise DataError(f"this installation has no benchmark {name!r}") from None
        if needed.partition(".")[0] in ("cbm", "benchmarks"):
            raise
        raise DataError(f"benchmark {name!r} needs {needed}, which is not installed: pip install {needed}") from None


def _measure(module: Any, options: Any, json: bool) -> dict[str, Any]:
    """Run it; with --json its tables go to the error stream, so that the output is pure JSON."""
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        result: dict[str, Any] = module.main(options)
    return result
