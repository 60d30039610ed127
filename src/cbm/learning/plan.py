"""The request for a learning run, and its record in config.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cbm.abstraction.table import METHODS, method_options, method_row
from cbm.checks import is_whole
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
    """Environment steps for each task, not counting demonstrations."""
    settings: LearnSettings
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the world."""
    together: bool = False
    """Whether all tasks are learned at once, or one after another."""
    preset: str = "laptop"
    """Name of the preset behind the settings."""
    seed: int = 0
    dynamics: Path | None = None
    """A run of `cbm discover`; None: dynamics are learned jointly if the method needs them."""
    certain_only: bool = False
    """Whether to ignore the undecided links of that run."""
    rewards: Rewards = "learned"
    model: ModelName = "implicit"
    """Model of the dynamics and rewards that are learned alongside the policy."""
    method_options: Mapping[str, Any] = field(default_factory=dict)
    pretrain: Path | None = None
    """A log on which partition methods learn their dynamics first."""
    device: str = "cpu"
    """Device of the networks. Not part of the configuration: a run may be resumed on another one."""

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """Tasks that are learned at the same time, in order."""
        return (self.tasks,) if self.together else tuple((task,) for task in self.tasks)

    def check(self, task_env: TaskEnv) -> None:
        """Refuse invalid plans before anything is written."""
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
        """Content of config.json, by which the same command is recognised."""
        shown = self.settings.demonstrations
        return {
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
            **({"certain_only": True} if self.certain_only else {}),  # absent from runs made before this option existed
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


CONFIG_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "world": ("a name", lambda value: isinstance(value, str)),
    "tasks": ("a list of names", lambda value: is_names(value) and len(value) > 0),
    "method": ("a name", lambda value: isinstance(value, str)),
    "steps": ("a whole number", lambda value: is_whole(value) and value >= 1),
    "options": ("an object", lambda value: isinstance(value, dict)),
    "together": ("true or false", lambda value: isinstance(value, bool)),
    "preset": ("a name", lambda value: isinstance(value, str)),
    "seed": ("a whole number from 0 to 2^63 - 1", lambda value: is_whole(value) and 0 <= value < 2**63),
    "dynamics": ("a path or null", lambda value: value is None or isinstance(value, str)),
    "certain_only": ("true or false", lambda value: isinstance(value, bool)),
    "rewards": ("run or learned", lambda value: value in ("run", "learned")),
    "model": ("implicit or explicit", lambda value: value in ("implicit", "explicit")),
    "method_options": ("an object", lambda value: isinstance(value, dict)),
    "pretrain": ("a path or null", lambda value: value is None or isinstance(value, str)),
}
"""Entries of config.json that define a plan, with the kind of value each must have: the file may have been edited."""
OPTIONAL: dict[str, Any] = {"certain_only": False, "pretrain": None}
"""Entries that older runs lack, with the values that they imply."""


def is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def plan_of(config: Mapping[str, Any], source: Path | str = "config.json") -> Plan:
    """The plan that wrote a config.json."""
    config = OPTIONAL | dict(config)
    for key, (kind, good) in CONFIG_KINDS.items():
        if key not in config:
            raise DataError(f"{source}: {key} is missing")
        if not good(config[key]):
            raise DataError(f"{source}: {key} must be {kind}, got {json.dumps(config[key]):.60}")
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
            certain_only=config["certain_only"],
            rewards=config["rewards"],
            model=config["model"],
            method_options=config["method_options"],
            pretrain=None if config["pretrain"] is None else Path(config["pretrain"]),
        )
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    except (KeyError, TypeError) as error:
        raise DataError(f"{source}: {error} is missing or wrong") from None


def _names(task_env: TaskEnv, mask: np.ndarray | None) -> list[str] | None:
    return None if mask is None else [n for n, kept in zip(task_env.factors.names, mask) if kept]


def _graph_file(run: Path) -> Path:
    return run / "graph.json" if run.is_dir() else run


def _fingerprint(path: Path) -> str:
    """Hash of a file: a run resumed with another graph or log would be neither the old run nor a new one."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
