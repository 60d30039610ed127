"""Variables that wrap around: a heading at 180 degrees, the hour of the day at 24.

In a log such a variable jumps by its whole range now and then, and moves little otherwise. An effect through its sine
becomes a function with a break in it, which models fit poorly. As an angle the variable has neither jump nor break.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.discovery.settings import FEWEST_WRAPS, OTHER_JUMPS, PERIODS, RARE_STEP, USUAL_STEP


def as_angles(data: Transitions) -> Transitions:
    """The same log with every continuous variable that wraps converted to an angle, in radians."""
    periods = {
        j: period
        for j, kind in enumerate(data.factors.kinds)
        if kind == "continuous" and (period := period_of(data.obs[:, j], data.next_obs[:, j]))
    }
    if not periods:
        return data
    obs, after = data.obs.astype(float), data.next_obs.astype(float)
    variables = list(data.factors.variables)
    for j, period in periods.items():
        obs[:, j], after[:, j] = 2 * np.pi / period * obs[:, j], 2 * np.pi / period * after[:, j]
        variables[j] = replace(variables[j], kind="angle", low=None, high=None)
    factors = Factors(tuple(variables), data.factors.action_names, data.factors.discrete_actions)
    return replace(data, obs=obs, next_obs=after, factors=factors)


def period_of(obs: np.ndarray, after: np.ndarray) -> float:
    """The period of a variable that wraps; 0 for one that does not.

    Its jumps must be usual steps once a period is added or subtracted: a level that is reset to zero from anywhere does
    not wrap. A few of the jumps may be something else, such as a sensor being switched on.
    """
    values = np.unique(np.concatenate([obs, after]))
    step, reach = after - obs, float(values[-1] - values[0])
    jumps = np.abs(step) > reach / 2
    if jumps.sum() < FEWEST_WRAPS or jumps.mean() > 0.5:
        return 0.0
    low, high = np.quantile(step[~jumps], [RARE_STEP, 1 - RARE_STEP])
    if max(-low, high) > USUAL_STEP * reach:
        return 0.0
    # Values may not quite reach both ends: take a round period that they nearly fill, else their range plus one step.
    for period in (*(p for p in PERIODS if 0.9 * p < reach <= p), reach + float(np.median(np.diff(values)))):
        unwrapped = step[jumps] - np.sign(step[jumps]) * period
        slack = USUAL_STEP * (high - low)
        if ((unwrapped >= low - slack) & (unwrapped <= high + slack)).mean() > 1 - OTHER_JUMPS:
            return float(period)
    return 0.0
