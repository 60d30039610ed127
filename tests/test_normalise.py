"""Inputs in units of their own spread."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cbm.agents.normalise import Normaliser
from cbm.errors import DataError


def test_mean_and_spread_however_the_rows_come() -> None:
    rows = np.random.default_rng(0).normal([0.0, 5.0, -100.0], [1.0, 0.01, 30.0], (1000, 3))
    whole, parts = Normaliser(3), Normaliser(3)
    whole.update(rows)
    for start, end in ((0, 1), (1, 8), (8, 8), (8, 700), (700, 1000)):
        parts.update(rows[start:end])
    expected = np.clip((rows - rows.mean(0)) / rows.std(0), -5, 5)
    for normaliser in (whole, parts):
        np.testing.assert_allclose(normaliser(torch.from_numpy(rows).float()).numpy(), expected, atol=1e-3)


def test_constant_columns_give_zero() -> None:
    normaliser = Normaliser(3)
    for size in (3, 7):
        normaliser.update(np.column_stack([np.full(size, 0.1), np.zeros(size), np.arange(size)]))
    out = normaliser(torch.tensor([[0.1, 0.0, 3.0], [9.0, -9.0, 3.0]]))
    assert not out[:, :2].any() and out[:, 2].all()


def test_far_values_are_cut_off() -> None:
    normaliser = Normaliser(1, clip=2.0)
    normaliser.update(np.array([[-1.0], [1.0]]))
    assert normaliser(torch.tensor([[-50.0], [0.5], [50.0]]))[:, 0].tolist() == [-2.0, 0.5, 2.0]


def test_before_any_row_it_only_cuts_off() -> None:
    assert Normaliser(2)(torch.tensor([[0.25, 70.0]])).tolist() == [[0.25, 5.0]]


def test_frozen_and_restored() -> None:
    normaliser, other = Normaliser(2), Normaliser(2)
    normaliser.update(np.random.default_rng(0).normal(2.0, 3.0, (50, 2)))
    normaliser.freeze()
    row = torch.tensor([[1.0, 2.0]])
    before = normaliser(row)
    normaliser.update(np.full((10, 2), 99.0))
    other.restore(normaliser.tensors())
    other.update(np.full((10, 2), 99.0))
    assert torch.equal(normaliser(row), before) and torch.equal(other(row), before)
    assert row.tolist() == [[1.0, 2.0]]  # the argument is left alone


def test_wrong_shapes() -> None:
    with pytest.raises(DataError, match=r"inputs: shape \(4, 3\), expected \(n, 2\)"):
        Normaliser(2).update(np.zeros((4, 3)))
