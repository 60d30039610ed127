"""An abstraction computed from the shared dynamics by a rule; the method itself learns nothing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from cbm.abstraction.dynamics import everything_if_empty
from cbm.abstraction.method import Dynamics, Experience
from cbm.graph import CausalGraph
from cbm.graph.rules import Rule


class GraphRule:
    """The variables that `rule` keeps for a task of the graph; CDL's rule keeps the same for all tasks and needs
    none."""

    def __init__(self, rule: Rule, dynamics: Dynamics, task: str | None = None):
        self.name: str = rule
        self.rule, self.dynamics, self.task = rule, dynamics, task

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        return {} if self._found().any() else {"empty": 1.0}

    def mask(self) -> np.ndarray:
        return everything_if_empty(self._found())

    def graph(self) -> CausalGraph:
        return self.dynamics.graph()

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        pass

    def _found(self) -> np.ndarray:
        return self.graph().guessed_mask(self.task, self.rule)  # includes what a run could not rule out
