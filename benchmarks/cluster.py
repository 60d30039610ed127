"""A sweep of short jobs on this machine and on a Ray cluster of three nodes, also while nodes are killed.

    python -m benchmarks.cluster --jobs 24 --out /tmp/cluster

All nodes are processes of this machine, so the times say what Ray costs and not what it gains. The tables must be the
same bytes everywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from cbm.cli.main import main as cbm
from cbm.jobs import Job, Shared, Store, local_executor
from cbm.jobs.ray_executor import KEEP_ALIVE, RayExecutor


def start_cluster(nodes: int, cores: int = 1) -> Any:
    """A head that only coordinates, and nodes that work; with the settings that notice a cut link."""
    from ray.cluster_utils import Cluster

    for name, value in KEEP_ALIVE.items():
        os.environ[f"RAY_{name}"] = str(value)
    small = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(nodes):
        cluster.add_node(num_cpus=cores, object_store_memory=100 * 2**20)
    return cluster


def kill_node(node: Any) -> int:
    """Kill a raylet with all its children at once, as a machine that loses its power; how many processes."""
    raylet = node.all_processes["raylet"][0].process.pid
    family = descendants(raylet)
    for process in family:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return len(family)


def descendants(process: int) -> list[int]:
    """A process and all that it has started, from /proc."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [process]
    for one in family:
        family += parents.get(one, [])
    return family


def sweep(out: Path, jobs: int, *more: str) -> tuple[float, str]:
    """Seconds, and the table."""
    started = time.monotonic()
    words = ["sweep", "collect", "contact", "--steps", "100", "--seeds", f"0-{jobs - 1}", "--quiet", "--json"]
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        code = cbm([*words, "--out", str(out), *more])
    if code:
        raise SystemExit(f"the sweep in {out} ended with {code}")
    return round(time.monotonic() - started, 1), (out / "table.csv").read_text()


def overhead(executor: Any, out: Path, jobs: int = 200) -> float:
    """Seconds that a job costs that does nothing."""
    shared = Shared.write(out / "shared", {"x": np.ones(1)}).path
    todo = [Job(f"scale-{k}", "cbm.jobs.checks:scale", {"name": "x", "by": k}) for k in range(jobs)]
    executor.run(todo[:4], shared, Store(None))  # the workers are up
    started = time.monotonic()
    executor.run(todo, shared, Store(None))
    return (time.monotonic() - started) / jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=24)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    result: dict[str, Any] = {"jobs": options.jobs, "load": os.getloadavg()[0]}
    tables: dict[str, str] = {}

    def note(name: str, *more: str) -> None:
        result[name], tables[name] = sweep(options.out / name, options.jobs, *more)
        print(name, result[name], "s; load", round(os.getloadavg()[0], 1), flush=True)

    note("one_worker", "--workers", "1")
    note("two_workers", "--workers", "2")
    with local_executor(2) as executor:
        result["overhead_local"] = round(overhead(executor, options.out), 4)
    cluster = start_cluster(3)
    try:
        note("cluster", "--on", f"ray:{cluster.address}")
        nodes = list(cluster.worker_nodes)
        killer = threading.Thread(target=_kill_twice, args=(cluster, nodes, result["cluster"]))
        killer.start()
        note("cluster_killed", "--on", f"ray:{cluster.address}")
        killer.join()
        with RayExecutor(cluster.address) as executor:
            result["overhead_ray"] = round(overhead(executor, options.out), 4)
    finally:
        cluster.shutdown()
    result["identical"] = len(set(tables.values())) == 1
    print(json.dumps(result, indent=1))


def _kill_twice(cluster: Any, nodes: list[Any], usual: float) -> None:
    """One node a quarter through, replaced by a fresh one; another at the half."""
    for node in nodes[:2]:
        time.sleep(max(5.0, usual / 4))
        print("killed a node with", kill_node(node), "processes", flush=True)
        cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)


if __name__ == "__main__":
    main()
