"""Algorithm 1 of the paper as one loop; the numbers at the ends of lines are the paper's line numbers.

Everything around it is elsewhere: what belongs to a single task in `learner.py`, files in `runfiles.py`, the copies of
the environment in `vector_env.py`. A run stops and resumes only between two iterations of the inner loop, with
everything that changes in its checkpoint, so a resumed run gives the same results.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np

from cbm.graph import CausalGraph
from cbm.learning.demonstrations import demonstrate
from cbm.learning.learner import Choice, Learner
from cbm.learning.plan import Plan
from cbm.learning.replay import Replay
from cbm.learning.runfiles import RunFiles
from cbm.learning.sources import load_log, make_dynamics
from cbm.learning.task_env import TaskEnv, make_task_env, oracle
from cbm.learning.vector_env import EpisodeCounter
from cbm.runs.checkpoint import usable

PRETRAINING = 10
"""Updates on a log before the first step, as a multiple of those per update of the abstraction."""


@dataclass(frozen=True)
class Status:
    """The state of a run, for progress displays."""

    done: float
    """Share of all steps, from 0 to 1."""
    step: int
    """Steps of the tasks that are being learned now."""
    latest: dict[str, dict[str, float]]
    """For each of these tasks: `kept`, and `return` and `success` of the last evaluation once there is one."""


Progress = Callable[[Status], None]


def learn(plan: Plan, run: Path, progress: Progress | None = None) -> dict[str, Any]:
    """Learn the tasks of a plan in a run directory; returns the result as in result.json.

    The same plan continues where it was stopped; a finished run is left unchanged and its result returned.
    """
    task_env = make_task_env(plan.world, plan.options)
    plan.check(task_env)
    files = RunFiles(run, plan.config(task_env))
    finished = files.result()
    if finished is not None:
        return finished
    learning = Learning(plan, task_env, files, progress)
    with files.directory.owned():
        finished = files.result()  # another process may have finished it since
        return finished if finished is not None else learning.run()


class Learning:
    """One run, from its beginning or from its last checkpoint."""

    def __init__(self, plan: Plan, task_env: TaskEnv, files: RunFiles, progress: Progress | None = None):
        self.plan, self.task_env, self.files, self.progress = plan, task_env, files, progress
        self.settings = plan.settings
        self.warm_up = max(1, self.settings.warm_up)  # at least one iteration, to have any data
        self.dynamics = make_dynamics(plan, task_env)  # 1, 2
        self.replay = Replay(task_env.factors, task_env.context_names, task_env.tasks, self.settings.capacity)
        self.counter = EpisodeCounter()
        self.learners = {task: Learner(plan, task_env, task, self.dynamics) for task in plan.tasks}
        self.log = load_log(plan, task_env)
        self.stage, self.step = 0, 0
        self.spent: dict[str, float] = {}
        """Seconds spent on each activity."""
        self.earlier, self.started = 0.0, time.perf_counter()
        self.saved = self.started
        """Time of the last checkpoint."""

    def run(self) -> dict[str, Any]:
        plan, settings, replay = self.plan, self.settings, self.replay
        with _deferred_interrupt() as stopped:
            self._begin()
            while self.stage < len(plan.stages):  # 3
                learners = [self.learners[task] for task in plan.stages[self.stage]]
                if self.step == 0:
                    for learner in learners:  # 4
                        learner.enter(self.counter)
                while self.step < plan.steps:  # 5
                    with self._timed("collect"):
                        for learner in learners:  # 6
                            learner.collect(replay, at_random=self.step < self.warm_up)
                    self.step += settings.copies
                    if self._passed(self.warm_up):
                        for learner in learners:
                            learner.begin(replay)
                            self._chosen(learner, Choice(changed=False, reset=False))
                    if self._abstraction_is_due():
                        with self._timed("abstraction"):
                            self._update_models(learners)  # 7
                            for learner in learners:  # 8
                                self._chosen(learner, learner.choose(self.step))
                    with self._timed("policy"):
                        for learner in learners:  # 9
                            learner.improve(replay, self.step)
                    if self._reached(settings.evaluate_every) or self.step >= plan.steps:
                        with self._timed("evaluation"):
                            self._evaluate(learners)
                    self._tell(learners)
                    if stopped():
                        self._save()
                        raise KeyboardInterrupt
                    if self._checkpoint_is_due() and self.step < plan.steps:
                        self._save()
                for learner in learners:
                    learner.leave()
                self.stage, self.step = self.stage + 1, 0
                self._save()
        result = self._result()
        self.files.finish(result, self._graph())
        return result

    # When something is due

    def _passed(self, step: int) -> bool:
        """Whether this iteration reached that step."""
        return self.step - self.settings.copies < step <= self.step

    def _reached(self, every: int, first: int = 0) -> bool:
        """Whether this iteration reached first, first + every, ..."""
        now, before = self.step - first, self.step - self.settings.copies - first
        return now // every > before // every and now >= 0

    def _abstraction_is_due(self) -> bool:
        settings = self.settings
        late = settings.abstraction_until is not None and self.step > settings.abstraction_until
        first = max(settings.abstraction_from, self.warm_up)
        return not late and self._reached(settings.abstraction_every, first) and self.replay.measurable

    def _checkpoint_is_due(self) -> bool:
        """By steps, and by time if steps are slow."""
        waited = time.perf_counter() - self.saved
        return self._reached(self.settings.checkpoint_every) or waited >= 60 * self.settings.checkpoint_minutes

    # Parts of the loop that also write the log

    def _update_models(self, learners: list[Learner]) -> None:
        """Dynamics once for all tasks, unless they are frozen; then each task's own model."""
        if self.dynamics is not None and not self.dynamics.frozen:
            metrics = self.dynamics.learn(self.replay, self.settings.dynamics_updates)
            self.files.measured("dynamics", None, self.step, self.seconds, metrics)
        for learner in learners:
            metrics = learner.method.learn(self.replay, self.settings.model_updates)
            self.files.measured("reward", learner.task, self.step, self.seconds, metrics)
        self.replay.forget()

    def _chosen(self, learner: Learner, choice: Choice) -> None:
        self.files.chosen(self.step, learner.task, learner.kept, **choice._asdict())

    def _evaluate(self, learners: list[Learner]) -> None:
        for learner in learners:
            found = learner.evaluate(self.settings.episodes)
            learner.latest = found.summary()
            row = {"step": self.step, "seconds": round(self.seconds, 2), **learner.latest, "kept": len(learner.kept)}
            own = {"seed": self.plan.seed, "method": self.plan.method, "task": learner.task}
            self.files.evaluated(row | own)
            self.files.measured("policy", learner.task, self.step, self.seconds, learner.averages())

    def _tell(self, learners: list[Learner]) -> None:
        if self.progress is not None:
            done = (self.stage + self.step / self.plan.steps) / len(self.plan.stages)
            latest = {one.task: {**one.latest, "kept": float(one.agent.mask.sum())} for one in learners}
            self.progress(Status(min(done, 1.0), self.step, latest))

    @property
    def seconds(self) -> float:
        """Duration of this run, including its earlier parts."""
        return self.earlier + time.perf_counter() - self.started

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.spent[what] = self.spent.get(what, 0.0) + time.perf_counter() - start

    # Beginning, saving, ending

    def _begin(self) -> None:
        """Start from the last checkpoint, or with pretraining and demonstrations."""
        state = self.files.begin(self.replay)
        if state is not None:
            with usable(self.files.directory.checkpoint):
                self._restore(state)
            return
        if self.log is not None:
            with self._timed("abstraction"):
                for learner in self.learners.values():
                    metrics = cast(Any, learner.method).pretrain(self.log, PRETRAINING * self.settings.model_updates)
                    self.files.measured("pretraining", learner.task, 0, self.seconds, metrics)
        if self.settings.demonstrations:
            with self._timed("demonstrations"):
                shown = demonstrate(
                    self.task_env,
                    self.plan.tasks,
                    self.settings.demonstrations,
                    self.plan.seed,
                    self.counter,
                    self.replay,
                )
            self.files.measured("demonstrations", None, 0, self.seconds, shown)

    def _save(self) -> None:
        state = {
            "stage": self.stage,
            "step": self.step,
            "numbers": self.counter.next,
            "seconds": self.seconds,
            "spent": self.spent,
            "dynamics": {} if self.dynamics is None else self.dynamics.tensors(),
            "learners": {task: learner.saved() for task, learner in self.learners.items()},
        }
        self.files.save(self.stage * self.plan.steps + self.step, state, self.replay)
        self.saved = time.perf_counter()

    def _restore(self, state: dict[str, Any]) -> None:
        self.stage, self.step = state["stage"], state["step"]
        self.earlier, self.spent = state["seconds"], state["spent"]
        self.counter.next = state["numbers"]
        if self.dynamics is not None:
            self.dynamics.restore(state["dynamics"])
        under_way = self.plan.stages[self.stage] if self.stage < len(self.plan.stages) and self.step > 0 else ()
        for task, learner in self.learners.items():
            if task in under_way:
                learner.enter(self.counter)
            learner.restore(state["learners"][task])
        if self.task_env.exact:
            self.counter.next = state["numbers"]  # `enter` used some numbers
        elif under_way:
            print(
                f"cbm: {self.task_env.name}: its episodes cannot be saved, new ones begin; the curve will differ a "
                "little from that of a run that was never stopped",
                file=sys.stderr,
            )

    def _result(self) -> dict[str, Any]:
        tasks = {}
        for task, learner in self.learners.items():
            true = oracle(self.task_env, task)
            success = learner.latest["success"]
            tasks[task] = {
                "return": learner.latest["return"],
                "success": None if np.isnan(success) else success,
                "kept": learner.kept,
                "exact": None if true is None else bool((true == learner.agent.mask).all()),
            }
        spent = {name: round(seconds, 2) for name, seconds in self.spent.items()}
        return {"seconds": round(self.seconds, 2), "spent": spent, "tasks": tasks}

    def _graph(self) -> CausalGraph | None:
        """One graph with the rewards of all tasks, if the method has graphs."""
        graphs = [graph for learner in self.learners.values() if (graph := learner.method.graph()) is not None]
        if not graphs:
            return None
        rewards = {name: reward for graph in graphs for name, reward in graph.rewards.items()}
        return replace(graphs[-1], rewards=rewards)


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C takes effect at the end of an iteration, so that the saved state is consistent; the second at
    once."""
    interrupted = False

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt
        interrupted = True
        print("cbm: stopping when this step is done and saved; Ctrl-C again stops at once", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        yield lambda: interrupted
        return
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, before)
