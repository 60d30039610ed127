"""Evaluation of a policy: whole episodes with its deterministic actions, optionally with noise in some variables.

Initial states and all other randomness come from a separate seed, so that all methods, at all times of a run, are
evaluated on the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cbm.errors import DataError
from cbm.learning.task_env import TaskEnv

Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Maps observations (n, d) and contexts (n, c) to actions (n, a)."""


@dataclass(frozen=True)
class Evaluation:
    """One entry for each episode."""

    returns: np.ndarray
    """Undiscounted sum of the rewards."""
    success: np.ndarray | None
    """Whether the task succeeded at any step; None if success is not defined for it."""
    length: np.ndarray

    def summary(self) -> dict[str, float]:
        """Means over episodes; success is nan if it is not defined."""
        return {
            "return": float(self.returns.mean()),
            "success": float("nan") if self.success is None else float(self.success.mean()),
            "length": float(self.length.mean()),
        }


def evaluate(
    act: Act, task_env: TaskEnv, task: str, episodes: int, seed: int, replaced: np.ndarray | None = None
) -> Evaluation:
    """One episode in each of `episodes` copies, stepped as one batch.

    `replaced` (d,) booleans: variables that the policy sees as N(0, 1) noise, in the units of the observation and
    redrawn at every step. The world itself is not affected.
    """
    if replaced is not None and replaced.shape != (len(task_env.factors),):
        raise DataError(
            f"the mask of replaced variables has shape {replaced.shape}, expected ({len(task_env.factors)},)"
        )
    noise = np.random.default_rng([seed, 42])
    vector_env = task_env.vector_env(episodes, np.random.default_rng([seed, 41]))
    returns, length = np.zeros(episodes), np.zeros(episodes, np.int64)
    ever: np.ndarray | None = None
    running = np.ones(episodes, bool)
    while running.any():
        seen = vector_env.obs
        if replaced is not None:
            seen = np.where(replaced, noise.normal(size=seen.shape), seen)
        moves = vector_env.step(act(seen, vector_env.context))
        returns += running * moves.rewards[task]
        length += running
        if task in moves.success:
            ever = (np.zeros(episodes, bool) if ever is None else ever) | (running & moves.success[task])
        running &= ~moves.over
    vector_env.close()
    return Evaluation(returns, ever, length)
