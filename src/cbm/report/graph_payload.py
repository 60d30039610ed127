"""What the page says about a graph, ready for JSON: its numbers, its doubts, and the state of each reward."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.graph import CausalGraph, RewardGraph
from cbm.graph.advice import advice
from cbm.graph.explain import explain
from cbm.graph.limits import limits_sentence
from cbm.graph.rules import cbm_abstraction

BoolArray = NDArray[np.bool_]


def matrix_payload(graph: CausalGraph, as_guessed: bool = False) -> dict[str, Any]:
    """The d x (d+1) numbers, the counts over them, and the range of the colour scale."""
    d = len(graph)
    rewards = graph.rewards.values()
    thresholds = np.concatenate([graph.thresholds.ravel(), *(reward.threshold for reward in rewards)])
    verdicts = np.concatenate([graph.verdict.ravel(), *(reward.verdict for reward in rewards)])
    settled = np.concatenate([graph.settled.ravel(), *(reward.settled for reward in rewards)])
    limits = np.array([*graph.limit_of_detection, *(reward.limit_of_detection for reward in rewards)])
    knee = graph.threshold if graph.threshold > 0 else 0.01
    top = max([float(graph.cmi.max()), 10 * knee, *(float(reward.cmi.max()) for reward in rewards)])
    return {
        "cmi": [_rounded(row) for row in graph.cmi],
        "stderr": [_errors(row) for row in graph.stderr],
        "thresholds": [_rounded(row) for row in graph.thresholds],
        "verdict": [_letters(row) for row in graph.verdict],
        "edges": [bits(row) for row in graph.adjacency],
        "links": [bits(row) for row in (graph.adjacency if as_guessed else graph.possible_edges)],
        "settled": [bits(row) for row in graph.settled],
        "limits": [_known(limit) for limit in graph.limit_of_detection],
        **_reasons(graph),
        "threshold": graph.threshold,
        "threshold_range": _range(thresholds),
        "limit_range": _range(limits[~np.isnan(limits)]),
        "rates": {"false": _known(graph.false_discovery_rate), "missed": _known(graph.miss_rate)},
        "last_action": graph.last_action,
        "bootstrap": _bootstrap(graph),
        "advice": advice(graph),
        "scale": {"knee": knee, "top": top},
        "counts": {
            "edges": int(graph.adjacency.sum()),
            "self_edges": int(np.trace(graph.adjacency[:, :d])),
            "undecided": graph.undecided(),
            "unsettled": int((~settled).sum()),
            "cells": int(verdicts.size),
        },
    }


def _reasons(graph: CausalGraph) -> dict[str, Any]:
    """Each text once, and [row, column, number of the text] of each undecided cell; rewards follow the variables."""
    d = len(graph)
    cells = [(int(i), int(j), str(graph.reason[i, j])) for i, j in np.argwhere(graph.reason != "")]
    for k, reward in enumerate(graph.rewards.values()):
        cells += [(d + k, int(j), str(reward.reason[j])) for j in np.flatnonzero(reward.reason != "")]
        if reward.action is not None and reward.action.reason:
            cells.append((d + k, d, reward.action.reason))
    texts = list(dict.fromkeys(text for _, _, text in cells))
    numbers = {text: k for k, text in enumerate(texts)}
    return {"reasons": texts, "reason": [[row, column, numbers[text]] for row, column, text in cells]}


def _bootstrap(graph: CausalGraph) -> dict[str, Any] | None:
    """How many logs were resampled, and in how many of them each edge came out."""
    found = graph.bootstrap
    if found is None:
        return None
    counts = np.rint(found.edges * found.replicates).astype(int)
    return {"replicates": found.replicates, "edges": counts.tolist()}


def _came_out(graph: CausalGraph, reward: str) -> dict[str, list[int]] | None:
    """In how many resampled logs each variable was certainly needed, and in how many it was not ruled out."""
    found = graph.bootstrap
    if found is None or reward not in found.abstraction:
        return None
    shares = {"certain": found.certain[reward], "kept": found.abstraction[reward]}
    return {name: np.rint(share * found.replicates).astype(int).tolist() for name, share in shares.items()}


def reward_payload(
    graph: CausalGraph, name: str, truth: tuple[BoolArray, dict[str, BoolArray]] | None, as_guessed: bool = False
) -> dict[str, Any]:
    reward: RewardGraph = graph.rewards[name]
    reasons = explain(graph, name, "cbm", as_guessed=as_guessed)
    parents = np.isin(graph.variables, reward.parents)
    true_parents = truth[1].get(name) if truth is not None else None
    true_mask = cbm_abstraction(truth[0], true_parents) if truth and true_parents is not None else None
    return {
        "name": name,
        "decided": reward.decided,
        "parents": [graph.index(parent) for parent in reward.parents],
        "cmi": _rounded(reward.cmi),
        "stderr": _errors(reward.stderr),
        "thresholds": _rounded(reward.threshold),
        "verdict": _letters(reward.verdict),
        "edges": bits(parents),
        "links": bits(parents if as_guessed else reward.verdict != "none"),
        "settled": bits(reward.settled),
        "limit": _known(reward.limit_of_detection),
        "coarse": limits_sentence(dict(reasons.coarse_limits)),
        "action": _action(reward),
        "bootstrap": _came_out(graph, name),
        "kept": [[graph.index(variable), path] for variable, path in reasons.kept.items()],
        "possible": [graph.index(variable) for variable in reasons.possible],
        "undecided_links": [list(links) for links in reasons.undecided_links.values()],
        "dropped": [[graph.index(variable), evidence] for variable, evidence in reasons.dropped.items()],
        "truth": None if true_parents is None else bits(true_parents),
        "true_abstraction": None if true_mask is None else np.flatnonzero(true_mask).tolist(),
    }


def _action(reward: RewardGraph) -> dict[str, Any] | None:
    if reward.action is None:
        return None
    cmi, stderr, threshold = (np.array([v]) for v in (reward.action.cmi, reward.action.stderr, reward.action.threshold))
    return {
        "cmi": _rounded(cmi)[0],
        "stderr": _errors(stderr)[0],
        "threshold": _rounded(threshold)[0],
        "verdict": reward.action.verdict[0],
    }


def name_groups(variables: tuple[str, ...]) -> list[dict[str, Any]]:
    """Runs of neighbours whose names share everything before the last part: block_x, block_y, block_z."""
    stems = [re.sub(r"[_./-]?[^_./-]*$", "", name) for name in variables]
    shared = set(stems)
    stems = [name if name in shared else stem for name, stem in zip(variables, stems, strict=True)]
    groups: list[dict[str, Any]] = []
    for position, stem in enumerate(stems):
        if not groups or groups[-1]["stem"] != stem:
            groups.append({"stem": stem, "start": position})
    # Lines around nearly every variable would say nothing.
    return groups if 1 < len(groups) <= 0.6 * len(variables) else []


def bits(row: BoolArray) -> str:
    return "".join("1" if cell else "0" for cell in row)


def _range(values: NDArray[np.float64]) -> dict[str, float] | None:
    if not values.size:
        return None
    return {"low": float(values.min()), "median": float(np.median(values)), "high": float(values.max())}


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(f"{value:.4g}")


def _rounded(row: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.4g}") for value in row]


def _errors(row: NDArray[np.float64]) -> list[float | None]:
    return [float(f"{value:.3g}") if value > 0 else None for value in row]  # 0: none was measured


def _letters(row: NDArray[np.str_]) -> str:
    return "".join(str(verdict)[0] for verdict in row)  # edge, none, undecided
