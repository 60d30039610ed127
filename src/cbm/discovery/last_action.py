"""Logs that do not show all of the state: what was done last tells of the rest, and so does whatever repeats it.

A push that acts late, a force, a velocity that nobody measured: they are traces of the last action. A variable that
only shows what was done last then helps to predict, although nothing depends on it. Models that see the last action
beside the action need no such variable.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbm.data.factors import Factors
from cbm.data.transitions import SAME, Transitions
from cbm.discovery.settings import CONTINUED, REPETITION, ROWS_PER_COLUMN
from cbm.errors import DataError


def with_last_action(data: Transitions) -> Transitions:
    """The same log with the last action beside each action; variables that repeat it are blank before the step.

    As an effect they stay what they are. The first row of an episode has no last action and is left out.
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
    """The rows whose last action is known, with it (T, columns); all rows and None where it is not used.

    `use` "auto" asks that most rows continue another one of their episode.
    """
    if use == "off":
        return data, None
    rows, before = _pairs(data)
    if len(rows) < (CONTINUED * len(data) if use == "auto" else 1):
        if use == "on":
            raise DataError("no row continues another of its episode: the last action is not known for any of them")
        return data, None
    return data.select(rows), action_numbers(data.action[before], data.factors)


def action_numbers(action: np.ndarray, factors: Factors) -> np.ndarray:
    """(T, columns) actions as inputs: a choice as one indicator for each alternative but the last, which follows."""
    columns = _numbers(action, factors.discrete_actions)
    return columns if factors.discrete_actions is None else columns[:, : max(1, columns.shape[1] - 1)]


def repetitions(data: Transitions) -> np.ndarray:
    """(d,) booleans: variables that are a linear function of the last action, and so tell nothing beside it."""
    rows, before = _pairs(data)
    obs, (_, columns) = data.obs[rows], _columns(data)
    if len(rows) < ROWS_PER_COLUMN * (columns.shape[1] + 1):
        return np.zeros(len(data.factors), bool)
    last = np.concatenate([columns[before], np.ones((len(rows), 1))], 1)
    own = obs - last @ np.linalg.lstsq(last, obs, rcond=None)[0]
    spread = obs.var(0)
    return (own.var(0) < REPETITION * spread) & (spread > 0)


def _pairs(data: Transitions) -> tuple[np.ndarray, np.ndarray]:
    """Rows that continue the one before them in their episode, and those rows before."""
    order = np.argsort(data.episode, kind="stable")  # rows of one episode become neighbours
    after, here = data.next_obs[order[:-1]], data.obs[order[1:]]
    same = np.abs(after - here) <= SAME * np.maximum(np.abs(after), np.abs(here))
    follows = (data.episode[order[1:]] == data.episode[order[:-1]]) & same.all(1)
    before = np.full(len(data), -1)
    before[order[1:][follows]] = order[:-1][follows]
    rows = np.flatnonzero(before >= 0)
    return rows, before[rows]


def _columns(data: Transitions) -> tuple[tuple[str, ...], np.ndarray]:
    """The action as numbers, a choice as one indicator for each alternative, and their names."""
    names, choices = data.factors.action_names, data.factors.discrete_actions
    if choices is not None:
        names = tuple(f"{names[0]}={k}" for k in range(choices))
    return names, _numbers(data.action, choices)


def _numbers(action: np.ndarray, choices: int | None) -> np.ndarray:
    return action if choices is None else np.eye(choices)[action[:, 0]]
