"""Differences that a target depends on, in whatever units."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.discovery.contact import active_rows, between_angles, differences


@pytest.fixture(scope="module")
def columns() -> np.ndarray:
    """Two positions in other units, the second counted backwards, a copy of the first, and two others."""
    rng = np.random.default_rng(0)
    hand, block = rng.uniform(-1, 1, (2, 8000))
    return np.stack([1000 * hand + 7, -0.01 * block, 3 * hand, *rng.normal(size=(2, 8000))], 1)


def _near(columns: np.ndarray) -> np.ndarray:
    return (np.abs(columns[:, 0] / 1000 - 0.007 + 100 * columns[:, 1]) < 0.1).astype(float)


def test_things_that_are_close_when_it_happens(columns: np.ndarray) -> None:
    happens = _near(columns)
    pairs, values = differences(columns, happens[:, None], np.arange(8000))
    assert [0, 1] in pairs.tolist() and not (pairs > 2).any()
    distance = np.abs(values[:, pairs.tolist().index([0, 1])])
    centred = np.abs(distance - np.median(distance[happens == 1]))
    assert np.corrcoef(centred < np.quantile(centred, happens.mean()), happens)[0, 1] > 0.5


def test_nothing_is_near_anything_when_it_does_not_matter(columns: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    for y in (rng.normal(size=8000), (rng.random(8000) < 0.2).astype(float), columns[:, 3]):
        pairs, values = differences(columns, y[:, None], np.arange(8000))
        assert pairs.shape == (0, 2) and values.shape == (8000, 0)


def test_what_happens_too_seldom_says_nothing(columns: np.ndarray) -> None:
    happens = _near(columns)
    happens[np.flatnonzero(happens)[50:]] = 0
    assert not len(differences(columns, happens[:, None], np.arange(8000))[0])


def test_still_columns_do_no_harm() -> None:
    x = np.concatenate([np.ones((1000, 1)), np.random.default_rng(0).normal(size=(1000, 2))], 1)
    assert not len(differences(x, x[:, :1], np.arange(1000))[0])


def test_activity_is_the_rarer_value_or_what_lies_far_out() -> None:
    assert active_rows(np.array([0.0, 0, 1, 0])).tolist() == [False, False, True, False]
    assert active_rows(np.array([1.0, 1, 0, 1])).tolist() == [False, False, True, False]
    far = active_rows(np.r_[np.zeros(90), np.full(5, 9.0), np.full(5, -8.0), 0.5])
    assert far[90:100].all() and not far[:90].any()


def test_angles_between_angles() -> None:
    """Beyond half a turn one comes back from the other side; of many pairs those that matter come first."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(-np.pi, np.pi, (3000, 6))
    between = angles[:, 1] - angles[:, 4]
    y = np.where(np.cos(between) > 0, 1.0, 0.0)[:, None] * between[:, None]
    pairs, values = between_angles(angles[:, :2], y, np.arange(3000))
    assert pairs.tolist() == [[0, 1]] and (np.abs(values) <= 1).all()
    turn = np.exp(1j * np.pi * values[:, 0])
    assert np.allclose(turn, np.exp(1j * (angles[:, 0] - angles[:, 1])))
    away = np.arctan2(np.sin(between), np.cos(between))[:, None]
    pairs, values = between_angles(angles, away, np.arange(3000))
    assert len(pairs) < 15 and pairs[0].tolist() == [1, 4]
    assert between_angles(angles[:, :1], y, np.arange(3000))[1].shape == (3000, 0)
