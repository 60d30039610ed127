"""Distractors around any world: variables that the action moves, and variables that nothing moves.

`n` controllable ones are random projections of the action of the step before, so they correlate with all
that the action does; `n` uncontrollable ones are drawn anew at every step. Neither influences anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.envs.world import Policy, Rng, World, check_values, whole_number
from cbm.errors import DataError

MOST = 5000  # of each kind: a graph has a cell for every two variables


class Distractors:
    """A world with cd0, cd1, ... and ud0, ud1, ... after its own variables; all else is as in the world itself.

    cd = Wᵀa of the executed action, clipped to [-1, 1]; a discrete action as a one-hot vector. The columns of
    W are normal and have an L1 norm of 1, so |cd| <= 1; `world_seed` draws them. cd is 0 at the start.
    """

    def __init__(self, world: World, n: int = 20, world_seed: int = 0):
        self.world = world
        self.n = whole_number("distractors", "distractors", n, at_least=0)
        if self.n > MOST:
            raise DataError(f"distractors: {self.n} of each kind are too many: at most {MOST}")
        world_seed = whole_number("distractors", "world_seed", world_seed, at_least=0)
        inputs = world.factors.discrete_actions or world.action_size
        weights = np.random.default_rng([world_seed, 20242]).normal(size=(inputs, self.n))
        self.projection = weights / np.abs(weights).sum(0)
        self.factors = _extended(world.factors, self.n)
        self.tasks, self.policies = world.tasks, world.policies
        self.action_size, self.horizon = world.action_size, world.horizon
        self.context_names, self.parallel = world.context_names, world.parallel
        self.frames_per_second = world.frames_per_second
        self.state_size = world.state_size + 2 * self.n
        self.truth = self._with_effects(world.truth)
        self.truths = {name: self._with_effects(truth) for name, truth in world.truths.items()}
        self.truth_rewards = {
            task: np.append(parents, np.zeros(2 * self.n, dtype=bool)) for task, parents in world.truth_rewards.items()
        }
        self.settable = np.append(world.settable, np.ones(2 * self.n, dtype=bool))
        low, high = world.bounds
        self.bounds = np.append(low, np.full(2 * self.n, -1.0)), np.append(high, np.full(2 * self.n, 1.0))
        self.metres = None if world.metres is None else np.append(world.metres, np.full(2 * self.n, np.nan))

    def _with_effects(self, truth: np.ndarray) -> np.ndarray:
        """A graph of the world, extended: cd follows from the action alone, ud from nothing."""
        inner, d = len(truth), len(self.factors)
        extended = np.zeros((d, d + 1), dtype=bool)
        extended[:inner, :inner] = truth[:, :inner]
        extended[:inner, -1] = truth[:, -1]
        extended[inner : inner + self.n, -1] = True
        return extended

    def _inner(self, state: np.ndarray) -> np.ndarray:
        """The world's own state: the first columns."""
        return state[..., : self.world.state_size]

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        return self._joined(self.world.reset(n, rng), np.zeros((n, self.n)), rng)

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        after = self.world.step(self._inner(state), action, rng)
        if self.factors.discrete_actions is None:
            projected = np.clip(action, -1, 1) @ self.projection
        else:
            projected = self.projection[np.asarray(action)[:, 0].astype(np.int64)]
        return self._joined(after, projected, rng)

    def _joined(self, inner: np.ndarray, controllable: np.ndarray, rng: Rng) -> np.ndarray:
        uncontrollable = rng.uniform(-1, 1, (len(inner), self.n))
        return np.concatenate([inner, controllable, uncontrollable], axis=1)

    def observe(self, state: np.ndarray) -> np.ndarray:
        own = state[:, self.world.state_size :]
        return np.concatenate([self.world.observe(self._inner(state)), own], axis=1)

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        changed = state.copy()
        own = variable - len(self.world.factors)
        if own < 0:
            self._inner(changed)[:] = self.world.intervene(self._inner(state), variable, value)
        else:
            check_values(self.factors, self.bounds, variable, value)
            changed[:, self.world.state_size + own] = value
        return changed

    def check_hidden(self, state: np.ndarray) -> None:
        getattr(self.world, "check_hidden", lambda inner: None)(self._inner(state))

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return self.world.rewards(self._inner(state))

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return self.world.success(self._inner(state))

    def events(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return self.world.events(self._inner(state))

    def context(self, state: np.ndarray) -> np.ndarray:
        return self.world.context(self._inner(state))

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        act = self.world.policy(name, n, rng)
        return lambda state, rng: act(self._inner(state), rng)

    def __getattr__(self, name: str) -> Any:
        """What only some worlds have, such as `render`."""
        if name == "world" or name.startswith("__"):  # asked before there is a world, by copy and pickle
            raise AttributeError(name)
        value = getattr(self.world, name)
        if name == "render":
            return lambda state, width, height: value(self._inner(state), width, height)
        return value


def _extended(factors: Factors, n: int) -> Factors:
    own = [Variable(f"cd{k}", group="controllable distractor") for k in range(n)]
    own += [Variable(f"ud{k}", group="uncontrollable distractor") for k in range(n)]
    return Factors((*factors.variables, *own), factors.action_names, factors.discrete_actions)
