"""How much of a world a log shows: how often each object moved.

What touched what, and what was held, a world tells by its `events`; `collect.py` counts those.
"""

from __future__ import annotations

import numpy as np

from cbm.data.transitions import Transitions

MOVED_METRES = 0.001
"""An object has moved when it is this far from where it was one step earlier."""
MOVED_SHARE = 0.005
"""Where a world has no metres: when one of its variables has changed by this share of its range in the log."""


def moved(data: Transitions, metres: np.ndarray | None) -> dict[str, float]:
    """For each object the share of transitions in which it moved.

    `metres` has the length of one unit of each variable, nan for those that are no coordinates. Without it
    an object is a group of at least two continuous variables.
    """
    change = np.abs(data.next_obs - data.obs)
    if metres is not None:
        coordinates = {group: [i for i in members if np.isfinite(metres[i])] for group, members in _groups(data)}
        return {
            group: float((np.linalg.norm(change[:, members] * metres[members], axis=1) > MOVED_METRES).mean())
            for group, members in coordinates.items()
            if members
        }
    both = np.concatenate([data.obs, data.next_obs])
    far = change > MOVED_SHARE * np.maximum(np.ptp(both, axis=0), np.finfo(float).tiny)
    continuous = {group: [i for i in m if data.factors.kinds[i] == "continuous"] for group, m in _groups(data)}
    return {group: float(far[:, m].any(axis=1).mean()) for group, m in continuous.items() if len(m) > 1}


def _groups(data: Transitions) -> list[tuple[str, list[int]]]:
    return list(data.factors.groups().items())
