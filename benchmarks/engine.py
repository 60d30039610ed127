"""Speed of discovery: compared with the paper's formulas as printed, with the machine's peak, and as d grows.

Ratios are of medians of interleaved measurements in one process, so that a busy machine slows both sides. The literal
side makes one pass per row (all inputs, or one dropped), like the fast side; Eq. 4 would need two.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks import CHECKOUT
from benchmarks.literal import Literal
from benchmarks.store import command
from benchmarks.systems import sparse_nonlinear
from cbm.discovery.cmi import measure_cmi
from cbm.discovery.models.base import Batch
from cbm.discovery.models.pairwise import input_columns
from cbm.discovery.models.registry import build_model
from cbm.discovery.settings import Settings, preset
from cbm.discovery.tensor_dataset import TensorDataset, dynamics_dataset
from cbm.discovery.train import Trainer
from cbm.runs.files import atomic_write_text

EARLY = 0.1  # progress passed to `Trainer.update`: after the start, before the first refocus


@dataclass(frozen=True)
class Options:
    """What to measure."""

    seed: int = 0
    """Seed of the data and the weights."""
    quick: bool = False
    """A smaller system and fewer repeats, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the numbers."""


@dataclass(frozen=True)
class _Plan:
    d: int
    batch: int
    candidates: int
    cmi_rows: int
    repeats: int
    fast_per_literal: int
    scaling: tuple[int, ...]
    scaling_rows: int
    scaling_updates: int
    evaluation_rows: int


FULL = _Plan(47, 32, 512, 64, 5, 20, (25, 50, 100, 200, 400), 10_000, 30, 200)
QUICK = _Plan(8, 32, 64, 16, 2, 5, (8, 16), 2000, 5, 50)


def main(options: Options) -> dict[str, Any]:
    """All three measurements, as tables on the terminal and as numbers."""
    plan, console = (QUICK if options.quick else FULL), Console()
    result: dict[str, Any] = {
        "command": command(), "threads": torch.get_num_threads(), "torch": torch.__version__,
        "against_literal": against_literal(plan, options.seed),
        "against_machine": against_machine(plan, options.seed),
    }  # fmt: skip
    console.print(_ratio_table(result["against_literal"]))
    console.print(_machine_table(result["against_machine"]))
    result["scaling"] = scaling(plan, options.seed)
    console.print(_scaling_table(result["scaling"]))
    if options.out:
        atomic_write_text(options.out, _csv(result))
    return result


# Against the paper's formulas


def against_literal(plan: _Plan, seed: int) -> dict[str, float]:
    """Seconds per update and per CMI evaluation of both, with the same data, batch and rows."""
    settings = replace(preset("fast"), batch=plan.batch)
    dataset, trainer = _trainer(plan.d, 4000, settings, seed)
    literal = _LiteralTrainer(dataset, plan, seed)
    trainer.update(EARLY)
    literal.update()
    batch = Batch.of(dataset.held, torch.arange(plan.cmi_rows), torch.Generator().manual_seed(seed))
    update: dict[str, list[float]] = {"literal": [], "fast": []}
    cmi: dict[str, list[float]] = {"literal": [], "fast": []}
    for _ in range(plan.repeats):
        update["literal"].append(_seconds(literal.update))
        update["fast"] += [_seconds(lambda: trainer.update(EARLY)) for _ in range(plan.fast_per_literal)]
    for _ in range(max(2, plan.repeats // 2)):
        cmi["literal"].append(_seconds(lambda: literal.cmi(batch)))
        cmi["fast"] += [_seconds(lambda: _fast_cmi(trainer, batch)) for _ in range(5)]
    numbers: dict[str, float] = {"d": plan.d, "batch": plan.batch, "candidates": plan.candidates}
    for name, times in (("update", update), ("cmi_row", cmi)):
        rows = plan.cmi_rows if name == "cmi_row" else 1
        slow, fast = (float(np.median(times[key])) / rows for key in ("literal", "fast"))
        numbers |= {f"{name}_literal_s": slow, f"{name}_fast_s": fast, f"{name}_ratio": slow / fast}
    return numbers


class _LiteralTrainer:
    """Adam on the literal loss, with rows, candidates and dropped inputs drawn at every update."""

    def __init__(self, dataset: TensorDataset, plan: _Plan, seed: int):
        self.dataset, self.plan = dataset, plan
        self.generator = torch.Generator().manual_seed(seed)
        columns = input_columns(dataset.encoder)[: dataset.real_inputs]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.models = [(part, Literal(columns, len(part))) for part in _parts(len(dataset.targets))]
        parameters = [parameter for _, model in self.models for parameter in model.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=3e-4, fused=True)
        self.low, self.high = dataset.train.y.amin(0), dataset.train.y.amax(0)

    def negatives(self, rows: int) -> Tensor:
        """(K, B, N), uniform over each target's range."""
        drawn = torch.rand(len(self.low), rows, self.plan.candidates, generator=self.generator)
        return self.low[:, None, None] + drawn * (self.high - self.low)[:, None, None]

    def update(self) -> None:
        rows, batch = self.dataset.train, self.plan.batch
        index = torch.randint(len(rows), (batch,), generator=self.generator)
        dropped = torch.randint(-1, self.dataset.real_inputs, (batch,), generator=self.generator)
        x, y, negatives = rows.x[index], rows.y[index], self.negatives(batch)
        self.optimizer.zero_grad(set_to_none=True)
        for part, model in self.models:
            model.loss(x, y[:, part], negatives[part], dropped, (1e-6, 1e-6)).backward()
        self.optimizer.step()

    def cmi(self, batch: Batch) -> Tensor:
        negatives, inputs = self.negatives(len(batch.x)), self.dataset.real_inputs
        values = [model.cmi(batch.x, batch.y[:, p], negatives[p], inputs) for p, model in self.models]
        return torch.cat(values).mean(-1)


def _parts(targets: int, size: int = 2) -> list[list[int]]:
    """Groups of targets whose d x B x N arrays are small enough for the processor's cache."""
    return [list(range(targets))[start : start + size] for start in range(0, targets, size)]


@torch.no_grad()
def _fast_cmi(trainer: Trainer, batch: Batch) -> Tensor:
    pointwise = trainer.model.evidence(batch)
    return torch.stack([pointwise(j, None)[-1].mean(-1) for j in range(trainer.dataset.real_inputs)], 1)


# Against the machine


def against_machine(plan: _Plan, seed: int) -> dict[str, float]:
    """Share of the processor's matrix-product speed that one update of the default size reaches."""
    dataset, trainer = _trainer(plan.d, 4000, preset("fast"), seed)
    trainer.update(EARLY)
    a, b = torch.rand(2, 1024, 1024, generator=torch.Generator().manual_seed(seed))
    a @ b
    product, update = [], []
    for _ in range(plan.repeats * plan.fast_per_literal):
        product.append(_seconds(lambda: a @ b))
        update.append(_seconds(lambda: trainer.update(EARLY)))
    rate, seconds = 2 * 1024**3 / float(np.median(product)), float(np.median(update))
    flops = update_flops(dataset, trainer.settings)
    return {
        "d": plan.d, "batch": trainer.settings.batch, "update_s": seconds, "update_gflop": flops / 1e9,
        "gflops": flops / seconds / 1e9, "sgemm_gflops": rate / 1e9, "share": flops / seconds / rate,
    }  # fmt: skip


def update_flops(dataset: TensorDataset, settings: Settings) -> int:
    """Operations of the matrix products of one update of the implicit model, forward and backward.

    Backward costs twice forward; the first layer needs no gradient of its inputs and costs once. With teaching
    every row goes through twice, with all inputs and with one missing.
    """
    targets, width = len(dataset.targets), settings.width
    first = dataset.encoder.features * width
    rest = (settings.depth - 1) * width**2 + width * targets * settings.code
    scores = targets * settings.code * settings.knots
    passes = settings.batch * (2 if settings.teaching else 1)
    return 2 * passes * (2 * first + 3 * rest + 3 * scores)


# As d grows


def scaling(plan: _Plan, seed: int) -> dict[str, Any]:
    """Cost of an update and of a CMI evaluation for each d, each in a separate process."""
    points = [_in_own_process(d, plan, seed) for d in plan.scaling]
    exponents = {key: _exponent(points, key) for key in ("update_s", "cmi_s")}
    return {"points": points, "exponents": exponents}


def scaling_point(d: int, quick: bool, seed: int) -> dict[str, float]:
    """One row of the scaling table."""
    plan = QUICK if quick else FULL
    before = _peak_mb()
    dataset, trainer = _trainer(d, plan.scaling_rows, preset("fast"), seed)
    trainer.update(EARLY)
    update = [_seconds(lambda: trainer.update(EARLY)) for _ in range(plan.scaling_updates)]
    arguments = (dataset.held, dataset.inputs, dataset.real_inputs, plan.evaluation_rows, trainer.row_size)
    cmi = _seconds(lambda: measure_cmi(trainer.model, *arguments))
    return {
        "d": d, "update_s": float(np.median(update)), "cmi_s": cmi, "cmi_rows": plan.evaluation_rows,
        "peak_mb": _peak_mb(), "libraries_mb": before,
    }  # fmt: skip


def _in_own_process(d: int, plan: _Plan, seed: int) -> dict[str, float]:
    call = f"scaling_point({d}, {plan is QUICK}, {seed})"
    code = f"import json; from benchmarks.engine import scaling_point; print(json.dumps({call}))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, cwd=CHECKOUT)
    point: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return point


def _exponent(points: list[dict[str, float]], key: str) -> float:
    """Slope of log cost against log d."""
    d, cost = (np.log([point[name] for point in points]) for name in ("d", key))
    return float(np.polyfit(d, cost, 1)[0])


def _peak_mb() -> float:
    """Peak memory of this process."""
    status = Path("/proc/self/status")
    if status.exists():  # not getrusage: on Linux that starts at the size of the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    if sys.platform == "win32":
        return float("nan")
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# Shared


def _trainer(d: int, rows: int, settings: Settings, seed: int) -> tuple[TensorDataset, Trainer]:
    train, held = sparse_nonlinear(d, rows, seed=seed).split(settings.held_out, seed)
    dataset = dynamics_dataset(train, held, settings.shadows, seed).dataset
    return dataset, Trainer(build_model(dataset, settings, seed), dataset, settings, seed)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _ratio_table(numbers: dict[str, float]) -> Table:
    title = f"The paper's formulas against the fast form, d = {numbers['d']}, batch {numbers['batch']}"
    table = _table(title, "", "as printed, ms", "fast, ms", "ratio")
    for name, label in (("update", "update"), ("cmi_row", "CMI, one row")):
        slow, fast = 1000 * numbers[f"{name}_literal_s"], 1000 * numbers[f"{name}_fast_s"]
        table.add_row(label, f"{slow:.4g}", f"{fast:.4g}", f"{numbers[f'{name}_ratio']:.0f}")
    return table


def _machine_table(numbers: dict[str, float]) -> Table:
    title = f"One update against the machine, d = {numbers['d']}, batch {numbers['batch']}"
    table = _table(title, "update, ms", "GFLOP", "GFLOP/s", "1024^3 product, GFLOP/s", "share")
    table.add_row(
        f"{1000 * numbers['update_s']:.3g}", f"{numbers['update_gflop']:.3g}", f"{numbers['gflops']:.1f}",
        f"{numbers['sgemm_gflops']:.1f}", f"{100 * numbers['share']:.0f} %",
    )  # fmt: skip
    return table


def _scaling_table(numbers: dict[str, Any]) -> Table:
    rows = f"CMI of {numbers['points'][0]['cmi_rows']} rows, s"
    table = _table("Cost as d grows", "d", "update, ms", rows, "peak memory, MB", "before the data, MB")
    for point in numbers["points"]:
        table.add_row(
            str(point["d"]), f"{1000 * point['update_s']:.3g}", f"{point['cmi_s']:.3g}",
            f"{point['peak_mb']:.0f}", f"{point['libraries_mb']:.0f}",
        )  # fmt: skip
    exponents = numbers["exponents"]
    table.add_row("power of d", f"{exponents['update_s']:.2f}", f"{exponents['cmi_s']:.2f}", "", "")
    return table


def _csv(result: dict[str, Any]) -> str:
    """measurement, d, name, value."""
    text = io.StringIO()
    text.write(f"# {result['command']}; {result['threads']} threads; torch {result['torch']}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["measurement", "d", "name", "value"])
    for measurement in ("against_literal", "against_machine"):
        numbers = result[measurement]
        writer.writerows([measurement, numbers["d"], name, numbers[name]] for name in numbers if name != "d")
    for point in result["scaling"]["points"]:
        writer.writerows(["scaling", point["d"], name, point[name]] for name in point if name != "d")
    exponents = result["scaling"]["exponents"]
    writer.writerows(["scaling", "", f"power of d of {name}", exponents[name]] for name in exponents)
    return text.getvalue()
