"""Measured CMI against the exact one of random linear-Gaussian systems."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.benchmarks.systems import linear_gaussian
from cbm.discovery.discover import discover
from cbm.discovery.targets import MEMORY, self_memory
from cbm.graph import CausalGraph

pytestmark = pytest.mark.usefixtures("two_threads")
ROWS, STEPS = 100_000, 2000
Found = tuple[CausalGraph, np.ndarray, np.ndarray, np.ndarray]


def _found(d: int, seed: int, steps: int) -> Found:
    """Graph, exact CMI, true graph, and which cells are measured by a model (memory comes from a regression)."""
    data, exact = linear_gaussian(d, ROWS, seed)
    assert data.truth is not None
    measured = np.ones((d, d + 1), bool)
    measured[np.arange(d), np.arange(d)] = self_memory(data) <= MEMORY
    return discover(data, steps=steps), exact, data.truth, measured


@pytest.fixture(scope="module", params=[0, 1, 2])
def small(request: pytest.FixtureRequest) -> Found:
    return _found(5, request.param, STEPS)


def _check_graph(graph: CausalGraph, exact: np.ndarray, truth: np.ndarray, measured: np.ndarray) -> None:
    """Every edge and no other; those below 0.01 nats, too weak to be sure of, may be called undecided."""
    weak = truth & (exact < 0.01)
    assert np.array_equal(graph.adjacency[~weak], truth[~weak])
    assert not ((graph.verdict == "edge") & ~truth).any()
    absent = graph.cmi[~truth & measured]
    assert absent.max() < 0.01 and absent.min() > -0.015  # below zero: overfitting
    assert graph.adjacency[~measured].all()


def _check_values(graph: CausalGraph, exact: np.ndarray, truth: np.ndarray, measured: np.ndarray, share: float) -> None:
    """Present effects within `share` of the exact value; those below 0.01 nats within two standard errors."""
    allowed = np.where(exact >= 0.01, share * exact, 2 * graph.stderr)
    off = np.abs(graph.cmi - exact) / allowed
    worst = [
        (int(i), int(j), round(exact[i, j], 4), round(graph.cmi[i, j], 4))
        for i, j in zip(*np.nonzero(truth & measured & (off > 1)), strict=True)
    ]
    assert not worst, f"(effect, cause, exact, measured): {worst}"


def test_graph_is_right_and_absent_effects_measure_nothing(small: Found) -> None:
    _check_graph(*small)


def test_cmi_is_within_ten_per_cent_of_the_exact_value(small: Found) -> None:
    _check_values(*small, share=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_eight_variables(seed: int) -> None:
    found = _found(8, seed, 2 * STEPS)
    _check_graph(*found)
    _check_values(*found, share=0.1)
