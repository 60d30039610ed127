"""Many copies of one environment stepped at once, for learning and for evaluation.

`WorldVectorEnv` steps the batched functional worlds of this package, `GymVectorEnv` a list of Gymnasium environments. A
copy whose episode ends starts a new one at once; the row that ended the episode holds its last state, so no row joins
two episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np

from cbm.envs.world import Rng, World
from cbm.errors import DataError

LONGEST = 1000
"""Steps per episode in a Gymnasium environment that sets no limit itself."""
REWARD = "reward"
"""The only task of a Gymnasium environment."""


@dataclass(frozen=True)
class Moves:
    """One step of every copy; row k belongs to copy k."""

    obs: np.ndarray
    """(n, d) before the step."""
    context: np.ndarray
    """(n, c) before the step."""
    action: np.ndarray
    """(n, a) in [-1, 1]."""
    next_obs: np.ndarray
    next_context: np.ndarray
    rewards: dict[str, np.ndarray]
    """(n,) of every task."""
    success: dict[str, np.ndarray]
    """(n,) booleans of every task that can succeed."""
    terminated: np.ndarray
    """(n,) booleans: an end state was reached, after which there is no reward."""
    truncated: np.ndarray
    """(n,) booleans: the episode was cut off by its time limit."""
    episode: np.ndarray
    """(n,) number of the episode that the step belongs to."""

    @property
    def over(self) -> np.ndarray:
        return self.terminated | self.truncated


class EpisodeCounter:
    """Hands out episode numbers; vector environments that fill the same replay buffer share one."""

    def __init__(self, next: int = 0):
        self.next = next

    def take(self, count: int) -> np.ndarray:
        self.next += count
        return np.arange(self.next - count, self.next)


class VectorEnv(Protocol):
    """n copies, each within an episode."""

    copies: int
    obs: np.ndarray
    """(n, d) current observations."""
    context: np.ndarray
    """(n, c) current contexts."""

    def step(self, action: np.ndarray) -> Moves: ...

    def saved(self) -> dict[str, Any]:
        """Arrays and plain values from which `restore` continues."""
        ...

    def restore(self, saved: dict[str, Any]) -> None: ...

    def close(self) -> None:
        """Called after the last step."""
        ...


class WorldVectorEnv:
    """Copies of a built-in world. Episodes end only at the world's horizon, so every end is a truncation.

    `staggered` copies begin at different times of their first episode, so that they do not all end at the same step.
    """

    def __init__(
        self, world: World, copies: int, rng: Rng, counter: EpisodeCounter | None = None, staggered: bool = False
    ):  # fmt: skip
        self.world, self.copies, self.rng = world, copies, rng
        self.counter = counter or EpisodeCounter()
        self.steps = np.arange(copies) * world.horizon // copies if staggered else np.zeros(copies, np.int64)
        self.episode = self.counter.take(copies)
        self._enter(world.reset(copies, rng))

    def _enter(self, state: np.ndarray) -> None:
        self.state, self.obs, self.context = state, self.world.observe(state), self.world.context(state)

    def step(self, action: np.ndarray) -> Moves:
        world = self.world
        after = world.step(self.state, action, self.rng)
        self.steps = self.steps + 1
        over = self.steps >= world.horizon
        moves = Moves(
            obs=self.obs,
            context=self.context,
            action=action,
            next_obs=world.observe(after),
            next_context=world.context(after),
            rewards=world.rewards(after),
            success=world.success(after),
            terminated=np.zeros(self.copies, bool),
            truncated=over,
            episode=self.episode,
        )
        if over.any():
            after = after.copy()
            after[over] = world.reset(int(over.sum()), self.rng)
            self.steps = np.where(over, 0, self.steps)
            self.episode = self.episode.copy()
            self.episode[over] = self.counter.take(int(over.sum()))
        self._enter(after)
        return moves

    def saved(self) -> dict[str, Any]:
        generator = self.rng.bit_generator.state
        return {"state": self.state, "steps": self.steps, "episode": self.episode, "generator": generator}

    def restore(self, saved: dict[str, Any]) -> None:
        self.steps, self.episode = saved["steps"], saved["episode"]
        self.rng.bit_generator.state = saved["generator"]
        self._enter(saved["state"])

    def close(self) -> None:
        pass


class GymVectorEnv:
    """Gymnasium environments whose actions are a Box; a policy's [-1, 1] is scaled to its bounds.

    The internal state of an environment cannot be saved: after `restore`, all copies begin new episodes.
    """

    def __init__(
        self, make: Callable[[], gymnasium.Env[Any, Any]], copies: int, rng: Rng, counter: EpisodeCounter | None = None
    ):  # fmt: skip
        self.copies, self.rng, self.counter = copies, rng, counter or EpisodeCounter()
        self.envs = [make() for _ in range(copies)]
        self.space = self.envs[0].observation_space
        self.low, self.high = action_bounds(self.envs[0].action_space)
        limit = self.envs[0].spec.max_episode_steps if self.envs[0].spec is not None else None
        self.horizon = limit or LONGEST
        self.context = np.zeros((copies, 0))
        self._begin()

    def _begin(self) -> None:
        seeds = self.rng.integers(2**31, size=self.copies)
        self.obs = np.stack([self._flat(env.reset(seed=int(s))[0]) for env, s in zip(self.envs, seeds)])
        self.steps = np.zeros(self.copies, np.int64)
        self.episode = self.counter.take(self.copies)

    def _flat(self, observation: Any) -> np.ndarray:
        flat = np.asarray(gymnasium.spaces.utils.flatten(self.space, observation), np.float64)
        if not np.isfinite(flat).all():
            raise DataError(f"the environment's observation is not finite at position {np.argmin(np.isfinite(flat))}")
        return flat

    def step(self, action: np.ndarray) -> Moves:
        inside = np.clip(action, -1, 1)
        stretched = self.low + (inside + 1) / 2 * (self.high - self.low)
        results = [
            env.step(row.astype(env.action_space.dtype).reshape(env.action_space.shape))
            for env, row in zip(self.envs, stretched)
        ]
        after = np.stack([self._flat(result[0]) for result in results])
        reward = np.array([float(result[1]) for result in results])
        if not np.isfinite(reward).all():
            raise DataError(f"the environment's reward is not finite: {reward[~np.isfinite(reward)][0]}")
        self.steps = self.steps + 1
        terminated = np.array([bool(result[2]) for result in results])
        truncated = (np.array([bool(result[3]) for result in results]) | (self.steps >= self.horizon)) & ~terminated
        moves = Moves(
            obs=self.obs,
            context=self.context,
            action=action,
            next_obs=after,
            next_context=self.context,
            rewards={REWARD: reward},
            success=_success([result[4] for result in results]),
            terminated=terminated,
            truncated=truncated,
            episode=self.episode,
        )
        self._renew(after, moves.over)
        return moves

    def _renew(self, after: np.ndarray, over: np.ndarray) -> None:
        self.obs = after
        if over.any():
            self.obs, self.episode = after.copy(), self.episode.copy()
            for k in np.flatnonzero(over):
                self.obs[k] = self._flat(self.envs[k].reset()[0])
            self.episode[over] = self.counter.take(int(over.sum()))
            self.steps = np.where(over, 0, self.steps)

    def saved(self) -> dict[str, Any]:
        return {"generator": self.rng.bit_generator.state}

    def restore(self, saved: dict[str, Any]) -> None:
        self.rng.bit_generator.state = saved["generator"]
        self._begin()

    def close(self) -> None:
        for env in self.envs:
            env.close()


def action_bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds of the action, (a,) each, flattened."""
    if not isinstance(space, gymnasium.spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise DataError(f"action space {' '.join(str(space).split())}: a Box of floats is needed to learn a policy")
    low, high = space.low.ravel().astype(np.float64), space.high.ravel().astype(np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise DataError(f"action space {' '.join(str(space).split())}: has no finite bounds")
    return low, high


def _success(infos: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """`is_success` (or `success`) from the info, if any copy reports it: many environments do so only at an episode's
    end."""
    values = [info.get("is_success", info.get("success")) for info in infos]
    known = [isinstance(value, bool | int | float | np.number | np.bool_) for value in values]
    return {REWARD: np.array([k and bool(value) for k, value in zip(known, values)])} if any(known) else {}
