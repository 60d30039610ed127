"""Offline discovery: from transitions to the causal graph, with the causes of every reward.

The order is that of the method: dynamics first (shared by all tasks), then each reward, then the
abstraction, which is read off the graph. With a run directory everything is written there, and the same
call goes on where a killed one stopped.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from cbm.discovery.checkpoint import Checkpoint
from cbm.discovery.models import check_settings
from cbm.discovery.predict import Predictor
from cbm.discovery.problem import Dynamics, dynamics_problem, reward_problem
from cbm.discovery.runfiles import RunFiles
from cbm.discovery.settings import Settings
from cbm.discovery.study import (
    Clock,
    Findings,
    Report,
    Shares,
    named_parameters,
    restore_parameters,
    spent_in,
    study,
    train,
)  # fmt: skip
from cbm.discovery.training import Trainer
from cbm.errors import DataError
from cbm.factors import Factors
from cbm.graph import CausalGraph, RewardGraph
from cbm.knowledge import Knowledge
from cbm.transitions import Transitions

Progress = Callable[[str, float], None]
"""Stage ("dynamics", "evidence", "rewards", "prediction") and the fraction of it that is done."""

DYNAMICS_SHARE = Shares(0.42, 0.7, measuring=0.5)  # only prediction is still to come
BESIDE_REWARDS = Shares(0.36, 0.6)
REWARD_SHARE = Shares(0.5, 0.6)
PREDICTION_SHARE = 0.6
DYNAMICS_STEPS, REWARD_STEPS, PREDICTION_STEPS = Shares(1.0, 0.6), Shares(0.8, 0.5), 0.15
SHORTEST = 50  # transitions
OBSERVED_EFFECT = 0.005  # nats: the smallest effect that is sought in outcomes


@dataclass(frozen=True)
class Discovery:
    """The graph, and a model that predicts with it (None for models that keep none)."""

    graph: CausalGraph
    predictor: Predictor | None


def discover(
    data: Transitions,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    run: Path | None = None,
    knowledge: Knowledge | None = None,
    progress: Progress | None = None,
) -> CausalGraph:
    """The causal graph of the dynamics and of every reward in the data.

    `minutes` (5 if nothing is said) bounds the whole call; `steps` counts updates of the dynamics model
    instead and makes the result reproducible to the last digit. With `run`, files are written there and an
    unfinished run of the same call is resumed.
    """
    files = RunFiles(run, data, settings or Settings(), seed, minutes, steps, knowledge)
    if (finished := files.finished()) is not None:
        return finished
    return fit(
        data,
        minutes=minutes,
        steps=steps,
        settings=settings,
        seed=seed,
        knowledge=knowledge,
        progress=progress,
        files=files,
    ).graph


def fit(
    data: Transitions,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    knowledge: Knowledge | None = None,
    progress: Progress | None = None,
    files: RunFiles | None = None,
) -> Discovery:
    """`discover`, returning the predictor as well."""
    started = time.perf_counter()
    settings = settings or Settings()
    files = files or RunFiles(None, data, settings, seed, minutes, steps, knowledge)
    _check(data, minutes, steps, settings)
    (knowledge or Knowledge()).masks(data.factors.names, list(data.rewards))  # unknown names are found before work
    files.begin()
    checkpoint = Checkpoint(files.checkpoint)
    if checkpoint.problem_with_file:
        print(f"cbm: {checkpoint.problem_with_file}", file=sys.stderr)
    earlier = float(checkpoint.notes.get("elapsed", 0.0))
    clock = _clock(minutes, steps, started, earlier)
    report = files.reporter(checkpoint, progress, started - earlier)
    train_rows, held_rows = data.split(settings.held_out, seed=seed)
    dynamics = dynamics_problem(train_rows, held_rows, settings.shadows, seed, settings.differences)
    in_time = BESIDE_REWARDS if data.rewards else DYNAMICS_SHARE
    shares = DYNAMICS_STEPS if steps is not None else in_time
    found = study("dynamics", dynamics.problem, settings, seed, clock, shares, checkpoint, report)
    rewards = _study_rewards(train_rows, held_rows, settings, seed, clock, checkpoint, report)
    graph = assemble(
        data.factors, len(data), dynamics, found, rewards, settings, time.perf_counter() - started + earlier
    )
    graph = (knowledge or Knowledge()).apply(graph)
    predictor = _predictor(data, dynamics, found, graph, settings, seed, clock, checkpoint, report)
    updates = checkpoint.notes.get("updates", {})
    files.finish(graph, predictor, held_rows, time.perf_counter() - started + earlier, updates)
    return Discovery(graph, predictor)


def _check(data: Transitions, minutes: float | None, steps: int | None, settings: Settings) -> None:
    """What can be refused is refused before anything is written."""
    if len(data) < SHORTEST:
        raise DataError(f"{len(data)} transitions are too few to learn from; at least {SHORTEST} are needed")
    if steps is not None and steps < 1:
        raise DataError(f"steps must be at least 1, got {steps}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise DataError(f"minutes must be positive, got {minutes}")
    check_settings(settings)


def _clock(minutes: float | None, steps: int | None, started: float, earlier: float) -> Clock:
    if steps is not None:
        return Clock(None, steps)
    return Clock(started - earlier + 60 * (minutes or 5.0), None)


def _study_rewards(
    train_rows: Transitions, held_rows: Transitions, settings: Settings, seed: int, clock: Clock,
    checkpoint: Checkpoint, report: Report,
) -> dict[str, Any]:  # fmt: skip
    """Findings for all rewards as one problem: {"names": …, "found": Findings}."""
    names = list(train_rows.rewards)
    if not names:
        return {"names": [], "found": None}
    if settings.expected:  # a reward mixes many variables that go together: what it did cost must speak for each
        settings = replace(settings, expected=False, smallest_effect=max(settings.smallest_effect, OBSERVED_EFFECT))
    state_action = settings.reward_inputs == "state-action"
    problem = reward_problem(train_rows, held_rows, names, settings.shadows, seed, state_action, settings.differences)
    shares = REWARD_STEPS if clock.steps is not None else REWARD_SHARE
    found = study("rewards", problem, settings, seed + 2, clock, shares, checkpoint, report)
    return {"names": names, "found": found}


def assemble(
    factors: Factors,
    transitions: int,
    dynamics: Dynamics,
    found: Findings,
    rewards: dict[str, Any],
    settings: Settings,
    seconds: float,
) -> CausalGraph:
    """Put verdicts about targets into the (d, d+1) matrix of variables."""
    d = len(factors)
    cmi, stderr = np.zeros((d, d + 1)), np.zeros((d, d + 1))
    thresholds = np.full((d, d + 1), settings.smallest_effect if settings.rule == "calibrated" else settings.epsilon)
    edge, verdict = np.zeros((d, d + 1), bool), np.full((d, d + 1), "none", dtype="<U9")
    for k, target in enumerate(dynamics.problem.targets):
        i, v = target.index, found.verdicts
        cmi[i], stderr[i], thresholds[i], edge[i], verdict[i] = (
            v.cmi[k],
            v.stderr[k],
            v.thresholds[k],
            v.edge[k],
            v.verdict[k],
        )
    _set_memory(dynamics, cmi, stderr, edge, verdict, math.log(settings.knots - 1))
    return CausalGraph(
        variables=factors.names, adjacency=edge, cmi=cmi, stderr=stderr, verdict=verdict,
        threshold=settings.epsilon, rewards=_reward_graphs(factors, rewards), model=settings.model,
        transitions=transitions, seconds=round(seconds, 2), version=metadata.version("cbm-rl"), thresholds=thresholds,
    )  # fmt: skip


def _set_memory(
    dynamics: Dynamics,
    cmi: np.ndarray,
    stderr: np.ndarray,
    edge: np.ndarray,
    verdict: np.ndarray,
    certain: float,
) -> None:
    """Self-edges known without a model: variables that never change, or that are what they were plus something.

    `certain` is the CMI written for the former: the most that the grid of candidates can express.
    """
    for i in range(len(edge)):
        if not dynamics.moving[i] or dynamics.memory[i] > 0:
            cmi[i, i] = max(dynamics.memory[i], cmi[i, i]) if dynamics.moving[i] else certain
            stderr[i, i], edge[i, i], verdict[i, i] = 0.0, True, "edge"


def _reward_graphs(factors: Factors, rewards: dict[str, Any]) -> dict[str, RewardGraph]:
    graphs, d = {}, len(factors)
    for k, name in enumerate(rewards["names"]):
        v = rewards["found"].verdicts
        parents = tuple(factors.names[j] for j in np.flatnonzero(v.edge[k, :d]))
        graphs[name] = RewardGraph(parents, v.cmi[k, :d], v.stderr[k, :d], v.verdict[k, :d], v.thresholds[k, :d])
    return graphs


def _predictor(
    data: Transitions, dynamics: Dynamics, found: Findings, graph: CausalGraph, settings: Settings, seed: int,
    clock: Clock, checkpoint: Checkpoint, report: Report,
) -> Predictor | None:  # fmt: skip
    """The local networks, restricted to the causes found and trained a little longer."""
    if found.local is None:
        return None
    local, problem, name = found.local, dynamics.problem, "prediction"
    parents = np.zeros((len(problem.targets), problem.inputs), bool)
    parents[:, : problem.real_inputs] = graph.adjacency[[t.index for t in problem.targets], : problem.real_inputs]
    local.restrict(parents)
    if checkpoint.has(f"{name}.done"):
        restore_parameters(local, name, checkpoint)
    else:
        share = PREDICTION_STEPS if clock.steps is not None else PREDICTION_SHARE
        budget = clock.budget(share, len(problem.train), settings.batch, spent_in(checkpoint, name))
        train(name, Trainer(local, problem, settings, seed + 4), budget, checkpoint, report)
        checkpoint.keep(**{f"{name}.done": np.ones(1), **named_parameters(local, name)})
    return Predictor(data.factors, dynamics, local)
