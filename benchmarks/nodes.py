"""Duration of discovery on 1 to 1,000 nodes, computed from the times of its jobs on one core.

    nice python -m benchmarks.nodes measure --systems contact-36-60000 sparse-20-20000 --out results/job_times.csv
    python -m benchmarks.nodes simulate --times results/job_times.csv --out results/nodes.csv

`measure` runs all jobs of a log one after the other in this process and records the processor time of each, which other
programs on the machine hardly affect. `simulate` assigns the same jobs, in the order of the pipeline, to the node that
is free first; a stage begins when the previous one has ended. Every job costs OVERHEAD more. Every node first receives
the shared arrays over its link, from any node that already has them. A larger system consists of jobs drawn from the
measured ones; the times of its screening and of its jobs are extrapolated as powers of the number of variables.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.systems import sparse_nonlinear
from cbm.data.transitions import Transitions
from cbm.discovery.pipeline import Ceiling, Runner, build_problems, measure_problems
from cbm.discovery.rows import draw
from cbm.discovery.settings import Settings
from cbm.envs.collect import collect
from cbm.envs.contact import ContactWorld
from cbm.jobs import Job, Shared, Store, open_executor
from cbm.runs.files import atomic_write_text

COLUMNS = ("system", "variables", "rows", "shared_mb", "stage", "key", "seconds")
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
OVERHEAD = 0.05
"""Seconds that a job costs besides its own work: sending, starting and fetching."""
LINK = 125e6
"""Bytes per second between two nodes (1 Gbit/s)."""


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("measure", "simulate"))
    parser.add_argument("--systems", nargs="+", default=["contact-36-60000"], help="NAME-VARIABLES-ROWS")
    parser.add_argument("--times", type=Path, default=Path("results/job_times.csv"))
    parser.add_argument("--variables", type=int, nargs="*", default=[1000, 10_000], help="larger systems to simulate")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    if options.what == "measure":
        rows = _read(options.out) if options.out.exists() else []
        for system in options.systems:
            if not any(row["system"] == system for row in rows):
                rows += measure(system)
                _write(options.out, COLUMNS, rows)
    else:
        _write(options.out, TABLE, simulate(_read(options.times), options.variables))


def measure(system: str) -> list[dict[str, Any]]:
    """A row for each job of one log."""
    data, settings = _log(system), Settings()
    rows, last = draw(data, settings, 0)
    problems, _ = build_problems(rows, settings, 0, last)
    with tempfile.TemporaryDirectory() as folder, open_executor("local", 0) as executor:
        runner = _Timed(executor, Path(folder), Store(None), Ceiling(), None)
        measure_problems(problems, runner, settings)
        size = sum(file.stat().st_size for file in Path(folder).glob("*.npy")) / 1e6
    about = {"system": system, "variables": len(data.factors), "rows": len(rows), "shared_mb": round(size, 1)}
    print(f"{system}: {len(runner.times)} jobs, {sum(t['seconds'] for t in runner.times):.0f} s", flush=True)
    return [about | row for row in runner.times]


def _log(system: str) -> Transitions:
    name, variables, rows = system.split("-")
    if name == "contact":
        return collect(ContactWorld(world_seed=0), int(rows), "mixed", seed=0)
    return sparse_nonlinear(int(variables), int(rows))


class _Timed(Runner):
    """Runs jobs here, one after the other, and records their processor time."""

    def __init__(self, *parts: Any):
        super().__init__(*parts)
        self.times: list[dict[str, Any]] = []

    def run(self, jobs: list[Job], stage: str, start: float, stop: float, counted: bool = True) -> dict[str, Any]:
        results = {}
        for job in jobs:
            begun = time.process_time()
            results[job.key] = job.call(Shared(self.folder))
            seconds = round(time.process_time() - begun, 3)
            self.times.append({"stage": stage, "key": job.key, "seconds": seconds})
        return results


TABLE = ("system", "nodes", "minutes", "speed_up", "busy_share", "bound_by")


@dataclass(frozen=True)
class Work:
    """The jobs of one discovery: a list of times for each stage, and the size of what every node must receive first."""

    system: str
    stages: list[list[float]]
    shared_bytes: float


def simulate(rows: Sequence[dict[str, Any]], variables: Sequence[int]) -> list[dict[str, Any]]:
    systems = list(dict.fromkeys(row["system"] for row in rows))
    works = [_measured(system, rows) for system in systems]
    works += [_larger(count, rows) for count in variables]
    table = []
    for work in works:
        alone = makespan(work, 1)
        for nodes in NODES:
            seconds = makespan(work, nodes)
            busy = sum(map(sum, work.stages)) / (nodes * seconds)
            table.append(
                {
                    "system": work.system, "nodes": nodes, "minutes": round(seconds / 60, 3),
                    "speed_up": round(alone / seconds, 1), "busy_share": round(busy, 3),
                    "bound_by": _bound(work, nodes),
                }
            )  # fmt: skip
    return table


def makespan(work: Work, nodes: int) -> float:
    """Seconds from the first job to the last result."""
    return sending_seconds(work, nodes) + sum(stage_seconds(times, nodes) for times in work.stages)


def sending_seconds(work: Work, nodes: int) -> float:
    """Every node that has the arrays forwards them: the number of nodes that have them doubles in each round."""
    return math.ceil(math.log2(nodes)) * work.shared_bytes / LINK


def stage_seconds(times: Sequence[float], nodes: int) -> float:
    """Jobs in order, each assigned to the node that is free first."""
    free = [0.0] * min(nodes, max(1, len(times)))
    for seconds in times:
        heapq.heapreplace(free, free[0] + seconds + OVERHEAD)
    return max(free)


def _bound(work: Work, nodes: int) -> str:
    """The part that limits the duration."""
    parts = {
        "sending": sending_seconds(work, nodes),
        "screen": stage_seconds(work.stages[0], nodes),
        "jobs": sum(stage_seconds(times, nodes) for times in work.stages[1:]),
        "longest job": sum(max(times, default=0.0) for times in work.stages[1:]),
    }
    if parts["jobs"] > 1.5 * parts["longest job"]:
        parts.pop("longest job")
    else:
        parts.pop("jobs")
    return max(parts, key=lambda name: parts[name])


def _measured(system: str, rows: Sequence[dict[str, Any]]) -> Work:
    mine = [row for row in rows if row["system"] == system]
    stages = [[r["seconds"] for r in mine if r["stage"] == s] for s in ("screening", "measuring", "measuring again")]
    return Work(system, stages, 1e6 * mine[0]["shared_mb"])


def _larger(variables: int, rows: Sequence[dict[str, Any]]) -> Work:
    """A sparse system with more variables: as many causes for each, hence jobs like the measured ones."""
    sparse = [row for row in rows if row["system"].startswith("sparse")]
    lengths = {row["rows"] for row in sparse}
    most = max(lengths, key=lambda rows: len({row["variables"] for row in sparse if row["rows"] == rows}))
    same = [row for row in sparse if row["rows"] == most]
    sizes = sorted({row["variables"] for row in same})
    screens = [sum(r["seconds"] for r in same if r["variables"] == d and r["stage"] == "screening") for d in sizes]
    means = [np.mean([r["seconds"] for r in same if r["variables"] == d and r["stage"] == "measuring"]) for d in sizes]
    screen = _extrapolated(sizes, screens, variables)
    grown = _extrapolated(sizes, [float(m) for m in means], variables) / float(means[-1])
    largest = [row for row in same if row["variables"] == sizes[-1]]
    rng = np.random.default_rng(0)
    first = [row["seconds"] * grown for row in largest if row["stage"] == "measuring"]
    again = [row["seconds"] * grown for row in largest if row["stage"] == "measuring again"]
    count = variables * len(first) // sizes[-1], variables * len(again) // sizes[-1]
    stages = [[screen], rng.choice(first, count[0]).tolist(), rng.choice(again, count[1]).tolist() if again else []]
    shared = 1e6 * largest[0]["shared_mb"] * variables / sizes[-1]
    return Work(f"sparse-{variables}-{most} (extrapolated)", stages, shared)


def _extrapolated(sizes: Sequence[int], seconds: Sequence[float], variables: int) -> float:
    """Extrapolates linearly in logarithms; never below the largest measured value."""
    if len(sizes) < 2:
        return seconds[-1]
    slope, offset = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return max(float(np.exp(offset + slope * np.log(variables))), seconds[-1])


def _read(path: Path) -> list[dict[str, Any]]:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    whole, numbers = ("variables", "rows"), ("seconds", "shared_mb")
    kinds = dict.fromkeys(whole, int) | dict.fromkeys(numbers, float)
    return [{name: kinds.get(name, str)(value) for name, value in row.items()} for row in csv.DictReader(lines)]


def _write(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    lines = [f"# python -m benchmarks.nodes {' '.join(sys.argv[1:])}", ",".join(columns)]
    lines += [",".join(str(row[column]) for column in columns) for row in rows]
    atomic_write_text(path, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
