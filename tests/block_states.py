"""States of the block world that tests start from."""

from __future__ import annotations

from functools import cache

import numpy as np

from cbm.envs.manipulation.block import BlockWorld

OPEN, CLOSE = -1.0, 1.0


@cache
def world() -> BlockWorld:
    return BlockWorld()


def start(n: int = 1, seed: int = 0) -> np.ndarray:
    return world().reset(n, np.random.default_rng(seed))


def placed(state: np.ndarray, **quantities: tuple[float, ...]) -> np.ndarray:
    """The state with some physical quantities set, by their names."""
    block = world()
    state = state.copy()
    for name, values in quantities.items():
        if name in block.backend.columns:
            state[:, : block.backend.size] = block.backend.write(
                state[:, : block.backend.size], name, np.tile(values, (len(state), 1))
            )
        else:
            state[:, block.columns[name]] = values
    return state


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


def run(state: np.ndarray, *actions: tuple[tuple[float, float, float, float], int]) -> np.ndarray:
    rng = np.random.default_rng(0)
    for action, steps in actions:
        for _ in range(steps):
            state = world().step(state, np.tile(action, (len(state), 1)), rng)
    return state


def held() -> np.ndarray:
    """The first block in the hand, one centimetre and more above the table."""
    return run(
        placed(clear_table(), eef_pos=(0.0, 0.0, 0.82)),
        ((0, 0, 0, CLOSE), 12),
        ((0, 0, 0.5, CLOSE), 6),
        ((0, 0, 0, 1), 8),
    )
