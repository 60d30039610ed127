"""Cost and quality of predictions: the paper's cost table, with our predictor beside it.

One graph, one split, the same per-variable networks for all rows of the table: an explicit head (a mean), and an
implicit one (a critic) evaluated with 256 to 8192 random candidates as in the paper, or with our grid and refinement.
Errors are mean absolute one-step errors over all variables, in units of each variable's typical change; times are for
the same transitions, measured in turns.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from cbm.data.transitions import Transitions
from cbm.discovery.discover import fit
from cbm.discovery.models.trunk import NOTHING
from cbm.discovery.predict import ROWS, Predictor
from cbm.discovery.settings import preset
from cbm.discovery.targets import TABLE
from cbm.envs.collect import collect
from cbm.envs.contact import ContactWorld
from cbm.runs.files import atomic_write_text

SAMPLES = (256, 512, 1024, 2048, 4096, 8192)
PAPER = {"explicit": (0.09, 5.79), 256: (0.17, 11.33), 512: (0.10, 16.47), 1024: (0.07, 25.69), 2048: (0.06, 47.86),
         4096: (0.05, 83.47), 8192: (0.05, 163.35)}  # error, seconds for 25 k transitions on a GPU  # fmt: skip
SAMPLED_AT_ONCE = 20_000_000  # numbers in the largest array of the sampling predictor


@dataclass(frozen=True)
class Options:
    """Size of the comparison."""

    seed: int = 0
    """Seed of world, data and weights."""
    updates: int = 2000
    """Updates of each model."""
    transitions: int = 1_000
    """Transitions predicted in each measurement."""
    repeats: int = 3
    """Measurements of each time; the median is shown."""
    quick: bool = False
    """A small world and fewer samples, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the table."""


def main(options: Options) -> dict[str, Any]:
    world = ContactWorld(distractors=2 if options.quick else 15, world_seed=options.seed)  # 46 variables
    data = replace(collect(world, 5_000 if options.quick else 100_000, seed=options.seed), rewards={}, truth_rewards={})
    predictors = {name: _fitted(name, data, options) for name in ("explicit", "implicit")}
    rows = data.select(np.arange(len(data) - (500 if options.quick else options.transitions), len(data)))
    methods: dict[str, Callable[[], np.ndarray]] = {
        "explicit": lambda: predictors["explicit"].step(rows.obs, rows.action),
        "ours": lambda: predictors["implicit"].step(rows.obs, rows.action),
    }
    for count in SAMPLES[:2] if options.quick else SAMPLES:
        methods[str(count)] = lambda count=count: sampled_step(  # type: ignore[misc]
            predictors["implicit"], rows.obs, rows.action, count, np.random.default_rng(options.seed)
        )
    table = _measure(methods, rows, data, options.repeats)
    result = {"variables": len(data.factors), "transitions": len(rows), "rows": table}
    _show(result)
    if options.out is not None:
        atomic_write_text(options.out, _csv(table))
    return result


def _fitted(model: str, data: Transitions, options: Options) -> Predictor:
    name = "debug" if options.quick else "fast"
    settings = preset(name, model)  # type: ignore[arg-type]
    found = fit(data, settings=replace(settings, prediction_updates=100 if options.quick else options.updates),
                seed=options.seed)  # fmt: skip
    assert found.predictor is not None
    return found.predictor


@torch.no_grad()
def sampled_step(
    predictor: Predictor, obs: np.ndarray, action: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """The paper's prediction: score `count` random candidates for every row and variable, take the best."""
    dataset, model = predictor.dynamics.dataset, predictor.model
    targets, knots = len(dataset.targets), model.curve.shape[-1]
    inverse, grid = predictor.inverse, np.linspace(0, 1, TABLE)
    result = obs.copy()
    chunk = max(1, min(ROWS, SAMPLED_AT_ONCE // (targets * count)))
    for start in range(0, len(obs), chunk):
        rows = slice(start, start + chunk)
        features = model.encoder(predictor.columns(obs[rows], action[rows]))
        heads = model.heads(features, torch.full((targets, len(features)), NOTHING))  # (K, B, code)
        u = torch.from_numpy(rng.random((targets, len(features), count), dtype=np.float32))
        left = (u * (knots - 1)).long().clamp(max=knots - 2)
        scores = torch.bmm(heads, model.curve)
        low, high = scores.gather(-1, left), scores.gather(-1, left + 1)
        best = torch.lerp(low, high, u * (knots - 1) - left).argmax(-1, keepdim=True)
        winner = u.gather(-1, best)[..., 0].numpy()
        for k, target in enumerate(dataset.targets):
            base = obs[rows, target.index] if target.changes else 0.0
            result[rows, target.index] = base + np.interp(winner[k], grid, inverse[k])
    return result


def _measure(
    methods: dict[str, Callable[[], np.ndarray]], rows: Transitions, data: Transitions, repeats: int
) -> list[dict[str, Any]]:
    unit = np.std(data.next_obs - data.obs, axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    errors, seconds = {}, {name: [] for name in methods}  # type: dict[str, float], dict[str, list[float]]
    for method in methods.values():
        method()  # warm up
    for _ in range(repeats):
        for name, method in methods.items():
            start = time.perf_counter()
            predicted = method()
            seconds[name].append(time.perf_counter() - start)
            errors[name] = float((np.abs(predicted - rows.next_obs) / unit).mean())
    base = float(np.median(seconds["explicit"]))
    return [
        {"method": name, "error": round(errors[name], 5), "seconds": round(float(np.median(seconds[name])), 4),
         "times_explicit": round(float(np.median(seconds[name])) / base, 2)}
        for name in methods
    ]  # fmt: skip


def _show(result: dict[str, Any]) -> None:
    table = Table(title=f"One-step prediction, {result['variables']} variables, {result['transitions']:,} transitions")
    for column in ("method", "error", "seconds", "x explicit", "paper: error", "paper: x explicit"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in result["rows"]:
        name = row["method"]
        paper = PAPER.get(int(name) if name.isdigit() else name)
        label = {"explicit": "explicit", "ours": "implicit, grid and refinement"}.get(name, f"implicit, {name} samples")
        printed = (f"{paper[0]:.2f}", f"{paper[1] / PAPER['explicit'][1]:.1f}") if paper else ("", "")
        table.add_row(label, f"{row['error']:.4f}", f"{row['seconds']:.3f}", f"{row['times_explicit']:.2f}", *printed)
    Console().print(table)


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    text.write("# cbm bench prediction\n")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
