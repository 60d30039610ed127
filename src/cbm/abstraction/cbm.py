"""CBM's abstraction: the parents of the task's reward and all their ancestors in the dynamics (Fig. 1b)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from cbm.abstraction.dynamics import everything_if_empty
from cbm.abstraction.graph_rule import GraphRule
from cbm.abstraction.hysteresis import Hysteresis
from cbm.abstraction.method import Dynamics, Experience, Method, Setup
from cbm.discovery.online_estimator import under
from cbm.discovery.online_reward import OnlineReward, reward_settings
from cbm.discovery.settings import DOUBT, ModelName, preset
from cbm.errors import DataError
from cbm.graph import CausalGraph, RewardGraph
from cbm.graph.rules import cbm_abstraction


class LearnedRewards:
    """Parents from a reward model that is learned alongside the policy."""

    name = "cbm"

    def __init__(self, dynamics: Dynamics, task: str, on: float, off: float, seed: int, device: str = "cpu"):
        self.dynamics, self.task = dynamics, task
        model: ModelName = "explicit" if dynamics.graph().model == "explicit" else "implicit"
        self.reward = OnlineReward(task, reward_settings(preset("fast", model)), seed, device)
        self.hysteresis = Hysteresis(on, off)

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        numbers = self.reward.learn(experience.transitions(False), experience.transitions(True), updates)  # line 7
        verdicts = self.reward.verdicts()  # line 8
        if verdicts is None:
            return numbers
        d = len(self.dynamics.graph())
        cmi, stderr, thresholds = (v[0, :d] for v in (verdicts.cmi, verdicts.stderr, verdicts.thresholds))
        parents = self.hysteresis.move(cmi, thresholds, DOUBT * stderr)
        return numbers | {"parents": float(parents.sum())} | ({} if parents.any() else {"empty": 1.0})

    def mask(self) -> np.ndarray:
        """Everything until there is evidence, and if no parent was found."""
        graph, parents = self.dynamics.graph(), self.hysteresis.chosen
        if parents is None:
            return np.ones(len(graph), bool)
        return everything_if_empty(cbm_abstraction(graph.adjacency, parents))

    def graph(self) -> CausalGraph:
        graph, verdicts, parents = self.dynamics.graph(), self.reward.verdicts(), self.hysteresis.chosen
        if verdicts is None or parents is None:
            return replace(graph, rewards={})
        v = [part[0, : len(graph)] for part in (verdicts.cmi, verdicts.stderr, verdicts.verdict, verdicts.thresholds)]
        found = RewardGraph(graph.names_of(parents), v[0], v[1], self.hysteresis.verdict(v[2]), v[3])
        return replace(graph, rewards={self.task: found})

    def tensors(self) -> dict[str, Tensor]:
        parts = {"reward": self.reward.tensors(), "settled": self.hysteresis.tensors()}
        return {f"{part}.{name}": value for part, found in parts.items() for name, value in found.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.reward.restore(under("reward", tensors))
        self.hysteresis.restore(under("settled", tensors))


def make(setup: Setup) -> Method:
    dynamics = setup.known_dynamics("cbm")
    if setup.rewards == "learned":
        return LearnedRewards(dynamics, setup.task, setup.on, setup.off, setup.seed, setup.device)
    if not dynamics.frozen:
        raise DataError("rewards cannot come from a run when dynamics are learned jointly; learn them too")
    known = dynamics.graph().rewards
    if setup.task not in known:
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise DataError(f"the dynamics run has no reward {setup.task!r}: {has}; `--rewards learned` learns it here")
    return GraphRule("cbm", dynamics, setup.task)  # causes of the reward from the dynamics run
