"""Scripted episodes put into the replay buffer before learning starts, the same for every method."""

from __future__ import annotations

import numpy as np

from cbm.envs.world import World
from cbm.errors import DataError
from cbm.learning.replay import Replay
from cbm.learning.task_env import TaskEnv
from cbm.learning.vector_env import EpisodeCounter, WorldVectorEnv


def script(world: World, task: str) -> str:
    """The policy that demonstrates a task: its own if the world has one, otherwise the mixed policy."""
    return task if task in world.policies else "mixed"


def scripts(task_env: TaskEnv, tasks: tuple[str, ...]) -> list[str]:
    """The policies that demonstrate these tasks; tasks without a policy of their own share the mixed one."""
    if task_env.world is None:
        raise DataError(f"{task_env.name}: has no scripted policies to take demonstrations from")
    return list(dict.fromkeys(script(task_env.world, task) for task in tasks))


def demonstrate(
    task_env: TaskEnv, tasks: tuple[str, ...], episodes: int, seed: int, counter: EpisodeCounter, replay: Replay
) -> dict[str, float]:
    """`episodes` full episodes with each script; returns the number of rows and each task's success rate."""
    rows, reached = 0, {task: [] for task in tasks}  # type: int, dict[str, list[np.ndarray]]
    for k, name in enumerate(scripts(task_env, tasks)):
        assert task_env.world is not None
        rng = np.random.default_rng([seed, 31, k])
        vector_env = WorldVectorEnv(task_env.world, episodes, rng, counter)
        act = task_env.world.policy(name, episodes, rng)
        ever = {task: np.zeros(episodes, bool) for task in tasks}
        for _ in range(task_env.world.horizon):
            moves = vector_env.step(np.clip(act(vector_env.state, rng), -1, 1))
            replay.add(moves)
            rows += episodes
            for task, done in moves.success.items():
                if task in ever:
                    ever[task] |= done
        for task in tasks:
            if script(task_env.world, task) == name and task in moves.success:
                reached[task].append(ever[task])
    shares = {f"success_{task}": float(np.concatenate(parts).mean()) for task, parts in reached.items() if parts}
    return {"rows": float(rows), **shares}
