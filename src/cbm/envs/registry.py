"""The table of built-in worlds: short names, Gymnasium ids, and how to make one.

A world's module is imported when the world is made, not before, so that worlds may need simulators
that are not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from typing import Any, cast

from cbm.envs.distractors import Distractors
from cbm.envs.world import World, whole_number
from cbm.errors import DataError, unknown_name

SIMULATORS = {"numpy": (), "mujoco": ("mujoco",), "robosuite": ("mujoco", "robosuite")}
"""The modules that each backend needs; all but the first come with an extra of the same name."""


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
    variables: int
    """How many it has by default, known without making it."""
    tasks: tuple[str, ...]
    """What there is to do in it, the default task first."""
    backends: tuple[str, ...] = ("numpy",)
    """What can simulate it."""
    needs: tuple[str, ...] = ()
    """Modules that it needs beside its backend."""

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
            variables=36,
            tasks=("pick", "stack"),
        ),
        Entry(
            "light",
            "cbm/Light-v0",
            "cbm.envs.light:LightWorld",
            "a car at a traffic light, which decides the reward and which no action can change",
            variables=6,
            tasks=("cross", "park"),
        ),
        Entry(
            "block",
            "cbm/Block-v0",
            "cbm.envs.manipulation.block:BlockWorld",
            "a gripper, three blocks to pick, push and stack, one that is fixed, and wandering markers",
            variables=47,
            tasks=("pick", "stack", "reach", "push", "grasp"),
            backends=("mujoco", "robosuite"),
        ),
        Entry(
            "tool",
            "cbm/Tool-v0",
            "cbm.envs.manipulation.tool:ToolWorld",
            "a gripper, an L-shaped tool to pull a far cube with, and a pot to put it into",
            variables=40,
            tasks=("series", "reach", "picktool", "pickcube", "pickplace"),
            backends=("mujoco", "robosuite"),
        ),
        Entry(
            "chemical",
            "cbm/Chemical-v0",
            "cbm.envs.chemical:ChemicalWorld",
            "objects that change the colours of those that depend on them (CDL's world)",
            variables=15,
            tasks=("match",),
        ),
        Entry(
            "cheetah",
            "cbm/Cheetah-v0",
            "cbm.envs.dmc:CheetahWorld",
            "a two-legged runner in a vertical plane (DeepMind Control)",
            variables=17,
            tasks=("run",),
            backends=("mujoco",),
            needs=("dm_control",),
        ),
        Entry(
            "walker",
            "cbm/Walker-v0",
            "cbm.envs.dmc:WalkerWorld",
            "a two-legged walker in a vertical plane (DeepMind Control)",
            variables=24,
            tasks=("walk",),
            backends=("mujoco",),
            needs=("dm_control",),
        ),
    )
}


def make_world(name: str, **options: Any) -> World:
    """A built-in world by its short name, with the options of its constructor.

    Three more options hold for every world: `backend`, one of its own; `horizon`, the steps of an episode; and
    `distractors`, which adds so many controllable and as many uncontrollable ones unless the world has
    distractors of its own.
    """
    if name.startswith("gymnasium:"):
        raise DataError(f"{name}: only cbm learn takes Gymnasium environments; the worlds here are {', '.join(WORLDS)}")
    if name not in WORLDS:
        raise unknown_name("unknown world", name, WORLDS)
    entry = WORLDS[name]
    constructor = entry.load()
    own = tuple(inspect.signature(constructor).parameters)
    wrapped = () if "distractors" in own else ("distractors", *(() if "world_seed" in own else ("world_seed",)))
    allowed = (*own, *wrapped, *(() if "backend" in own else ("backend",)), "horizon")
    for option in options:
        if option not in allowed:
            raise DataError(f"{name}: unknown option {option!r}; its options are {', '.join(allowed)}")
    backend = options.get("backend", entry.backends[0])
    if backend not in entry.backends:
        raise DataError(f"{name}: unknown backend {backend!r}; choose one of {', '.join(entry.backends)}")
    world = constructor(**{option: value for option, value in options.items() if option in own})
    if "horizon" in options:
        world.horizon = whole_number(name, "horizon", options["horizon"], at_least=1)
    if not wrapped:
        return world
    count = whole_number(name, "distractors", options.get("distractors", 0), at_least=0)
    world_seed = whole_number(name, "world_seed", options.get("world_seed", 0), at_least=0)
    return Distractors(world, count, world_seed) if count else world


def list_worlds() -> list[dict[str, Any]]:
    """What `cbm envs --json` prints, for the default options of every world.

    Where a backend is not installed, `missing` has the command that installs it.
    """
    return [_summary(entry) for entry in WORLDS.values()]


def _summary(entry: Entry) -> dict[str, Any]:
    missing = {
        backend: install_command(backend, entry.needs)
        for backend in entry.backends
        if not all(importlib.util.find_spec(module) for module in (*SIMULATORS[backend], *entry.needs))
    }
    return {
        "name": entry.name,
        "id": entry.id,
        "variables": entry.variables,
        "tasks": list(entry.tasks),
        "backends": list(entry.backends),
        "true_graph": True,
    } | ({"missing": missing} if missing else {})


def install_command(backend: str, needs: tuple[str, ...] = ()) -> str:
    """What brings a backend. dm_control's mazes have no wheel for Python 3.13, and nothing here uses them."""
    command = f"pip install 'cbm-rl[{backend}]'"
    apart = "dm_control" in needs and sys.version_info >= (3, 13)
    return f"{command} && pip install --no-deps dm_control==1.0.41" if apart else command


def register_envs() -> None:
    """Tell Gymnasium the ids. Called when `cbm` is imported; calling it again changes nothing."""
    import gymnasium

    for entry in WORLDS.values():
        if entry.id not in gymnasium.registry:
            gymnasium.register(entry.id, entry_point="cbm.envs.gym:GymWorld", kwargs={"world": entry.name})
