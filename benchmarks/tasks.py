"""Every method on every task under one protocol: how fast it learns, what it keeps, and how noise affects it.

Each cell is one `cbm learn` followed by one `cbm evaluate --ood`, as separate processes, several at a time; both
continue where they were stopped, so the same command computes only what is missing, and rows in the file need no run
directory. The run directories are kept for `cbm report`.
"""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.store import Columns, Row, Store, command
from cbm.abstraction.table import METHODS, method_row
from cbm.errors import DataError
from cbm.report.statistics import area_under_curve, steps_to, value_at

TEXT = ("world", "task", "method", "options")
WHOLE = ("seed", "steps", "demonstrations", "distractors")
COLUMNS = Columns(
    key=(*TEXT, *WHOLE),
    numbers=(
        "final_success", "final_return", "success_at", "steps_to_half", "area", "kept", "oracle", "missing", "extra",
        "distractors_kept", "success_in", "success_out", "drop", "minutes",
    ),
    text=TEXT,
    whole=WHOLE,
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """Which world, which methods and tasks, and how long."""

    seed: int = 0
    """Added to every one of `seeds`."""
    seeds: tuple[int, ...] = (0, 1, 2)
    world: str = "contact"
    tasks: tuple[str, ...] = ("pick", "stack")
    methods: tuple[str, ...] = tuple(METHODS)
    steps: int = 60_000
    """Environment steps of each run."""
    at: int | None = None
    """Step at which success is compared, and up to which the area is computed. Default: the last one."""
    dynamics: Path | None = None
    """A run of `cbm discover`, for cbm and cdl. Default: dynamics are learned alongside the policy."""
    rewards: str = "learned"
    """learned: cbm finds the reward's causes while the policy learns. run: as in `dynamics`."""
    demonstrations: int | None = None
    """Number of scripted episodes with which every method begins. Default: set by the preset."""
    distractors: int | None = None
    """Number of distractors of each kind. Default: set by the world."""
    options: tuple[str, ...] = ()
    """Options of the world as KEY=VALUE, such as horizon=100 spread=0.15."""
    set: tuple[str, ...] = ()
    """Settings as NAME=VALUE that differ from the preset, the same for all methods."""
    workers: int = 2
    """Number of runs at the same time, one thread each."""
    runs: Path = Path("runs/tasks")
    """Directory of the run directories."""
    quick: bool = False
    """One tiny run of two methods, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the rows; rows that it already contains are not computed again."""


def main(options: Options) -> dict[str, Any]:
    """One row per task, method and seed."""
    for method in options.methods:
        method_row(method)  # refuse unknown methods before hours of work
    if options.quick:
        options = replace(options, seeds=(0,), tasks=options.tasks[:1], methods=("oracle", "full"), steps=400)
    console, store = Console(), Store(options.out, COLUMNS)
    cells = [
        (task, method, options.seed + offset)
        for offset in options.seeds
        for task in options.tasks
        for method in options.methods
    ]
    with ThreadPoolExecutor(options.workers) as pool:
        known = {cell: store.find(_key(options, *cell)) for cell in cells}
        waiting = {cell: pool.submit(_row, options, *cell) for cell in cells if known[cell] is None}
        rows = []
        for cell in cells:
            row = known[cell]
            if row is None:
                row = waiting[cell].result()
                store.add(row)
                console.print(f"{' '.join(map(str, cell))}: area {row['area']:.3f}, kept {row['kept']}")
            rows.append(row)
    means = _means(rows)
    console.print(_table(means))
    return {"command": command(), "rows": rows, "means": means}


def _row(options: Options, task: str, method: str, seed: int) -> Row:
    run = options.runs / f"{options.world}-{task}-{method}-{seed}"
    _call(_learn_command(options, task, method, seed, run))  # a finished run stays; one of another command is refused
    if not (run / "evaluation.json").exists():
        _call(["evaluate", str(run), "--ood", "--json", *(["--episodes", "5"] if options.quick else [])])
    config = json.loads((run / "config.json").read_text())
    row: Row = {**dict.fromkeys(COLUMNS.all), **_key(options, task, method, seed)}
    row["demonstrations"] = config["demonstrations"]
    return {**row, **_curve(run, task, options.at or options.steps), **_kept(run, task), **_noise(run, task)}


def _learn_command(options: Options, task: str, method: str, seed: int, run: Path) -> list[str]:
    command = ["learn", options.world, "--task", task, "--method", method, "--steps", str(options.steps)]
    command += ["--seed", str(seed), "--out", str(run), "--quiet", "--json"]
    if options.dynamics is not None and method_row(method).needs == "graph":
        command += ["--dynamics", str(options.dynamics), "--rewards", options.rewards]
    for name in ("demonstrations", "distractors"):
        if getattr(options, name) is not None:
            command += [f"--{name}", str(getattr(options, name))]
    for option in options.options:
        command += ["--option", option]
    for setting in options.set:
        command += ["--set", setting]
    return [*command, "--preset", "debug"] if options.quick else command


def _call(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "cbm.cli", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise DataError(f"cbm {shlex.join(arguments)}: {last}")


def _key(options: Options, task: str, method: str, seed: int) -> Row:
    """The key of a row; the number of demonstrations stays open if the preset sets it."""
    changed = " ".join((*options.options, *options.set))
    return {
        "world": options.world, "task": task, "method": method, "options": changed, "seed": seed,
        "steps": options.steps, "demonstrations": options.demonstrations, "distractors": options.distractors or 0,
    }  # fmt: skip


def _curve(run: Path, task: str, at: int) -> Row:
    """Success where the task has one, else return."""
    with (run / "eval.csv").open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["task"] == task]
    steps = np.array([float(line["step"]) for line in lines])
    told = "success" if lines[0]["success"] else "return"
    height = np.array([float(line[told]) for line in lines])
    half = steps_to(steps, height, 0.5) if told == "success" else None
    return {
        "final_success": height[-1] if told == "success" else None,
        "final_return": float(lines[-1]["return"]),
        "success_at": value_at(steps, height, at),
        "steps_to_half": None if half is None or not np.isfinite(half) else half,
        "area": area_under_curve(steps, height, at),
    }


def _kept(run: Path, task: str) -> Row:
    config, result = (json.loads((run / name).read_text()) for name in ("config.json", "result.json"))
    kept, right = set(result["tasks"][task]["kept"]), set(config["oracle"][task] or ())
    variables = config["factors"]["variables"]
    distractors = {v["name"] for v in variables if str(v.get("group", "")).endswith("distractor")}
    return {
        "kept": len(kept), "oracle": len(right), "missing": len(right - kept), "extra": len(kept - right),
        "distractors_kept": len(kept & distractors), "minutes": result["seconds"] / 60,
    }  # fmt: skip


def _noise(run: Path, task: str) -> Row:
    found = json.loads((run / "evaluation.json").read_text())["tasks"][task]
    inside, outside = found["in"]["success"], (found["out"] or {}).get("success")
    drop = None if inside is None or outside is None else inside - outside
    return {"success_in": inside, "success_out": outside, "drop": drop}


def _means(rows: list[Row]) -> list[Row]:
    """Over the seeds; the area also relative to the oracle's."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["method"]), []).append(row)
    means: list[Row] = []
    for (task, method), group in groups.items():
        mean: Row = {"task": task, "method": method, "seeds": len(group)}
        for column in COLUMNS.numbers:
            values = [row[column] for row in group if row[column] is not None]
            mean[column] = float(np.mean(values)) if values else None
        mean["exact"] = sum(row["missing"] == 0 and row["extra"] == 0 for row in group)
        means.append(mean)
    best = {mean["task"]: mean["area"] for mean in means if mean["method"] == "oracle"}
    for mean in means:
        reference = best.get(mean["task"])
        mean["relative"] = mean["area"] / reference if reference else None
    return means


def _table(means: list[Row]) -> Table:
    table = Table(title="means over the seeds", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for name in ("task", "method"):
        table.add_column(name, no_wrap=True)
    titles = ("success", "at", "area", "of oracle", "kept", "exact", "distr.", "out", "drop", "minutes")
    for name in titles:
        table.add_column(name, justify="right", no_wrap=True)
    for mean in means:
        columns = ("final_success", "success_at", "area", "relative")
        cells = [_number(mean[column]) for column in columns]
        cells += [_number(mean["kept"], 1), f"{mean['exact']} of {mean['seeds']}", _number(mean["distractors_kept"], 1)]
        cells += [_number(mean["success_out"]), _number(mean["drop"]), _number(mean["minutes"], 1)]
        table.add_row(mean["task"], mean["method"], *cells)
    return table


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
