"""`cbm bench calibration`: discovery, five baselines and the trivial answer on every kind of system.

Rows are written as they are finished; the same command continues where it was stopped.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.calibration import Options
from benchmarks.calibration.baselines import METHODS
from benchmarks.calibration.counts import count_edges, count_states, self_edges, verdicts_of
from benchmarks.calibration.kinds import KINDS
from benchmarks.pcmci import NotRun, missing
from benchmarks.store import Columns, Row, Store, command
from cbm.data.transitions import Transitions
from cbm.discovery.discover import discover
from cbm.discovery.settings import Settings
from cbm.errors import DataError

OURS, PEER, TRIVIAL = "cbm", "pcmci", "self-edges"
FEWEST_ROWS = 200
TEXT, WHOLE = ("kind", "method"), ("seed", "transitions")
EDGES = (
    "f1", "f1_claimed", "claimed_edges", "false_edges", "claimed_nones", "wrong_nones", "undecided_share",
    "undecided_true", "undecided_false",
)  # fmt: skip
STATES = ("states_right", "states_wrong", "states_undecided", "states_lacking")
COLUMNS = Columns((*TEXT, *WHOLE), (*EDGES, *STATES, "seconds"), TEXT, WHOLE)


def run(options: Options) -> dict[str, Any]:
    """All rows, their means over the seeds, and the totals of each method over all kinds."""
    options = _checked(options)
    console, store = Console(), Store(options.out, COLUMNS)
    if options.discovery and options.workers > 1 and "workers" not in inspect.signature(discover).parameters:
        console.print("discovery runs in one process: it takes no number of workers")
    if options.baselines and missing():
        console.print(f"{PEER} is skipped: {missing()}", soft_wrap=True)
    rows: list[Row] = []
    for kind in options.kinds:
        for seed in (options.seed + offset for offset in options.seeds):
            rows += _one_data_set(kind, seed, options, store, console)
        console.print(_kind_table(kind, [row for row in rows if row["kind"] == kind]))
    totals = [_total(method, group) for method, group in _grouped(rows, "method")]
    console.print(_total_table(totals))
    means = [_mean(group) for kind, of_kind in _grouped(rows, "kind") for _, group in _grouped(of_kind, "method")]
    return {"command": command(), "rows": rows, "means": means, "totals": totals}


def _checked(options: Options) -> Options:
    if options.quick:
        options = replace(options, kinds=options.kinds[:1] or ("short-500",), seeds=options.seeds[:1])
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        raise DataError(f"unknown kind {unknown[0]!r}; choose among {', '.join(KINDS)}")
    if not 0 < options.rows_scale < np.inf:
        raise DataError(f"rows-scale must be positive, not {options.rows_scale}")
    if options.workers < 1:
        raise DataError(f"workers must be at least 1, not {options.workers}")
    return options if options.kinds else replace(options, kinds=tuple(KINDS))


def _one_data_set(kind: str, seed: int, options: Options, store: Store, console: Console) -> list[Row]:
    """The rows of all methods; the data are made only if one of them is missing."""
    data: Transitions | None = None
    rows = []
    count = max(FEWEST_ROWS, round(KINDS[kind].rows * options.rows_scale))
    for method in _methods(options):
        key: Row = {"kind": kind, "method": method, "seed": seed, "transitions": count}
        row = store.find(key)
        if row is None:
            data = KINDS[kind](seed, count) if data is None else data
            try:
                measured = _measured(method, data, seed, options.workers)
            except NotRun as reason:
                console.print(f"{kind}, seed {seed}, {method} is skipped: {reason}", soft_wrap=True)
                continue
            row = {**dict.fromkeys(COLUMNS.all), **key, **measured}
            store.add(row)
            console.print(_line(row), soft_wrap=True)
        rows.append(row)
    return rows


def _methods(options: Options) -> tuple[str, ...]:
    ours = (OURS,) if options.discovery else ()
    others = [name for name in METHODS if name != PEER or not missing()] if options.baselines else []
    return (*ours, *others, TRIVIAL)


def _measured(method: str, data: Transitions, seed: int, workers: int) -> Row:
    assert data.truth is not None
    if method == TRIVIAL:
        return {**count_edges(self_edges(len(data.factors)), data.truth), "seconds": 0.0}
    if method in METHODS:
        result = METHODS[method](data, seed)
        return {**count_edges(verdicts_of(result.found), data.truth), "seconds": result.seconds}
    start = time.perf_counter()
    graph = _discover(data, seed, workers)
    seconds = time.perf_counter() - start
    rewards = {name: reward.verdict for name, reward in graph.rewards.items()}
    states = count_states(graph.verdict, rewards, data.truth, data.truth_rewards)
    return {**count_edges(graph.verdict, data.truth, graph.adjacency), **states, "seconds": seconds}


def _discover(data: Transitions, seed: int, workers: int) -> Any:
    """Discovery with default settings; the truth is removed from the data, so that nothing can use it."""
    blind = replace(data, truth=None, truth_rewards={})
    more: dict[str, Any] = {"workers": workers} if "workers" in inspect.signature(discover).parameters else {}
    return discover(blind, settings=Settings(), seed=seed, **more)


def _grouped(rows: Iterable[Row], column: str) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return list(groups.items())


def _mean(rows: list[Row]) -> Row:
    """Mean over the seeds of one kind and method; what a method does not measure stays missing."""
    mean: Row = {"kind": rows[0]["kind"], "method": rows[0]["method"], "seeds": len(rows)}
    for column in COLUMNS.numbers:
        values = [row[column] for row in rows]
        mean[column] = None if None in values else float(np.mean(values))
    return mean


def _total(method: str, rows: list[Row]) -> Row:
    """Shares over all cells and states of all kinds; F1 and seconds as means over the data sets."""

    def added(*columns: str) -> float | None:
        values = [row[column] for row in rows for column in columns]
        return None if None in values else float(sum(values))

    def share(part: float | None, whole: float | None) -> float | None:
        return None if part is None or not whole else part / whole

    states = added("states_right", "states_wrong", "states_undecided")
    undecided = added("undecided_true", "undecided_false")
    cells = added("claimed_edges", "claimed_nones", "undecided_true", "undecided_false")
    return {
        "method": method, "data_sets": len(rows), "mean_f1": float(np.mean([row["f1"] for row in rows])),
        "false_among_edges": share(added("false_edges"), added("claimed_edges")),
        "wrong_among_nones": share(added("wrong_nones"), added("claimed_nones")),
        "undecided_share": share(undecided, cells),
        "states_right": share(added("states_right"), states), "states_wrong": share(added("states_wrong"), states),
        "states_lacking": share(added("states_lacking"), states),
        "seconds": float(np.mean([row["seconds"] for row in rows])),
    }  # fmt: skip


def _line(row: Row) -> str:
    """One finished row, in words."""
    text = f"{row['kind']}, seed {row['seed']}, {row['method']}: F1 {row['f1']:.3f}, "
    text += f"{row['false_edges']:g} of {row['claimed_edges']:g} edges false, "
    text += f"{row['wrong_nones']:g} of {row['claimed_nones']:g} nones wrong"
    if row["states_right"] is not None:
        text += f", {100 * row['undecided_share']:.1f} % undecided"
        text += f", states {row['states_right']:g} right {row['states_wrong']:g} wrong"
    return f"{text}, {row['seconds']:.1f} s"


def _kind_table(kind: str, rows: list[Row]) -> Table:
    """Means over the seeds, one line per method.

    claimed: F1 without the guesses about undecided cells. false/edges: number of false edges, and of all edges claimed.
    open t+f: undecided cells that have an edge, and that have none. states r/w/u: minimal states that are right, wrong,
    undecided.
    """
    means = [_mean(group) for _, group in _grouped(rows, "method")]
    for mean in means:
        for part, whole in (("false_edges", "claimed_edges"), ("wrong_nones", "claimed_nones")):
            mean[part] = f"{mean[part]:.3g}/{mean[whole]:.4g}"
        states = [mean[column] for column in STATES[:3]]
        mean["states"] = None if None in states else "/".join(f"{value:.3g}" for value in states)
        mean["undecided"] = f"{mean['undecided_true']:.3g}+{mean['undecided_false']:.3g}"
    columns = {
        "f1": ("F1", ".3f"), "f1_claimed": ("claimed", ".3f"),
        "false_edges": ("false/edges", ""), "wrong_nones": ("wrong/nones", ""),
        "undecided": ("open t+f", ""), "states": ("states r/w/u", ""),
        "states_lacking": ("lacking", ".1f"), "seconds": ("s", ".1f"),
    }  # fmt: skip
    return _table(f"{kind}, mean over {means[0]['seeds']} seeds", means, columns)


def _total_table(totals: list[Row]) -> Table:
    columns = {
        "mean_f1": ("mean F1", ".3f"), "false_among_edges": ("false among edges", ".2%"),
        "wrong_among_nones": ("wrong among nones", ".2%"), "undecided_share": ("undec.", ".1%"),
        "states_right": ("states right", ".1%"), "states_wrong": ("wrong", ".1%"),
        "states_lacking": ("lacking", ".1%"), "seconds": ("s", ".1f"),
    }  # fmt: skip
    return _table(f"all kinds, {totals[0]['data_sets']} data sets", totals, columns)


def _table(title: str, rows: list[Row], columns: dict[str, tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    table.add_column("method", no_wrap=True)
    for name, _ in columns.values():
        table.add_column(name, justify="right")
    for row in rows:
        shown = ["" if row[key] is None else format(row[key], form) for key, (_, form) in columns.items()]
        table.add_row(row["method"], *shown)
    return table
