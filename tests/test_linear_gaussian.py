"""Measured CMI against the exact one of random linear-Gaussian systems.

An effect is measured given the other causes that were found. The exact values are given everything else, which is
less where other variables go with a cause; for the action, which goes with nothing, both are the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.systems import linear_gaussian
from cbm.discovery.discover import discover
from cbm.discovery.settings import SELF_MEMORY, Settings
from cbm.discovery.targets import self_memory
from cbm.graph import CausalGraph

ROWS = 60_000
CLEAR = 0.02  # nats; of weaker effects chance is a larger part
SETTINGS = replace(Settings(), last_action="off", prediction_updates=1)
Found = tuple[CausalGraph, np.ndarray, np.ndarray, np.ndarray]


def _found(d: int, seed: int) -> Found:
    """Graph, exact CMI, true graph, and which cells are measured by a model (memory comes from a regression)."""
    data, exact = linear_gaussian(d, ROWS, seed)
    assert data.truth is not None
    measured = np.ones((d, d + 1), bool)
    measured[np.arange(d), np.arange(d)] = self_memory(data) <= SELF_MEMORY
    return discover(data, settings=SETTINGS, workers=0), exact, data.truth, measured


@pytest.fixture(scope="module", params=[0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def small(request: pytest.FixtureRequest) -> Found:
    return _found(5, request.param)


def _check_graph(graph: CausalGraph, exact: np.ndarray, truth: np.ndarray, measured: np.ndarray) -> None:
    """Every edge and no other; those below the limit of detection may be missed."""
    below = truth & (exact < graph.limit_of_detection[:, None])
    assert not (graph.verdict == "edge")[~truth].any()
    assert np.array_equal(graph.adjacency[~below], truth[~below])
    absent = graph.cmi[~truth & measured]
    assert np.abs(absent).max() < 0.003
    assert graph.adjacency[~measured].all() and graph.limit_of_detection.max() < CLEAR


def _check_values(graph: CausalGraph, expected: np.ndarray, cells: np.ndarray, errors: float = 0.0) -> None:
    """Clear effects within five per cent of what is expected, or so many of their standard errors."""
    off = np.abs(graph.cmi - expected) > np.maximum(0.05 * expected, errors * graph.stderr)
    worst = [
        (int(i), int(j), round(expected[i, j], 4), round(graph.cmi[i, j], 4))
        for i, j in zip(*np.nonzero(cells & off & (expected >= CLEAR)), strict=True)
    ]
    assert not worst, f"(effect, cause, expected, measured): {worst}"


def test_graph_is_right_and_absent_effects_measure_nothing(small: Found) -> None:
    _check_graph(*small)


def test_effects_of_the_action_are_within_five_per_cent_of_the_exact_value(small: Found) -> None:
    graph, exact, truth, measured = small
    action = np.arange(truth.shape[1]) == truth.shape[1] - 1
    assert (truth & action & (exact > CLEAR)).any()
    _check_values(graph, exact, truth & measured & action)


def test_effects_are_within_five_per_cent_of_the_exact_value(small: Found) -> None:
    graph, exact, truth, measured = small
    _check_values(graph, exact, truth & measured, errors=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_twelve_variables(seed: int) -> None:
    graph, exact, truth, measured = _found(12, seed)
    _check_graph(graph, exact, truth, measured)
    _check_values(graph, exact, truth & measured, errors=2)
