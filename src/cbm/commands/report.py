"""`cbm report`: one HTML page of one or several runs."""

from __future__ import annotations

from dataclasses import dataclass

from cbm.commands.arguments import Flag, MaybePath, Paths, parse
from cbm.commands.console import print_json, show
from cbm.commands.places import check_file, made_directory
from cbm.errors import DataError


@dataclass(frozen=True)
class Options:
    """Make one self-contained HTML page of one or several runs.

    Example: cbm report runs/a runs/b --out compare.html

    The page needs no server and no network. With several runs it begins with a comparison.
    """

    runs: Paths
    """Run directories of `cbm discover`."""
    out: MaybePath = None
    """File to write, overwritten if it exists. Left out, with one run: report.html in its directory."""
    json: Flag = False
    """Print {"report", "runs"} instead of the path."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "report")
    if not options.runs:
        raise DataError("name at least one run directory (see cbm report --help)")
    if options.out is None and len(options.runs) > 1:
        raise DataError("several runs make one page: say where it goes with --out FILE.html")
    for run in options.runs:
        if not run.is_dir():
            raise DataError(f"{run}: {'is not a' if run.exists() else 'no such'} run directory")
    out = options.out or options.runs[0] / "report.html"
    check_file(out, force=True)
    from cbm.report import write_report

    with made_directory(out.parent):
        write_report(list(options.runs), out)
    if options.json:
        print_json({"report": str(out), "runs": [str(run) for run in options.runs]})
    else:
        show(str(out))
