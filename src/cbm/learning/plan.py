"""What a learning run is asked to do, and the record of it in config.json."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cbm.abstraction.table import METHODS, method_options, method_row
from cbm.discovery.settings import ModelName
from cbm.errors import DataError, unknown_name
from cbm.learning.demonstrations import scripts
from cbm.learning.settings import LearnSettings
from cbm.learning.task_env import TaskEnv, check_task, oracle

Rewards = Literal["run", "learned"]


@dataclass(frozen=True)
class Plan:
    """One call of `cbm learn`. A run is a function of this, and of the graph in the dynamics run."""

    world: str
    tasks: tuple[str, ...]
    method: str
    steps: int
    """Environment steps for each task, demonstrations not counted."""
    settings: LearnSettings
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the world."""
    together: bool = False
    """All tasks at once, or one after another."""
    preset: str = "laptop"
    """Where the settings came from."""
    seed: int = 0
    dynamics: Path | None = None
    """A run of `cbm discover`; None: dynamics are learned jointly, where the method needs them."""
    certain_only: bool = False
    """Of that run, without the links that are undecided."""
    rewards: Rewards = "learned"
    model: ModelName = "implicit"
    """Of dynamics and rewards that are learned beside the policy."""
    method_options: Mapping[str, Any] = field(default_factory=dict)
    pretrain: Path | None = None
    """A log that partition methods learn their dynamics on first."""
    device: str = "cpu"
    """Where networks compute. No part of the configuration: a run may go on with another one."""

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """Tasks that are learned at the same time, in the order in which it is their turn."""
        return (self.tasks,) if self.together else tuple((task,) for task in self.tasks)

    def check(self, task_env: TaskEnv) -> None:
        """What can be refused is refused before anything is written."""
        if not self.tasks:
            raise unknown_name(f"{self.world}: task", None, task_env.tasks)
        for task in self.tasks:
            check_task(task_env, task)
        if len(set(self.tasks)) < len(self.tasks):
            raise DataError(f"a task is given twice: {', '.join(self.tasks)}")
        method_options(self.method, self.method_options)
        if self.steps <= self.settings.warm_up:
            raise DataError(
                f"{self.steps} steps are too few: the first {self.settings.warm_up} are random (setting warm_up)"
            )
        if self.settings.demonstrations:
            scripts(task_env, self.tasks)
        if self.pretrain is not None and not method_row(self.method).pretrains:
            others = [name for name, row in METHODS.items() if row.pretrains]
            raise DataError(f"method {self.method!r} has nothing to pretrain; {' and '.join(others)} have")

    def config(self, task_env: TaskEnv) -> dict[str, Any]:
        """config.json; the same command is recognised by it."""
        shown = self.settings.demonstrations
        return {
            "command": "learn",
            "world": self.world,
            "options": dict(self.options),
            "tasks": list(self.tasks),
            "together": self.together,
            "method": self.method,
            "method_options": dict(self.method_options),
            "preset": self.preset,
            "steps": self.steps,
            "seed": self.seed,
            "dynamics": None if self.dynamics is None else str(self.dynamics),
            **({"certain_only": True} if self.certain_only else {}),  # absent in runs from before there was a choice
            "dynamics_graph": None if self.dynamics is None else _fingerprint(_graph_file(self.dynamics)),
            "pretrain": None if self.pretrain is None else str(self.pretrain),
            "pretrain_log": None if self.pretrain is None else _fingerprint(self.pretrain),
            "rewards": self.rewards,
            "model": self.model,
            "settings": self.settings.to_json(),
            "demonstrations": shown,
            "demonstration_policies": scripts(task_env, self.tasks) if shown else [],
            "factors": task_env.factors.to_json(),
            "oracle": {task: _names(task_env, oracle(task_env, task)) for task in self.tasks},
        }


def plan_of(config: Mapping[str, Any]) -> Plan:
    """The plan that wrote a config.json."""
    try:
        return Plan(
            world=config["world"],
            tasks=tuple(config["tasks"]),
            method=config["method"],
            steps=config["steps"],
            settings=LearnSettings.from_json(config["settings"]),
            options=config["options"],
            together=config["together"],
            preset=config["preset"],
            seed=config["seed"],
            dynamics=None if config["dynamics"] is None else Path(config["dynamics"]),
            certain_only=config.get("certain_only", False),
            rewards=config["rewards"],
            model=config["model"],
            method_options=config["method_options"],
            pretrain=None if config.get("pretrain") is None else Path(config["pretrain"]),
        )
    except (KeyError, TypeError) as error:
        raise DataError(f"config.json: {error} is missing or wrong") from None


def _names(task_env: TaskEnv, mask: np.ndarray | None) -> list[str] | None:
    return None if mask is None else [n for n, kept in zip(task_env.factors.names, mask) if kept]


def _graph_file(run: Path) -> Path:
    return run / "graph.json" if run.is_dir() else run


def _fingerprint(path: Path) -> str:
    """For a run resumed on another graph or log would be neither the old run nor a new one."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
