"""Small logs that tests of files read, write and damage."""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions

ROWS = 30


def good(rows: int = ROWS, **changes: Any) -> dict[str, Any]:
    """Arrays of a sound file; a change to None leaves the array out."""
    rng = np.random.default_rng(0)
    arrays = {
        "obs": rng.normal(size=(rows, 3)),
        "action": rng.normal(size=(rows, 2)),
        "next_obs": rng.normal(size=(rows, 3)),
        "reward": rng.normal(size=rows),
        "names": np.array(["x", "speed", "door"]),
    }
    return {name: value for name, value in (arrays | changes).items() if value is not None}


def arrays(rows: int = 60, episodes: int = 12, d: int = 3, seed: int = 0) -> dict[str, Any]:
    """A random walk in `episodes` equal parts, as the arrays of a file."""
    rng = np.random.default_rng(seed)
    length = rows // episodes
    walk = rng.normal(size=(episodes, length + 1, d)).cumsum(axis=1)
    return {
        "obs": walk[:, :-1].reshape(-1, d),
        "action": rng.normal(size=(episodes * length, 2)),
        "next_obs": walk[:, 1:].reshape(-1, d),
        "reward": rng.normal(size=episodes * length),
    }


def full(rows: int = 60) -> Transitions:
    """Every field set, so that a round trip has something to lose."""
    data = arrays(rows)
    rng = np.random.default_rng(1)
    variables = (
        Variable("x", group="arm", low=-5.5),
        Variable("y, 'quoted' é.z", "angle", "arm", 0.0, 1.0),
        Variable("z", "binary"),
    )
    ends = np.arange(rows) % 5 == 4
    return Transitions(
        obs=data["obs"] / 3,
        action=rng.integers(0, 3, rows),
        next_obs=data["next_obs"] / 3,
        factors=Factors(variables, ("push",), 7),
        rewards={"reward": data["reward"], "pick": data["reward"] ** 3},
        context={"goal_x": rng.normal(size=rows), "how far: é": rng.normal(size=rows)},
        terminated=ends & (np.arange(rows) > 30),
        truncated=ends & (np.arange(rows) <= 30),
        episode=np.repeat(np.arange(rows // 5)[::-1], 5) * 3,
        truth=rng.integers(0, 2, (3, 4)),
        truth_rewards={"pick": np.array([True, False, True])},
    )
