"""The causal graph of the dynamics that all tasks share: found before (frozen), or learned alongside the policies."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from cbm.abstraction.hysteresis import Hysteresis
from cbm.abstraction.method import Experience
from cbm.data.factors import Factors
from cbm.discovery.last_action import with_last_action
from cbm.discovery.online import OnlineDiscovery
from cbm.discovery.online_estimator import under, unfinished
from cbm.discovery.settings import ModelName, Settings, preset
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.checks import check_same_names


class FrozenDynamics:
    """The graph of a run of `cbm discover` (Algorithm 1, line 2).

    An undecided cell counts as an edge, because it cannot be ruled out; with `certain_only` it does not.
    """

    frozen = True

    def __init__(self, graph: CausalGraph, certain_only: bool = False):
        self._graph = graph.with_undecided_as(not certain_only)

    @classmethod
    def load(
        cls, run: str | os.PathLike[str], factors: Factors, weakest: float = 0.0, certain_only: bool = False
    ) -> FrozenDynamics:
        """From a run directory or a graph.json, whose variables must be those of the world.

        Effects between variables of fewer than `weakest` nats are removed.
        """
        graph = CausalGraph.load(run)
        try:
            check_same_names(graph.variables, factors.names)
        except DataError as error:
            raise DataError(f"{run}: {error}") from None
        return cls(graph.stronger(weakest), certain_only)

    def graph(self) -> CausalGraph:
        return self._graph

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        pass


class JointDynamics:
    """A graph learned from scratch on the policies' own data (Algorithm 1, lines 7 and 8)."""

    frozen = False

    def __init__(
        self,
        factors: Factors,
        settings: Settings | None = None,
        seed: int = 0,
        on: float = 1.0,
        off: float = 0.6,
        weakest: float = 0.0,
        last_action: bool = False,
        device: str = "cpu",
    ):
        """`last_action`: models also see the previous action, so that a variable that merely repeats it is no cause."""
        self.last_action = last_action
        self.weakest = np.where(np.eye(len(factors), len(factors) + 1, dtype=bool), 0.0, weakest)
        self.online = OnlineDiscovery(None, settings or joint_settings(), seed, factors=factors, device=device)
        self.hysteresis = Hysteresis(on, off)

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        train, held = experience.transitions(False), experience.transitions(True)
        if self.last_action:
            train, held = with_last_action(train), with_last_action(held)
        numbers = self.online.learn(train, held, updates)
        found = self.online.graph()
        before = self.hysteresis.chosen
        after = self.hysteresis.move(found.cmi, np.maximum(found.thresholds, self.weakest))
        changed = after.size if before is None else int((after != before).sum())
        return numbers | {"edges": float(after.sum()), "changed": float(changed)}

    def graph(self) -> CausalGraph:
        """Before there is evidence, no edge is excluded."""
        found = self.online.graph()
        if self.hysteresis.chosen is None:
            return found
        return replace(found, adjacency=self.hysteresis.chosen, verdict=self.hysteresis.verdict(found.verdict))

    def tensors(self) -> dict[str, Tensor]:
        parts = {"online": self.online.tensors(), "settled": self.hysteresis.tensors()}
        return {f"{part}.{name}": value for part, found in parts.items() for name, value in found.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.online.restore(under("online", tensors))
        self.hysteresis.restore(under("settled", tensors))


def joint_settings(model: ModelName = "implicit") -> Settings:
    """A smaller model than in offline discovery, measured on fewer rows, but repeatedly.

    Causes may be far weaker than a target's strongest one: for a policy, a missing cause is worse than one too many.
    """
    smaller = replace(preset("fast", model), width=256, knots=33, evaluation_rows=3000)
    return unfinished(replace(smaller, strongest_share=0.005))


def everything_if_empty(mask: np.ndarray) -> np.ndarray:
    """All variables if the mask is empty: a policy that sees nothing cannot learn."""
    return mask if mask.any() else np.ones_like(mask)
