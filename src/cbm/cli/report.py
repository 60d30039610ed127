"""`cbm report`: one HTML page for one or several runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cbm.cli.arguments import Flag, MaybeInt, MaybePath, Paths, at_least, parse
from cbm.cli.console import print_json, show
from cbm.cli.paths import check_file, made_directory
from cbm.errors import DataError


@dataclass(frozen=True)
class Options:
    """Make one self-contained HTML page of one or several runs.

    Example: cbm report runs/a runs/b --out compare.html

    The page needs no server and no network. With several runs it begins with a comparison; learning runs are compared
    by method and task, over seeds.
    """

    runs: Paths
    """Run directories of `cbm discover` and `cbm learn`, in any combination. A `cbm sweep` directory stands for all its
    runs."""
    out: MaybePath = None
    """File to write, overwritten if it exists. Default, with one run: report.html in its directory."""
    curves: MaybePath = None
    """Draw the learning curves into this .png, and write the drawn numbers into a .csv next to it. With this option or
    --table, the page is made only if --out is given."""
    table: MaybePath = None
    """Write the table of learning runs into this .csv: one row for each task and method, with statistics over seeds."""
    at: MaybeInt = None
    """Step at which the table compares the methods. Default: the middle of the curves."""
    until: MaybeInt = None
    """Step up to which areas under learning curves are computed. Default: the last step that all runs reach."""
    json: Flag = False
    """Print {"report", "runs"}, with "curves", "numbers" and "table" if they were written, instead of the paths."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "report")
    if not options.runs:
        raise DataError("name at least one run directory (see cbm report --help)")
    if (options.out, options.curves, options.table) == (None, None, None) and len(options.runs) > 1:
        raise DataError("several runs make one page: say where it goes with --out FILE.html")
    at_least("--at", options.at, 0)
    at_least("--until", options.until, 1)
    for run in options.runs:
        if not run.is_dir():
            raise DataError(f"{run}: {'is not a' if run.exists() else 'no such'} run directory")
    made = _write(options)
    if options.json:
        print_json({"report": None, "runs": [str(run) for run in options.runs]} | made)
    else:
        for path in made.values():
            show(path)


def expanded(runs: list[Path]) -> list[Path]:
    """The runs, with each sweep replaced by those of its runs that a page can show."""
    from cbm.sweep.runs import runs_in

    places: list[Path] = []
    for run in runs:
        inside = runs_in(run)
        if inside is not None and not inside:
            raise DataError(f"{run}: a sweep without runs of `cbm discover` or `cbm learn`")
        places += [run] if inside is None else inside
    return places


def _write(options: Options) -> dict[str, str]:
    """Write what was requested; returns the paths."""
    runs, steps = expanded(list(options.runs)), {"at": options.at, "until": options.until}
    out = options.out
    if (options.out, options.curves, options.table) == (None, None, None):
        out = options.runs[0] / "report.html"
    if out is not None:
        check_file(out, force=True)
    if options.curves is not None:
        check_file(options.curves, force=True, suffixes=(".png",))
        check_file(options.curves.with_suffix(".csv"), force=True)
    if options.table is not None:
        check_file(options.table, force=True, suffixes=(".csv",))
        if options.curves is not None and options.table == options.curves.with_suffix(".csv"):
            raise DataError(f"{options.table}: the numbers of --curves go there; name another file for --table")
    made = {}
    if out is not None:
        from cbm.report import write_report

        with made_directory(out.parent):
            made["report"] = str(write_report(runs, out, **steps))
    if options.curves is not None:
        from cbm.report.curves import write_curves

        with made_directory(options.curves.parent):
            picture, numbers = write_curves(runs, options.curves)
        made |= {"curves": str(picture), "numbers": str(numbers)}
    if options.table is not None:
        from cbm.report.table import write_table

        with made_directory(options.table.parent):
            made["table"] = str(write_table(runs, options.table, **steps))
    return made
