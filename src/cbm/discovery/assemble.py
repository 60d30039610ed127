"""From verdicts about targets to the graph of the variables."""

from __future__ import annotations

import math
from importlib import metadata

import numpy as np

from cbm.data.factors import Factors
from cbm.discovery.decide import Verdicts
from cbm.discovery.settings import Settings
from cbm.graph import ActionEffect, CausalGraph, RewardGraph


def assemble(
    factors: Factors,
    transitions: int,
    index: np.ndarray,
    moving: np.ndarray,
    memory: np.ndarray,
    found: Verdicts,
    rewards: dict[str, RewardGraph],
    settings: Settings,
    seconds: float,
) -> CausalGraph:
    """`index` (K,) is the variable of each target; `moving` and `memory` (d,) are what is known without a model.

    An input after the action is the previous action: an effect of either counts as an effect of the action.
    """
    d = len(factors)
    smallest = settings.smallest_effect if settings.rule == "calibrated" else settings.epsilon
    cells: dict[str, np.ndarray] = {
        "cmi": np.zeros((d, d + 1)), "stderr": np.zeros((d, d + 1)), "thresholds": np.full((d, d + 1), smallest),
        "edge": np.zeros((d, d + 1), bool), "verdict": np.full((d, d + 1), "none", dtype="<U9"),
        "reason": np.full((d, d + 1), "", dtype=object), "settled": np.ones((d, d + 1), bool),
    }  # fmt: skip
    last = _last_action(found, d)
    for name, matrix in cells.items():
        values = getattr(found, name)
        if np.size(values):
            matrix[index] = np.where(last, values[:, [*range(d), -1]], values[:, : d + 1])
    limit = np.full(d, np.nan)
    if np.size(found.limit):
        limit[index] = found.limit
    _set_memory(cells, moving, memory, math.log(settings.knots - 1))
    stated = settings.rule == "calibrated" and np.size(found.limit) > 0
    return CausalGraph(
        variables=factors.names, adjacency=cells["edge"], cmi=cells["cmi"], stderr=cells["stderr"],
        verdict=cells["verdict"], threshold=settings.epsilon, rewards=rewards, model=settings.model,
        transitions=transitions, seconds=round(seconds, 2), version=metadata.version("cbm-rl"),
        thresholds=cells["thresholds"], settled=cells["settled"], reason=cells["reason"].astype(str),
        limit_of_detection=limit, last_action=found.cmi.shape[1] > d + 1,
        false_discovery_rate=settings.false_discovery_rate if stated else math.nan,
        miss_rate=settings.miss_rate if stated else math.nan,
    )  # fmt: skip


def _last_action(found: Verdicts, d: int) -> np.ndarray:
    """(K, d + 1) booleans: where only the previous action has an edge; true in the action's column only."""
    where = np.zeros((len(found.cmi), d + 1), bool)
    if found.cmi.shape[1] > d + 1:
        where[:, d] = (found.verdict[:, d + 1] == "edge") & (found.verdict[:, d] != "edge")
    return where


def _set_memory(cells: dict[str, np.ndarray], moving: np.ndarray, memory: np.ndarray, certain: float) -> None:
    """Self-edges known without a model: of variables that never change, or that are their previous value plus
    something.

    `certain` is the CMI recorded for the former: the largest that the grid of candidates can express.
    """
    for i in range(len(moving)):
        if not moving[i] or memory[i] > 0:
            cells["cmi"][i, i] = max(memory[i], cells["cmi"][i, i]) if moving[i] else certain
            cells["stderr"][i, i], cells["edge"][i, i], cells["verdict"][i, i] = 0.0, True, "edge"
            cells["reason"][i, i], cells["settled"][i, i] = "", True


def reward_graphs(factors: Factors, names: list[str], found: Verdicts, action: bool) -> dict[str, RewardGraph]:
    """`action`: whether the action was an input beside the variables, so that its effect can be reported."""
    graphs, d = {}, len(factors)
    for k, name in enumerate(names):
        extra: dict[str, object] = {}
        if np.size(found.reason):
            extra = {"reason": found.reason[k, :d], "settled": found.settled[k, :d]}
            extra["limit_of_detection"] = float(found.limit[k])
        if action and found.cmi.shape[1] > d:
            cell = (float(a[k, d]) for a in (found.cmi, found.stderr))
            reason = str(found.reason[k, d]) if np.size(found.reason) else ""
            cmi, stderr = cell
            extra["action"] = ActionEffect(cmi, stderr, str(found.verdict[k, d]), float(found.thresholds[k, d]), reason)
        graphs[name] = RewardGraph(
            tuple(factors.names[j] for j in np.flatnonzero(found.edge[k, :d])), found.cmi[k, :d], found.stderr[k, :d],
            found.verdict[k, :d], found.thresholds[k, :d], **extra,  # type: ignore[arg-type]
        )  # fmt: skip
    return graphs
