"""What a built-in world is: a batch of factored systems stepped at once in NumPy, with its true graph.

A world is a pure function of (state, action, random numbers). `GymWorld` in `gym.py` puts the
Gymnasium interface around one copy; `collect.py` steps many at a time to make data. Also here: the
checks of options and policy names that worlds share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from cbm.errors import DataError
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
    policies: tuple[str, ...]
    """Names that `policy` takes; every world has `random`, `scripted` and `mixed`."""
    action_size: int
    """Actions are (n, action_size) arrays; values outside [-1, 1] are clipped."""
    horizon: int
    """Steps of an episode. Episodes end by this limit only, so the end is a truncation."""
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


def whole_number(world: str, option: str, value: object, at_least: int) -> int:
    """An option that counts something; True and 2.5 are mistakes, not counts."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= at_least:
        return int(value)
    raise DataError(f"{world}: option {option!r} must be a whole number >= {at_least}, not {value!r}")


def yes_or_no(world: str, option: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise DataError(f"{world}: option {option!r} must be True or False, not {value!r}")
    return bool(value)


def check_policy(world: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise DataError(f"{world}: unknown policy {name!r}; choose one of {', '.join(known)}")
