"""Made-up run directories of `cbm learn`, as the report finds them: curves that rise, abstractions that settle."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cbm.learning.settings import preset
from cbm.report.comparison import compare
from cbm.report.learning import read_learning_run

METHODS = ("oracle", "cbm", "cdl", "tia", "denoised", "icp", "full")
TASKS = ("pick", "stack")
HEADER = ("step", "seconds", "return", "success", "length", "kept", "seed", "method", "task")
TAKE_OFF = {"oracle": 50, "cbm": 58, "cdl": 75, "tia": 100, "denoised": 110, "icp": 90, "full": 150}
"""Thousands of steps after which a method succeeds half of the time."""


def names_of(count: int) -> tuple[str, ...]:
    """hand_x, hand_y, ..., block2_z, ... and distractors until there are enough."""
    parts = [f"{part}_{axis}" for part in ("hand", "block0", "block1", "block2", "fixed") for axis in "xyz"]
    return tuple((["gripper", *parts] + [f"distractor{k}" for k in range(count)])[:count])


def oracle_of(names: Sequence[str], task: str) -> list[str]:
    """The first few of them, a few more for the second task."""
    return list(names[: 7 if task == "pick" else 10])


def kept_by(method: str, names: Sequence[str], task: str) -> list[str]:
    """What each method ends with; only cbm and the oracle are right."""
    right = oracle_of(names, task)
    extra = {"cdl": 6, "tia": 3, "denoised": 9, "icp": 0, "full": len(names)}.get(method, 0)
    wanted = set(right[:-1] if method in ("tia", "icp") else right) | set(names[len(right) : len(right) + extra])
    return [name for name in names if name in wanted or method == "full"]


def write_run(
    path: Path,
    method: str = "cbm",
    tasks: Sequence[str] = ("pick",),
    seed: int = 0,
    *,
    names: Sequence[str] = names_of(36),
    steps: int = 160_000,
    finished: bool = True,
    success: bool = True,
    until: int | None = None,
    evaluation: bool = False,
    config: dict[str, Any] | None = None,
) -> Path:
    """One run directory, finished or stopped after `until` steps; `config` overrides entries of config.json."""
    path.mkdir(parents=True)
    rng = np.random.default_rng([seed, len(method), sum(map(ord, method)), len(tasks)])
    every = steps // 16
    last = steps if until is None else until
    rows: list[list[Any]] = []
    decisions: list[dict[str, Any]] = []
    for task in tasks:
        right, final = oracle_of(names, task), kept_by(method, names, task)
        masks = _masks(method, list(names), right, final, last, every, rng)
        decisions += [
            {"step": step, "task": task, "kept": kept, "changed": new, "reset": new} for step, kept, new in masks
        ]
        middle = TAKE_OFF[method] / 160 * steps * rng.uniform(0.85, 1.15) * (1.1 if task == "stack" else 1)
        for step in range(every, last + 1, every):
            rate = 1 / (1 + np.exp(-(step - middle) / (0.07 * steps)))
            rate = float(np.clip(np.round(50 * (rate + rng.normal(0, 0.02))) / 50, 0, 1))
            kept = next((len(kept) for at, kept, _ in reversed(masks) if at <= step), len(names))
            reached = 8 + 70 * rate + float(rng.normal(0, 1.5))
            shown = f"{rate:g}" if success else ""
            rows.append([step, round(step / 550, 3), round(reached, 4), shown, 100, kept, seed, method, task])
    rows.sort(key=lambda row: row[0])
    with (path / "eval.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows])
    lines = "".join(json.dumps(entry) + "\n" for entry in sorted(decisions, key=lambda entry: entry["step"]))
    (path / "abstraction.jsonl").write_text(lines, encoding="utf-8")
    _write(path / "config.json", _config(method, tasks, seed, names, steps) | (config or {}))
    if finished:
        ends = {task: [row for row in rows if row[-1] == task][-1] for task in tasks}
        outcomes = {
            task: {
                "return": row[2],
                "success": float(row[3]) if row[3] else None,
                "kept": kept_by(method, names, task),
                "exact": kept_by(method, names, task) == oracle_of(names, task),
            }
            for task, row in ends.items()
        }
        _write(path / "result.json", {"seconds": last / 550, "tasks": outcomes})
    if evaluation:
        _write(path / "evaluation.json", _evaluation(method, tasks, rng, success))
    return path


def grid(
    root: Path, methods: Sequence[str] = METHODS, tasks: Sequence[str] = TASKS, seeds: int = 3, **more: Any
) -> list[Path]:
    """One run for each method, task and seed."""
    return [
        write_run(root / f"{task}-{method}-{seed}", method, (task,), seed, **more)
        for task in tasks
        for method in methods
        for seed in range(seeds)
    ]


def compared(*paths: Path, **options: Any) -> dict[str, Any]:
    """What the page says about these runs."""
    return compare([read_learning_run(path) for path in paths], **options)


def curve_of(path: Path, column: str = "success", task: str | None = None) -> tuple[list[float], list[float]]:
    """Steps and values of one column of eval.csv."""
    with (path / "eval.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if task in (None, row["task"])]
    return [float(row["step"]) for row in rows], [float(row[column]) for row in rows]


def edit(path: Path, **changes: Any) -> None:
    """Change entries of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _masks(
    method: str, names: list[str], right: list[str], final: list[str], last: int, every: int, rng: np.random.Generator
) -> list[tuple[int, list[str], bool]]:
    """Decisions every half evaluation interval: too much at first, then the final set."""
    if method in ("oracle", "full"):
        return [(0, final, False)]
    masks = []
    others = [name for name in names if name not in final]
    before = names
    for k, step in enumerate(range(every, last + 1, max(1, every // 2))):
        more = set(rng.permutation(others)[: max(0, 5 - 2 * k)].tolist())
        kept = [name for name in names if name in final or name in more]
        if k == 6 and others:  # a short doubt
            kept = [name for name in names if name in final or name == others[0]]
        masks.append((step, kept, kept != before))
        before = kept
    return masks


def _config(method: str, tasks: Sequence[str], seed: int, names: Sequence[str], steps: int) -> dict[str, Any]:
    return {
        "command": "learn",
        "world": "contact",
        "options": {"distractors": 20, "horizon": 100},
        "tasks": list(tasks),
        "together": False,
        "method": method,
        "method_options": {},
        "preset": "laptop",
        "steps": steps,
        "seed": seed,
        "dynamics": "runs/contact",
        "dynamics_graph": "0123",
        "rewards": "run",
        "model": "implicit",
        "settings": preset("laptop", "contact").to_json(),
        "demonstrations": 100,
        "demonstration_policies": [str(task) for task in tasks],
        "factors": {
            "variables": [{"name": name, "kind": "continuous", "group": ""} for name in names],
            "action_names": ["push_x", "push_y", "push_z", "grip"],
            "discrete_actions": None,
        },
        "oracle": {task: oracle_of(names, task) for task in tasks},
    }


def _evaluation(method: str, tasks: Sequence[str], rng: np.random.Generator, success: bool) -> dict[str, Any]:
    drop = {"oracle": 0.0, "cbm": 0.01, "cdl": 0.2, "tia": 0.3, "denoised": 0.45, "icp": 0.15, "full": 0.7}[method]
    outcomes = {}
    for task in tasks:
        inside = float(np.clip(rng.normal(0.93, 0.03), 0, 1))
        outside = max(0.0, inside - drop - abs(float(rng.normal(0, 0.02))))
        outcomes[task] = {
            place: {"return": 80 * value, "success": value if success else None}
            for place, value in (("in", inside), ("out", outside))
        }
    prediction = [
        {"model": model, "steps": k, "in": rate * k**0.8, "out": rate * k**0.8 * worse, "still": 0.6 * k**0.6}
        for model, rate, worse in (("implicit", 0.03, 1.1), ("explicit", 0.035, 6))
        for k in range(1, 21)
    ]
    return {"episodes": 50, "tasks": outcomes, "prediction": prediction if method in ("cbm", "cdl") else None}


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
