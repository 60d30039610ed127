"""Accuracy of discovery: our three models and three alternatives, on the same data.

Rows of the CSV are written as they are finished; the same command continues where it was stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.baselines import Baseline, best_threshold_f1, boosted_trees, linear
from benchmarks.logs import LOGS
from benchmarks.pcmci import NotRun, missing, pcmci
from benchmarks.store import Columns, Row, Store, command
from benchmarks.systems import sparse_nonlinear
from cbm.data.transitions import Transitions
from cbm.discovery.discover import discover
from cbm.discovery.settings import ModelName, Settings, preset
from cbm.envs.collect import collect
from cbm.envs.contact import ContactWorld
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.rules import cbm_abstraction
from cbm.graph.scores import Score, compare

WorldName = Literal[
    "contact", "contact-hard", "contact-hold", "sparse-200", "sparse-1000", "cartpole", "rooms", "mixed", "short"
]
BASELINES = ("linear", "trees", "pcmci")
TEXT = ("world", "method", "preset")
WHOLE = ("seed", "transitions", "rewards")
KEY = (*TEXT, *WHOLE, "minutes")
NUMBERS = (
    "f1", "best_f1", "best_threshold", "accuracy", "precision", "recall", "auroc", "null_cmi",
    "abstractions", "tasks", "seconds",
)  # fmt: skip
COLUMNS = Columns(KEY, NUMBERS, TEXT, WHOLE)
FIELDS = COLUMNS.all


@dataclass(frozen=True)
class Options:
    """What is compared, and on which data."""

    seed: int = 0
    """Added to every one of `seeds`."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each gives its own world, data, split and weights."""
    minutes: float | None = None
    """Time limit for each of our models."""
    worlds: tuple[WorldName, ...] = ("contact", "contact-hard", "contact-hold")
    """contact: 36 variables. contact-hard: 43 variables, all in different units. contact-hold: the hand never lets
    go. sparse-200, sparse-1000: that many variables with one to three nonlinear causes each (without baselines).
    cartpole, rooms, mixed, short: small logs, each with its own difficulty; the last has a twentieth of the
    transitions."""
    transitions: int = 100_000
    """Size of each data set."""
    models: tuple[ModelName, ...] = ("implicit", "explicit", "demi")
    """Our models; may be empty."""
    baselines: bool = True
    """Whether to run linear regression with Bonferroni, boosted trees with permutation importances, and PCMCI if
    tigramite is installed, here or for the interpreter named by CBM_TIGRAMITE_PYTHON."""
    abstractions: bool = True
    """Whether to learn the rewards too, and to count the tasks whose abstraction is exactly right."""
    quick: bool = False
    """One small run of each, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the rows; rows that it already contains are not computed again."""


def main(options: Options) -> dict[str, Any]:
    """A row per world, method and seed, and their means over the seeds."""
    if options.quick:
        options = replace(options, seeds=options.seeds[:1], worlds=options.worlds[:1], transitions=5000)
    console, store = Console(), Store(options.out, COLUMNS)
    rows: list[Row] = []
    if options.baselines and missing():
        console.print(f"pcmci is skipped: {missing()}", soft_wrap=True)
    for world in options.worlds:
        for seed in (options.seed + offset for offset in options.seeds):
            rows += _one_data_set(world, seed, options, store, console)
    means = _means(rows)
    for world in options.worlds:
        table = _table(f"{world}, mean over the seeds", [mean for mean in means if mean["world"] == world])
        console.print(table)
    return {"command": command(), "rows": rows, "means": means}


def make_data(world: WorldName, seed: int, transitions: int) -> Transitions:
    """Transitions of one of the worlds with its true graph."""
    if world not in get_args(WorldName):
        raise DataError(f"unknown world {world!r}; choose one of {', '.join(get_args(WorldName))}")
    if world.startswith("sparse-"):
        return sparse_nonlinear(int(world.removeprefix("sparse-")), transitions, seed)
    if world in LOGS:
        return LOGS[world](transitions, seed)
    hard = {"blocks": 4, "distractors": 12, "rescale": True} if world == "contact-hard" else {}
    policy = "hold" if world == "contact-hold" else "mixed"
    return collect(ContactWorld(world_seed=seed, **hard), transitions, policy, seed=seed)  # type: ignore[arg-type]


def _one_data_set(world: WorldName, seed: int, options: Options, store: Store, console: Console) -> list[Row]:
    data: Transitions | None = None
    rows = []
    compared = options.baselines and not world.startswith("sparse-")  # trees for every pair would take hours
    others = [name for name in BASELINES if name != "pcmci" or not missing()] if compared else []
    for method in (*options.models, *others):
        key = _key(world, method, seed, options)
        row = store.find(key)
        if row is None:
            data = data or make_data(world, seed, options.transitions)
            console.print(f"{world}, seed {seed}: {method} …")
            try:
                row = {**dict.fromkeys(FIELDS), **key, **_run(method, data, seed, options)}
            except NotRun as reason:
                console.print(f"{world}, seed {seed}: {method} is skipped: {reason}", soft_wrap=True)
                continue
            store.add(row)
        rows.append(row)
    console.print(_table(f"{world}, seed {seed}", rows))
    return rows


def _key(world: WorldName, method: str, seed: int, options: Options) -> Row:
    """The budget of our models is for the whole command, so learning rewards changes the graph too."""
    ours = method not in BASELINES
    return {
        "world": world, "method": method, "preset": _size(options), "seed": seed,
        "transitions": options.transitions, "rewards": int(ours and options.abstractions),
        "minutes": options.minutes if ours else None,
    }  # fmt: skip


def _size(options: Options) -> Literal["debug", "fast"]:
    return "debug" if options.quick else "fast"


def _run(method: str, data: Transitions, seed: int, options: Options) -> Row:
    if method == "linear":
        return _theirs(data, linear(data))
    if method == "pcmci":
        return _theirs(data, pcmci(data, seed))
    if method == "trees":
        held_out, trees = preset(_size(options)).held_out, 20 if options.quick else 150
        return _theirs(data, boosted_trees(data, held_out, seed, trees, num_threads=torch.get_num_threads()))
    return _ours(data, preset(_size(options), cast(ModelName, method)), seed, options)


def _ours(data: Transitions, settings: Settings, seed: int, options: Options) -> Row:
    truth, rewards = data.truth, data.truth_rewards
    assert truth is not None
    if not options.abstractions:
        data = replace(data, rewards={}, truth_rewards={})
    start = time.perf_counter()
    graph = discover(data, minutes=options.minutes, settings=settings, seed=seed)
    seconds = time.perf_counter() - start
    scores = np.where(_never_changes(data), np.inf, graph.cmi)  # known without a model, as for the baselines
    row = _scored(compare(graph.variables, graph.adjacency, scores, truth), scores, truth, seconds)
    row["null_cmi"] = float(graph.cmi[~truth].mean())  # zero, if the estimate were right
    if options.abstractions:
        row |= {"abstractions": exact_abstractions(graph, truth, rewards), "tasks": len(rewards)}
    return row


def _never_changes(data: Transitions) -> np.ndarray:
    """(d, d+1) true for the self cell of every variable that keeps its value throughout."""
    d = len(data.factors)
    return np.eye(d, d + 1, dtype=bool) & (data.obs == data.next_obs).all(0)[:, None]


def _theirs(data: Transitions, result: Baseline) -> Row:
    assert data.truth is not None
    score = compare(data.factors.names, result.found, result.scores, data.truth)
    return _scored(score, result.scores, data.truth, result.seconds)


def _scored(score: Score, values: np.ndarray, truth: np.ndarray, seconds: float) -> Row:
    best, threshold = best_threshold_f1(values, truth)
    return {
        "f1": score.f1, "best_f1": best, "best_threshold": threshold, "accuracy": score.accuracy,
        "precision": score.precision, "recall": score.recall, "auroc": score.auroc, "seconds": seconds,
    }  # fmt: skip


def exact_abstractions(graph: CausalGraph, truth: np.ndarray, rewards: dict[str, np.ndarray]) -> int:
    """Number of tasks whose abstraction has every variable it needs and no other."""
    return sum(np.array_equal(graph.mask(task), cbm_abstraction(truth, rewards[task])) for task in rewards)


def _means(rows: list[Row]) -> list[Row]:
    """One row per world and method; a number that some of its rows lack is left out."""
    result: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        result.setdefault((row["world"], row["method"]), []).append(row)
    means = []
    for (world, method), group in result.items():
        mean: Row = {**dict.fromkeys(FIELDS), "world": world, "method": method, "seeds": len(group)}
        for field in NUMBERS:
            values = [row[field] for row in group]
            mean[field] = None if None in values else float(np.mean(values))
        means.append(mean)
    return means


def _table(title: str, rows: list[Row]) -> Table:
    """`tasks`: those whose abstraction is exactly right; `null CMI`: mean of the cells without an edge."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    shown = {
        "f1": "F1", "best_f1": "best F1", "accuracy": "acc.", "precision": "prec.", "recall": "recall",
        "auroc": "AUROC", "null_cmi": "null CMI",
    }  # fmt: skip
    table.add_column("method", no_wrap=True)
    for name in (*shown.values(), "tasks", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        form = {"null_cmi": ".1e"}  # far below the others
        cells = ["" if row[field] is None else format(row[field], form.get(field, ".3f")) for field in shown]
        tasks = "" if row["tasks"] is None else f"{row['abstractions']:.3g}/{row['tasks']:g}"
        table.add_row(row["method"], *cells, tasks, f"{row['seconds']:.1f}")
    return table
