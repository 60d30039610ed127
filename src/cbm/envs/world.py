"""What a built-in world is: a batch of factored systems stepped at once in NumPy, with its true graph.

A world is a pure function of (state, action, random numbers). `GymWorld` in `gym.py` puts the
Gymnasium interface around one copy; `collect.py` steps hundreds at a time to make data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from cbm.factors import Factors

Rng = np.random.Generator
Policy = Callable[[np.ndarray, Rng], np.ndarray]
"""Maps physical states (n, d) to actions (n, a); may keep per-copy memory of what it is doing."""


class World(Protocol):
    """n independent copies of one factored system; states are (n, d) arrays in physical units."""

    factors: Factors
    """Names and kinds of the d variables and of the action."""
    tasks: tuple[str, ...]
    """Every task's reward is computed at every step, so one data set serves them all."""
    action_size: int
    horizon: int
    truth: np.ndarray
    """(d, d+1) booleans: [i, j] true when variable j at t causes variable i at t+1; the action comes last."""
    truth_rewards: dict[str, np.ndarray]
    """For each task the (d,) booleans of the variables its reward is computed from."""

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        """Starting states (n, d)."""
        ...

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        """Next states (n, d) of the n copies."""
        ...

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """Reward of each task (n,), computed on the state after the step."""
        ...

    def observe(self, state: np.ndarray) -> np.ndarray:
        """What a sensor reports of the physical state: the state itself, or its rescaled copy."""
        ...

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        """A data-collecting policy for n copies."""
        ...
