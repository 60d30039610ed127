"""No abstraction: the policy sees everything."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from cbm.abstraction.method import Experience, Setup
from cbm.graph import CausalGraph


class Fixed:
    """A mask that is known in advance."""

    def __init__(self, name: str, mask: np.ndarray, graph: CausalGraph | None = None):
        self.name, self._mask, self._graph = name, mask, graph

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        return {}

    def mask(self) -> np.ndarray:
        return self._mask.copy()

    def graph(self) -> CausalGraph | None:
        return self._graph

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        pass


def make(setup: Setup) -> Fixed:
    return Fixed("full", np.ones(len(setup.factors), bool))
