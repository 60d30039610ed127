"""Counts of right, wrong and undecided verdicts about edges and minimal states, compared with the truth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from cbm.graph.rules import ancestors, cbm_abstraction

Verdicts = NDArray[np.str_]
Counts = dict[str, float]


def verdicts_of(found: np.ndarray) -> Verdicts:
    """Verdicts of a method that is never undecided."""
    return np.where(found, "edge", "none")


def self_edges(d: int) -> Verdicts:
    """The trivial answer: every variable causes itself and nothing else."""
    return verdicts_of(np.eye(d, d + 1, dtype=bool))


def count_edges(verdict: Verdicts, truth: np.ndarray, adjacency: np.ndarray | None = None) -> Counts:
    """Counts of claims about the cells (d, d+1), and of those that are wrong.

    `adjacency` contains guesses for undecided cells, like the output of methods that always answer: F1 compares these.
    If it is None, undecided cells count as no edge. F1 of the claims alone is also given.
    """
    edge, none = verdict == "edge", verdict == "none"
    undecided = ~(edge | none)
    hits, claimed = int((edge & truth).sum()), int(edge.sum())
    guess = edge if adjacency is None else adjacency
    return {
        "f1": _f1(guess, truth), "f1_claimed": _f1(edge, truth),
        "claimed_edges": claimed, "false_edges": claimed - hits,
        "claimed_nones": int(none.sum()), "wrong_nones": int((none & truth).sum()),
        "undecided_share": float(undecided.mean()),
        "undecided_true": int((undecided & truth).sum()), "undecided_false": int((undecided & ~truth).sum()),
    }  # fmt: skip


def _f1(found: np.ndarray, truth: np.ndarray) -> float:
    total = int(found.sum()) + int(truth.sum())
    return 2 * int((found & truth).sum()) / total if total else 1.0


def count_states(
    verdict: Verdicts, rewards: Mapping[str, Verdicts], truth: np.ndarray, truth_rewards: Mapping[str, np.ndarray]
) -> Counts:
    """Number of rewards whose minimal state is right, wrong or undecided, and of those that lack a variable.

    Right: every needed variable is certain, and no other is even possible. Wrong: a needed one is not even possible
    (the state lacks it without saying so), or one is certain that is not needed.
    """
    result = {"states_right": 0.0, "states_wrong": 0.0, "states_undecided": 0.0, "states_lacking": 0.0}
    for name, parents in truth_rewards.items():
        needed = cbm_abstraction(truth, parents)
        certain, possible = state_bounds(verdict, rewards[name])
        lacking, superfluous = bool((needed & ~possible).any()), bool((certain & ~needed).any())
        if lacking or superfluous:
            result["states_wrong"] += 1
        elif np.array_equal(certain, needed) and np.array_equal(possible, needed):
            result["states_right"] += 1
        else:
            result["states_undecided"] += 1
        result["states_lacking"] += lacking
    return result


def state_bounds(verdict: Verdicts, reward: Verdicts) -> tuple[np.ndarray, np.ndarray]:
    """(d,) variables that are certainly part of a reward's minimal state, and those that may be (these included)."""
    certain = ancestors(verdict == "edge", reward == "edge")
    possible = ancestors(verdict != "none", reward != "none")
    return certain, possible
