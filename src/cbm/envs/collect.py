"""Steps many copies of a world under a data-collecting policy and keeps the transitions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cbm.envs.world import World
from cbm.transitions import Transitions


def collect(
    world: World,
    steps: int,
    policy: str = "mixed",
    seed: int = 0,
    copies: int = 64,
    progress: Callable[[int], None] | None = None,
) -> Transitions:
    """`steps` transitions, episode by episode; rewards of every task; the true graph comes along."""
    rng = np.random.default_rng(seed)
    copies = max(1, min(copies, steps // world.horizon))
    pieces: list[dict[str, np.ndarray]] = []
    made, episode = 0, 0
    while made < steps:
        piece = _episodes(world, policy, copies, rng)
        piece["episode"] = episode + np.repeat(np.arange(copies), world.horizon)
        pieces.append(piece)
        made, episode = made + len(piece["obs"]), episode + copies
        if progress:
            progress(min(made, steps))
    arrays = {key: np.concatenate([piece[key] for piece in pieces])[:steps] for key in pieces[0]}
    return Transitions(
        obs=arrays["obs"],
        action=arrays["action"],
        next_obs=arrays["next_obs"],
        factors=world.factors,
        rewards={task: arrays[f"reward_{task}"] for task in world.tasks},
        terminated=np.zeros(steps, dtype=bool),
        truncated=arrays["truncated"].astype(bool),
        episode=arrays["episode"],
        truth=world.truth,
        truth_rewards=world.truth_rewards,
    )


def _episodes(world: World, policy: str, copies: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """One full episode of every copy, as rows ordered copy by copy."""
    state = world.reset(copies, rng)
    act = world.policy(policy, copies, rng)
    rows: dict[str, list[np.ndarray]] = {key: [] for key in ("obs", "action", "next_obs", "truncated")}
    rows |= {f"reward_{task}": [] for task in world.tasks}
    for t in range(world.horizon):
        action = act(state, rng)
        after = world.step(state, action, rng)
        rows["obs"].append(world.observe(state))
        rows["action"].append(action)
        rows["next_obs"].append(world.observe(after))
        rows["truncated"].append(np.full(copies, t == world.horizon - 1))
        for task, reward in world.rewards(after).items():
            rows[f"reward_{task}"].append(reward)
        state = after
    return {key: np.concatenate(list(np.stack(value, 1))) for key, value in rows.items()}
