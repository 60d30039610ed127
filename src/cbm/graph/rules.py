"""The abstraction rules that need nothing but a graph: CBM (per reward) and CDL (one for all rewards).

Everything here is a pure function of `adjacency` (d, d+1): adjacency[i, j] is true when variable j at time t
causes variable i at t+1, and the last column is the action. Sets of variables are boolean vectors (d,).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rule = Literal["cbm", "cdl"]
RULES: tuple[Rule, ...] = ("cbm", "cdl")

BoolArray = NDArray[np.bool_]


def _state_part(adjacency: BoolArray) -> BoolArray:
    adjacency = np.asarray(adjacency, dtype=bool)
    d = adjacency.shape[0]
    assert adjacency.shape == (d, d + 1), f"adjacency has shape {adjacency.shape}, expected (d, d+1)"
    return adjacency[:, :d]


def ancestors(adjacency: BoolArray, start: BoolArray) -> BoolArray:
    """`start` and everything with a causal path into it; the action column is ignored."""
    state = _state_part(adjacency)
    reached = np.array(start, dtype=bool)
    frontier = reached
    while frontier.any():  # every row is looked at once, when it is new
        frontier = state[frontier].any(axis=0) & ~reached
        reached = reached | frontier
    return reached


def descendants(adjacency: BoolArray, start: BoolArray) -> BoolArray:
    """`start` and everything that a causal path from it leads to."""
    state = _state_part(adjacency)
    reached = np.array(start, dtype=bool)
    frontier = reached
    while frontier.any():
        frontier = state[:, frontier].any(axis=1) & ~reached
        reached = reached | frontier
    return reached


def cbm_abstraction(adjacency: BoolArray, reward_parents: BoolArray) -> BoolArray:
    """The reward's parents and all their ancestors: the smallest closed set that explains the reward."""
    return ancestors(adjacency, reward_parents)


def controllable(adjacency: BoolArray) -> BoolArray:
    """Variables that the action reaches, at once or through others."""
    return descendants(adjacency, np.asarray(adjacency, dtype=bool)[:, -1])


def action_relevant(adjacency: BoolArray) -> BoolArray:
    """Variables out of the action's reach that influence one within it."""
    within_reach = controllable(adjacency)
    return ancestors(adjacency, within_reach) & ~within_reach


def cdl_abstraction(adjacency: BoolArray) -> BoolArray:
    """Controllable and action-relevant variables together; the same for every reward."""
    return controllable(adjacency) | action_relevant(adjacency)
