"""States of the block world that tests start from."""

from __future__ import annotations

from functools import cache

import numpy as np

from cbm.envs.manipulation.block import BlockWorld
from manipulation_states import Actions, placed_in, stepped  # type: ignore[import-not-found]

OPEN, CLOSE = -1.0, 1.0


@cache
def world() -> BlockWorld:
    return BlockWorld()


def start(n: int = 1, seed: int = 0) -> np.ndarray:
    return world().reset(n, np.random.default_rng(seed))


def placed(state: np.ndarray, **quantities: tuple[float, ...]) -> np.ndarray:
    return placed_in(world(), state, **quantities)


def clear_table(seed: int = 0) -> np.ndarray:
    """One copy with every block at a known place, at rest and unturned, and the hand above the first."""
    upright = (0.0, 0.0, 0.0, 1.0)
    return placed(
        start(seed=seed),
        eef_pos=(0.0, 0.0, 0.9),
        mov0_pos=(0.0, 0.0, 0.82),
        mov1_pos=(0.2, 0.2, 0.82),
        mov2_pos=(-0.2, 0.2, 0.82),
        unmov0_pos=(-0.2, -0.2, 0.82),
        **{f"{name}_quat": upright for name in world().spec.names},
    )


def run(state: np.ndarray, *actions: Actions) -> np.ndarray:
    return stepped(world(), state, *actions)


def held() -> np.ndarray:
    """The first block in the hand, one centimetre and more above the table."""
    return run(
        placed(clear_table(), eef_pos=(0.0, 0.0, 0.82)),
        ((0, 0, 0, CLOSE), 12),
        ((0, 0, 0.5, CLOSE), 6),
        ((0, 0, 0, 1), 8),
    )
