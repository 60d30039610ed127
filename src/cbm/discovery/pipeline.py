"""The whole of discovery on one page: from transitions to the causal graph, in named phases.

    dataset    episodes divided into folds; inputs and targets as columns; shadows added
    screen     which inputs may matter to a target: a closed form and boosted trees look at all of them
    measure    refits without each candidate, compared on held-out episodes; shadows and planted effects as controls
    retest     the other folds, for the cells that the first fold leaves open
    decide     edge, none or undecided, each with its error and its reason

The phases from screen to retest consist of jobs: pure functions from arrays to arrays, run by as many single-threaded
processes as there are cores, or by the nodes of a cluster. The result depends neither on the number of processes nor on
their load.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.transitions import Transitions
from cbm.discovery.dataset import Dataset, Plan, dynamics_dataset, reward_dataset
from cbm.discovery.decide import Verdicts, decide, open_cells
from cbm.discovery.evidence import Pooled, pool
from cbm.discovery.rows import affordable, some_rows
from cbm.discovery.scales import on_even_scales
from cbm.discovery.settings import FEW_TESTED, LAST_ACTION_WORTH, SURE, Settings
from cbm.discovery.wraps import as_angles
from cbm.jobs import Executor, Job, Shared, Store, open_executor

Progress = Callable[[str, float], None]
"""Called with the stage ("screening", "measuring", "measuring again", "prediction") and the fraction of it that is
done."""
Arrays = dict[str, np.ndarray]


@dataclass
class Problem:
    """The dynamics or the rewards as one estimation problem, with what has been measured so far."""

    name: str
    data: Dataset
    own: np.ndarray
    """(K,) the input whose change the target is; -1: the target is not a change."""
    bundle: np.ndarray | None = None
    shown: np.ndarray | None = None
    found: list[list[Arrays]] | None = None
    """Evidence on each part, fold by fold."""
    asked: list[int] | None = None
    """Number of folds on which each part is to be measured."""

    def untested(self) -> np.ndarray:
        """(K,) booleans: targets with a self-edge by construction, since no model of the next value was compared with
        that of the change."""
        k = np.arange(len(self.own))
        return (self.own >= 0) & (self.pooled().tested[k, self.own] == 0)

    @property
    def parts(self) -> range:
        return range(self.data.parts)

    def own_of(self, part: int) -> int:
        """The input whose change a part is; -1 if it is not a change, or if several targets share the part."""
        owners = self.own[self.data.share[:, part] > 0]
        return int(owners[0]) if len(owners) == 1 else -1

    def pooled(self) -> Pooled:
        """Evidence pooled over folds. While the other folds of a part are incomplete, only the first counts: it says
        which cells are open."""
        assert self.found is not None and self.asked is not None
        whole = [parts if len(parts) >= asked else parts[:1] for parts, asked in zip(self.found, self.asked)]
        settled = [len(parts) >= asked for parts, asked in zip(self.found, self.asked)]
        return pool(whole, self.data.share, self.data.inputs, settled)


@dataclass
class Ceiling:
    """When to stop before everything is settled: a deadline, or a number of measured targets."""

    deadline: float | None = None
    jobs: int | None = None

    def allow(self, jobs: list[Job], store: Store) -> list[Job]:
        """The jobs that may still run; those whose results are stored already do not count."""
        if self.jobs is None:
            return jobs
        stored = [job for job in jobs if store.has(job.key)]
        missing = [job for job in jobs if not store.has(job.key)][: self.jobs]
        self.jobs -= len(missing)
        return stored + missing


class Runner:
    """Runs the jobs of all problems, stores their results and resumes from results already stored."""

    def __init__(self, pool: Executor, folder: Path, store: Store, ceiling: Ceiling, progress: Progress | None):
        self.pool, self.folder, self.store, self.ceiling, self.progress = pool, folder, store, ceiling, progress

    def share(self, arrays: Arrays) -> None:
        Shared.write(self.folder, arrays)

    def run(self, jobs: list[Job], stage: str, start: float, stop: float, counted: bool = True) -> dict[str, Arrays]:
        def report(done: int, total: int) -> None:
            if self.progress:
                self.progress(stage, start + (stop - start) * done / max(total, 1))

        jobs = self.ceiling.allow(jobs, self.store) if counted else jobs
        return self.pool.run(jobs, self.folder, self.store, deadline=self.ceiling.deadline, progress=report)


def measure_problems(problems: list[Problem], runner: Runner, settings: Settings) -> None:
    """Measure as much as the ceiling allows, for all problems side by side."""
    for problem in problems:
        runner.share(problem.data.arrays(problem.name))
    _screen(problems, runner, settings)
    _measure(problems, runner, settings)
    _retest(problems, runner, settings)


def _screen(problems: list[Problem], runner: Runner, settings: Settings) -> None:
    found = runner.run([_screen_job(p) for p in problems], "screening", 0.0, 0.5, counted=False)
    for problem in problems:
        problem.found, problem.asked = [[] for _ in problem.parts], [1 for _ in problem.parts]
        parts = found.get(_screen_job(problem).key)
        if parts is not None and settings.last_action == "auto" and not _needs_last_action(problem.data, parts):
            problem.data = problem.data.without_last_action()
            runner.share(problem.data.arrays(problem.name))
            job = _screen_job(problem)
            parts = runner.run([job], "screening", 0.5, 1.0, counted=False).get(job.key)
        if parts is not None:
            runner.share({f"{problem.name}.{key}": value for key, value in parts.items()})
            problem.bundle, problem.shown = parts["bundle"], parts["shown"]


def _screen_job(problem: Problem) -> Job:
    key = f"{problem.name}-screen-of-{problem.data.inputs}"
    return Job(key, "cbm.discovery.measure:screen_job", {"problem": problem.name})


def _needs_last_action(data: Dataset, parts: Arrays) -> bool:
    """Whether the previous action improves predictions of held-out episodes for any target; True also if it is not an
    input."""
    if data.inputs == data.action + 1:
        return True
    nats, stderr = parts["last_action"].T
    return bool(((nats > LAST_ACTION_WORTH) & (nats > SURE * stderr)).any())


def _measure(problems: list[Problem], runner: Runner, settings: Settings) -> None:
    """Measure every part on the first fold. The explicit model has a constant spread, so causes of the spread are not
    sought for it."""
    ready = [p for p in problems if p.bundle is not None]
    options = {"spread": settings.model != "explicit", "pairs": settings.differences}
    jobs = [_job(p, k, 0, **options) for p in ready for k in p.parts]
    _collect(ready, runner.run(jobs, "measuring", 0.0, 1.0))


def _retest(problems: list[Problem], runner: Runner, settings: Settings) -> None:
    """Measure the open cells on the other folds."""
    jobs = []
    for problem in problems:
        assert problem.found is not None and problem.asked is not None
        cells = open_cells(problem.pooled())
        for p in problem.parts:
            asked = _cells_to_retest(problem, p, cells)
            if asked is not None:
                problem.asked[p] = settings.folds
                chosen: dict[str, Any] = {
                    name: problem.found[p][0][name].tolist() for name in ("candidates", "structure")
                }
                tested = problem.found[p][0]["tested"]
                chosen |= {"pairs": settings.differences, "value": bool(problem.found[p][0]["value"])}
                chosen |= {"cells": [j for j in asked if tested[j] == 2]}
                chosen |= {"exceptional": [j for j in asked if tested[j] == 4]}
                jobs += [_job(problem, p, f, **chosen) for f in range(1, settings.folds)]
    # Which cells are open depends on all targets: with some still missing, a resumed call would choose other cells.
    if all(parts for problem in problems for parts in problem.found or []):
        _collect(problems, runner.run(jobs, "measuring again", 0.0, 1.0))


def _cells_to_retest(problem: Problem, part: int, cells: list[list[int]]) -> list[int] | None:
    """Candidates of a part to test on its other folds: the open cells of its targets, or all candidates if rows are
    few. None: no test is needed.

    With few rows every fold tests all candidates, since one fold of a short log says little, about shadows as well.
    """
    assert problem.found is not None
    if not problem.found[part]:
        return None
    first = problem.found[part][0]
    short = first["loss"][2] < FEW_TESTED
    wanted = {j for k in np.flatnonzero(problem.data.share[:, part]) for j in cells[k]}
    asked = [int(j) for j in np.flatnonzero(np.isin(first["tested"], (2, 4))) if short or j in wanted]
    return asked if asked or short else None


def _job(problem: Problem, part: int, fold: int, **options: Any) -> Job:
    return Job(
        f"{problem.name}-{part}-{fold}", "cbm.discovery.measure:part_job",
        {"problem": problem.name, "part": part, "fold": fold, "own": problem.own_of(part), **options},
    )  # fmt: skip


def _collect(problems: list[Problem], results: dict[str, Arrays]) -> None:
    for problem in problems:
        assert problem.found is not None
        for p in problem.parts:
            problem.found[p] += [
                arrays for key, arrays in results.items() if key.rsplit("-", 1)[0] == f"{problem.name}-{p}"
            ]


def verdicts(problem: Problem, names: list[str], settings: Settings) -> Verdicts:
    bundle = problem.bundle if problem.bundle is not None else np.full(problem.data.inputs, -1)
    data, pooled = problem.data, problem.pooled()
    redundant = {int(j): int(mate) for j, mate in zip(problem.own, pooled.follows) if j >= 0 and mate >= 0}
    shown = None if problem.shown is None else problem.shown[: data.inputs]
    return decide(pooled, bundle[: data.inputs], names, settings, data.variation(), redundant, shown)


@contextmanager
def runner_for(
    folder: Path | None, workers: int | None, ceiling: Ceiling, progress: Progress | None, on: str = "local"
) -> Iterator[Runner]:
    """Worker processes, and a folder for shared arrays and results: the run's checkpoint, or a temporary one."""
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cbm-discover-")))
        pool = stack.enter_context(open_executor(on, workers))
        yield Runner(pool, place / "shared", Store(folder / "jobs" if folder else None), ceiling, progress)


def build_problems(
    data: Transitions, settings: Settings, seed: int, last: np.ndarray | None
) -> tuple[list[Problem], Plan]:
    """The dynamics, and the rewards if the log has any; `last` (T, a) is the action before each row, where known."""
    rows = some_rows(data.runs(), affordable(data, settings), seed)
    if len(rows) < len(data):
        data, last = data.select(rows), None if last is None else last[rows]
    data = as_angles(data)
    table, plan = dynamics_dataset(on_even_scales(data), settings, seed, last)
    problems = [Problem("dynamics", table, np.where(plan.changes, plan.index, -1))]
    if data.rewards:
        rewards = reward_dataset(data, settings, seed)
        problems.append(Problem("rewards", rewards, np.full(rewards.targets, -1)))
    return problems, plan


def ceiling(minutes: float | None, jobs: int | None) -> Ceiling:
    return Ceiling(None if minutes is None else time.monotonic() + 60 * minutes, jobs)
