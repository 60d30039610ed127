"""The work of `cbm evaluate`: policies from a run's checkpoint, evaluated in and out of distribution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cbm.agents.base import Agent, Shape, make_agent
from cbm.data.transitions import Transitions
from cbm.envs.collect import collect
from cbm.errors import DataError
from cbm.learning.evaluate import Act, evaluate
from cbm.learning.plan import Plan, plan_of
from cbm.learning.prediction import MODELS, fitted, prediction_errors, stored
from cbm.learning.snapshots import Snapshots
from cbm.learning.task_env import GYMNASIUM, TaskEnv, make_task_env, oracle
from cbm.runs.checkpoint import usable
from cbm.runs.directory import CHECKPOINT, CONFIG, read_config

ROWS = 60_000
"""Transitions collected for models of the dynamics if no log is given."""


@dataclass(frozen=True)
class Policies:
    """The policies in a run's last checkpoint."""

    plan: Plan
    task_env: TaskEnv
    agents: dict[str, Agent]


def policies(run: Path, trust_world: bool = False, device: str = "cpu") -> Policies:
    """Load the policies onto a device, whichever device they were trained on.

    `trust_world`: also create an environment whose id names a module, which runs that module's code.
    """
    plan = replace(plan_of(read_config(run, "learn"), run / CONFIG), device=device)
    module, colon, _ = plan.world.removeprefix(GYMNASIUM).partition(":")
    if plan.world.startswith(GYMNASIUM) and colon and not trust_world:
        raise DataError(
            f"{run}: its config.json names the environment {plan.world}, and making it runs code of the module "
            f"{module!r}; if you trust both, add --trust-world"
        )
    task_env = make_task_env(plan.world, plan.options)
    plan.check(task_env)
    state = Snapshots(run / "checkpoint").load(None)
    if state is None:
        raise DataError(f"{run}: there is no checkpoint in it yet, so there is no policy to evaluate")
    agents = {}
    sizes = len(task_env.factors), len(task_env.context_names), len(task_env.factors.action_names)
    for task in plan.tasks:
        agents[task] = make_agent(plan.settings.agent, Shape(*sizes, device=device))
        with usable(run / CHECKPOINT):
            agents[task].restore(state["learners"][task]["agent"])
    return Policies(plan, task_env, agents)


def assess(found: Policies, episodes: int, seed: int, ood: bool) -> dict[str, Any]:
    """For each task, return and success in distribution and, with `ood`, with noise in every variable that it does not
    need."""
    result: dict[str, Any] = {}
    for task, agent in found.agents.items():
        replaced = _irrelevant(found.task_env, task) if ood else None
        outcomes: dict[str, Any] = {"in": _outcome(agent, found.task_env, task, episodes, seed, None), "out": None}
        if replaced is not None:
            outcomes["out"] = _outcome(agent, found.task_env, task, episodes, seed, replaced)
            outcomes["replaced"] = int(replaced.sum())
        result[task] = outcomes
    return result


def _irrelevant(task_env: TaskEnv, task: str) -> np.ndarray:
    needed = oracle(task_env, task)
    if needed is None:
        raise DataError(
            f"{task_env.name}: no true graph is known that says which variables task {task!r} does not need"
        )
    return ~needed


def _outcome(
    agent: Agent, task_env: TaskEnv, task: str, episodes: int, seed: int, replaced: np.ndarray | None
) -> dict[str, Any]:
    numbers = evaluate(most_likely(agent), task_env, task, episodes, seed, replaced).summary()
    return {name: None if np.isnan(value) else value for name, value in numbers.items()}


def most_likely(agent: Agent) -> Act:
    return lambda obs, context: agent.act(obs, context, deterministic=True)


def predictions(found: Policies, log: Transitions | None, updates: int | None, seed: int) -> list[dict[str, Any]]:
    """Errors of both models on the held-out part of a log, or of a new log made by the mixed policy.

    If the log is the one on which the run's dynamics were found, that model is used as it is.
    """
    plan, task_env = found.plan, found.task_env
    if log is None:
        if task_env.world is None:
            raise DataError(f"{task_env.name}: has no policies to make a log with; give one with --data FILE")
        log = collect(task_env.world, ROWS, seed=seed)
    if log.factors.names != task_env.factors.names:
        raise DataError("the log has other variables than the run")
    ready = stored(plan.dynamics, log, plan.device) if plan.dynamics is not None and plan.dynamics.is_dir() else None
    train, held = log.split(seed=seed) if ready is None else (ready.train, ready.held)
    rows = []
    for model in MODELS:
        known = ready is not None and ready.model == model
        predictor = ready.predictor if ready and known else fitted(train, model, updates, seed, plan.device)
        rows += [{"model": model, **row} for row in prediction_errors(predictor, held, seed)]
    return rows
