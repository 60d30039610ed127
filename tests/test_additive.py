"""Additive regressions: equal to least squares fitted with and without an input, and to known answers."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.benchmarks.systems import linear_gaussian, sparse_nonlinear
from cbm.discovery.additive import additive_evidence
from cbm.discovery.discover import discover
from cbm.discovery.evidence import Evidence
from cbm.discovery.problem import Problem, dynamics_problem
from cbm.discovery.settings import Settings
from cbm.discovery.study import stronger
from cbm.transitions import Transitions


def problem_of(data: Transitions) -> Problem:
    train, held = data.split(0.2, seed=0)
    return dynamics_problem(train, held, 4, 0, False).problem


def looked_at(problem: Problem) -> Evidence:
    found = additive_evidence(problem)
    assert found is not None
    return found


def residual(features: np.ndarray, target: np.ndarray) -> float:
    """Sum of squares that least squares with an offset leaves."""
    columns = np.column_stack([features, np.ones(len(features))])
    return float(((target - columns @ np.linalg.lstsq(columns, target, rcond=None)[0]) ** 2).sum())


def test_equals_two_fits_by_least_squares() -> None:
    problem = problem_of(sparse_nonlinear(6, 4000, seed=1))
    found, rows = looked_at(problem), problem.train
    features = problem.encoder(rows.x).double().numpy()
    u = 2 * (rows.u + 0.5 * rows.width).double().numpy() - 1
    for target in (0, 3):
        for j in (0, 2, 6, 8):  # two variables, the action, a shadow
            own = problem.encoder.of_input(j).numpy()
            statistics = []
            for y in (u[:, target], 1.5 * u[:, target] ** 2 - 0.5):
                full, without = residual(features, y), residual(np.delete(features, own, 1), y)
                statistics.append((without - full) / (full / (len(rows) - features.shape[1] - 1)))
            wanted = 0.5 * np.log1p((max(statistics) - len(own)) / len(rows))
            assert found.cmi[target, j] == pytest.approx(wanted, rel=0.01, abs=2e-5)


def test_linear_gaussian_effects_and_none() -> None:
    """The coordinate of a target is a curved function of it: that costs a little of what there is to explain, and
    inputs that go together may stand in for the curve."""
    data, exact = linear_gaussian(5, 40_000, seed=0)
    problem = problem_of(data)
    found = looked_at(problem)
    exact = exact[[target.index for target in problem.targets]]
    there = exact > 0.01
    real = problem.real_inputs
    np.testing.assert_allclose(found.cmi[:, :real][there], exact[there], rtol=0.2)
    absent = np.abs(found.cmi[:, :real][exact == 0])
    assert np.median(absent) < 0.0005 and absent.max() < 0.02
    scatter = found.cmi[:, real:]
    assert scatter.std() < 2 * found.stderr[:, real:].mean(), "shadows scatter as their standard errors say"


def test_too_few_rows_for_so_many_features() -> None:
    assert additive_evidence(problem_of(sparse_nonlinear(20, 300, seed=0))) is None


def test_the_stronger_of_two_looks_counts_cell_by_cell() -> None:
    one = Evidence(np.array([[0.1, 0.0]]), np.array([[0.01, 0.02]]))
    other = Evidence(np.array([[0.0, 0.3]]), np.array([[0.03, 0.04]]))
    both = stronger(one, other)
    np.testing.assert_array_equal(both.cmi, [[0.1, 0.3]])
    np.testing.assert_array_equal(both.stderr, [[0.01, 0.04]])


def test_finds_what_a_trunk_that_is_too_narrow_cannot_hold() -> None:
    data = sparse_nonlinear(16, 12_000, seed=3)
    assert data.truth is not None
    narrow = Settings(width=8)
    graph = discover(data, steps=400, settings=narrow, seed=0)
    assert graph.compare(data.truth).recall > 0.95
