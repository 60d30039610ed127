"""CDL's abstraction (Wang et al., 2022): what the action reaches, and what influences that; the same for all tasks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from cbm.abstraction.dynamics import everything_if_empty
from cbm.abstraction.method import Dynamics, Experience, Setup
from cbm.graph import CausalGraph


class Cdl:
    """Controllable and action-relevant variables of the shared dynamics; there is no reward model."""

    name = "cdl"

    def __init__(self, dynamics: Dynamics):
        self.dynamics = dynamics

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        empty = not self.dynamics.graph().mask(rule="cdl").any()
        return {"empty": 1.0} if empty else {}

    def mask(self) -> np.ndarray:
        return everything_if_empty(self.dynamics.graph().mask(rule="cdl"))

    def graph(self) -> CausalGraph:
        return self.dynamics.graph()

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        pass


def make(setup: Setup) -> Cdl:
    setup.check_options("cdl")
    return Cdl(setup.known_dynamics("cdl"))
