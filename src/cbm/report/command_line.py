"""The command line of a learning run, put together again from its settings."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

from cbm.agents.settings import as_agent
from cbm.errors import DataError
from cbm.learning.settings import preset
from cbm.report.learning import LearningRun
from cbm.report.variants import flatten

_WORLD_FLAGS = ("backend", "distractors")
"""Options of worlds that have a flag of their own."""


def command(run: LearningRun) -> str:
    """What would make this run again, with the run directory as it was named here."""
    config = run.config
    words = ["cbm", "learn", run.world]
    for task in run.tasks:
        words += ["--task", task]
    words += ["--together"] if config.get("together") is True else []
    words += ["--method", run.method]
    defaults = {"dynamics": None, "rewards": "run" if config.get("dynamics") else "learned", "model": "implicit"}
    words += [] if _agent(run) == "sac" else ["--agent", _agent(run)]
    words += ["--certain-only"] if config.get("certain_only") is True else []
    for key in ("dynamics", "pretrain", "rewards", "model", "preset", "steps"):
        value = config.get(key)
        if value is not None and value != defaults.get(key):
            words += [f"--{key}", str(value)]
    words += _changes(run)
    for key, value in _entries(config, "method_options"):
        words += ["--method-option", f"{key}={_text(value)}"]
    for key, value in _entries(config, "options"):
        words += [f"--{key}", _text(value)] if key in _WORLD_FLAGS else ["--option", f"{key}={_text(value)}"]
    words += ["--seed", str(run.seed), "--out", str(run.path)]
    return shlex.join(word.encode("utf-8", "replace").decode("utf-8") for word in words)


def _changes(run: LearningRun) -> list[str]:
    """Settings that are not those of the preset."""
    try:
        world = "" if run.world.startswith("gymnasium:") else run.world
        usual: dict[str, Any] = {}
        settings = preset(run.config.get("preset", ""), world, run.tasks[0])
        flatten(replace(settings, agent=as_agent(settings.agent, _agent(run))).to_json(), "", usual)
    except DataError:  # a preset of another version: nothing can be said about its settings
        return []
    values: dict[str, Any] = {}
    flatten(run.config.get("settings"), "", values)
    words = []
    for key, value in values.items():
        if key != "agent" and key in usual and usual[key] != value:
            flag = ["--demonstrations", _text(value)] if key == "demonstrations" else ["--set", f"{key}={_text(value)}"]
            words += flag
    return words


def _agent(run: LearningRun) -> str:
    settings = run.config.get("settings")
    name = settings.get("agent") if isinstance(settings, dict) else None
    return name if isinstance(name, str) else "sac"


def _entries(config: dict[str, Any], key: str) -> list[tuple[str, Any]]:
    entries = config.get(key)
    return list(entries.items()) if isinstance(entries, dict) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
