"""`discover`: from transitions to the causal graph, with the causes of every reward.

The order is that of the method: dynamics (shared by all tasks) and rewards, then the abstraction, which follows from
the graph. With a run directory everything is written there, and the same call continues a stopped one. The phases
themselves are in `pipeline.py`; the published networks (preset `paper`, model `demi`) in `network_pipeline.py`.
"""

from __future__ import annotations

import math
import sys
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.log import as_transitions
from cbm.data.roles import Roles
from cbm.data.transitions import Transitions
from cbm.device import find_device
from cbm.discovery import network_pipeline
from cbm.discovery.assemble import assemble, reward_graphs
from cbm.discovery.bootstrap import add_bootstrap
from cbm.discovery.checkpoint import Checkpoint
from cbm.discovery.models.registry import check_settings
from cbm.discovery.notebook import notebook_progress
from cbm.discovery.pipeline import Progress, build_problems, ceiling, measure_problems, runner_for, verdicts
from cbm.discovery.predict import Predictor
from cbm.discovery.rows import affordable, draw, in_memory
from cbm.discovery.runfiles import RunFiles
from cbm.discovery.settings import Settings
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.knowledge import Knowledge

SHORTEST = 50  # transitions
Names = str | Sequence[str] | None
"""Columns of a table: one name, several, or globs."""


@dataclass(frozen=True)
class Discovery:
    """The graph, and a model that predicts with it (None if no predictor was trained)."""

    graph: CausalGraph
    predictor: Predictor | None


def discover(
    data: Any,
    *,
    obs: Names = None,
    action: Names = None,
    reward: Names = None,
    episode: Names = None,
    time: Names = None,
    minutes: float | None = None,
    steps: int | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    run: str | PathLike[str] | None = None,
    knowledge: Knowledge | None = None,
    progress: Progress | None = None,
    workers: int | None = None,
    device: str = "cpu",
    on: str = "local",
    bootstrap: int = 0,
) -> CausalGraph:
    """The causal graph of the dynamics and of every reward in the data.

    `data` is Transitions, or any log: the name of a file, a data frame, a replay buffer. `obs`, `action`, `reward`,
    `episode` and `time` then name its columns; each is one name, a list of names or globs such as "joint_*".

    The call ends when everything is settled. `minutes` is a ceiling, and so is `steps` (measured targets; for the
    published networks, updates): what is not settled by then is undecided, and the same call continues from there if it
    has a `run` directory. `workers` processes share the work (by default one per core), or those of a Ray cluster with
    `on` set to "ray" or "ray:HOST:PORT"; the result is the same. Networks (preset paper, model demi, the predictor) run
    on `device`: auto, cpu, cuda or cuda:N. With `bootstrap`, discovery is repeated on that many resampled logs, and the
    graph records how often each edge and each variable of a minimal state was found.
    """
    data = as_transitions(data, Roles.of(obs=obs, action=action, reward=reward, episode=episode, time=time))
    _check_types(steps=steps, minutes=minutes, settings=settings, run=run, knowledge=knowledge)
    files = RunFiles(None if run is None else Path(run), data, settings or Settings(), seed, knowledge)
    if (finished := files.finished()) is not None and not lacks_bootstrap(finished, bootstrap):
        return finished
    _check(data, minutes, steps, settings or Settings(), knowledge)
    with files.owned(), notebook_progress(progress) as watched:
        finished = files.finished()  # checked again: another process may have finished while this one waited
        graph = finished or fit(
            data, minutes=minutes, steps=steps, settings=settings, seed=seed, knowledge=knowledge, progress=watched,
            files=files, workers=workers, on=on, predict=run is not None, device=device,
        ).graph  # fmt: skip
        if lacks_bootstrap(graph, bootstrap):
            folder = None if files.jobs is None else files.jobs / "bootstrap"
            with runner_for(folder, workers, ceiling(minutes, None), watched, on) as runner:
                graph = add_bootstrap(graph, data, settings or Settings(), seed, knowledge, runner, bootstrap)
            files.save(graph)
    return graph


def lacks_bootstrap(graph: CausalGraph, replicates: int) -> bool:
    """Whether the graph has fewer bootstrap replicates than requested."""
    return replicates > (0 if graph.bootstrap is None else graph.bootstrap.replicates)


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
    workers: int | None = None,
    on: str = "local",
    predict: bool = True,
    device: str = "cpu",
) -> Discovery:
    """Like `discover`, but returns the predictor as well (with `predict`)."""
    started = clock.perf_counter()
    settings = settings or Settings()
    files = files or RunFiles(None, data, settings, seed, knowledge)
    _check(data, minutes, steps, settings, knowledge)
    place = str(find_device(device))
    files.begin()
    checkpoint = files.checkpoint()
    if checkpoint.problem_with_file:
        print(f"cbm: {checkpoint.problem_with_file}", file=sys.stderr)
    earlier = float(checkpoint.notes.get("elapsed", 0.0))
    job = _Call(
        data, settings, seed, minutes, steps, workers, on, checkpoint, files, progress, started - earlier, place
    )
    graph = job.networks() if network_pipeline.published(settings) else job.refits()
    graph = (knowledge or Knowledge()).apply(graph)
    predictor = job.predictor(graph) if predict else None
    files.finish(graph, predictor, job.held(), clock.perf_counter() - started + earlier, job.updates())
    return Discovery(graph, predictor)


EXPECTED: dict[str, tuple[Any, str]] = {
    "steps": (int | np.integer, "a whole number"),
    "minutes": (int | float | np.number, "a number"),
    "settings": (Settings, "cbm.discovery.settings.Settings"),
    "run": (str | PathLike, "the path of a directory"),
    "knowledge": (Knowledge, "cbm.graph.knowledge.Knowledge"),
}
"""Accepted types of the arguments, with the words that name them in messages."""


def _check_types(**given: object) -> None:
    for name, value in given.items():
        expected, words = EXPECTED[name]
        if value is not None and (not isinstance(value, expected) or isinstance(value, bool)):
            raise TypeError(f"{name} must be {words}, not {type(value).__name__}")


def _check(
    data: Transitions, minutes: float | None, steps: int | None, settings: Settings, knowledge: Knowledge | None
) -> None:
    """Refuse invalid calls before anything is written."""
    if len(data) < SHORTEST:
        raise DataError(f"{len(data)} transitions are too few to learn from; at least {SHORTEST} are needed")
    if steps is not None and steps < 1:
        raise DataError(f"steps must be at least 1, got {steps}")
    if minutes is not None and not 0 < minutes < math.inf:
        raise DataError(f"minutes must be positive, got {minutes}")
    check_settings(settings)
    (knowledge or Knowledge()).masks(data.factors.names, list(data.rewards))  # raises on unknown names


@dataclass
class _Call:
    """One call of `discover`: its data, its ceiling and where it writes."""

    data: Transitions
    settings: Settings
    seed: int
    minutes: float | None
    steps: int | None
    workers: int | None
    on: str
    checkpoint: Checkpoint
    files: RunFiles
    progress: Progress | None
    started: float
    device: str = "cpu"

    def __post_init__(self) -> None:
        self.ceiling = ceiling(self.minutes, self.steps)
        self.report = self.files.reporter(self.checkpoint, self.progress, self.started)

    @cached_property
    def rows(self) -> Transitions:
        """The rows that networks are trained and tested on: all, or a sample of a memory-mapped log."""
        return in_memory(self.data, affordable(self.data, self.settings), self.seed)

    def refits(self) -> CausalGraph:
        """Refits without each input, by jobs (`pipeline.py`)."""
        data, last = draw(self.data, self.settings, self.seed)
        problems, plan = build_problems(data, self.settings, self.seed, last)
        names = [*data.factors.names, "action", "the action before"]
        with runner_for(self.files.jobs, self.workers, self.ceiling, self.progress, self.on) as runner:
            measure_problems(problems, runner, self.settings)
        found = verdicts(problems[0], names, self.settings)
        memory = plan.memory.copy()
        memory[plan.index[~problems[0].untested()]] = 0.0
        rewards = {}
        if data.rewards:
            of_rewards = verdicts(problems[1], names, self.settings)
            rewards = reward_graphs(data.factors, list(data.rewards), of_rewards, action=True)
        return assemble(
            data.factors, len(self.data), plan.index, plan.moving, memory, found, rewards, self.settings,
            clock.perf_counter() - self.started,
        )  # fmt: skip

    def networks(self) -> CausalGraph:
        """The published networks and their thresholds (`network_pipeline.py`)."""
        train, held = self.rows.split(self.settings.held_out, seed=self.seed)
        found = network_pipeline.run_networks(
            train, held, self.settings, self.seed, self.ceiling.deadline, self.steps, self.checkpoint, self.report,
            self.device,
        )  # fmt: skip
        names, of_rewards = list(self.data.rewards), found.rewards
        rewards = reward_graphs(self.data.factors, names, of_rewards, action=False) if of_rewards is not None else {}
        dynamics = found.dynamics
        index = np.array([target.index for target in dynamics.dataset.targets], int)
        return assemble(
            self.data.factors, len(self.data), index, dynamics.moving, dynamics.memory, found.verdicts, rewards,
            self.settings, clock.perf_counter() - self.started,
        )  # fmt: skip

    def held(self) -> Transitions:
        return self.rows.split(self.settings.held_out, seed=self.seed)[1]

    def predictor(self, graph: CausalGraph) -> Predictor | None:
        """Small networks that see only the causes found; none past the ceiling, or for published networks."""
        late = self.ceiling.deadline is not None and clock.monotonic() > self.ceiling.deadline
        if network_pipeline.published(self.settings) or late or not graph.settled.all():
            return None
        return network_pipeline.train_predictor(
            self.rows, graph, self.settings, self.seed, self.checkpoint, self.report, self.device
        )

    def updates(self) -> dict[str, int]:
        return dict(self.checkpoint.notes.get("updates", {}))
