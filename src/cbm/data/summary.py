"""The contents of `cbm check`: what a log contains, and what looks wrong with it, in numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from cbm.data.jumps import find_jumps
from cbm.data.log import Log
from cbm.data.mapped import MappedTransitions, block_rows, read_range, read_rows
from cbm.data.reading_notes import SHOWN, listing
from cbm.data.remarks import FEW_ROWS, too_small
from cbm.data.statistics import Statistics
from cbm.data.transitions import Transitions
from cbm.data.validate import reward_array

ROWS_PER_VARIABLE = 20
"""With fewer transitions per variable and action, weak effects cannot be distinguished from chance."""
SHORTEST = 50
"""`cbm discover` refuses logs with fewer transitions."""
NEAR = 0.9999
"""Correlation above which two variables count as nearly the same."""
SAMPLE = 512
"""Rows in which candidate pairs are compared."""
PROJECTIONS = 3
FAR = 20.0
"""A value so many times as far away as nine tenths of all values are wide may stand for a missing one."""
EVEN = 0.02
"""A clock's steps differ by no more than this share."""


def summarise(log: Log, source: str) -> dict[str, Any]:
    """Everything that `cbm check --json` prints."""
    data, understood = log.data, log.understood
    known = data.statistics()
    constant = known.constant("obs")
    same, near = duplicates(data, constant)
    result = {
        "source": source,
        "reader": understood.reader,
        "rows": understood.rows,
        "transitions": len(data),
        "episodes": data.runs().episodes,
        "episodes_from": understood.episode,
        "step": understood.step,
        "time": understood.time,
        "variables": _variables(data, known),
        "actions": _actions(data, known),
        "rewards": {name: _range(known, reward_array(name), 0) for name in data.rewards},
        "constants": _constant_names(data, known),
        "duplicates": same,
        "near_duplicates": near,
        "clocks": clocks(data),
        "sentinels": sentinels(data, known),
        "repeated_rows": _repeated_rows(data),
        "understood": understood.to_json(),
        "notes": understood.sentences(),
    }
    return result | {"warnings": warnings(result, data)}


def warnings(result: dict[str, Any], data: Transitions) -> list[str]:
    """Everything that looks wrong, one sentence each."""
    said = []
    columns = len(data.factors) + len(data.factors.action_names)
    if len(data) < SHORTEST:
        said.append(f"{len(data)} transitions are too few: cbm discover needs {SHORTEST}")
    elif len(data) < (enough := max(FEW_ROWS, ROWS_PER_VARIABLE * columns)):
        said.append(
            f"{len(data):,} transitions are few for {columns:,} variables and actions: "
            f"with fewer than about {enough:,}, expect undecided cells"
        )
    said += too_small(data)
    if result["constants"]:
        said.append(f"constant: {listing(result['constants'])} (remove, or pass --allow-constant)")
    for key, words in (("duplicates", "the same"), ("near_duplicates", "nearly the same")):
        pairs = [f"{a} and {b}" for a, b in result[key]]
        if pairs:
            said.append(f"{words}: {listing(pairs)} (which of them is the cause cannot be told)")
    for name, value, count in result["sentinels"][:SHOWN]:
        said.append(f"{name!r} is {value:g} in {count:,} rows, far from all else: does it stand for a missing value?")
    if result["clocks"]:
        said.append(
            f"rises by nearly the same amount in every step: {listing(result['clocks'])} "
            "(a clock is no state: name it with --time, or leave it out with --obs)"
        )
    if result["repeated_rows"]:
        said.append(f"{result['repeated_rows']:,} transitions occur more than once, exactly")
    if not data.rewards:
        said.append("there is no reward: a graph can be found, but no minimal state")
    if result["understood"]["jumps"] == [] and result["episodes"] == 1 and result["reader"] == "npz":
        jumps = find_jumps(data.obs, data.next_obs, data.action)
        if len(jumps):
            said.append(
                f"the state jumps {len(jumps)} times as it does nowhere else: rows {listing(list(map(str, jumps)))}"
            )
    return said


def _variables(data: Transitions, known: Statistics) -> list[dict[str, Any]]:
    low, high, changed = known.low["obs"], known.high["obs"], known.changed
    columns = zip(data.factors.variables, low.tolist(), high.tolist(), changed.tolist(), strict=True)
    return [
        {"name": variable.name, "kind": variable.kind, "low": lowest, "high": highest, "changed": share}
        for variable, lowest, highest, share in columns
    ]


def _actions(data: Transitions, known: Statistics) -> list[dict[str, Any]]:
    choices = data.factors.discrete_actions
    kind = "continuous" if choices is None else f"one of {choices}"
    names = data.factors.action_names
    return [{"name": name, "kind": kind, **_range(known, "action", i)} for i, name in enumerate(names)]


def _range(known: Statistics, array: str, column: int) -> dict[str, float]:
    return {"low": float(known.low[array][column]), "high": float(known.high[array][column])}


def _constant_names(data: Transitions, known: Statistics) -> list[str]:
    names = [data.factors.names[i] for i in np.flatnonzero(known.constant("obs"))]
    names += [f"reward {name}" for name in data.rewards if known.constant(reward_array(name)).all()]
    return names + [f"action {data.factors.action_names[i]}" for i in np.flatnonzero(known.constant("action"))]


def duplicates(data: Transitions, constant: np.ndarray) -> tuple[list[list[str]], list[list[str]]]:
    """Pairs of columns that are equal everywhere, and pairs that differ only by scale, offset and a little noise.

    Actions are compared with the variables, too, because a state may hold the command of its row.
    Equal columns have equal projections: when sorted by a few random projections they are neighbours, so ten thousand
    variables cost no more than sorting them.
    """
    rows = np.linspace(0, len(data) - 1, min(len(data), SAMPLE)).astype(int)
    parts = _parts(data)
    names = [name for part in parts for name in part.names]
    values = np.hstack([read_rows(part.values, rows).reshape(len(rows), -1).astype(float) for part in parts])
    varies = values.std(0) > 0
    varies[: len(constant)] &= ~constant
    columns, values = np.flatnonzero(varies), values[:, varies]
    if len(columns) < 2 or len(rows) < 8:
        return [], []
    standard = (values - values.mean(0)) / values.std(0)
    rng = np.random.default_rng(0)
    pairs: dict[tuple[int, int], bool] = {}
    for _ in range(PROJECTIONS):
        place = rng.normal(size=len(rows)) @ standard
        order = np.argsort(np.abs(place), kind="stable")  # a copy with opposite sign is a neighbour, too
        left, right = order[:-1], order[1:]
        alike = np.abs(np.einsum("tj,tj->j", standard[:, left], standard[:, right])) / len(rows) > NEAR
        for a, b in zip(left[alike].tolist(), right[alike].tolist(), strict=True):
            first, second = sorted((int(columns[a]), int(columns[b])))
            if first < len(constant):  # two actions may well be alike
                pairs[first, second] = _are_equal(parts, first, second)
    found = sorted(pairs.items())
    return ([[names[a], names[b]] for (a, b), exact in found if exact],
            [[names[a], names[b]] for (a, b), exact in found if not exact])  # fmt: skip


class _Part(NamedTuple):
    """Columns of one array, and what they are called."""

    names: list[str]
    values: np.ndarray


def _parts(data: Transitions) -> list[_Part]:
    """The state first."""
    actions = [f"action {name}" for name in data.factors.action_names]
    return [_Part(list(data.factors.names), data.obs), _Part(actions, data.action)]


def _are_equal(parts: list[_Part], first: int, second: int) -> bool:
    """Whether two columns, counted through all parts, are equal in every row."""
    return all((a == b).all() for a, b in zip(_column(parts, first), _column(parts, second), strict=True))


def _column(parts: list[_Part], number: int) -> Iterator[np.ndarray]:
    """One column in blocks of rows that are the same for all columns."""
    for part in parts:
        if number < len(part.names):
            size = block_rows(len(parts[0].names))
            for start in range(0, len(part.values), size):
                block = read_range(part.values, start, min(len(part.values), start + size))
                yield block.reshape(len(block), -1)[:, number]
            return
        number -= len(part.names)


def sentinels(data: Transitions, known: Statistics) -> list[tuple[str, float, int]]:
    """Variables with a value far from all else that occurs more than once: it may stand for a missing one."""
    rows = np.linspace(0, len(data) - 1, min(len(data), SAMPLE)).astype(int)
    low, high = np.quantile(read_rows(data.obs, rows), (0.05, 0.95), axis=0)
    lowest, highest, far = known.low["obs"], known.high["obs"], FAR * (high - low)
    parts, found = _parts(data), []
    for values, away in ((lowest, low - lowest > far), (highest, highest - high > far)):
        for i in np.flatnonzero(away & (far > 0)).tolist():
            count = sum(int((block == values[i]).sum()) for block in _column(parts, i))
            found += [(data.factors.names[i], float(values[i]), count)] if count > 1 else []
    return found


def clocks(data: Transitions) -> list[str]:
    """Variables that count time or rows: they rise in every step, by nearly the same amount."""
    rows = np.linspace(0, len(data) - 1, min(len(data), SAMPLE)).astype(int)
    step = read_rows(data.next_obs, rows) - read_rows(data.obs, rows)
    usual = np.median(step, axis=0)
    even = (usual > 0) & (np.abs(step - usual).max(axis=0) <= EVEN * usual)
    return [data.factors.names[i] for i in np.flatnonzero(even)]


def _repeated_rows(data: Transitions) -> int | None:
    """Number of repeated transitions, by a fingerprint of each row; None: not counted in a memory-mapped log."""
    if isinstance(data, MappedTransitions):
        return None  # the fingerprints alone would take memory in proportion to the rows
    if all(kind != "continuous" for kind in data.factors.kinds):
        return 0  # rows of a few discrete values repeat anyway
    rng = np.random.default_rng(1)
    rows = np.hstack([data.obs, data.action.astype(float), data.next_obs])
    low, high = rows.min(0), rows.max(0)
    span = np.where(high > low, high - low, 1)
    marks = ((rows - low) / span) @ rng.normal(size=rows.shape[1])
    return len(marks) - len(np.unique(marks))
