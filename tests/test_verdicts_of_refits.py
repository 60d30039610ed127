"""Verdicts from measured effects: the false discovery rate by hand, errors that hold the scatter of shadows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from cbm.discovery.decide import decide, edge_bar, open_cells
from cbm.discovery.evidence import Pooled, pool
from cbm.discovery.settings import DEGREES, MISFIT, Settings
from cbm.graph.reward import UNSETTLED

SETTINGS = Settings()
NAMES = ["x", "y", "z", "action", "the action before"]
Parts = dict[str, np.ndarray]


def _pooled(delta: Any, error: Any = 0.001, **changes: Any) -> Pooled:
    delta = np.atleast_2d(np.asarray(delta, float))
    plain = Pooled(
        delta, np.broadcast_to(np.asarray(error, float), delta.shape).copy(), np.full(delta.shape, 2),
        np.zeros(delta.shape), np.full(len(delta), 0.001), np.ones(len(delta)), np.ones(len(delta), bool),
        short=np.zeros(len(delta), bool),
    )  # fmt: skip
    return replace(plain, **changes)


def _alone(inputs: int) -> np.ndarray:
    return np.full(inputs, -1)


# The bar


@pytest.mark.parametrize(
    ("clear", "cells", "quantile"),
    [(1, 20, 4.587), (2, 40, 4.587), (1, 10, 4.144), (4, 40, 4.144), (0, 10, 4.144), (5, 5, 3.0), (10, 10, 3.0)],
)
def test_bar_by_hand(clear: int, cells: int, quantile: float) -> None:
    """With k of m cells clear, p <= 0.01 k / m; quantiles of Student's t with 10 degrees from a printed table:
    4.587 for 0.0005 and 4.144 for 0.001. Never below three."""
    assert DEGREES == 10
    z = np.zeros(cells)
    z[:clear] = 10.0
    assert edge_bar(z, 0.01) == pytest.approx(quantile, abs=5e-4)


@pytest.mark.parametrize("seed", range(8))
def test_bar_is_the_rule_of_benjamini_and_hochberg(seed: int) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(12, 25))
    z[:, : int(rng.integers(1, 5))] += rng.uniform(2, 6)
    for rate in (0.001, 0.01):
        claimed = stats.false_discovery_control(stats.t.sf(z.ravel(), DEGREES)).reshape(z.shape) <= rate
        assert np.array_equal(z >= edge_bar(z, rate), claimed & (z >= 3))


def test_a_stricter_rate_and_more_useless_cells_raise_the_bar() -> None:
    z = np.array([6.0, 5.0, 4.0, 0.1, -1.0, 0.3])
    assert edge_bar(z, 1e-4) > edge_bar(z, 1e-2)
    assert edge_bar(np.append(z, np.zeros(1000)), 1e-2) > edge_bar(z, 1e-2)


# Verdicts


def test_edge_none_and_in_between() -> None:
    """Errors of 0.001, five cells, two of them clear: the bar is at t(0.004) = 3.30 errors."""
    found = decide(_pooled([0.0100, 0.0040, 0.0027, 0.0002, -0.0030]), _alone(5), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["edge", "edge", "undecided", "none", "none"]]
    assert found.edge[0, :2].all() and not found.edge[0, 3:].any()
    assert found.reason[0, 2] == "near the threshold" and not any(found.reason[0, [0, 1, 3, 4]])
    assert found.settled.all() and found.thresholds[0, 0] == pytest.approx(0.0033, rel=1e-3)


def test_effects_too_small_to_care_about_are_none() -> None:
    small = 0.5 * SETTINGS.smallest_effect
    found = decide(_pooled([small, small], 1e-6), _alone(2), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["none", "none"]]


def test_what_was_never_a_candidate_is_no_edge() -> None:
    tested = np.array([[2, 0]])
    found = decide(_pooled([0.5, 0.5], tested=tested), _alone(2), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["edge", "none"]]


@pytest.mark.parametrize("seed", range(5))
def test_what_is_ruled_out_lies_below_the_limit_of_detection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    error = rng.uniform(1e-5, 1e-2, (6, 9))
    delta = error * rng.normal(scale=2, size=error.shape) + rng.choice([0.0, 0.02], error.shape, p=[0.8, 0.2])
    pooled = _pooled(delta, error, limit_error=rng.uniform(1e-5, 1e-2, 6), efficiency=rng.uniform(0.1, 1, 6))
    found = decide(pooled, _alone(9), [f"v{k}" for k in range(9)], SETTINGS)
    reach = delta + stats.norm.isf(SETTINGS.miss_rate) * error
    none = found.verdict == "none"
    assert none.any() and (reach <= found.limit[:, None] + 1e-12)[none].all()
    assert (found.limit >= SETTINGS.smallest_effect).all()
    assert (delta >= found.thresholds)[found.verdict == "edge"].all()


def test_models_that_find_half_of_a_planted_effect_have_twice_the_limit() -> None:
    delta = np.zeros((1, 40))
    whole, half = (
        decide(_pooled(delta, 1e-6, efficiency=np.array([share])), _alone(40), ["v"] * 40, SETTINGS).limit[0]
        for share in (1.0, 0.5)
    )
    assert half == pytest.approx(2 * whole)


def test_nothing_is_claimed_of_a_target_that_was_not_measured() -> None:
    """Row 0 was not measured at all, row 1 on one fold although more were asked for, row 2 fully."""
    delta = np.array([[0.0, 0.0], [0.004, 0.5], [0.004, 0.5]])
    error = np.array([[0.0, 0.0], [0.001, 0.001], [0.001, 0.001]])
    tested = np.array([[0, 0], [2, 2], [2, 2]])
    limit_error = np.array([np.inf, 0.001, 0.001])
    pooled = _pooled(delta, error, tested=tested, limit_error=limit_error, settled=np.array([False, False, True]))
    found = decide(pooled, _alone(2), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["undecided"] * 2, ["undecided", "edge"], ["edge", "edge"]]
    assert found.reason[:2].tolist() == [[UNSETTLED] * 2, [UNSETTLED, ""]]
    assert found.settled.tolist() == [[False, False], [False, True], [True, True]]
    assert not found.edge[0].any() and np.isnan(found.limit[0]) and np.isfinite(found.limit[1:]).all()


# Inputs that hardly vary apart


def test_needed_together_but_neither_alone() -> None:
    bundled = np.array([[50.0, 50.0, 0.0, 0.0]])
    found = decide(_pooled([0.001, 0.0005, 0.0, 0.2], bundled=bundled), np.array([0, 0, -1, -1]), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["undecided", "undecided", "none", "edge"]]
    assert found.reason[0, 0] == "hardly varies by itself: goes with y"
    assert found.reason[0, 1] == "hardly varies by itself: goes with x"


def test_one_that_stands_out_is_the_cause() -> None:
    bundled = np.array([[50.0, 50.0, 0.0, 0.0]])
    found = decide(_pooled([0.2, 0.0, 0.0, 0.0], bundled=bundled), np.array([0, 0, -1, -1]), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["edge", "none", "none", "none"]]


def test_two_that_cannot_stand_in_for_each_other_are_both_causes() -> None:
    bundled = np.array([[50.0, 50.0, 0.0, 0.0]])
    found = decide(_pooled([0.02, 0.01, 0.0, 0.0], bundled=bundled), np.array([0, 0, -1, -1]), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["edge", "edge", "none", "none"]]


def test_a_small_effect_beside_the_large_one_of_its_mate_is_in_doubt() -> None:
    bundled = np.array([[50.0, 50.0, 0.0, 0.0]])
    found = decide(_pooled([0.2, 0.01, 0.0, 0.0], bundled=bundled), np.array([0, 0, -1, -1]), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["edge", "undecided", "none", "none"]]
    assert found.reason[0, 1] == "hardly varies by itself: goes with x"


def test_a_bundle_that_nobody_needs() -> None:
    bundled = np.array([[0.5, 0.5, 0.0, 0.0]])
    found = decide(_pooled([0.0, 0.0, 0.0, 0.2], bundled=bundled), np.array([0, 0, -1, -1]), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["none", "none", "none", "edge"]]


# Folds together


def _pool(found: list[list[dict[str, np.ndarray]]], inputs: int, asked: list[int]) -> Pooled:
    """Targets of one part each."""
    return pool(found, np.eye(len(found)), inputs, [len(parts) >= n for parts, n in zip(found, asked)])


def _part(
    delta: list[float], stderr: float = 0.01, shadows: float = 0.0, tested: int = 2, planted: float = 0.02
) -> Parts:
    J = len(delta)
    return {
        "delta": np.array(delta), "stderr": np.full(J, stderr), "tested": np.full(J, tested), "bundled": np.zeros(J),
        "bundled_stderr": np.zeros(J), "shadows": np.array([[shadows, stderr], [-shadows, stderr]]),
        "planted": np.array([planted, stderr, 0.02]), "loss": np.ones(4), "unfitted": np.zeros(()),
        "follows": np.array(-1),
    }  # fmt: skip


def test_folds_are_averaged_and_their_errors_shrink() -> None:
    found = _pool([[_part([0.205, 0.0]), _part([0.195, 0.0]), _part([0.2, 0.0])]], 2, [3])
    assert found.delta.tolist() == [[pytest.approx(0.2), 0.0]] and found.settled.all()
    assert found.error == pytest.approx(0.01 / np.sqrt(3)) and found.z[0, 0] == pytest.approx(20 * np.sqrt(3))
    assert found.efficiency.tolist() == [1.0]


def test_folds_that_lie_apart_raise_the_error_of_that_cell() -> None:
    """Three means of 0.3, 0.1 and 0.2 deviate by 0.1 each, ten of their errors: two degrees of freedom with a hundred
    squared errors each, and four with one."""
    found = _pool([[_part([0.3, 0.0]), _part([0.1, 0.0]), _part([0.2, 0.0])]], 2, [3])
    usual = 0.01 / np.sqrt(3)
    assert found.error[0] == pytest.approx([usual * np.sqrt((2 * 100 + 4) / 6), usual])


def test_only_the_cells_that_were_asked_again_are_averaged() -> None:
    first, second = _part([0.3, 0.035]), _part([0.0, 0.04])
    second["tested"] = np.array([0, 2])
    found = _pool([[first, second]], 2, [2])
    assert found.delta[0] == pytest.approx([0.3, 0.0375])
    assert found.error[0] == pytest.approx([0.01, 0.01 / np.sqrt(2)])


@pytest.mark.parametrize(("left", "misfit"), [(1.0, 0.0), (1e-2, 0.0), (1e-4, MISFIT / 2), (1e-8, MISFIT)])
def test_where_there_is_no_noise_misfit_is_an_error_that_rows_do_not_lessen(left: float, misfit: float) -> None:
    part = _part([0.3, 0.0], stderr=1e-6)
    part["loss"] = np.array([left, 1.0, 20_000, left])
    found = _pool([[part, part, part]], 2, [3])
    assert found.error == pytest.approx(misfit, abs=3e-5)
    assert found.limit_error[0] == pytest.approx(misfit, abs=3e-5)


@pytest.mark.parametrize(("unfitted", "rows", "error"), [(0.09, 20_000, 0.0), (0.4, 20_000, 0.1), (0.4, 500, 0.0)])
def test_what_more_rows_make_smaller_is_no_noise(unfitted: float, rows: int, error: float) -> None:
    """A quarter of what twice the rows gain is doubt, unless rows are few: then more of them help anything."""
    part = _part([0.3, 0.0], stderr=1e-6)
    part["loss"], part["unfitted"] = np.array([0.01, 1.0, rows, 0.01]), np.array(unfitted)
    assert _pool([[part, part, part]], 2, [3]).error == pytest.approx(error, abs=3e-5)


def test_doubt_that_comes_from_misfit_says_so() -> None:
    """0.16 nats: two errors of a target without noise, and far more than enough of one with noise."""
    exact, noisy = _part([0.16, 0.0], stderr=1e-3), _part([0.16, 0.0025], stderr=1e-3)
    exact["loss"] = np.array([1e-8, 1.0, 20_000, 1e-8])
    found = decide(_pool([[exact], [noisy]], 2, [1, 1]), _alone(2), NAMES, SETTINGS)
    assert found.verdict.tolist() == [["undecided", "none"], ["edge", "undecided"]]
    assert found.reason.tolist() == [["smaller than what models do not fit", ""], ["", "near the threshold"]]


@pytest.mark.parametrize(
    ("delta", "verdict"),
    [(0.0, "none"), (-0.1, "none"), (0.003, "none"), (0.06, "undecided"), (0.2, "undecided"), (1.0, "edge")],
)
def test_an_effect_hidden_by_misfit_is_not_ruled_out(delta: float, verdict: str) -> None:
    """Below or little above the error of a target without noise (0.08 nats), far above the rest of that error."""
    exact = _part([delta, 5.0], stderr=5e-3)
    exact["loss"] = np.array([1e-8, 1.0, 20_000, 1e-8])
    assert decide(_pool([[exact]], 2, [1]), _alone(2), NAMES, SETTINGS).verdict[0, 0] == verdict


def test_a_follower_is_no_sure_cause_of_a_law_that_is_not_fitted() -> None:
    exact, noisy = _part([5.0, 5.0], stderr=1e-3), _part([5.0, 5.0], stderr=1e-3)
    exact["loss"] = np.array([1e-8, 1.0, 20_000, 1e-8])
    pooled = _pool([[exact], [noisy]], 2, [1, 1])
    assert decide(pooled, _alone(2), NAMES, SETTINGS).verdict.tolist() == [["edge", "edge"]] * 2
    found = decide(pooled, _alone(2), NAMES, SETTINGS, redundant={1: 0})
    assert found.verdict.tolist() == [["edge", "undecided"], ["edge", "edge"]]
    assert found.reason[0, 1] == f"hardly varies by itself: goes with {NAMES[0]}"


def test_shadows_that_scatter_more_than_their_errors_raise_every_error() -> None:
    quiet, loud = (_pool([[_part([0.1, 0.0], shadows=s)]], 2, [1]) for s in (0.0, 0.05))
    assert quiet.error == pytest.approx(0.01)
    assert (loud.error > 0.03).all() and loud.limit_error[0] > 3 * quiet.limit_error[0]


def test_a_quiet_target_leans_on_the_shadows_of_others() -> None:
    quiet = [_part([0.1, 0.0])]
    alone, beside = _pool([quiet], 2, [1]), _pool([quiet, [_part([0.1, 0.0], shadows=0.05)]], 2, [1, 1])
    assert (beside.error[0] > alone.error[0]).all() and (beside.error[1] > beside.error[0]).all()


def test_targets_without_evidence() -> None:
    found = _pool([[], [_part([0.1, 0.0])]], 2, [1, 3])
    assert not found.error[0].any() and not found.tested[0].any() and np.isinf(found.limit_error[0])
    assert found.settled.tolist() == [False, False]


@pytest.mark.parametrize("planted", [0.0, 0.01, 0.02, 5.0])
def test_the_share_of_a_planted_effect_that_is_found(planted: float) -> None:
    found = _pool([[_part([0.1], planted=planted)]], 1, [1])
    assert found.efficiency[0] == pytest.approx(np.clip(planted / 0.02, 0.1, 1.0))


def test_another_fold_is_asked_where_it_is_close() -> None:
    """Errors of 0.001."""
    pooled = _pooled([[0.5, 0.003, 0.0001, 0.003], [0.5, 0.5, -0.5, 0.5]])
    assert open_cells(pooled) == [[1, 3], []]
    tested = np.array([[2, 0, 2, 2], [2, 2, 2, 2]])
    assert open_cells(replace(pooled, tested=tested)) == [[3], []]


# Parts together


def test_nats_of_parts_add_up_by_their_share_of_the_rows() -> None:
    whether, how = _part([0.1, 0.0]), _part([0.0, 0.4])
    found = pool([[whether], [how]], np.array([[1.0, 0.25]]), 2, [True, True])
    assert found.delta[0] == pytest.approx([0.1, 0.1])
    assert found.error[0] == pytest.approx(0.01 * np.sqrt(1 + 0.25**2))
    assert found.settled.tolist() == [True]


def test_targets_may_share_a_part_and_wait_for_all_of_theirs() -> None:
    share = np.array([[1.0, 0.5, 0.0], [1.0, 0.0, 0.5]])
    found = pool([[_part([0.1, 0.0])], [_part([0.0, 0.2])], []], share, 2, [True, True, False])
    assert found.delta.tolist() == [pytest.approx([0.1, 0.1]), pytest.approx([0.1, 0.0])]
    assert found.settled.tolist() == [True, False] and not found.error[1].any()


def test_the_part_that_shows_a_cause_speaks_for_the_target() -> None:
    """A quarter of the rows say clearly what the loud rest says nothing of; the chance of two looks is counted."""
    whether, how = _part([0.0, 0.0, 0.9], stderr=0.02), _part([0.2, 0.01, 0.1], stderr=0.01)
    whether["loss"] = how["loss"] = np.array([1.0, 1.0, 10_000.0, 1.0])
    share = np.array([[1.0, 0.25]])
    found = pool([[whether], [how]], share, 3, [True, True])
    assert found.delta[0, 0] == pytest.approx(0.25 * 0.2)
    p = 2 * stats.t.sf(20.0, DEGREES)
    assert found.z[0, 0] == pytest.approx(stats.t.isf(p, DEGREES)) and found.z[0, 0] < 20
    assert found.delta[0, 1:] == pytest.approx([0.25 * 0.01, 0.9 + 0.25 * 0.1]), "of no part alone, and of the sum"
    assert decide(found, _alone(3), NAMES, SETTINGS).verdict.tolist() == [["edge", "none", "edge"]]
    assert found.limit_error[0] > 0.02, "what may be ruled out is a matter of all parts"
