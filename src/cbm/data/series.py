"""From the columns of a log to transitions: pairs consecutive rows, and leaves out incomplete ones.

Rows are paired with the next row of their episode. With a time column, only rows one step apart are paired: the step is
the median, with a tolerance of half a step. A pair with an empty cell is left out. The action of row t leads from row t
to row t+1; its reward and flags belong to that step. Rows count from 0, as in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cbm.data.cells import numbers_of, such_rows, times
from cbm.data.clock import CREDIBLE, Steps, alone_in_time, check_not_shuffled, no_times, not_alone, without_time
from cbm.data.factors import MAX_CATEGORIES
from cbm.data.jumps import find_jumps
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import FLAGS, Roles, Selection
from cbm.errors import DataError

Arrays = dict[str, np.ndarray]

NO_EPISODES = "no episode column"


@dataclass(frozen=True)
class Table:
    """Columns of a log as a reader found them, one row for each time step or transition."""

    columns: Mapping[str, np.ndarray]
    whole: frozenset[str] = frozenset()
    """Columns of whole numbers; those with empty cells are stored as floats."""
    about: Arrays = field(default_factory=dict)
    """Arrays of the npz contract that describe the columns: kinds, groups, ...."""


@dataclass(frozen=True)
class Reading:
    """Arrays of the npz contract, and notes on how they were found."""

    arrays: Arrays
    understood: ReadingNotes


def read_table(table: Table, selection: Selection, roles: Roles, reader: str) -> Reading:
    """Arrays of the npz contract from the columns of a table."""
    columns = table.columns
    rows = len(next(iter(columns.values()))) if columns else 0
    if not rows:
        raise DataError("the table has no rows")
    understood = ReadingNotes(reader, rows, not selection.next_obs)
    numbers = {name: numbers_of(name, columns[name]) for name in dict.fromkeys(selection.values())}
    present = _presence(numbers, roles, understood)
    arrays = arrays_of(numbers, selection)
    if selection.next_obs:
        kept = all_present(present, rows)
        understood.dropped = int((~kept).sum())
        paired = _rows_of(arrays, kept)
        if selection.episode:
            paired["episode"] = episode_codes(columns, selection.episode)[0][kept]
        understood.episode = named_columns(selection.episode) or (
            "flags" if selection.flags else "rows that continue each other"
        )
    else:
        paired, selection = _paired(arrays, columns, selection, present, understood)
    understood.guesses, understood.ignored = list(selection.guesses), dict(selection.ignored)
    action = list(selection.action.values())
    names = {"names": np.array(list(selection.obs)), "action_names": np.array(list(selection.action))}
    discrete = _discrete(paired["action"], action, table.whole, is_contract(selection))
    return Reading(paired | {"action": discrete} | names | described(table.about, selection), understood)


def described(about: Arrays, selection: Selection) -> Arrays:
    """Descriptions of variables, for those selected and in their order. `about["of"]` names what they describe: a table
    keeps the descriptions of all its variables."""
    about = dict(about)
    of = [str(name) for name in about.pop("of", np.array([], str))]
    chosen = [column.removeprefix("obs:") for column in selection.obs.values()]
    if chosen == of or not about:
        return about
    if not set(chosen) <= set(of):
        return {}
    places = [of.index(name) for name in chosen]
    whole = len(chosen) == len(of)  # the true graph of some variables is not the graph of all, restricted to them
    return {name: _taken(name, values, places) for name, values in about.items() if whole or not _is_truth(name)}


def _is_truth(name: str) -> bool:
    return name.startswith("truth")


def _taken(name: str, values: np.ndarray, places: list[int]) -> np.ndarray:
    if name == "truth":
        return np.asarray(values[np.ix_(places, [*places, len(places)])])
    return values if name == "discrete_actions" else np.asarray(values[places])


def _presence(numbers: Arrays, roles: Roles, understood: ReadingNotes) -> dict[str, np.ndarray]:
    """Columns with empty cells, and where they have values."""
    present = presence(numbers, 0, understood)
    check_missing(present, understood.rows, roles, understood)
    return present


def presence(numbers: Arrays, first_row: int, understood: ReadingNotes) -> dict[str, np.ndarray]:
    """The same for a block of rows; empty cells are added to `understood`."""
    present: dict[str, np.ndarray] = {}
    touched = np.zeros(len(next(iter(numbers.values()))), bool)
    for name, values in numbers.items():
        empty = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, bool)
        if empty.any():
            present[name] = ~empty
            touched |= empty
            understood.missing[name] = understood.missing.get(name, 0) + int(empty.sum())
            understood.first_empty.setdefault(name, first_row + int(np.argmax(empty)))
    understood.note("missing_rows", first_row + np.flatnonzero(touched))
    return present


def check_missing(columns: Iterable[str], rows: int, roles: Roles, understood: ReadingNotes) -> None:
    """Refuse empty cells if `roles` says so, and columns that are entirely empty; in the order of the columns."""
    for name in columns:
        count = understood.missing.get(name, 0)
        if count and roles.missing == "refuse":
            first = understood.first_empty[name]
            raise DataError(f"column {name!r}, row {first}: the cell is empty ({such_rows(count)})")
        if count == rows:
            raise DataError(f"column {name!r} is empty: no row has a value")


def arrays_of(numbers: Arrays, selection: Selection) -> Arrays:
    stack = lambda part: np.column_stack([numbers[column] for column in part.values()])  # noqa: E731
    arrays = {"obs": stack(selection.obs), "action": stack(selection.action)}
    if selection.next_obs:
        arrays["next_obs"] = stack(selection.next_obs)
    for name, column in selection.reward.items():
        arrays["reward" if name == "reward" else f"reward_{name}"] = numbers[column]
    arrays |= {f"context_{name}": numbers[column] for name, column in selection.context.items()}
    return arrays | {flag: numbers[selection.flags[flag]] for flag in FLAGS if flag in selection.flags}


def _rows_of(arrays: Arrays, kept: np.ndarray) -> Arrays:
    return arrays if kept.all() else {name: values[kept] for name, values in arrays.items()}


def all_present(present: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    kept = np.ones(rows, bool)
    for here in present.values():
        kept &= here
    return kept


def _paired(
    arrays: Arrays, columns: Mapping[str, np.ndarray], selection: Selection, present: Mapping[str, np.ndarray],
    understood: ReadingNotes,
) -> tuple[Arrays, Selection]:  # fmt: skip
    """Transitions of a time series: each row with its successor."""
    rows = understood.rows
    if rows < 2:
        raise DataError("a time series of one row has no row to pair it with")
    episode, complete = _episodes(columns, selection, arrays, understood)
    time, selection = _clock(columns, selection)
    order = order_of(episode, time, selection, understood)
    episode, complete = episode[order], complete[order]
    follows = same_episode(episode, complete)
    if time is not None:
        episode, follows, clocked = _timed(time[order], episode, follows, order, selection, understood)
        if clocked.time is None:  # a guess that was wrong: the rows keep their order
            understood.sorted_by_time = False
            return _paired(arrays, columns, clocked, present, understood)
    whole = follows & complete_pairs(present, selection, order)
    understood.dropped = int((follows & ~whole).sum())
    first = np.flatnonzero(whole)
    if not len(first):
        raise DataError(nothing_left(understood))
    paired = {name: values[order[first]] for name, values in arrays.items()}
    paired |= {"next_obs": arrays["obs"][order[first + 1]], "episode": episode[first]}
    if not (selection.episode or selection.flags or understood.restarts):
        jumps = find_jumps(paired["obs"], paired["next_obs"], paired["action"])
        understood.note("jumps", order[first][jumps])
    return paired, selection


def same_episode(episode: np.ndarray, complete: np.ndarray) -> np.ndarray:
    """(T-1,) whether a row and the next belong to one episode; `complete` says which rows belong to any."""
    return np.asarray((episode[:-1] == episode[1:]) & complete[:-1] & complete[1:])


def complete_pairs(present: Mapping[str, np.ndarray], selection: Selection, order: np.ndarray) -> np.ndarray:
    """(T-1,) whether a row has all its values, and the next row has its state."""
    observed = set(selection.obs.values())
    here = all_present(present, len(order))[order]
    state = all_present({n: v for n, v in present.items() if n in observed}, len(order))[order]
    return np.asarray(here[:-1] & state[1:])


def nothing_left(understood: ReadingNotes) -> str:
    said = f"a time series of {understood.rows} rows without two consecutive rows of one episode"
    reasons = [
        f"column {name!r}, row {row}: the cell is empty, nan"
        for name, row in zip(list(understood.missing)[:1], understood.missing_rows[:1], strict=False)
    ]
    reasons += [f"time {understood.time!r} skips {len(understood.gaps)} times"] if understood.gaps else []
    return f"{said} ({'; '.join(reasons)})" if reasons else said


def _episodes(
    columns: Mapping[str, np.ndarray], selection: Selection, arrays: Arrays, understood: ReadingNotes
) -> tuple[np.ndarray, np.ndarray]:
    """Episode of each row, and whether it has one; from a column, or from flags at the ends of episodes."""
    rows = understood.rows
    if selection.episode:
        understood.episode = named_columns(selection.episode)
        return episode_codes(columns, selection.episode)
    ended = ended_rows({flag: arrays[flag] for flag in selection.flags}, rows)
    understood.episode = "flags" if selection.flags else NO_EPISODES
    return np.cumsum(np.concatenate([[False], ended[:-1]])), np.ones(rows, bool)


def ended_rows(flags: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    """(T,) whether a row is the last of its episode according to any flag."""
    ended = np.zeros(rows, bool)
    for values in flags.values():
        ended |= np.nan_to_num(values.astype(float)).astype(bool)
    return ended


def named_columns(columns: tuple[str, ...]) -> str:
    return f"column {' and '.join(map(repr, columns))}" if columns else ""


def episode_codes(columns: Mapping[str, np.ndarray], names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers are kept; anything else is numbered in order of occurrence."""
    if has_whole_episodes(columns, names):
        return whole_episodes(columns[names[0]])
    return named_episodes(columns, names, {})


def has_whole_episodes(columns: Mapping[str, np.ndarray], names: tuple[str, ...]) -> bool:
    if len(names) != 1 or columns[names[0]].dtype.kind not in "iufb":
        return False
    values = columns[names[0]].astype(float)
    values = values[np.isfinite(values)]
    return bool((values == np.floor(values)).all() and (np.abs(values) < 1e15).all())


def whole_episodes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Episodes and whether a row has one, from a column of whole numbers."""
    complete = np.isfinite(values.astype(float))
    return np.where(complete, values, -1).astype(np.int64), complete


def named_episodes(
    columns: Mapping[str, np.ndarray], names: tuple[str, ...], codes: dict[tuple[Any, ...], int]
) -> tuple[np.ndarray, np.ndarray]:
    """The same for names, or for several columns; `codes` has the numbers given so far and gets the new ones."""
    keys = list(zip(*(columns[name].tolist() for name in names), strict=True))
    complete = np.array([all(part is not None and part == part and part != "" for part in key) for key in keys], bool)
    return np.array([codes.setdefault(key, len(codes)) for key in keys], np.int64), complete


def _clock(columns: Mapping[str, np.ndarray], selection: Selection) -> tuple[np.ndarray | None, Selection]:
    """Time of each row as numbers, dates in seconds; a guessed column that contains no times is dropped."""
    name = selection.time
    if name is None:
        return None, selection
    values = columns[name]
    try:
        return times(name, values), selection
    except DataError as error:
        if not selection.time_is_guess:
            raise
        return None, without_time(selection, no_times(name, error))


def order_of(
    episode: np.ndarray, time: np.ndarray | None, selection: Selection, understood: ReadingNotes
) -> np.ndarray:
    """Rows in order of time within their episodes, for logs that mix several episodes."""
    rows = np.arange(len(episode))
    if time is None or not selection.episode:
        return rows
    _, place, number = np.unique(episode, return_index=True, return_inverse=True)
    group = np.argsort(np.argsort(place))[number]  # episodes in the order in which they first occur
    order = np.lexsort((rows, time, group))
    understood.sorted_by_time = bool((order != rows).any())
    return order


def _timed(
    time: np.ndarray, episode: np.ndarray, follows: np.ndarray, order: np.ndarray, selection: Selection,
    understood: ReadingNotes,
) -> tuple[np.ndarray, np.ndarray, Selection]:  # fmt: skip
    """Only rows one step apart follow each other; where time goes back, a new episode begins."""
    steps = np.diff(time)
    forward = follows & (steps > 0)
    if not forward.any():
        if selection.time_is_guess:
            check_not_shuffled(selection, time)
            return episode, follows, without_time(selection, "it never increases")
        raise DataError(f"time column {selection.time!r} never increases from one row to the next")
    step = float(np.median(steps[forward]))
    found = Steps.of(steps, follows, step)
    if selection.time_is_guess and found.even.sum() < CREDIBLE * follows.sum():
        check_not_shuffled(selection, time)
        return episode, follows, without_time(selection, "no even steps")
    understood.time, understood.step = selection.time, step
    found.report(order[:-1], understood)
    if found.stands.any():
        clear = alone_in_time(found.stands)
        if not clear.any() or clear.mean() < CREDIBLE:
            first = int(np.argmax(found.stands))
            raise DataError(not_alone(selection, order[first], order[first + 1], float(time[first])))
        found = replace(found, even=found.even & clear[:-1] & clear[1:])
    if found.back.any() and not selection.episode:
        episode = episode + np.concatenate([[0], np.cumsum(found.back)])
        understood.episode = "time that goes back" if understood.episode == NO_EPISODES else understood.episode
    return episode, found.even, selection


def _discrete(action: np.ndarray, columns: list[str], whole: frozenset[str], contract: bool) -> np.ndarray:
    """A single column of few whole numbers from 0 is a discrete action; in our own layout, any column of whole
    numbers."""
    if not set(columns) <= whole:
        return action.astype(float)
    choice = is_choice(columns, int(action.min()), int(action.max()), contract)
    return action.astype(np.int64) if choice else action.astype(float)


def is_choice(columns: list[str], low: int, high: int, contract: bool) -> bool:
    """Whether whole numbers from `low` to `high` are discrete actions."""
    return contract or (len(columns) == 1 and low >= 0 and high < MAX_CATEGORIES)


def is_contract(selection: Selection) -> bool:
    """Whether the columns are named as in our own layout."""
    return all(column.startswith("obs:") for column in selection.obs.values())
