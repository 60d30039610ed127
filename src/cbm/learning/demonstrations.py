"""Scripted episodes that are put into the replay before learning starts, the same ones for every method."""

from __future__ import annotations

import numpy as np

from cbm.envs.world import World
from cbm.errors import DataError
from cbm.learning.replay import Replay
from cbm.learning.task_env import Arena
from cbm.learning.vector_env import Numbers, WorldFleet


def script(world: World, task: str) -> str:
    """The policy that shows a task: its own where the world has one, else what the world does in turns."""
    return task if task in world.policies else "mixed"


def scripts(arena: Arena, tasks: tuple[str, ...]) -> list[str]:
    """The policies that show these tasks; tasks without one of their own share the mixed one."""
    if arena.world is None:
        raise DataError(f"{arena.name}: has no scripted policies to take demonstrations from")
    return list(dict.fromkeys(script(arena.world, task) for task in tasks))


def demonstrate(
    arena: Arena, tasks: tuple[str, ...], episodes: int, seed: int, numbers: Numbers, replay: Replay
) -> dict[str, float]:
    """`episodes` full episodes by each script; returns the number of rows and each task's share of successes."""
    rows, reached = 0, {task: [] for task in tasks}  # type: int, dict[str, list[np.ndarray]]
    for k, name in enumerate(scripts(arena, tasks)):
        assert arena.world is not None
        rng = np.random.default_rng([seed, 31, k])
        fleet = WorldFleet(arena.world, episodes, rng, numbers)
        act = arena.world.policy(name, episodes, rng)
        ever = {task: np.zeros(episodes, bool) for task in tasks}
        for _ in range(arena.world.horizon):
            moves = fleet.step(np.clip(act(fleet.state, rng), -1, 1))
            replay.add(moves)
            rows += episodes
            for task, done in moves.success.items():
                if task in ever:
                    ever[task] |= done
        for task in tasks:
            if script(arena.world, task) == name and task in moves.success:
                reached[task].append(ever[task])
    shares = {f"success_{task}": float(np.concatenate(parts).mean()) for task, parts in reached.items() if parts}
    return {"rows": float(rows), **shares}
