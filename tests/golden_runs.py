"""Small fixed runs whose results must not change by a digit, and how to make the files they are compared with.

`python tests/golden_runs.py` writes the files in tests/golden anew: run it only where other numbers are meant. They
hold to the last digit on processors and libraries like those they were made with (machine.txt); networks
amplify the least difference in the order of sums.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from cbm.agents.settings import SacSettings
from cbm.discovery.discover import discover
from cbm.discovery.settings import preset as discovery_preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.learning.algorithm1 import learn
from cbm.learning.plan import Plan
from cbm.learning.settings import preset

HERE = Path(__file__).parent / "golden"
DISCOVERIES: dict[str, tuple[int, dict[str, Any]]] = {
    "contact": (1000, {}),
    "light": (2000, {}),
    "chemical": (1000, {"objects": 3, "colours": 3, "positions": False}),
}
"""World: transitions, and its options."""
METHODS = ("cbm", "tia", "full")
NOT_COMPARED = ("seconds", "version")


def discovered(world: str) -> dict[str, str]:
    """graph.json of a small discovery, without what differs between equal runs."""
    rows, options = DISCOVERIES[world]
    data = collect(make_world(world, **options), rows, seed=0)
    graph = discover(data, settings=discovery_preset("fast"), seed=0, workers=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json"
        graph.save(path)
        content = json.loads(path.read_text())
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in _without_times(content).items()]
    # one key a line, so that a difference shows where it is
    return {f"{world}.graph.json": "{\n" + ",\n".join(lines) + "\n}\n"}


def learned(method: str) -> dict[str, str]:
    """eval.csv and the logs of a small run of Algorithm 1, without times."""
    sac = SacSettings(hidden=(8, 8), batch=16)
    settings = replace(
        preset("debug"), agent=sac, warm_up=100, evaluate_every=200, episodes=3, checkpoint_every=500,
        abstraction_every=200, abstraction_from=200, minimum_interval=0, model_updates=40, dynamics_updates=20,
    )  # fmt: skip
    plan = Plan("light", ("cross",), method, 800, settings, preset="debug")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        learn(plan, run)
        with (run / "eval.csv").open(newline="") as file:
            rows = [_without_times(row) for row in csv.DictReader(file)]
        logs = {name: (run / name).read_text().splitlines() for name in ("abstraction.jsonl", "metrics.jsonl")}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return {f"{method}.eval.csv": text.getvalue()} | {
        f"{method}.{name}": "".join(json.dumps(_without_times(json.loads(line))) + "\n" for line in lines)
        for name, lines in logs.items()
    }


def _without_times(content: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in content.items() if key not in NOT_COMPARED}
    return {key: _without_times(value) if isinstance(value, dict) else value for key, value in kept.items()}


RUNS: dict[str, Callable[[], dict[str, str]]] = {
    **{world: partial(discovered, world) for world in DISCOVERIES},
    **{method: partial(learned, method) for method in METHODS},
}
"""What is run, and the files that it gives."""


def machine() -> str:
    """What the last digits depend on: the processor's instructions, and the libraries that add numbers up."""
    cpu = Path("/proc/cpuinfo")
    wanted = ("vendor_id", "cpu family", "model\t", "model name", "stepping", "flags")
    first = cpu.read_text().split("\n\n")[0].splitlines() if cpu.exists() else [platform.platform()]
    lines = [line for line in first if line.startswith(wanted)] or first
    lines += [f"{name} {version(name)}" for name in ("torch", "numpy", "scipy", "lightgbm")]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() + "\n"


def main() -> None:
    torch.set_num_threads(1)
    HERE.mkdir(exist_ok=True)
    if not sys.argv[1:]:
        (HERE / "machine.txt").write_text(machine())
    for name in sys.argv[1:] or RUNS:
        for file, text in RUNS[name]().items():
            (HERE / file).write_text(text)
            print(HERE / file)


if __name__ == "__main__":
    main()
