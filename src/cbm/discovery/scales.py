"""The scale on which a variable is modelled: its own, or the logarithmic one.

The scale on which a variable is written does not change which variable causes which, but it changes what can be
detected. Concentrations, prices and populations scatter in proportion to their size: in their own units a few large
values make up most of the squared error and hide everything that acts on the others. On the logarithmic scale the
scatter is even. The likelihood decides: that of a sum of functions of all inputs, for the values and for their
logarithms.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbm.data.transitions import Transitions
from cbm.discovery.settings import LOG_ROWS, LOG_WORTH
from cbm.discovery.targets import action_columns, additive_features


def on_even_scales(data: Transitions) -> Transitions:
    """The same log with the logarithm of every variable that is predicted better that way."""
    chosen = logarithmic(data)
    if not chosen.any():
        return data
    obs, after = data.obs.astype(float), data.next_obs.astype(float)
    obs[:, chosen], after[:, chosen] = np.log(obs[:, chosen]), np.log(after[:, chosen])
    return replace(data, obs=obs, next_obs=after)


def logarithmic(data: Transitions) -> np.ndarray:
    """(d,) booleans: positive continuous variables whose next value is more likely on the logarithmic scale."""
    chosen = np.array([kind == "continuous" for kind in data.factors.kinds])
    chosen &= (data.obs.min(0) > 0) & (data.next_obs.min(0) > 0) & (data.obs != data.next_obs).any(0)
    if not chosen.any():
        return chosen
    some = np.linspace(0, len(data) - 1, min(LOG_ROWS, len(data))).astype(int)
    obs, after = data.obs[some], data.next_obs[some][:, chosen]
    logs = np.log(obs[:, chosen])
    inputs = np.concatenate([obs, logs, action_columns(data.action[some], data.factors.discrete_actions)], 1)
    features, _ = additive_features(inputs)
    plain, even = (_log_spread(features, y) for y in (after, np.log(after)))
    # log p(y) = log p(log y) - log y, and both densities are Gaussian
    chosen[chosen] = plain - even - np.log(after).mean(0) > LOG_WORTH
    return chosen


def _log_spread(features: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(K,) log standard deviation of the residual of y (T, K), regressed on centred features (T, F)."""
    y = y - y.mean(0)
    unit = np.where(y.std(0) > 0, y.std(0), 1.0)
    y = y / unit
    n = len(y)
    gram = features.T @ features / n + 1e-6 * np.eye(features.shape[1])
    moments = features.T @ y / n
    left = 1 - (moments * np.linalg.solve(gram, moments)).sum(0)
    return np.asarray(np.log(unit) + 0.5 * np.log(np.maximum(left, 1e-12)))
