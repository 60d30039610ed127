"""Invariant causal prediction for block MDPs (Zhang et al. 2020, Algorithm 1) on factored states.

The causes of the reward, then the causes of each variable found, until no new ones appear: a model-irrelevance
abstraction, provided that the data come from two or more environments, that these intervene on enough variables, and
that the regression fits. Nothing is learned by gradient descent, so `learn` ignores `updates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from cbm.abstraction.invariance import Inputs, Verdict, invariant_parents
from cbm.abstraction.method import Experience, Setup
from cbm.abstraction.table import SMALLEST, IcpSettings
from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.discovery.targets import action_columns, change
from cbm.errors import DataError
from cbm.graph import CausalGraph

Environments = Callable[[Transitions], np.ndarray]
"""Environment labels (T,) of all rows."""


def consecutive_blocks(count: int) -> Environments:
    """Episodes in order, divided into `count` parts: in a learning run, early and late behaviour."""

    def labels(data: Transitions) -> np.ndarray:
        names, rank = np.unique(data.episode, return_inverse=True)
        return np.asarray(rank * count // len(names))

    return labels


def by_context(name: str) -> Environments:
    """Rows with the same value of a context form one environment."""

    def labels(data: Transitions) -> np.ndarray:
        if name not in data.context:
            raise DataError(f"the experience has no context {name!r}")
        return np.asarray(np.unique(data.context[name], return_inverse=True)[1])

    return labels


class Icp:
    """Parents of the reward and, recursively, of the variables found."""

    name = "icp"

    def __init__(
        self, factors: Factors, task: str, seed: int = 0, settings: IcpSettings | None = None,
        environments: Environments | None = None,
    ):  # fmt: skip
        """`environments` replaces those of the settings."""
        self.factors, self.task, self.seed = factors, task, seed
        self.settings = settings or IcpSettings()
        self.environments = environments or consecutive_blocks(self.settings.environments)
        self.found = np.zeros(len(factors), bool)
        self.calls = 0

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        """One search on at most `rows` rows; "empty" means that nothing was found and the mask is full."""
        data = experience.transitions(False)
        if self.task not in data.rewards:
            raise DataError(f"the experience has no reward {self.task!r}")
        labels = np.asarray(self.environments(data))
        rng = np.random.default_rng([self.seed, 32, self.calls])
        self.calls += 1
        pick = np.sort(rng.choice(len(data), min(self.settings.rows, len(data)), replace=False))
        data, labels = data.select(pick), labels[pick]
        counts = np.unique(labels, return_counts=True)[1]
        self.found = np.zeros(len(self.factors), bool)
        if len(counts) < 2 or counts.min() < SMALLEST:
            return {"environments": float(len(counts)), "kept": 0.0, "empty": 1.0}
        numbers = self._search(data, labels)
        numbers |= {"environments": float(len(counts)), "kept": float(self.found.sum())}
        return numbers if self.found.any() else numbers | {"empty": 1.0}

    def _search(self, data: Transitions, environment: np.ndarray) -> dict[str, float]:
        """Algorithm 1: from the reward backwards; each test at the level divided by the number of variables."""
        context = np.array(list(data.context.values())).reshape(len(data.context), len(data)).T
        action = action_columns(data.action, self.factors.discrete_actions)
        reward = self._parents(self._inputs(data.next_obs, context, environment), data.rewards[self.task])
        before, rejected = self._inputs(data.obs, action, environment), 0
        stack = list(np.flatnonzero(reward.parents))
        while stack:
            variable = int(stack.pop())
            if self.found[variable]:
                continue
            self.found[variable] = True
            causes = self._parents(before, _outcome(data, variable))
            rejected += causes.accepted == 0
            stack += list(np.flatnonzero(causes.parents & ~self.found))
        return {"accepted": float(reward.accepted), "rejected": float(rejected)}

    def _inputs(self, states: np.ndarray, always: np.ndarray, environment: np.ndarray) -> Inputs:
        """Variables by their values, angles by sine and cosine."""
        angles = [j for j, kind in enumerate(self.factors.kinds) if kind == "angle"]
        columns = np.concatenate([states, np.cos(states[:, angles])], 1)
        columns[:, angles] = np.sin(states[:, angles])
        return Inputs(_scaled(columns), np.array([*range(states.shape[1]), *angles]), _scaled(always), environment)

    def _parents(self, inputs: Inputs, target: np.ndarray) -> Verdict:
        settings, level = self.settings, self.settings.level / len(self.factors)
        return invariant_parents(inputs, _scaled(target), level, settings.candidates, settings.regression, self.seed)

    def mask(self) -> np.ndarray:
        """The variables found; everything if there are none."""
        return self.found.copy() if self.found.any() else np.ones_like(self.found)

    def graph(self) -> CausalGraph | None:
        return None

    def tensors(self) -> dict[str, Tensor]:
        return {"found": torch.tensor(self.found), "calls": torch.tensor(self.calls)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.found, self.calls = tensors["found"].numpy().copy(), int(tensors["calls"])


def _outcome(data: Transitions, variable: int) -> np.ndarray:
    """A variable after the step; for an angle its change, which does not jump."""
    if data.factors.kinds[variable] == "angle":
        return change(data.obs[:, variable], data.next_obs[:, variable], "angle")
    return data.next_obs[:, variable]


def _scaled(columns: np.ndarray) -> np.ndarray:
    """Mean 0 and deviation 1; columns that never change become 0."""
    std, size = columns.std(0), np.abs(columns).max(0, initial=0)
    return np.asarray((columns - columns.mean(0)) / np.where(std > 1e-9 * size, std, np.inf))


def make(setup: Setup) -> Icp:
    assert isinstance(setup.options, IcpSettings)
    return Icp(setup.factors, setup.task, setup.seed, setup.options)
