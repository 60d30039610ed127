"""Finds rows after which the state jumps as it does nowhere else: unmarked ends of episodes."""

from __future__ import annotations

import numpy as np

FAR = 12.0
"""A jump is this many times longer than a typical step."""
USUAL = 0.95
"""Share of the steps that counts as usual."""
MOST = 0.1
"""If more than this share of the rows are jumps, they are not ends of episodes."""
FIT_COLUMNS = 60
"""With more variables no model of the usual step is fitted, and plain steps are compared."""
PRODUCT_COLUMNS = 12
"""With up to this many variables the model includes their products, since rotations are not linear."""
SHORTEST = 5
"""Rows that an episode has at least: jumps in quicker succession are a phase of the motion, such as a fast turn."""


def find_jumps(obs: np.ndarray, next_obs: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Indices of the pairs (T,) whose step is far from the prediction of one smooth model of all steps.

    A state that falls or spins has long steps at times, so a step counts as long only compared with its prediction.
    """
    if len(obs) < 20:
        return np.empty(0, int)
    obs, next_obs = obs.astype(float), next_obs.astype(float)  # booleans cannot be subtracted
    scale = obs.std(0)
    used = (scale > 0) & np.isfinite(scale)
    if not used.any():
        return np.empty(0, int)
    step = ((next_obs - obs) / np.where(used, scale, 1))[:, used]
    if used.sum() <= FIT_COLUMNS and len(obs) > 4 * used.sum():
        state = (obs[:, used] - obs[:, used].mean(0)) / scale[used]
        inputs = _features(state, action.astype(float))
        step = step - inputs @ np.linalg.lstsq(inputs, step, rcond=None)[0]
    usual = np.quantile(np.abs(step), USUAL, axis=0)
    moving = usual > 1e-9
    if not moving.any():
        return np.empty(0, int)
    length = np.sqrt(np.mean((step[:, moving] / usual[moving]) ** 2, axis=1))
    far = np.flatnonzero(length > FAR * np.quantile(length, 0.5))
    apart = np.diff(far, prepend=-SHORTEST, append=len(obs) + SHORTEST)
    far = far[(apart[:-1] >= SHORTEST) & (apart[1:] >= SHORTEST)]
    return far if len(far) <= MOST * len(obs) else np.empty(0, int)


def _features(state: np.ndarray, action: np.ndarray) -> np.ndarray:
    columns = [np.ones((len(state), 1)), state, action]
    width = state.shape[1]
    if width <= PRODUCT_COLUMNS and len(state) > 4 * width * width:
        left, right = np.triu_indices(width)
        columns.append(state[:, left] * state[:, right])
    return np.hstack(columns)
