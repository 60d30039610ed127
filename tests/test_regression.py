"""Regression in closed form: equal to an ordinary refit under every mask, exact where the law is in its functions."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.discovery.regression import Basis, Gram, solve_positive
from cbm.discovery.settings import HINGES

ROWS = 600


@pytest.fixture(scope="module")
def columns() -> np.ndarray:
    """Two continuous columns, one of four levels, one of two, and the difference of the first two."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, ROWS))
    return np.stack([a, b, rng.integers(4, size=ROWS), rng.integers(2, size=ROWS), a - b], 1)


OWNER = np.array([[0, 0], [1, 1], [2, 2], [3, 3], [0, 1]])


def least_squares(features: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Predictions of an ordinary fit with an offset."""
    design = np.column_stack([features, np.ones(len(features))])
    return np.asarray(design @ np.linalg.lstsq(design, y, rcond=None)[0])


def predictions(features: np.ndarray, y: np.ndarray, keep: np.ndarray) -> np.ndarray:
    gram = Gram.of(features)
    weights = gram.solve(features.T @ (y - y.mean(0)), keep, 1e-10)
    return np.asarray((features - gram.mean) @ weights + y.mean(0))


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("hidden", [set(), {0}, {3}, {1, 2}, {0, 1, 2, 3}])
def test_every_mask_equals_an_ordinary_refit(columns: np.ndarray, hidden: set[int], order: int) -> None:
    rng = np.random.default_rng(1)
    features, of = Basis.fit(columns, OWNER).features(columns, order)
    y = np.stack([np.sin(columns[:, 0]) + columns[:, 2], rng.normal(size=ROWS)], 1)
    keep = np.flatnonzero(~np.isin(of, list(hidden)).any(1))
    expected = least_squares(features[:, keep], y)
    assert predictions(features, y, keep) == pytest.approx(expected, abs=1e-5)


def test_what_each_function_belongs_to(columns: np.ndarray) -> None:
    basis = Basis.fit(columns, OWNER)
    assert [len(knots) for knots in basis.knots] == [HINGES, HINGES, 2, 0, HINGES]
    assert basis.knots[2].tolist() == [1, 2], "inner levels"
    features, of = basis.features(columns, order=2)
    singles = basis.singles()
    assert len(singles) == 5 + 3 * HINGES + 2 and [tuple(own) for own in of[: len(singles)]] == singles
    assert singles[-1] == (0, 1), "a difference goes with either of its inputs"
    assert {tuple(own) for own in of[len(singles) :]} == {(a, b) for a in range(4) for b in range(a + 1, 4)}
    assert features.shape == (ROWS, len(of))
    assert np.array_equal(features[:, 0], columns[:, 0]) and np.array_equal(
        features[:, 1], np.maximum(columns[:, 0] - basis.knots[0][0], 0)
    )


def test_columns_of_one_input_are_not_multiplied_with_each_other(columns: np.ndarray) -> None:
    basis = Basis.fit(columns[:, :3], np.array([[0, 0], [0, 0], [1, 1]]))
    _, of = basis.features(columns[:, :3], order=2)
    assert {tuple(own) for own in of[len(basis.singles()) :]} == {(0, 1)}


def test_powers_belong_to_all_of_their_inputs(columns: np.ndarray) -> None:
    basis = Basis.fit(columns[:, :3], OWNER[:3])
    features, of = basis.features(columns[:, :3], order=4)
    more = features[:, len(basis.singles()) :]
    for power, own in zip(more.T, of[len(basis.singles()) :]):
        for j in range(3):  # it changes with an input that it belongs to, and with no other
            moved = columns[:, :3].copy()
            moved[:, j] = 0.5 * moved[:, j] + 0.1
            other = basis.features(moved, order=4)[0][:, len(basis.singles()) :]
            column = int(np.flatnonzero((more == power[:, None]).all(0))[0])
            assert (not np.array_equal(other[:, column], power)) == (j in own)
    few, _ = basis.features(columns[:, :3], order=4, most=5)
    assert few.shape[1] == len(basis.singles()), "none where there would be too many"


def test_a_product_of_three_says_nothing_of_itself_without_all_of_them(columns: np.ndarray) -> None:
    basis = Basis.fit(columns[:, :3], OWNER[:3])
    features, of = basis.features(columns[:, :3], order=3)
    twos = basis.features(columns[:, :3], order=2)[0].shape[1]
    assert features.shape[1] == twos + 1 and set(of[-1]) == {0, 1, 2}
    assert np.allclose(features[:, -1], columns[:, 0] * columns[:, 1] * columns[:, 2])
    wide = np.random.default_rng(0).normal(size=(300, 13))
    own = np.stack([np.arange(13)] * 2, 1)
    singles = len(Basis.fit(wide, own).singles())
    assert Basis.fit(wide, own).features(wide, order=3)[0].shape[1] == singles, "none where there would be too many"


@pytest.mark.parametrize("law", ["linear", "bend at a level", "product"])
def test_laws_that_are_exact(columns: np.ndarray, law: str) -> None:
    a, b, level, two, _ = columns.T
    y = {"linear": 3 * a - b + 5, "bend at a level": np.abs(level - 1) + two, "product": a * b - two * a}[law][:, None]
    features, of = Basis.fit(columns, OWNER).features(columns, order=2 if law == "product" else 1)
    left = y - predictions(features, y, np.arange(len(of)))
    assert np.abs(left).max() < 1e-6 * y.std()


def test_constant_and_repeated_features_do_no_harm(columns: np.ndarray) -> None:
    features = np.column_stack([columns[:, 0], columns[:, 0], np.full(ROWS, 7.0)])
    y = columns[:, :1] + 2
    gram = Gram.of(features)
    weights = gram.solve(features.T @ (y - y.mean(0)), np.arange(3), 1e-8)
    assert weights[2] == 0 and weights[:2].sum() == pytest.approx(1, abs=1e-6)
    nothing = gram.solve(features.T @ (y - y.mean(0)), np.array([2]), 1e-8)
    assert not nothing.any()


def test_a_singular_matrix_is_solved() -> None:
    matrix = np.ones((3, 3))
    assert matrix @ solve_positive(matrix, np.full((3, 1), 6.0)) == pytest.approx(6)


def test_a_ridge_shrinks_in_units_of_each_feature(columns: np.ndarray) -> None:
    """A single feature with ridge 1 gets half of its weight, whatever its unit."""
    for unit in (1e-3, 1.0, 1e3):
        x = unit * columns[:, :1]
        gram = Gram.of(x)
        weight = gram.solve(x.T @ (columns[:, :1] - columns[:, 0].mean()), np.array([0]), 1.0)
        assert weight[0, 0] * unit == pytest.approx(0.5)
