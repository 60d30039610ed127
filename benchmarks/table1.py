"""Table 1 of the paper: accuracy of the learned graphs of block and tool-use, and of the abstraction of each task.

Scripted transitions of each world, the implicit and the explicit model, several seeds; scored against the graph found
by interventions on the simulator ("physical") and against the block-diagonal one that fits the paper's numbers
("paper"), once with our verdicts ("calibrated") and once with the paper's rule, a CMI of at least 0.02 ("threshold").
Abstractions follow from the learned graph and the true causes of each reward, as in the paper. Rows are written as they
are finished; the same command continues where it was stopped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.store import Columns, Row, Store, command
from cbm.data.transitions import Transitions
from cbm.discovery.discover import discover
from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.envs.world import World
from cbm.graph import CausalGraph
from cbm.graph.rules import cbm_abstraction
from cbm.graph.scores import compare

WorldName = Literal["block", "tool"]
Model = Literal["implicit", "explicit"]
TASKS = {"block": ("pick", "stack"), "tool": ("series",)}
PUBLISHED = {
    ("block", "implicit"): {"accuracy": 90.5, "pick": 95.7, "stack": 95.7},
    ("block", "explicit"): {"accuracy": 87.5, "pick": 53.2, "stack": 59.6},
    ("tool", "implicit"): {"accuracy": 85.5, "series": 98.8},
    ("tool", "explicit"): {"accuracy": 82.6, "series": 80.0},
}
"""Per cent; from two million transitions and three million updates on graphics processors."""
TEXT = ("world", "model", "truth", "decision", "policy")
DECISIONS = ("calibrated", "threshold")
EPSILON = 0.02  # nats: the published threshold
LAST = ("off", "on", "auto")
WHOLE = ("seed", "transitions", "distractors", "last_action")
COLUMNS = Columns(
    key=(*TEXT, *WHOLE, "minutes"),
    numbers=(
        "accuracy", "self_loops", "f1", "precision", "recall", "shd", "auroc", "pick", "stack", "series",
        "distractors_kept", "seconds",
    ),
    text=TEXT,
    whole=WHOLE,
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """What to learn from, how long, and how often."""

    seed: int = 0
    """Added to every one of `seeds`."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each gives its own data, split and weights."""
    worlds: tuple[WorldName, ...] = ("block", "tool")
    models: tuple[Model, ...] = ("implicit", "explicit")
    minutes: float | None = None
    """Time limit for each model, on each data set."""
    transitions: int = 200_000
    policy: str = "mixed"
    """The policy that acts: skills, or a mixture of skills, task scripts and random actions."""
    distractors: int = 0
    """Number of distractors of each kind: this many driven by the action, and as many independent of it."""
    last_action: Literal["auto", "on", "off"] = "auto"
    """Whether models also see the previous action, as with `cbm discover --last-action`."""
    quick: bool = False
    """One small run of each, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the rows; rows that it already contains are not computed again."""
    runs: Path | None = None
    """Directory that keeps what was learned, one run directory for each run, to inspect or to learn tasks with."""


def main(options: Options) -> dict[str, Any]:
    """Four rows per world, model and seed: one for each true graph and way to decide."""
    if options.quick:
        options = replace(options, seeds=options.seeds[:1], minutes=0.2, transitions=4000)
    console, store = Console(), Store(options.out, COLUMNS)
    rows: list[Row] = []
    for name in options.worlds:
        world = make_world(name, **({"distractors": options.distractors} if options.distractors else {}))
        for seed in (options.seed + offset for offset in options.seeds):
            for model in options.models:
                rows += _one(name, world, model, seed, options, store, console)
    means = _means(rows)
    console.print(_table(means))
    return {"command": command(), "rows": rows, "means": means, "published": _published()}


def _one(
    name: WorldName, world: World, model: Model, seed: int, options: Options, store: Store, console: Console
) -> list[Row]:
    keys = [
        {
            "world": name, "model": model, "truth": truth, "decision": decision, "policy": options.policy,
            "seed": seed, "transitions": options.transitions, "distractors": options.distractors,
            "last_action": LAST.index(options.last_action), "minutes": options.minutes,
        }
        for truth in world.truths
        for decision in DECISIONS
    ]  # fmt: skip
    found = [store.find(key) for key in keys]
    if all(row is not None for row in found):
        return [row for row in found if row is not None]
    console.print(f"{name}, seed {seed}: {model} …")
    data = without_rewards(collect(world, options.transitions, options.policy, seed=seed))
    started = time.perf_counter()
    kept = options.runs / f"{name}-{model}-{options.distractors}-{options.last_action}-{seed}" if options.runs else None
    settings = replace(preset("fast", model), last_action=options.last_action)
    graph = discover(data, minutes=options.minutes, settings=settings, seed=seed, run=kept)
    seconds = time.perf_counter() - started
    rows = []
    for key in keys:
        score = scored(graph, world, name, str(key["truth"]), str(key["decision"]))
        row = {**dict.fromkeys(COLUMNS.all), **key, **score, "seconds": seconds}
        store.add(row)
        rows.append(row)
    return rows


def without_rewards(data: Transitions) -> Transitions:
    """The whole budget goes into the dynamics: rewards' true causes are given."""
    return replace(data, rewards={}, truth_rewards={}, context={})


def scored(graph: CausalGraph, world: World, name: WorldName, truth: str, decision: str = "calibrated") -> Row:
    """Scores of the graph, and the share of variables that each task's abstraction keeps or drops rightly."""
    true = world.truths[truth]
    decided = graph.adjacency if decision == "calibrated" else graph.cmi >= EPSILON
    score = compare(graph.variables, decided, graph.cmi, true)
    row: Row = {
        "accuracy": score.accuracy, "self_loops": score.self_loops_accuracy, "f1": score.f1, "shd": score.shd,
        "precision": score.precision, "recall": score.recall, "auroc": score.auroc, "distractors_kept": 0,
    }  # fmt: skip
    added = np.array([v.group.endswith("distractor") for v in world.factors.variables])
    for task in TASKS[name]:
        causes = reward_causes(world, task, truth)
        kept, right = (cbm_abstraction(adjacency, causes) for adjacency in (decided, true))
        row[task] = float((kept == right).mean())
        row["distractors_kept"] += int((kept & added).sum())
    return row


def reward_causes(world: World, task: str, truth: str) -> np.ndarray:
    """What the reward is computed from; in the paper's reading orientations of things do not count."""
    causes = world.truth_rewards[task].copy()
    if truth == "paper":
        causes &= [name.rpartition("_")[2] not in ("qx", "qy", "qz", "qw") for name in world.factors.names]
    return causes


def _means(rows: list[Row]) -> list[Row]:
    """Over the seeds; a number that a world does not have is left out."""
    same = ("world", "model", "truth", "decision")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[column] for column in same), []).append(row)
    means = []
    for key, group in groups.items():
        mean: Row = {**dict(zip(same, key)), "seeds": len(group)}
        for column in COLUMNS.numbers:
            values = [row[column] for row in group if row[column] is not None]
            mean[column] = float(np.mean(values)) if values else None
        means.append(mean)
    return means


def _published() -> list[Row]:
    return [{"world": world, "model": model, **numbers} for (world, model), numbers in PUBLISHED.items()]


def _table(means: list[Row]) -> Table:
    """The published numbers stand under the rows that are scored as they probably were."""
    table = Table(title="means over the seeds", title_justify="left", box=None, padding=(0, 1, 0, 0))
    shares = ("accuracy", "self_loops", "pick", "stack", "series")
    for name in ("world", "truth", "model", "decision"):
        table.add_column(name, no_wrap=True)
    for name in ("acc. %", "loops", "pick", "stack", "series", "F1", "AUROC", "SHD"):
        table.add_column(name, justify="right", no_wrap=True)
    for mean in means:
        cells = [_per_cent(mean[column]) for column in shares]
        rest = (f"{mean['f1']:.3f}", f"{mean['auroc']:.3f}", f"{mean['shd']:.0f}")
        table.add_row(mean["world"], mean["truth"], mean["model"], mean["decision"], *cells, *rest)
        if mean["truth"] == "paper" and mean["decision"] == "threshold":
            published = PUBLISHED[mean["world"], mean["model"]]
            table.add_row("", "", "(published)", "", *(f"{published[c]}" if c in published else "" for c in shares))
    return table


def _per_cent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"
