"""Steps many copies of a world under a data-collecting policy and keeps the transitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cbm.envs.world import World
from cbm.errors import DataError
from cbm.transitions import Transitions


def collect(
    world: World,
    steps: int,
    policy: str = "mixed",
    seed: int = 0,
    copies: int = 64,
    progress: Callable[[int], None] | None = None,
) -> Transitions:
    """`steps` transitions, episode by episode; rewards of every task; the true graph comes along.

    The data is a function of the world, `steps`, `policy`, `seed` and `copies`. `progress` is told how
    many transitions there are after each round of episodes.
    """
    if steps < 1 or copies < 1 or seed < 0:
        raise DataError(f"collect: {steps=}, {copies=}, {seed=}: needs steps and copies >= 1, seed >= 0")
    rng = np.random.default_rng(seed)
    copies = max(1, min(copies, steps // world.horizon))
    rounds: list[dict[str, np.ndarray]] = []
    made = 0
    while made < steps:
        rows = _episodes(world, policy, copies, rng)
        rows["episode"] = made // world.horizon + np.repeat(np.arange(copies), world.horizon)
        rounds.append(rows)
        made += copies * world.horizon
        if progress:
            progress(min(made, steps))
    arrays = {key: np.concatenate([rows[key] for rows in rounds])[:steps] for key in rounds[0]}
    arrays["truncated"][-1] = True  # the last episode stops here, whether or not it was over
    return Transitions(
        obs=arrays["obs"],
        action=arrays["action"],
        next_obs=arrays["next_obs"],
        factors=world.factors,
        rewards={task: arrays[f"reward_{task}"] for task in world.tasks},
        terminated=np.zeros(steps, dtype=bool),
        truncated=arrays["truncated"],
        episode=arrays["episode"],
        truth=world.truth,
        truth_rewards=world.truth_rewards,
    )


def _episodes(world: World, policy: str, copies: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One full episode of every copy, as rows ordered copy by copy."""
    state = world.reset(copies, rng)
    act = world.policy(policy, copies, rng)
    steps: dict[str, list[np.ndarray]] = {key: [] for key in ("obs", "action", "next_obs", "truncated")}
    steps |= {f"reward_{task}": [] for task in world.tasks}
    for t in range(world.horizon):
        action = act(state, rng)
        after = world.step(state, action, rng)
        steps["obs"].append(world.observe(state))
        steps["action"].append(action)
        steps["next_obs"].append(world.observe(after))
        steps["truncated"].append(np.full(copies, t == world.horizon - 1))
        for task, reward in world.rewards(after).items():
            steps[f"reward_{task}"].append(reward)
        state = after
    return {key: _copy_by_copy(np.stack(arrays)) for key, arrays in steps.items()}


def _copy_by_copy(array: np.ndarray) -> np.ndarray:
    """(time, copies, ...) to (copies * time, ...)."""
    return array.swapaxes(0, 1).reshape(-1, *array.shape[2:])
