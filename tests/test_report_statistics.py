"""Numbers that sum up learning curves: known answers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import trim_mean

from cbm.errors import DataError
from cbm.report.statistics import area_under_curve, bootstrap_interval, iqm, ratio_interval, steps_to, value_at

STEPS, RATES = [10, 20, 40], [0.0, 0.4, 0.8]


def test_area_is_the_mean_height() -> None:
    assert area_under_curve([0, 100], [0.3, 0.3], 100) == pytest.approx(0.3)
    assert area_under_curve([0, 50, 100], [0, 1, 1], 100) == pytest.approx(0.75)
    assert area_under_curve([0, 50, 100], [0, 1, 0], 25) == pytest.approx(0.25)  # cut between two evaluations
    assert area_under_curve(STEPS, RATES, 40) == pytest.approx((0 + 10 * 0.2 + 20 * 0.6) / 40)
    assert area_under_curve([20, 40], [0.5, 1], 40) == pytest.approx((20 * 0.5 + 20 * 0.75) / 40)  # level before 20
    assert area_under_curve([20, 40], [0.5, 1], 10) == pytest.approx(0.5)
    assert math.isnan(area_under_curve(STEPS, RATES, 41)), "a curve is not continued"


def test_steps_to_a_level() -> None:
    assert steps_to(STEPS, RATES, 0.4) == 20
    assert steps_to(STEPS, RATES, 0.5) == pytest.approx(25)
    assert steps_to(STEPS, RATES, 0.0) == 10
    assert steps_to([0, 10, 20, 30], [0.0, 0.6, 0.2, 0.9], 0.5) == pytest.approx(10 * 5 / 6), "the first time counts"
    assert steps_to(STEPS, RATES, 0.81) == math.inf


def test_value_at_a_step() -> None:
    assert value_at(STEPS, RATES, 30) == pytest.approx(0.6)
    assert value_at(STEPS, RATES, 40) == 0.8
    assert value_at(STEPS, RATES, 5) == 0
    assert math.isnan(value_at(STEPS, RATES, 41))


def test_interquartile_mean() -> None:
    assert iqm([1, 3, 5, 7, 9, 11, 13, 15, 17]) == pytest.approx((0.75 * 5 + 7 + 9 + 11 + 0.75 * 13) / 4.5)
    assert iqm([0, 0, 10]) == pytest.approx(0.25 * 10 / 1.5)
    assert iqm([5.0]) == 5 and iqm([1, 2]) == 1.5
    values = np.random.default_rng(0).normal(size=(12, 3))
    np.testing.assert_allclose(iqm(values), trim_mean(values, 0.25))
    assert iqm([0, 1, 1, 100]) == 1, "an outlier does not count"


def test_bootstrap_interval() -> None:
    assert bootstrap_interval([0.2, 0.4]) == (0.2, 0.4)
    assert bootstrap_interval([0.1, 0.4, 0.7]) == (0.1, 0.7), "all three the lowest: 1 of 27 resamples, above 2.5 %"
    assert bootstrap_interval([0.3] * 5) == (0.3, 0.3)
    assert all(math.isnan(end) for end in bootstrap_interval([0.5])), "one seed has no interval"
    values = np.random.default_rng(1).normal(size=40)
    low, high = bootstrap_interval(values)
    width = 2 * 1.96 * values.std() / math.sqrt(len(values))  # the mean is nearly normal
    assert high - low == pytest.approx(width, rel=0.08) and low < values.mean() < high
    narrow = bootstrap_interval(values, level=0.5)
    assert low < narrow[0] < narrow[1] < high
    assert bootstrap_interval(values) == (low, high), "the seed is fixed"
    assert bootstrap_interval(values, seed=1) != (low, high)


def test_points_of_a_curve_are_resampled_together() -> None:
    curve = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    low, high = bootstrap_interval(curve)
    np.testing.assert_array_equal([low, high], [[0, 0], [1, 1]])
    opposite = np.random.default_rng(0).normal(size=20)
    low, high = bootstrap_interval(np.stack([opposite, 3 * opposite], axis=1))
    assert low[1] == pytest.approx(3 * low[0]) and high[1] == pytest.approx(3 * high[0])


def test_ratio_of_two_means() -> None:
    assert ratio_interval([0.5, 0.5], [1.0, 1.0]) == (0.5, 0.5, 0.5)
    ratio, low, high = ratio_interval([0.4, 0.6], [0.8, 1.2])
    assert ratio == pytest.approx(0.5) and low == pytest.approx(0.4 / 1.2) and high == pytest.approx(0.6 / 0.8)
    assert ratio_interval([0.5], [1.0])[0] == 0.5 and math.isnan(ratio_interval([0.5], [1.0])[1])
    assert all(math.isnan(part) for part in ratio_interval([0.5], [0.0])), "nothing to compare with"


@pytest.mark.parametrize(
    "call",
    [
        lambda: area_under_curve([], [], 10),
        lambda: area_under_curve([0, 1], [0, math.nan], 1),
        lambda: area_under_curve([0, 1], [0, 1], 0),
        lambda: steps_to([1, 1], [0, 1], 0.5),
        lambda: steps_to([0, 1], [0], 0.5),
        lambda: bootstrap_interval([0, 1], level=1.0),
        lambda: bootstrap_interval(0.5),
        lambda: ratio_interval([[1.0]], [1.0]),
    ],
)
def test_what_cannot_be_summed_up(call: Callable[[], object]) -> None:
    with pytest.raises(DataError):
        call()
