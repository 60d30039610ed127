"""Selects the rows of a log that discovery uses: a limited number, in whole episodes, the same for a log in memory and
a memory-mapped one.

Everything is computed from the runs of episodes, so memory does not depend on the number of rows.
"""

from __future__ import annotations

import numpy as np

from cbm.data.mapped import MappedTransitions
from cbm.data.runs import Runs, expanded
from cbm.data.transitions import Transitions
from cbm.discovery.last_action import action_numbers, last_actions, unrecorded
from cbm.discovery.settings import CONTINUED, FEWEST_UNITS, MOST_FITTED, MOST_NUMBERS, MOST_TESTED, Settings
from cbm.errors import DataError

_STREAM = 76  # stream of random numbers derived from the seed


def some_rows(runs: Runs, most: int, seed: int) -> np.ndarray:
    """Indices of at most `most` rows: whole episodes (or blocks, where these are long), drawn at random."""
    total = runs.rows
    if total <= most:
        return np.arange(total)
    _, unit = np.unique(runs.episode, return_inverse=True)
    sizes = np.zeros(int(unit.max()) + 1, np.int64)
    np.add.at(sizes, unit, runs.length)
    if len(sizes) >= FEWEST_UNITS and sizes.max() <= min(total / 8, most):
        chosen = np.isin(unit, _drawn(sizes, most, seed))
        return expanded(runs.start[chosen], runs.length[chosen])
    return _rows_in_blocks(runs, unit, most, seed)


def _drawn(sizes: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Numbers of random units whose sizes add up to no more than `most`; at least one unit."""
    order = np.random.default_rng([seed, _STREAM]).permutation(len(sizes))
    return order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, "right")))]


def _rows_in_blocks(runs: Runs, unit: np.ndarray, most: int, seed: int) -> np.ndarray:
    """For few or long episodes: rows in the order of their episodes, cut into blocks of one length.

    A block never has more than `most` rows; if the usual number of blocks were too small for that, there are more of
    them.
    """
    total, count = runs.rows, min(2 * FEWEST_UNITS, runs.rows)
    if total > most * count:
        count = -(-total // max(1, most // (2 * FEWEST_UNITS)))
    edges = -(-np.arange(count + 1) * total // count)  # block b begins at the least p with p * count // total == b
    chosen = _drawn(np.diff(edges), most, seed)
    place = expanded(edges[chosen], np.diff(edges)[chosen])
    order = np.argsort(unit, kind="stable")
    length = runs.length[order]
    begin = np.cumsum(length) - length
    run = np.searchsorted(begin, place, "right") - 1
    return np.sort(runs.start[order][run] + place - begin[run])


def affordable(data: Transitions, settings: Settings) -> int:
    """Number of rows to use: as many as the settings say, or fewer of a log with very many variables."""
    columns = len(data.factors) + len(data.factors.action_names) + settings.shadows
    return min(settings.most_rows, max(MOST_FITTED + MOST_TESTED, MOST_NUMBERS // columns))


def draw(data: Transitions, settings: Settings, seed: int) -> tuple[Transitions, np.ndarray | None]:
    """The rows to measure on, in memory, and the previous action of each where it is used."""
    if not isinstance(data, MappedTransitions):
        data, last = last_actions(data, settings.last_action)
        rows = some_rows(data.runs(), affordable(data, settings), seed)
        return (data, last) if len(rows) == len(data) else (data.select(rows), None if last is None else last[rows])
    return _drawn_from_map(data, settings, seed)


def _drawn_from_map(data: MappedTransitions, settings: Settings, seed: int) -> tuple[Transitions, np.ndarray | None]:
    continued = data.continued()
    use, count = settings.last_action, continued.rows
    if use == "on" and not count:
        raise DataError("no row continues another of its episode: the last action is not known for any of them")
    if use == "off" or count < (CONTINUED * len(data) if use == "auto" else 1):
        return sample(data, affordable(data, settings), seed), None
    rows, before = data.places_of_continued(some_rows(continued, affordable(data, settings), seed))
    part, last = data.select(rows), data.actions_at(before)
    return part, action_numbers(last, data.factors) if use == "on" else unrecorded(part, last)


def sample(data: Transitions, most: int, seed: int) -> Transitions:
    """At most `most` rows in memory; the log itself if it is no longer than that."""
    rows = some_rows(data.runs(), most, seed)
    return data if len(rows) == len(data) and not isinstance(data, MappedTransitions) else data.select(rows)


def in_memory(data: Transitions, most: int, seed: int) -> Transitions:
    """A log in memory as it is; at most `most` rows of a memory-mapped one."""
    return sample(data, most, seed) if isinstance(data, MappedTransitions) else data
