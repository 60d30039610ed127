"""Speed of the worlds, compared with the simulators that they stand for.

All run in one process on one core and one thread, in turns: a round times each of them once, in CPU seconds of random
actions without resets, so that a busy machine slows all alike. Rates are medians over rounds, ratios medians of the
ratios within rounds. A step of ours includes the observation and the rewards of all tasks, as a step of theirs does.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import importlib.metadata
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import CHECKOUT
from benchmarks.store import command
from cbm.errors import DataError
from cbm.runs.files import atomic_write_text

ROUND_SECONDS = 0.5
"""CPU time of one system in one round."""
COPIES = {"mujoco": 64, "robosuite": 1, "numpy": 1000}
"""How many copies of a world are stepped at once."""
PACKAGES = ("mujoco", "robosuite", "dm_control", "numpy")


@dataclass(frozen=True)
class Options:
    """Steps per second of every world on one core, compared with stock robosuite and dm_control."""

    seed: int = 0
    """Seed of the starts and actions."""
    quick: bool = False
    """Few and short rounds, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the numbers."""


class Runner:
    """A simulator under random actions: `begin` starts an episode, `run` steps `copies` environments at once."""

    copies = 1

    def begin(self) -> None:
        raise NotImplementedError

    def run(self, steps: int) -> None:
        raise NotImplementedError


class _Ours(Runner):
    def __init__(self, name: str, copies: int, seed: int, **options: Any):
        from cbm.envs.registry import make_world

        self.world, self.copies = make_world(name, **options), copies
        self.rng = np.random.default_rng(seed)
        self.begin()

    def begin(self) -> None:
        self.state = self.world.reset(self.copies, self.rng)
        self.act = self.world.policy("random", self.copies, self.rng)

    def run(self, steps: int) -> None:
        world, rng = self.world, self.rng
        for _ in range(steps):
            self.state = world.step(self.state, self.act(self.state, rng), rng)
            world.observe(self.state)
            world.rewards(self.state)


class _Gymnasium(Runner):
    """Ours through `gymnasium.make`, as an agent sees it."""

    def __init__(self, name: str, seed: int):
        from cbm.envs.gym import GymWorld

        self.env, self.seed = GymWorld(name), seed
        self.env.action_space.seed(seed)

    def begin(self) -> None:
        self.env.reset(seed=self.seed)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.env.step(self.env.action_space.sample())


class _DmControl(Runner):
    def __init__(self, domain: str, task: str, seed: int):
        suite = importlib.import_module("dm_control.suite")
        self.env = suite.load(domain, task, task_kwargs={"random": seed})
        self.size = self.env.action_spec().shape[0]
        self.rng = np.random.default_rng(seed)

    def begin(self) -> None:
        self.env.reset()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.env.step(self.rng.uniform(-1, 1, self.size))


class _Robosuite(Runner):
    """Stack with the arm, gripper and controller of our block world, as robosuite itself runs it."""

    def __init__(self, seed: int):
        with contextlib.redirect_stdout(sys.stderr):
            robosuite = importlib.import_module("robosuite")
            controllers = importlib.import_module("robosuite.controllers")
            config = controllers.load_composite_controller_config(controller="BASIC", robot="UR5e")
            arm = controllers.load_part_controller_config(default_controller="OSC_POSITION")
            arm["gripper"] = config["body_parts"]["right"]["gripper"]
            config["body_parts"] = {"right": arm}
            self.env = robosuite.make(
                "Stack", robots="UR5e", gripper_types="RethinkGripper", controller_configs=config, control_freq=20,
                has_renderer=False, has_offscreen_renderer=False, use_camera_obs=False, ignore_done=True,
                hard_reset=False,
            )  # fmt: skip
        self.rng = np.random.default_rng(seed)

    def begin(self) -> None:
        self.env.reset()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.env.step(self.rng.uniform(-1, 1, 4))


@dataclass(frozen=True)
class System:
    """One row of the table."""

    name: str
    make: Callable[[int], Runner]
    against: str = ""
    """Name of the row that it is compared with."""


STOCK = "robosuite Stack, stock"
SYSTEMS = (
    System(STOCK, _Robosuite),
    System("block, mujoco", lambda seed: _Ours("block", COPIES["mujoco"], seed), STOCK),
    System("block, mujoco, Gymnasium", lambda seed: _Gymnasium("block", seed), STOCK),
    System("block, robosuite", lambda seed: _Ours("block", COPIES["robosuite"], seed, backend="robosuite"), STOCK),
    System("tool, mujoco", lambda seed: _Ours("tool", COPIES["mujoco"], seed)),
    System("dm_control cheetah run", lambda seed: _DmControl("cheetah", "run", seed)),
    System("cheetah", lambda seed: _Ours("cheetah", 1, seed), "dm_control cheetah run"),
    System("dm_control walker walk", lambda seed: _DmControl("walker", "walk", seed)),
    System("walker", lambda seed: _Ours("walker", 1, seed), "dm_control walker walk"),
    System("chemical", lambda seed: _Ours("chemical", COPIES["numpy"], seed)),
    System("contact", lambda seed: _Ours("contact", COPIES["numpy"], seed)),
)


def main(options: Options) -> dict[str, Any]:
    """Every system's rate, as a table on the terminal and as numbers."""
    environment = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    call = f"worlds.on_one_core(); print(json.dumps(worlds.measure({options.seed}, {options.quick})))"
    code = f"import json; from benchmarks import worlds; {call}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=CHECKOUT)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the measurement died")
    rows = json.loads(done.stdout.splitlines()[-1])
    result = {"command": command(), "versions": _versions(), "rows": rows}
    Console().print(_table(rows))
    for row in rows:
        if row["note"]:
            print(f"{row['system']}: {row['note']}")
    if options.out:
        atomic_write_text(options.out, _csv(result))
    return result


def on_one_core() -> None:
    """Keeps this process on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def measure(seed: int, quick: bool) -> list[dict[str, Any]]:
    """Rows of the table; called in a separate process whose libraries use one thread."""
    runners: dict[str, Runner] = {}
    problems: dict[str, str] = {}
    for system in SYSTEMS:
        try:
            runners[system.name] = system.make(seed)
        except (ImportError, DataError) as error:
            problems[system.name] = " ".join(str(error).split())
    rates = _rates(runners, rounds=2 if quick else 9, seconds=0.02 if quick else ROUND_SECONDS)
    return [_row(system, runners, problems, rates) for system in SYSTEMS]


def _rates(runners: dict[str, Runner], rounds: int, seconds: float) -> dict[str, np.ndarray]:
    """(rounds,) steps per CPU second of each, measured in turns."""
    steps = {}
    for name, runner in runners.items():
        runner.begin()
        runner.run(2)  # compiles or allocates at first use
        steps[name] = max(1, round(seconds / _cpu_seconds(lambda r=runner: r.run(3)) * 3))  # type: ignore[misc]
    rates: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, runner in runners.items():
            runner.begin()
            taken = _cpu_seconds(lambda r=runner, n=steps[name]: r.run(n))  # type: ignore[misc]
            rates[name].append(steps[name] * runner.copies / taken)
    return {name: np.array(values) for name, values in rates.items()}


def _cpu_seconds(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return max(time.process_time() - start, 1e-6)


def _row(
    system: System, runners: dict[str, Runner], problems: dict[str, str], rates: dict[str, np.ndarray]
) -> dict[str, Any]:
    row: dict[str, Any] = {"system": system.name, "copies": None, "steps_per_second": None, "low": None, "high": None}
    row |= {"against": system.against, "ratio": None, "note": problems.get(system.name, "")}
    if system.name in rates:
        rate = rates[system.name]
        row |= {"copies": runners[system.name].copies, "steps_per_second": float(np.median(rate))}
        row |= {"low": float(rate.min()), "high": float(rate.max())}
        if system.against in rates:
            row["ratio"] = float(np.median(rate / rates[system.against]))
    return row


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Steps per CPU second on one core", title_justify="left")
    for column in ("world", "copies", "steps/s", "lowest", "highest", "times", "as fast as"):
        table.add_column(column, justify="left" if column in ("world", "as fast as") else "right")
    for row in rows:
        if row["note"]:
            table.add_row(row["system"], "", "not installed", "", "", "", "")
            continue
        numbers = (f"{row[key]:,.0f}" for key in ("steps_per_second", "low", "high"))
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3g}"
        table.add_row(row["system"], str(row["copies"]), *numbers, ratio, row["against"] if ratio else "")
    return table


def _csv(result: dict[str, Any]) -> str:
    text = io.StringIO()
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    text.write(f"# {result['command']}; one core; {versions}\n")
    writer = csv.DictWriter(text, list(result["rows"][0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(result["rows"])
    return text.getvalue()
