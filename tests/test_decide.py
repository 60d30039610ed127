"""Verdicts from CMI: the paper's threshold and the calibrated one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cbm.discovery.decide import above_shadows, calibrated_thresholds, decide_networks
from cbm.discovery.models.candidates import CandidateSets
from cbm.discovery.settings import NORMAL, SHADOW_DEVIATIONS, STANDARD_ERRORS, Settings

SETTINGS = Settings()
PAPER = replace(SETTINGS, rule="threshold")
SHARE = SETTINGS.strongest_share
ONE = np.ones(1)  # an input of one column
LOW, HIGH = SETTINGS.smallest_effect, 2 * SETTINGS.epsilon


def test_the_papers_rule_is_a_bare_threshold() -> None:
    cmi = np.array([[0.019999, 0.02, 0.020001], [-1.0, 0.0, 5.0]])
    found = decide_networks(cmi, np.full((2, 3), 10.0), np.full((2, 2), np.nan), PAPER)
    assert found.edge.tolist() == [[False, True, True], [False, False, True]]
    assert np.array_equal(found.verdict == "edge", found.edge) and not (found.verdict == "undecided").any()
    assert (found.thresholds == 0.02).all()
    assert np.array_equal(found.cmi, cmi)
    wide = decide_networks(cmi, np.zeros((2, 3)), np.zeros((2, 0)), replace(PAPER, epsilon=1.0))
    assert wide.edge.sum() == 1 and (wide.thresholds == 1.0).all()


def test_doubt_may_count_against_an_effect_or_for_it() -> None:
    """Threshold LOW; the standard error is four times as large."""
    cmi, stderr = LOW * np.array([[0.9, 5, -0.1, 0.1]]), np.full((1, 4), 4 * LOW)
    null, strongest = np.zeros((1, 3)), np.array([LOW])
    assert decide_networks(cmi, stderr, null, SETTINGS, strongest, sure=0).edge.tolist() == [
        [False, True, False, False]
    ]
    assert decide_networks(cmi, stderr, null, SETTINGS, strongest, sure=2).edge.tolist() == [
        [False, False, False, False]
    ]
    lenient = decide_networks(cmi, stderr, null, SETTINGS, strongest, sure=0, lenience=0.2)
    assert lenient.edge.tolist() == [[True, True, False, False]]
    assert (lenient.thresholds == LOW).all() and np.array_equal(lenient.cmi, cmi)
    assert decide_networks(cmi, stderr, null, SETTINGS, strongest, sure=0, lenience=0.3).edge.tolist() == [
        [True, True, True, True]
    ]


def test_quiet_shadows_leave_the_smallest_effect() -> None:
    strongest = np.full(2, 0.01)
    assert np.allclose(calibrated_thresholds(strongest, np.zeros((2, 4)), SETTINGS, ONE), LOW)
    assert np.allclose(calibrated_thresholds(strongest, np.zeros((2, 0)), SETTINGS, ONE), LOW)  # no shadow at all
    lower = replace(SETTINGS, smallest_effect=1e-4)
    assert np.allclose(calibrated_thresholds(np.full(2, 1e-3), np.zeros((2, 4)), lower, ONE), 1e-4)


def test_loud_shadows_never_raise_it_above_twice_epsilon() -> None:
    assert np.allclose(calibrated_thresholds(np.zeros(2), np.full((2, 4), 0.5), SETTINGS, ONE), HIGH)
    assert np.allclose(calibrated_thresholds(np.full(2, 100.0), np.zeros((2, 4)), SETTINGS, ONE), HIGH)


def test_threshold_follows_the_scatter_of_the_shadows() -> None:
    """Half from the target's own, half from that of a typical target; one with wild shadows is left alone."""
    null = np.array([[1e-3, -1e-3, 1e-3], [2e-3, 2e-3, -2e-3], [5.0, 5.0, 5.0]])
    expected = SHADOW_DEVIATIONS * NORMAL * np.sqrt((np.array([1e-3, 2e-3]) ** 2 + 2e-3**2) / 2)
    assert (expected > LOW).all() and (expected < HIGH).all()
    assert np.allclose(calibrated_thresholds(np.zeros(3), null, SETTINGS, ONE)[:, 0], [*expected, HIGH])


def test_shadows_say_more_of_inputs_with_more_columns() -> None:
    """Four columns imagine four times as much; the share of the strongest cause is the same."""
    quiet = np.array([1e-3, -1e-3, 1e-3])[None]
    found = decide_networks(np.zeros((1, 2)), np.zeros((1, 2)), quiet, SETTINGS, breadth=np.array([1.0, 4.0]))
    assert np.allclose(found.thresholds, SHADOW_DEVIATIONS * NORMAL * 1e-3 * np.array([[1, 4]]))
    found = decide_networks(np.array([[2.0, 0.0]]), np.zeros((1, 2)), quiet, SETTINGS, breadth=np.array([1.0, 4.0]))
    assert np.allclose(found.thresholds, SHARE * 2)


def test_threshold_follows_the_strongest_cause() -> None:
    cmi = np.array([[0.0, 1.2, 0.3], [0.01, 0.02, 0.03], [-3.0, -1.0, -2.0]])
    found = decide_networks(cmi, np.zeros((3, 3)), np.zeros((3, 2)), SETTINGS)
    assert np.allclose(found.thresholds[:, 0], [SHARE * 1.2, LOW, LOW])
    found = decide_networks(cmi, np.zeros((3, 3)), np.zeros((3, 2)), SETTINGS, strongest=np.array([2.0, 1.0, 0.0]))
    assert np.allclose(found.thresholds[:, 0], [SHARE * 2, SHARE, LOW])


def test_undecided_within_two_standard_errors_of_the_threshold() -> None:
    assert STANDARD_ERRORS == 2
    stderr = np.full((1, 5), 1e-4)
    cmi = LOW + np.array([[-2.1e-4, -1.9e-4, 1e-6, 1.9e-4, 2.1e-4]])
    found = decide_networks(cmi, stderr, np.zeros((1, 3)), SETTINGS)
    assert found.verdict[0].tolist() == ["none", "undecided", "undecided", "undecided", "edge"]
    assert found.edge[0].tolist() == [False, False, True, True, True]
    assert (found.thresholds == LOW).all() and found.thresholds.shape == cmi.shape


def test_an_effect_must_exceed_three_of_its_standard_errors() -> None:
    found = decide_networks(np.full((1, 2), 0.03), np.array([[0.009, 0.011]]), np.zeros((1, 3)), SETTINGS)
    assert found.edge.tolist() == [[True, False]] and np.allclose(found.thresholds, [[0.027, 0.033]])


def test_each_row_is_judged_by_its_own_threshold() -> None:
    cmi = np.array([[1.1 * SHARE, 1.0], [1.1 * SHARE, 2 * SHARE]])
    found = decide_networks(cmi, np.zeros((2, 2)), np.zeros((2, 3)), SETTINGS)
    assert found.verdict.tolist() == [["edge", "edge"], ["edge", "edge"]]
    found = decide_networks(cmi * [[0.99, 2], [1, 1]], np.zeros((2, 2)), np.zeros((2, 3)), SETTINGS)
    assert found.verdict.tolist() == [["none", "edge"], ["edge", "edge"]]


def test_cmi_is_taken_relative_to_a_typical_shadow() -> None:
    cmi = np.array([[0.5, 0.1, 0.1, 0.3, 0.2], [1.0, 0.0, -0.1, 0.0, 9.0]])
    assert np.allclose(above_shadows(cmi, 2), cmi - [[0.2], [0.0]])
    assert np.array_equal(above_shadows(cmi, 5), cmi)


@pytest.mark.filterwarnings("error")
def test_no_targets_and_no_shadows_are_fine() -> None:
    for settings in (SETTINGS, PAPER):
        found = decide_networks(np.zeros((0, 4)), np.zeros((0, 4)), np.zeros((0, 0)), settings)
        assert found.edge.shape == found.verdict.shape == (0, 4)


def test_second_look_is_relative_to_its_shadows() -> None:
    """Inputs 0 and 1 are real, 2 and 3 shadows. One that harms lifts nothing; two columns imagine twice as much."""
    slots = CandidateSets(np.array([[0, 2, 3]]), action=1)
    seen = np.array([[0.5, 0.004, -0.2, 0.3]])
    assert slots.above_shadows(seen, np.array([1.0, 2.0])) == pytest.approx(np.array([[0.498, 0.002, -0.202, 0.296]]))
