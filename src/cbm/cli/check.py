"""`cbm check`: how a log was understood, and what looks wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cbm.cli.arguments import Flag, parse
from cbm.cli.console import heading, plural, print_json, show, show_table, wrapped
from cbm.cli.log_options import LogOptions, load, roles_of

SHOWN = 40
"""Variables in the table at most; --json lists all of them."""


@dataclass(frozen=True, kw_only=True)
class Options(LogOptions):
    """Show how a log was understood, and what looks wrong with it. Nothing is written.

    Example: cbm check log.csv --obs 'joint_*' speed --action cmd --reward r --episode run --time t
    """

    json: Flag = False
    """Print everything as one JSON object."""


def main(arguments: list[str]) -> None:
    from cbm.data.summary import summarise

    options = parse(Options, arguments, "check")
    log = load(options.data, roles_of(options), allow_constant=True, memory=options.memory, quiet=options.json)
    summary = summarise(log, options.data)
    if options.json:
        print_json(summary)
        return
    show_understood(summary)
    show()
    rows = [
        (
            v["name"],
            "constant" if v["name"] in summary["constants"] else v["kind"],
            f"{v['low']:.4g}",
            f"{v['high']:.4g}",
            f"{100 * v['changed']:.0f} %",
        )
        for v in summary["variables"][:SHOWN]
    ]
    titles = ("variable", "kind", "lowest", "highest", "changes in")
    show_table(titles, rows, right=titles[2:])
    if len(summary["variables"]) > SHOWN:
        show(f"and {len(summary['variables']) - SHOWN:,} more variables (--json lists them)")
    show()
    for sentence in summary["warnings"]:
        show(wrapped(f"look  {sentence}", "", " " * 6))
    if not summary["warnings"] and all(note.startswith("guessed") for note in summary["notes"]):
        show("Nothing looks wrong.")


def show_understood(summary: dict[str, Any]) -> None:
    """The first lines about a log: its size, its columns, and everything that had to be guessed."""
    heading(first_line(summary))
    actions = ", ".join(f"{a['name']} ({a['kind']})" for a in summary["actions"][:6])
    more = f", and {len(summary['actions']) - 6} more" if len(summary["actions"]) > 6 else ""
    rewards = (
        ", ".join(f"{name} ({r['low']:.4g} to {r['high']:.4g})" for name, r in summary["rewards"].items()) or "none"
    )
    show(wrapped(f"action   {actions}{more}", "", " " * 9))
    show(wrapped(f"reward   {rewards}", "", " " * 9))
    for sentence in summary["notes"]:
        show(wrapped(f"note     {sentence}", "", " " * 9))


def first_line(summary: dict[str, Any]) -> str:
    size = f"{plural(summary['transitions'], 'transition')} from {plural(summary['rows'], 'row')}"
    episodes = f"{plural(summary['episodes'], 'episode')} ({summary['episodes_from']})"
    step = f", step {summary['step']:.4g}" if summary["step"] is not None else ""
    variables = plural(len(summary["variables"]), "variable")
    return f"{summary['source']}: {size}, {episodes}{step}, {variables}; read as {summary['reader']}"
