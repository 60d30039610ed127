"""States of the worlds with a robot's hand, set and stepped by tests."""

from __future__ import annotations

from typing import Any

import numpy as np

Actions = tuple[tuple[float, float, float, float], int]
"""An action, and for how many steps."""


def placed_in(world: Any, state: np.ndarray, **quantities: tuple[float, ...]) -> np.ndarray:
    """The state with some physical quantities set, by their names."""
    state, size = state.copy(), world.backend.size
    for name, values in quantities.items():
        if name in world.backend.columns:
            state[:, :size] = world.backend.write(state[:, :size], name, np.tile(values, (len(state), 1)))
        else:
            state[:, world.columns[name]] = values
    return state


def stepped(world: Any, state: np.ndarray, *actions: Actions) -> np.ndarray:
    """The state after these actions, one after the other."""
    rng = np.random.default_rng(0)
    for action, steps in actions:
        for _ in range(steps):
            state = world.step(state, np.tile(action, (len(state), 1)), rng)
    return state
