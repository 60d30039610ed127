"""`cbm envs`: the worlds from which a log can be collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cbm.cli.arguments import Flag, parse
from cbm.cli.console import print_json, show, show_table


@dataclass(frozen=True)
class Options:
    """List the built-in worlds: their tasks, how many variables they have, and whether the true graph is known."""

    json: Flag = False
    """Print a JSON list instead of a table."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "envs")
    from cbm.envs.registry import WORLDS, list_worlds

    worlds = list_worlds()
    if options.json:
        print_json(worlds)
        return
    rows = [
        (
            world["name"],
            str(world["variables"]),
            ", ".join(world["tasks"]),
            "known" if world["true_graph"] else "unknown",
            ", ".join(_backend(backend, world) for backend in world["backends"]),
            world["id"],
        )
        for world in worlds
    ]
    titles = ("name", "variables", "tasks", "true graph", "backends", "Gymnasium id")
    show_table(titles, rows, right=("variables",))
    show()
    for name, entry in WORLDS.items():
        show(f"{name}: {entry.description}")
    missing = {backend: command for world in worlds for backend, command in world.get("missing", {}).items()}
    for backend, command in missing.items():
        show(f"\nWorlds on {backend} need: {command}")
    show("\nA log of one of them: cbm collect contact --steps 60000 --out contact.npz")


def _backend(name: str, world: dict[str, Any]) -> str:
    return f"{name} (not installed)" if name in world.get("missing", {}) else name
