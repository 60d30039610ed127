"""What TIA and Denoised MDP keep in the contact world, whose parts are not dynamically independent (Figure 4).

The same hand moves the block that a task needs and the blocks that it does not need. A partition in which no part may
depend on another must then keep all of them, or predict some of them badly.
"""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.store import command
from cbm.abstraction import denoised, tia
from cbm.abstraction.partitioned import PartitionMethod
from cbm.abstraction.table import PartitionSettings, method_options
from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.graph.rules import cbm_abstraction
from cbm.runs.files import atomic_write_text

VARIANTS: dict[str, dict[str, Any]] = {
    "tia": {},
    "denoised": {},
    "denoised, z apart": {"z_inputs": "own"},
    "denoised, authors' code": {"z_inputs": "own", "selector": "detached"},
}
COLUMNS = ("variant", "task", "seed", "kept", "exact", "cpu_seconds", "variables")


@dataclass(frozen=True)
class Options:
    """Which variables each variant keeps for a task of the contact world, over several seeds."""

    seed: int = 0
    """Seed of the first data set; the others follow."""
    seeds: int = 3
    """Number of seeds."""
    task: str = "pick"
    """pick or stack."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """Variants to run."""
    transitions: int = 20_000
    """Number of transitions, by policy `mixed`."""
    quick: bool = False
    """A small world and a few updates, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the results."""


@dataclass(frozen=True)
class Log:
    """An experience that does not grow."""

    data: Transitions

    def transitions(self, held_out: bool) -> Transitions:
        return self.data


def main(options: Options) -> dict[str, Any]:
    rows, console = [], Console()
    table = Table("variant", "seed", "kept", "exact", "CPU s", "which", title=f"contact, {options.task}")
    for row in measure(options):
        rows.append(row)
        table.add_row(*(str(row[name]) for name in COLUMNS if name != "task"))
        console.print(f"{row['variant']}, seed {row['seed']}: {row['variables']}")
        if options.out:
            atomic_write_text(options.out, _csv(rows))
    console.print(table)
    return {"command": command(), "rows": rows}


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each variant and seed."""
    world = make_world("contact", **({"blocks": 2, "distractors": 2} if options.quick else {}))
    wanted = cbm_abstraction(world.truth, world.truth_rewards[options.task])
    for variant in options.variants:
        for seed in range(options.seed, options.seed + (1 if options.quick else options.seeds)):
            data = collect(world, 2000 if options.quick else options.transitions, seed=seed)
            method = build(variant, data.factors, options.task, seed)
            if options.quick:
                method.settings = replace(method.settings, warm_up=10, anneal=10, batch=32, width=16)
            start = time.process_time()
            method.learn(Log(data), method.settings.warm_up + method.settings.anneal)
            kept = method.mask()
            yield {
                "variant": variant, "task": options.task, "seed": seed, "kept": int(kept.sum()),
                "exact": bool((kept == wanted).all()), "cpu_seconds": round(time.process_time() - start, 1),
                "variables": described(data.factors, kept),
            }  # fmt: skip


def build(variant: str, factors: Factors, task: str, seed: int) -> PartitionMethod:
    changes = VARIANTS[variant]
    name = variant.partition(",")[0]
    kind = tia.Tia if name == "tia" else denoised.Denoised
    settings = method_options(name, changes)
    assert isinstance(settings, PartitionSettings)
    return kind(factors, task, seed, settings)


def described(factors: Factors, kept: np.ndarray) -> str:
    """Groups that are kept whole by their name, others with how many of their variables are."""
    parts = []
    for group, members in factors.groups().items():
        count = int(kept[members].sum())
        if count:
            parts.append(group if count == len(members) else f"{group} ({count} of {len(members)})")
    return ", ".join(parts) or "nothing"


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    text.write(f"# {command()}\n")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
