"""The table of built-in worlds: short names, Gymnasium ids, and how to make one.

A world's module is imported when the world is made, not before, so that worlds may need simulators
that are not installed.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import Any, cast

from cbm.checks import unknown_name
from cbm.envs.world import World
from cbm.errors import DataError


@dataclass(frozen=True)
class Entry:
    """One line of the table."""

    name: str
    """What the command line calls it."""
    id: str
    """What `gymnasium.make` calls it."""
    constructor: str
    """`module:Class`."""
    description: str
    """One line for people who choose."""
    backends: tuple[str, ...] = ("numpy",)
    """What can simulate it."""

    def load(self) -> type[World]:
        module, name = self.constructor.split(":")
        return cast(type[World], getattr(importlib.import_module(module), name))


WORLDS = {
    entry.name: entry
    for entry in (
        Entry(
            "contact",
            "cbm/Contact-v0",
            "cbm.envs.contact:ContactWorld",
            "a hand, a gripper and blocks that move only while held, among distractors",
        ),
        Entry(
            "light",
            "cbm/Light-v0",
            "cbm.envs.light:LightWorld",
            "a car at a traffic light, which decides the reward and which no action can change",
        ),
    )
}


def make_world(name: str, **options: Any) -> World:
    """A built-in world by its short name, with the options of its constructor."""
    if name not in WORLDS:
        raise unknown_name("unknown world", name, WORLDS)
    constructor = WORLDS[name].load()
    allowed = tuple(inspect.signature(constructor).parameters)
    for option in options:
        if option not in allowed:
            there_are = f"its options are {', '.join(allowed)}" if allowed else "it has none"
            raise DataError(f"{name}: unknown option {option!r}; {there_are}")
    return constructor(**options)


def list_worlds() -> list[dict[str, Any]]:
    """What `cbm envs --json` prints, for the default options of every world."""
    return [_summary(entry, make_world(entry.name)) for entry in WORLDS.values()]


def _summary(entry: Entry, world: World) -> dict[str, Any]:
    return {
        "name": entry.name,
        "id": entry.id,
        "variables": len(world.factors),
        "tasks": list(world.tasks),
        "backends": list(entry.backends),
        "true_graph": world.truth is not None,
    }


def register_envs() -> None:
    """Tell Gymnasium the ids. Called when `cbm` is imported; calling it again changes nothing."""
    import gymnasium

    for entry in WORLDS.values():
        if entry.id not in gymnasium.registry:
            gymnasium.register(entry.id, entry_point="cbm.envs.gym:GymWorld", kwargs={"world": entry.name})
