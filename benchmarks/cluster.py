"""The same sweep of short runs on this machine and on a Ray cluster of three nodes, also while nodes are lost.

    python -m benchmarks.cluster --work /tmp/cluster --out results/cluster.csv

All nodes are on this machine, so the times show what Ray and its failures cost, not what more machines gain. The part
`speed` compares one worker with two and needs two free cores; the part `links` needs root and iproute2.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster_nodes import Namespaces, Nodes, Raylets, at_work, command_of
from benchmarks.store import Columns, Row, Store
from cbm.jobs import Executor, Job, Shared, local_executor
from cbm.jobs import Store as Results
from cbm.sweep.tree import digest

NODES = 3
PARTS = ("local", "cluster", "kills", "links", "speed")
COLUMNS = Columns(
    ("part", "jobs"),
    ("seconds", "work", "done", "retried", "twice", "lost", "identical", "overhead_ms", "speed", "load", "what"),
    ("part", "identical", "what"),
    ("jobs",),
)
EMPTY = 200
"""Number of empty jobs that measure the cost of a job."""
ROUNDS = 3
"""Rounds of one worker and of two, in turn."""
_LINE = re.compile(r"\d+ of \d+  (done|retried|failed) (\S+) after")


@dataclass
class Sweep:
    """`cbm sweep` as a separate process, and its output while it runs."""

    out: Path
    command: list[str]
    events: list[tuple[str, str]] = field(default_factory=list)
    """done, retried or failed, and the name of the run."""
    said: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        self.started = time.monotonic()
        pipes: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        environment = os.environ | self.environment
        self.process = subprocess.Popen([*self.command, "--out", str(self.out)], env=environment, **pipes)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.said.append(line.rstrip())
                if match := _LINE.match(line):
                    self.events.append((match[1], match[2]))

    def count(self, kind: str) -> int:
        return sum(event == kind for event, _ in self.events)

    def finish(self) -> float:
        """Seconds that it took."""
        code = self.process.wait()
        seconds = time.monotonic() - self.started
        self.reader.join()
        if code:
            raise SystemExit("\n".join([*self.said[-20:], f"the sweep in {self.out} ended with {code}"]))
        return seconds


@dataclass
class Bench:
    """The options, and the result of the first sweep, with which all others are compared."""

    of: list[str]
    jobs: int
    work: Path
    first: tuple[bytes, str] | None = None

    def sweep(self, name: str, *more: str, prefix: list[str] | None = None) -> Sweep:
        start = [*(prefix or []), sys.executable, "-m", "cbm.cli", "sweep", *self.of]
        return Sweep(self.work / name, [*start, "--seeds", f"0-{self.jobs - 1}", *more])

    def row(self, part: str, sweep: Sweep, seconds: float, what: str) -> Row:
        """The outcome of a sweep: `twice` and `lost` count results, and must be 0."""
        table = (sweep.out / "table.csv").read_bytes()
        result = (table, digest(sweep.out / "runs"))
        self.first = self.first or result
        done = Counter(name for event, name in sweep.events if event == "done")
        with (sweep.out / "times.csv").open(newline="") as file:
            work = sum(float(line["seconds"]) for line in csv.DictReader(file))
        return {
            "part": part, "jobs": self.jobs, "seconds": round(seconds, 1), "work": round(work, 1), "done": len(done),
            "retried": sweep.count("retried"), "twice": sum(done.values()) - len(done), "lost": self.jobs - len(done),
            "identical": "yes" if result == self.first else "no", "overhead_ms": None, "speed": None,
            "load": round(os.getloadavg()[0], 1), "what": what,
        }  # fmt: skip


def local(bench: Bench) -> Row:
    sweep = bench.sweep("local", "--workers", "2")
    sweep.start()
    row = bench.row("local", sweep, sweep.finish(), "--on local --workers 2")
    with local_executor(2) as executor:
        return row | {"overhead_ms": overhead(executor, bench.work)}


def on_cluster(bench: Bench) -> Row:
    nodes = Raylets(NODES)
    try:
        sweep = bench.sweep("cluster", "--on", f"ray:{nodes.address}")
        sweep.start()
        row = bench.row("cluster", sweep, sweep.finish(), f"--on ray, {NODES} nodes of one core")
        from cbm.jobs.ray_executor import RayExecutor

        with RayExecutor(nodes.address) as executor:
            return row | {"overhead_ms": overhead(executor, bench.work)}
    finally:
        nodes.close()


def under_fire(part: str, bench: Bench, nodes: Nodes) -> Row:
    """The sweep while two nodes are lost in the middle of a run, after a sixth of the runs and after half of them."""
    try:
        sweep = bench.sweep(part, "--on", f"ray:{nodes.address}", prefix=nodes.prefix)
        sweep.environment = nodes.environment
        sweep.start()
        told = []
        for after in (bench.jobs // 6, bench.jobs // 2):
            name, process = busy_node(sweep, nodes, after)
            when = time.monotonic() - sweep.started
            told.append(nodes.strike(name) + fate_of(process, sweep, nodes))
            print(f"  {when:.0f} s: {told[-1]}", flush=True)
        seconds = sweep.finish()
        print("\n".join(f"  {line}" for line in sweep.said if " retried " in line), flush=True)
        return bench.row(part, sweep, seconds, "; ".join(told))
    finally:
        nodes.close()


def busy_node(sweep: Sweep, nodes: Nodes, after: int) -> tuple[str, int]:
    """A node that is executing a run once `after` runs are done, and the process of that run."""
    while sweep.process.poll() is None:
        if sweep.count("done") >= after:
            for name, raylet in nodes.raylets().items():
                for process in at_work(raylet):
                    return name, process
        time.sleep(0.05)
    sweep.finish()
    raise SystemExit(f"the sweep ended before {after} runs were done and a node was busy")


def fate_of(process: int, sweep: Sweep, nodes: Nodes) -> str:
    """A run behind a cut link continues: says whether it ended by itself before the sweep gave it up."""
    if not isinstance(nodes, Namespaces):
        return ""
    before = sweep.count("retried")
    while command_of(process):
        if sweep.count("retried") > before or sweep.process.poll() is not None:
            return ", whose run was still at work when it was given up"
        time.sleep(0.05)
    return ", whose run ended there and was not heard" if sweep.count("retried") == before else ""


def speed(bench: Bench) -> Row:
    """One worker compared with two, in turn, so that changes of the machine's load affect both; as a ratio of sums."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    sweep = bench.sweep("speed")
    for number in range(ROUNDS):
        for workers in (1, 2) if number % 2 == 0 else (2, 1):
            sweep = bench.sweep("speed", "--workers", str(workers))
            sweep.start()
            seconds[workers].append(sweep.finish())
            print(f"  {workers} of 2 workers: {seconds[workers][-1]:.1f} s", flush=True)
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    what = f"{ROUNDS} rounds, one worker {min(ratios):.2f} to {max(ratios):.2f} times as long as two"
    row = bench.row("speed", sweep, statistics.mean(seconds[2]), what)
    return row | {"speed": round(sum(seconds[1]) / sum(seconds[2]), 2)}


def overhead(executor: Executor, work: Path) -> float:
    """Cost of an empty job in milliseconds."""
    shared = Shared.write(work / "shared", {"x": np.ones(1)}).path
    todo = [Job(f"scale-{k}", "cbm.jobs.checks:scale", {"name": "x", "by": k}) for k in range(EMPTY)]
    executor.run(todo[:4], shared, Results(None))  # the workers are up
    started = time.monotonic()
    executor.run(todo, shared, Results(None))
    return round(1000 * (time.monotonic() - started) / EMPTY, 1)


def measure(part: str, bench: Bench) -> Row:
    if part == "local":
        return local(bench)
    if part == "cluster":
        return on_cluster(bench)
    if part == "speed":
        return speed(bench)
    return under_fire(part, bench, Raylets(NODES) if part == "kills" else Namespaces(NODES, bench.work))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", default="collect block --steps 600", help="the command of the sweep")
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--work", type=Path, required=True, help="directory for the sweeps")
    parser.add_argument("--out", type=Path, help="CSV file; rows that it has are not measured again")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.of.split(), options.jobs, options.work.absolute())
    store = Store(options.out, COLUMNS)
    store.comment = f"# python -m benchmarks.cluster --of '{options.of}' --jobs {options.jobs}"
    for part in options.parts:
        if store.find({"part": part, "jobs": options.jobs}):
            continue
        if bench.first is None and part != "local":  # all are compared with this machine's
            sweep = bench.sweep("first")
            sweep.start()
            bench.row("first", sweep, sweep.finish(), "")
        row = measure(part, bench)
        store.add(row)
        print(", ".join(f"{name} {value}" for name, value in row.items() if value not in (None, "")), flush=True)


if __name__ == "__main__":
    main()
