"""From the columns of a log to transitions: which row follows which, and what is left out.

Rows are paired with the next row of their episode. With a time column only rows one step apart are paired: the step is
the median, and half a step more or less is allowed. A pair that an empty cell touches is left out. The action of row t
leads from row t to row t+1; its reward and flags belong to that step. Rows count from 0, as in the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from cbm.data.factors import MAX_CATEGORIES
from cbm.data.jumps import find_jumps
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import FLAGS, Roles, Selection
from cbm.errors import DataError

Arrays = dict[str, np.ndarray]

TOLERANCE = 0.5
"""Share of a step by which two neighbours may be too near or too far apart."""
NO_EPISODES = "no episode column"
CREDIBLE = 0.5
"""A guessed time column that would leave out more than this share of the pairs is none."""


@dataclass(frozen=True)
class Table:
    """Columns of a log as a reader found them, one row for each time step or transition."""

    columns: Mapping[str, np.ndarray]
    whole: frozenset[str] = frozenset()
    """Columns of whole numbers; with empty cells they are stored as floats."""
    about: Arrays = field(default_factory=dict)
    """Arrays of the contract that describe the columns: kinds, groups, ...."""


@dataclass(frozen=True)
class Reading:
    """Arrays of the contract, and how they were found."""

    arrays: Arrays
    understood: ReadingNotes


def read_table(table: Table, selection: Selection, roles: Roles, reader: str) -> Reading:
    """Arrays of the contract from the columns of a table."""
    columns = table.columns
    rows = len(next(iter(columns.values()))) if columns else 0
    if not rows:
        raise DataError("the table has no rows")
    understood = ReadingNotes(reader, rows, not selection.next_obs)
    numbers = {name: _numbers(name, columns[name]) for name in dict.fromkeys(selection.values())}
    present = _presence(numbers, roles, understood)
    arrays = _arrays(numbers, selection)
    if selection.next_obs:
        kept = _all(present, rows)
        understood.dropped = int((~kept).sum())
        paired = _rows_of(arrays, kept)
        if selection.episode:
            paired["episode"] = _episode_codes(columns, selection.episode)[0][kept]
        understood.episode = _named(selection.episode) or (
            "flags" if selection.flags else "rows that continue each other"
        )
    else:
        paired, selection = _paired(arrays, columns, selection, present, understood)
    understood.guesses, understood.ignored = list(selection.guesses), dict(selection.ignored)
    action = list(selection.action.values())
    names = {"names": np.array(list(selection.obs)), "action_names": np.array(list(selection.action))}
    discrete = _discrete(paired["action"], action, table.whole, contract=any(":" in c for c in selection.obs.values()))
    return Reading(paired | {"action": discrete} | names | table.about, understood)


def _presence(numbers: Arrays, roles: Roles, understood: ReadingNotes) -> dict[str, np.ndarray]:
    """Columns with empty cells, and where they have a value."""
    present: dict[str, np.ndarray] = {}
    touched = np.zeros(understood.rows, bool)
    for name, values in numbers.items():
        empty = np.isnan(values) if values.dtype.kind == "f" else np.zeros(0, bool)
        if empty.any():
            row = int(np.argmax(empty))
            if roles.missing == "refuse":
                raise DataError(f"column {name!r}, row {row}: the cell is empty ({empty.sum()} such rows)")
            if empty.all():
                raise DataError(f"column {name!r} is empty: no row has a value")
            present[name] = ~empty
            touched |= empty
            understood.missing[name] = int(empty.sum())
    understood.missing_rows = np.flatnonzero(touched).tolist()
    return present


def _arrays(numbers: Arrays, selection: Selection) -> Arrays:
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


def _all(present: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    kept = np.ones(rows, bool)
    for here in present.values():
        kept &= here
    return kept


def _paired(
    arrays: Arrays, columns: Mapping[str, np.ndarray], selection: Selection, present: Mapping[str, np.ndarray],
    understood: ReadingNotes,
) -> tuple[Arrays, Selection]:  # fmt: skip
    """Transitions of a time series: each row with the one that follows it."""
    rows = understood.rows
    if rows < 2:
        raise DataError(f"a time series of {rows} rows without two consecutive rows of one episode")
    episode, complete = _episodes(columns, selection, arrays, understood)
    time, selection = _clock(columns, selection)
    order = _order(episode, time, selection, understood)
    episode, complete = episode[order], complete[order]
    follows = (episode[:-1] == episode[1:]) & complete[:-1] & complete[1:]
    if time is not None:
        episode, follows, selection = _timed(time[order], episode, follows, order, selection, understood)
    here = _all(present, rows)[order]
    observed = set(selection.obs.values())
    state = _all({n: v for n, v in present.items() if n in observed}, rows)[order]
    whole = follows & here[:-1] & state[1:]
    understood.dropped = int((follows & ~whole).sum())
    first = np.flatnonzero(whole)
    if not len(first):
        raise DataError(_nothing_left(understood))
    paired = {name: values[order[first]] for name, values in arrays.items()}
    paired |= {"next_obs": arrays["obs"][order[first + 1]], "episode": episode[first]}
    if not (selection.episode or selection.flags or understood.restarts):
        jumps = find_jumps(paired["obs"], paired["next_obs"], paired["action"])
        understood.jumps = order[first][jumps].tolist()
    return paired, selection


def _nothing_left(understood: ReadingNotes) -> str:
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
    """Episode of each row, and whether it has one; from a column, or from flags at the ends."""
    rows = understood.rows
    if selection.episode:
        understood.episode = _named(selection.episode)
        return _episode_codes(columns, selection.episode)
    ended = np.zeros(rows, bool)
    for flag in selection.flags:
        ended |= np.nan_to_num(arrays[flag].astype(float)).astype(bool)
    understood.episode = "flags" if selection.flags else NO_EPISODES
    return np.cumsum(np.concatenate([[False], ended[:-1]])), np.ones(rows, bool)


def _named(columns: tuple[str, ...]) -> str:
    return f"column {' and '.join(map(repr, columns))}" if columns else ""


def _episode_codes(columns: Mapping[str, np.ndarray], names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers stay as they are; anything else is numbered in the order in which it occurs."""
    if len(names) == 1 and columns[names[0]].dtype.kind in "iufb":
        values = columns[names[0]].astype(float)
        complete = np.isfinite(values)
        if (values[complete] == np.floor(values[complete])).all() and (np.abs(values[complete]) < 1e15).all():
            return np.where(complete, values, -1).astype(np.int64), complete
    codes: dict[tuple[Any, ...], int] = {}
    keys = list(zip(*(columns[name].tolist() for name in names), strict=True))
    complete = np.array([all(part is not None and part == part and part != "" for part in key) for key in keys])
    return np.array([codes.setdefault(key, len(codes)) for key in keys], np.int64), complete


def _clock(columns: Mapping[str, np.ndarray], selection: Selection) -> tuple[np.ndarray | None, Selection]:
    """Time of each row as numbers, dates in seconds; a guess that holds no times is taken back."""
    name = selection.time
    if name is None:
        return None, selection
    values = columns[name]
    try:
        return _times(name, values), selection
    except DataError:
        if not selection.time_is_guess:
            raise
        return None, _without_time(selection, "no times in it")


def _without_time(selection: Selection, why: str) -> Selection:
    guesses = tuple(guess for guess in selection.guesses if not guess.startswith("time: "))
    return replace(selection, time=None, guesses=guesses, ignored=selection.ignored | {str(selection.time): why})


def _times(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "M":
        empty = np.isnat(values)
        if empty.all():
            raise DataError(f"column {name!r} is empty: no row has a time")
        seconds = (values - values[~empty].min()) / np.timedelta64(1, "s")
        return np.where(empty, np.nan, seconds)
    if values.dtype.kind in "iufb":
        return values.astype(float)
    stamps = np.array([_seconds(name, row, cell) for row, cell in enumerate(values.tolist())])
    return stamps - np.nanmin(stamps) if np.isfinite(stamps).any() else stamps


def _seconds(name: str, row: int, cell: object) -> float:
    """Seconds of one date in ISO 8601."""
    text = str(cell).strip() if cell is not None else ""
    if not text:
        return np.nan
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()  # without a zone: no clock changes
    except (ValueError, OverflowError, OSError):
        raise DataError(f"column {name!r}, row {row}: {text!r:.60} is neither a number nor a date (ISO 8601)") from None


def _order(episode: np.ndarray, time: np.ndarray | None, selection: Selection, understood: ReadingNotes) -> np.ndarray:
    """Rows in the order of time within their episodes, where a log mixes several of them."""
    rows = np.arange(len(episode))
    if time is None or not selection.episode:
        return rows
    _, place = np.unique(episode, return_index=True)
    rank = {int(episode[row]): number for number, row in enumerate(np.sort(place))}
    group = np.array([rank[number] for number in episode.tolist()])
    order = np.lexsort((rows, time, group))
    understood.sorted_by_time = bool((order != rows).any())
    return order


def _timed(
    time: np.ndarray, episode: np.ndarray, follows: np.ndarray, order: np.ndarray, selection: Selection,
    understood: ReadingNotes,
) -> tuple[np.ndarray, np.ndarray, Selection]:  # fmt: skip
    """Only rows one step apart follow each other; time that goes back begins a new episode."""
    steps = np.diff(time)
    forward = follows & (steps > 0)
    if not forward.any():
        if selection.time_is_guess:
            return episode, follows, _without_time(selection, "it never increases")
        raise DataError(f"time column {selection.time!r} never increases from one row to the next")
    step = float(np.median(steps[forward]))
    even = forward & (np.abs(steps - step) <= TOLERANCE * step)
    back = follows & (steps < 0)
    if selection.time_is_guess and even.sum() < CREDIBLE * follows.sum():
        return episode, follows, _without_time(selection, "no even steps")
    rows = order[:-1]
    understood.time, understood.step = selection.time, step
    understood.gaps = rows[follows & ~even & ~back & (steps != 0)].tolist()
    understood.repeated = rows[follows & (steps == 0)].tolist()
    understood.restarts = rows[back].tolist()
    if back.any() and not selection.episode:
        episode = episode + np.concatenate([[0], np.cumsum(back)])
        understood.episode = "time that goes back" if understood.episode == NO_EPISODES else understood.episode
    return episode, even, selection


def _numbers(name: str, values: np.ndarray) -> np.ndarray:
    """A column of finite numbers, NaN where a cell is empty; the row of an error is the one in the source."""
    if values.dtype.kind == "O":
        values = _from_objects(name, values)
    if values.dtype.kind not in "fiub":
        raise DataError(f"column {name!r} is not numeric: row 0 is {_cell(values[0])}")
    infinite: np.ndarray = np.flatnonzero(np.isinf(values)) if values.dtype.kind == "f" else np.empty(0, int)
    if len(infinite):
        row = infinite[0]
        raise DataError(f"column {name!r}, row {row}: {values[row]} is not finite ({len(infinite)} such rows)")
    return values


def _from_objects(name: str, values: np.ndarray) -> np.ndarray:
    """Numbers and booleans among cells that are empty."""
    numbers = np.full(len(values), np.nan)
    for row, cell in enumerate(values.tolist()):
        if cell is None or cell != cell:
            continue
        if not isinstance(cell, bool | int | float | np.number | np.bool_):
            raise DataError(f"column {name!r} is not numeric: row {row} is {_cell(cell)}")
        numbers[row] = float(cell)
    return numbers


def _cell(value: object) -> str:
    return f"{value!r:.60}"


def _discrete(action: np.ndarray, columns: list[str], whole: frozenset[str], contract: bool) -> np.ndarray:
    """One column of few whole numbers from 0 is a choice; in our own layout, any column of whole numbers."""
    if not set(columns) <= whole:
        return action.astype(float)
    counts = action.astype(np.int64)
    if contract:
        return counts
    few = len(columns) == 1 and counts.min() >= 0 and counts.max() < MAX_CATEGORIES
    return counts if few else action.astype(float)
