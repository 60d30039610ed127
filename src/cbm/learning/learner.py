"""One task in Algorithm 1: its agent, its method, its copies of the environment, and their state.

The loop that calls these methods is in `algorithm1.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cbm.abstraction.method import Dynamics, Setup, make_method
from cbm.agents.base import Agent, Shape, make_agent
from cbm.learning.evaluate import Evaluation, evaluate
from cbm.learning.plan import Plan
from cbm.learning.replay import Replay
from cbm.learning.task_env import TaskEnv
from cbm.learning.vector_env import EpisodeCounter, VectorEnv


class Choice(NamedTuple):
    """The result of an update of the abstraction."""

    changed: bool
    """Whether the mask changed."""
    reset: bool
    """Whether the policy was reset."""


class Learner:
    """Everything that belongs to one task alone."""

    def __init__(self, plan: Plan, task_env: TaskEnv, task: str, dynamics: Dynamics | None):
        self.plan, self.task_env, self.task = plan, task_env, task
        self.index = plan.tasks.index(task)
        settings, factors = plan.settings, task_env.factors
        policy_steps = max(0, plan.steps - settings.warm_up)
        shape = Shape(
            len(factors), len(task_env.context_names), len(factors.action_names), derived(plan.seed, self.index, 1),
            max(1, int(policy_steps * settings.updates_per_step)), plan.device,
        )  # fmt: skip
        self.agent: Agent = make_agent(settings.agent, shape)
        setup = Setup(
            factors, task, task_env.context_names, dynamics, plan.rewards, settings.on, settings.off,
            derived(plan.seed, self.index, 2), task_env.truth, task_env.truth_rewards.get(task), device=plan.device,
        )  # fmt: skip
        self.method = make_method(plan.method, setup, plan.method_options)
        self.rng = np.random.default_rng([plan.seed, self.index, 3])
        """For random actions, and for sampling the rows of each update."""
        self.vector_env: VectorEnv | None = None
        self.updates = 0
        """Updates of the present policy: those undone by a reset that is caught up on do not count."""
        self.decided = False
        """Whether the abstraction has been updated yet."""
        self.changed_at: int | None = None
        """Step of the last change of the mask; None: it has not changed since updates began."""
        self.sums: dict[str, float] = {}
        """Sums of metrics over updates, and over finished episodes, since the last line of the log."""
        self.latest: dict[str, float] = {}
        """Result of the last evaluation."""

    @property
    def kept(self) -> list[str]:
        return [name for name, kept in zip(self.task_env.factors.names, self.agent.mask) if kept]

    def enter(self, counter: EpisodeCounter) -> None:
        """Create the copies of the environment."""
        rng = np.random.default_rng([self.plan.seed, self.index, 4])
        self.vector_env = self.task_env.vector_env(self.plan.settings.copies, rng, counter, staggered=True)
        self.earned, self.reached = np.zeros(self.vector_env.copies), np.zeros(self.vector_env.copies, bool)

    def leave(self) -> None:
        """End the task's turn; its policy is kept."""
        if self.vector_env is not None:
            self.vector_env.close()
            self.vector_env = None

    # The steps of the loop

    def collect(self, replay: Replay, at_random: bool) -> None:
        """One step of every copy, by the policy or at random, added to the replay buffer."""
        vector_env = self.vector_env
        assert vector_env is not None
        if at_random:
            action = self.rng.uniform(-1, 1, (vector_env.copies, len(self.task_env.factors.action_names)))
        else:
            action = self.agent.act(vector_env.obs, vector_env.context)
        moves = vector_env.step(action)
        replay.add(moves, self.index)
        self.earned += moves.rewards[self.task]
        if self.task in moves.success:
            self.reached |= moves.success[self.task]
        if moves.over.any():
            self._sum("episodes", float(moves.over.sum()))
            self._sum("train_return", float(self.earned[moves.over].sum()))
            if self.task in moves.success:
                self._sum("train_success", float(self.reached[moves.over].sum()))
            self.earned[moves.over], self.reached[moves.over] = 0.0, False

    def begin(self, replay: Replay) -> None:
        """At the end of the warm-up: fix the normalisation from the inputs seen so far, and take the first mask."""
        self.agent.normaliser.update(replay.inputs())
        self.agent.normaliser.freeze()
        self.agent.set_mask(self.method.mask())

    def choose(self, step: int) -> Choice:
        """Take the method's mask, unless the present one is too recent."""
        settings, mask = self.plan.settings, self.method.mask()
        young = self.changed_at is not None and step - self.changed_at < settings.minimum_interval
        changed = not young and bool((mask != self.agent.mask).any())
        first, self.decided = not self.decided, True
        if changed:
            self.agent.set_mask(mask)
            self.changed_at = step
        reset = settings.reset_on_change and (changed or (first and settings.fresh_start))
        if reset:
            self.agent.reset()
            if settings.catch_up:
                self.updates = 0  # all of them are due again
        return Choice(changed, reset)

    def improve(self, replay: Replay, step: int) -> None:
        """As many policy updates as are due at this step."""
        settings = self.plan.settings
        due = int((step - settings.warm_up) * settings.updates_per_step)
        source = None if settings.share_data else self.index
        while self.updates < due:
            metrics = self.agent.update(replay.sample(settings.agent.batch, self.task, self.rng, source))
            self.updates += 1
            self._sum("updates", 1.0)
            for name, value in metrics.items():
                self._sum(name, value)

    def evaluate(self, episodes: int, replaced: np.ndarray | None = None) -> Evaluation:
        def act(obs: np.ndarray, context: np.ndarray) -> np.ndarray:
            return self.agent.act(obs, context, deterministic=True)

        return evaluate(act, self.task_env, self.task, episodes, self.plan.seed, replaced)

    # The log, and what a checkpoint holds

    def _sum(self, name: str, value: float) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + value

    def averages(self) -> dict[str, float]:
        """Means since the last call, over updates and over finished training episodes."""
        sums, self.sums = self.sums, {}
        episodes, updates = sums.pop("episodes", 0.0), sums.pop("updates", 0.0)
        means = {"episodes": episodes, "updates": updates}
        for name, value in sums.items():
            count = episodes if name.startswith("train_") else updates
            means[name] = value / count if count else float("nan")
        return means

    def saved(self) -> dict[str, Any]:
        running = {} if self.vector_env is None else {"fleet": self.vector_env.saved(), "earned": self.earned}
        if self.vector_env is not None:
            running["reached"] = self.reached
        return {
            "agent": self.agent.tensors(),
            "method": self.method.tensors(),
            "rng": self.rng.bit_generator.state,
            "updates": self.updates,
            "changed_at": self.changed_at,
            "decided": self.decided,
            "sums": self.sums,
            "latest": self.latest,
            "running": running,
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Call `enter` first if the task was being learned."""
        self.agent.restore(saved["agent"])
        self.method.restore(saved["method"])
        self.rng.bit_generator.state = saved["rng"]
        self.updates, self.changed_at, self.decided = saved["updates"], saved["changed_at"], saved["decided"]
        self.sums, self.latest = saved["sums"], saved["latest"]
        if self.vector_env is not None:
            running = saved["running"]
            self.vector_env.restore(running["fleet"])
            if self.task_env.exact:  # otherwise new episodes have begun
                self.earned, self.reached = running["earned"], running["reached"]


def derived(seed: int, *more: int) -> int:
    """A separate seed for each part of a run."""
    return int(np.random.SeedSequence([seed, *more]).generate_state(1)[0])
