"""The previous action, for logs that do not show all of the state: it carries information about the rest, and so does
every variable that repeats it.

A push that acts with delay, a force, an unmeasured velocity: each leaves a trace of the previous action. A variable
that merely shows the previous action then helps to predict, although nothing depends on it. Models that see the
previous action as an input need no such variable.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbm.data.factors import Factors
from cbm.data.transitions import SAME, Transitions
from cbm.discovery.settings import CONTINUED, REPETITION, ROWS_PER_COLUMN
from cbm.errors import DataError


def with_last_action(data: Transitions) -> Transitions:
    """The same log with the previous action beside each action; before the step, variables that repeat it are blank.

    As effects they are unchanged. The first row of an episode has no previous action and is left out.
    """
    rows, before = _pairs(data)
    if not len(rows):
        raise DataError("no row continues another of its episode: the last action is not known for any of them")
    names, columns = _columns(data)
    part = data.select(rows)
    obs = part.obs.copy()
    obs[:, repetitions(data)] = 0.0
    last = "last "
    while {f"{last}{name}" for name in names} & set(names):
        last += "last "
    factors = Factors(data.factors.variables, (*names, *(f"{last}{name}" for name in names)))
    return replace(part, obs=obs, action=np.concatenate([columns[rows], columns[before]], 1), factors=factors)


def last_actions(data: Transitions, use: str) -> tuple[Transitions, np.ndarray | None]:
    """The rows whose previous action is known, with that action (T, columns); all rows and None if it is not used.

    With `use` "auto", most rows must continue another row of their episode.
    """
    if use == "off":
        return data, None
    rows, before = _pairs(data)
    if len(rows) < (CONTINUED * len(data) if use == "auto" else 1):
        if use == "on":
            raise DataError("no row continues another of its episode: the last action is not known for any of them")
        return data, None
    part, last = data.select(rows), data.action[before]
    return part, action_numbers(last, data.factors) if use == "on" else unrecorded(part, last)


def unrecorded(part: Transitions, last: np.ndarray) -> np.ndarray | None:
    """(T, columns) what the state does not say of the previous action (T, a); None if it says all.

    A variable that equals a component of it exactly is its record, such as a buffer from which a motor reads its
    command. What the log shows is not hidden, and the record is a variable like any other.
    """
    hidden = np.array([not _is_held(part.obs, column) for column in last.T])
    if not hidden.any():
        return None
    return last[:, hidden] if part.factors.discrete_actions is None else action_numbers(last, part.factors)


def _is_held(obs: np.ndarray, column: np.ndarray) -> bool:
    """Whether a variable of `obs` (T, d) equals `column` (T,)."""
    near = SAME * np.abs(column).max()
    close = np.flatnonzero((np.abs(obs[:100] - column[:100, None]) <= near).all(0))  # few pass on the first rows
    return any((np.abs(obs[:, j] - column) <= near).all() for j in close)


def action_numbers(action: np.ndarray, factors: Factors) -> np.ndarray:
    """(T, columns) actions as inputs: a discrete one as an indicator for each alternative but the last, which follows
    from the others."""
    columns = _numbers(action, factors.discrete_actions)
    return columns if factors.discrete_actions is None else columns[:, : max(1, columns.shape[1] - 1)]


def repetitions(data: Transitions) -> np.ndarray:
    """(d,) booleans: variables that are a linear function of the previous action, and so add no information to it."""
    rows, before = _pairs(data)
    obs, (_, columns) = data.obs[rows], _columns(data)
    if len(rows) < ROWS_PER_COLUMN * (columns.shape[1] + 1):
        return np.zeros(len(data.factors), bool)
    last = np.concatenate([columns[before], np.ones((len(rows), 1))], 1)
    own = obs - last @ np.linalg.lstsq(last, obs, rcond=None)[0]
    spread = obs.var(0)
    return (own.var(0) < REPETITION * spread) & (spread > 0)


def _pairs(data: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Rows that continue another row of their episode, and the rows that they continue."""
    order = np.argsort(data.episode, kind="stable")  # rows of one episode become neighbours
    after, here = data.next_obs[order[:-1]], data.obs[order[1:]]
    same = np.abs(after - here) <= SAME * np.maximum(np.abs(after), np.abs(here))
    follows = (data.episode[order[1:]] == data.episode[order[:-1]]) & same.all(1)
    before = np.full(len(data), -1)
    before[order[1:][follows]] = order[:-1][follows]
    rows = np.flatnonzero(before >= 0)
    return rows, before[rows]


def _columns(data: Transitions) -> tuple[tuple[str, ...], np.ndarray]:
    """Names and values of the action's columns; a discrete action has one indicator for each alternative."""
    names, choices = data.factors.action_names, data.factors.discrete_actions
    if choices is not None:
        names = tuple(f"{names[0]}={k}" for k in range(choices))
    return names, _numbers(data.action, choices)


def _numbers(action: np.ndarray, choices: int | None) -> np.ndarray:
    return action if choices is None else np.eye(choices)[action[:, 0]]
