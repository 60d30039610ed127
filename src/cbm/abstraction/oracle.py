"""The minimal state of the true graph: what a perfect CBM would find."""

from __future__ import annotations

import numpy as np

from cbm.abstraction.full import Fixed
from cbm.abstraction.method import Setup
from cbm.errors import DataError
from cbm.graph import CausalGraph, RewardGraph


def make(setup: Setup) -> Fixed:
    if setup.truth is None or setup.truth_reward is None:
        raise DataError(f"method 'oracle' needs the true graph, and of task {setup.task!r} there is none")
    graph = true_graph(setup.factors.names, setup.truth, {setup.task: setup.truth_reward})
    return Fixed("oracle", graph.mask(setup.task).copy(), graph)


def true_graph(names: tuple[str, ...], truth: np.ndarray, rewards: dict[str, np.ndarray]) -> CausalGraph:
    """The world's true graph as a CausalGraph; nothing was measured, so an edge has CMI 1 and no error."""
    edge, d = np.asarray(truth, bool), len(names)
    return CausalGraph(
        variables=names, adjacency=edge, cmi=edge.astype(float), stderr=np.zeros(edge.shape),
        verdict=np.where(edge, "edge", "none"), threshold=0.5, model="truth",
        rewards={
            task: RewardGraph(
                tuple(name for name, is_parent in zip(names, parents) if is_parent), np.asarray(parents, float),
                np.zeros(d), np.where(parents, "edge", "none"), np.full(d, 0.5),
            )
            for task, parents in rewards.items()
        },
    )  # fmt: skip
