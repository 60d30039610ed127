"""Refits without an input: nats as the formula of a linear-Gaussian target gives them, and nothing without effect."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.discovery.evidence import nats_lost
from cbm.discovery.forms import Structure
from cbm.discovery.refit import Refits
from cbm.discovery.settings import BEYOND, FLOOR
from cbm.discovery.split import Rows
from cbm.discovery.trees import Trees

ROWS, INPUTS = 12_000, 4
OWNER = np.stack([np.arange(INPUTS)] * 2, 1)


def _rows(count: int = ROWS) -> Rows:
    part = np.arange(count) % 9
    return Rows(np.flatnonzero(part < 5), np.flatnonzero(part == 5), np.flatnonzero(part > 5))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, INPUTS))


def _refits(x: np.ndarray, y: np.ndarray, structure: Structure | None = None) -> Refits:
    y = y.reshape(len(x), -1)
    return Refits(x, OWNER, (y - y.mean(0)) / y.std(0), list(range(INPUTS)), _rows(len(x)), structure)


def _nats(refits: Refits, *hidden: int) -> float:
    return 0.5 * float(np.log((refits.without(set(hidden)).mean() + FLOOR) / (refits.full.mean() + FLOOR)))


@pytest.mark.parametrize("effect", [0.3, 1.0, 3.0])
def test_linear_gaussian_nats(x: np.ndarray, effect: float) -> None:
    """1/2 log(1 + effect² / noise²); the other input changes nothing about it."""
    noise = np.random.default_rng(1).normal(size=ROWS)
    refits = _refits(x, effect * x[:, 0] + 0.7 * x[:, 1] + noise)
    expected = 0.5 * np.log1p(effect**2)
    assert _nats(refits, 0) == pytest.approx(expected, abs=0.02 * max(1.0, expected))
    assert _nats(refits, 0, 1) == pytest.approx(0.5 * np.log1p(effect**2 + 0.49), rel=0.05)
    for useless in (2, 3):
        assert abs(_nats(refits, useless)) < 0.01


def test_an_exact_law_loses_everything(x: np.ndarray) -> None:
    refits = _refits(x, 2 * x[:, 0] - x[:, 3])
    assert refits.full.mean() < 10 * FLOOR
    assert _nats(refits, 0) > 8 and _nats(refits, 3) > 8
    assert abs(_nats(refits, 1)) < 1e-3, "nothing is left that an input could improve"


def test_noise_needs_no_input(x: np.ndarray) -> None:
    refits = _refits(x, np.random.default_rng(2).normal(size=ROWS))
    assert all(abs(_nats(refits, j)) < 0.01 for j in range(INPUTS))


@pytest.mark.parametrize("law", ["product", "thresholds"])
def test_interactions(x: np.ndarray, law: str) -> None:
    """Neither input tells anything alone; without either, all is lost."""
    noise = np.random.default_rng(3).normal(size=ROWS)
    signal = x[:, 0] * x[:, 1] if law == "product" else np.sign(x[:, 0]) * np.sign(x[:, 1])
    refits = _refits(x, signal + 0.5 * noise)
    chosen = refits.structure
    assert (chosen.order >= 2 or chosen.index) if law == "product" else chosen.rounds > 0
    for j in (0, 1):
        assert _nats(refits, j) > 0.7 * 0.5 * np.log1p(4)
    for j in (2, 3):
        assert _nats(refits, j) < 0.01


@pytest.mark.parametrize("link", ["linear", "tanh", "near"])
def test_functions_of_a_distance(x: np.ndarray, link: str) -> None:
    """Without either end of the distance nearly all is lost, and a useless input is worth nothing."""
    distance = np.hypot(x[:, 0] - x[:, 1], x[:, 2])
    near = np.where(distance < 0.5, 1.0, 0.0)
    refits = _refits(x, {"linear": -distance, "tanh": -np.tanh(2 * distance), "near": near - distance}[link])
    assert refits.structure.index and np.median(refits.full) < 1e-3
    assert min(_nats(refits, j) for j in (0, 1, 2)) > 1.0
    assert _nats(refits, 3) < 0.1


def test_trees_predict_nothing_beyond_what_they_have_seen(x: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.where(x[:, 0] > 0.8, 2.0, 0.0) + 0.3 * np.random.default_rng(4).normal(size=ROWS)
    refits = _refits(x, y)

    class Steep:
        def predict(self, columns: np.ndarray, **_: object) -> np.ndarray:
            return 1e6 * columns[:, 0]

        def feature_importance(self, *_: object, **__: object) -> np.ndarray:
            return np.zeros(INPUTS)

    assert refits.trees is not None
    monkeypatch.setattr(refits.trees, "train", lambda *_, **__: (Steep(), 1))
    span = refits.y.max() - refits.y.min()
    assert np.sqrt(refits.without({1})).max() <= 2 * span


def test_closed_forms_hardly_leave_the_range_of_the_outcomes(x: np.ndarray) -> None:
    """Products of several inputs may be of any size where the inputs meet in a new way."""
    wild, rows = x.copy(), _rows()
    wild[rows.test[:3]] = 50.0
    refits = _refits(wild, x[:, 0] * x[:, 1] + x[:, 2])
    low, high = refits.y[refits.fit].min(), refits.y[refits.fit].max()
    told = (refits.y - refits.residual)[refits.test, 0]
    assert low - BEYOND * (high - low) <= told.min() and told.max() <= high + BEYOND * (high - low)
    assert np.median(refits.full) < 1e-6, "elsewhere the law is exact"


def test_the_structure_of_another_fold_is_taken_as_it_is(x: np.ndarray) -> None:
    rng = np.random.default_rng(4)
    y = np.where(x[:, 0] > 0.8, 2.0, 0.0) + 0.3 * rng.normal(size=ROWS)
    chosen = _refits(x, y)
    again = _refits(x, y, chosen.structure)
    assert again.structure == chosen.structure
    assert again.full == pytest.approx(chosen.full, rel=1e-9)
    plain = _refits(x, y, Structure(order=1, ridge=1e-8, rounds=0))
    assert plain.structure.rounds == 0 and plain.trees is None


def test_another_target_on_the_same_rows(x: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    y = x[:, 0] + rng.normal(size=ROWS)
    refits = _refits(x, y)
    other = refits.relabelled(refits.y + 0.5 * refits.columns[:, 2:3])
    assert _nats(other, 2) == pytest.approx(0.5 * np.log1p(0.25 * y.var()), rel=0.1)
    assert abs(_nats(refits, 2)) < 0.01, "the first is as it was"


def test_a_few_outliers_hide_nothing(x: np.ndarray) -> None:
    rng = np.random.default_rng(6)
    y = x[:, 0] + 0.5 * rng.normal(size=ROWS)
    y[::1500] += 50.0
    refits = _refits(x, y)
    assert _nats(refits, 0) > 0.4 and abs(_nats(refits, 1)) < 0.01


def test_levels_of_a_discrete_target_count_together(x: np.ndarray) -> None:
    rng = np.random.default_rng(7)
    level = (x[:, 0] > 0.5).astype(int) + (x[:, 0] > -0.5)
    seen = np.where(rng.random(ROWS) < 0.2, rng.integers(3, size=ROWS), level)
    refits = Refits(x, OWNER, np.eye(3)[seen], list(range(INPUTS)), _rows())
    assert refits.full.shape == (len(_rows().test),)
    assert _nats(refits, 0) > 0.2 and abs(_nats(refits, 1)) < 0.005


def test_trees_leave_out_what_is_hidden(x: np.ndarray) -> None:
    rows = _rows()
    trees = Trees(x, OWNER, rows.fit, rows.kept)
    label = np.where(x[:, 0] > 0, 1.0, -1.0) + 0.2 * np.random.default_rng(8).normal(size=ROWS)
    seen, rounds = trees.train(label, set(), 40, watch=True)
    assert 0 < rounds <= 40 * trees.steps and seen.feature_importance("gain")[0] > 0
    blind, _ = trees.train(label, {0}, 5, watch=False)
    assert blind.feature_importance("gain")[0] == 0


def test_errors_are_those_of_clusters() -> None:
    """Rows that repeat each other tenfold say no more than one of them; the error of a log-ratio, to first order."""
    rng = np.random.default_rng(9)
    full, without = rng.chisquare(3, 300), 1.5 * rng.chisquare(3, 300)
    nats, error = nats_lost(full, without, np.arange(300))
    assert nats == pytest.approx(0.5 * np.log(without.mean() / full.mean()))
    linear = 0.5 * (without / without.mean() - full / full.mean())
    assert error == pytest.approx(linear.std(ddof=1) / np.sqrt(300), rel=0.02)
    more, less = np.repeat(full, 10), np.repeat(without, 10)
    assert nats_lost(more, less, np.repeat(np.arange(300), 10))[1] == pytest.approx(error)
    assert nats_lost(more, less, np.arange(3000))[1] < 0.4 * error


# Stand-ins


def _against_stand_in(refits: Refits, j: int) -> float:
    full, without = list(refits.challenged(j))[-1]
    return 0.5 * float(np.log((without.mean() + FLOOR) / (full.mean() + FLOOR)))


def test_what_goes_with_a_cause_helps_a_poor_model_and_so_does_its_stand_in(x: np.ndarray) -> None:
    """A wave that the closed form cannot follow; input 1 is a noisy copy of the cause and knows nothing else."""
    rng = np.random.default_rng(3)
    twin = x.copy()
    twin[:, 1] = x[:, 0] + 0.1 * rng.normal(size=ROWS)
    refits = _refits(twin, np.sin(12 * x[:, 0]) + 2 * x[:, 0] + 0.1 * rng.normal(size=ROWS), Structure(1))
    alone, against = _nats(refits, 1), _against_stand_in(refits, 1)
    assert alone > 0.008 and against < 0.5 * alone


@pytest.mark.parametrize("structure", [Structure(1), Structure(0, 1e-8, 40)])
def test_a_cause_is_worth_more_than_its_stand_in(x: np.ndarray, structure: Structure) -> None:
    rng = np.random.default_rng(4)
    related = x.copy()
    related[:, 1] = 0.8 * x[:, 0] + 0.6 * x[:, 1]
    refits = _refits(related, related[:, 0] + 0.4 * related[:, 1] + rng.normal(size=ROWS), structure)
    assert _against_stand_in(refits, 1) > 0.8 * _nats(refits, 1) > 0.01


def test_a_stand_in_goes_with_the_others_and_takes_its_differences_along(x: np.ndarray) -> None:
    related = x.copy()
    related[:, 1] = 0.8 * x[:, 0] + 0.6 * x[:, 1]
    columns = np.column_stack([related, related[:, 0] / 2 - related[:, 1] / 3])
    owner = np.concatenate([OWNER, [[0, 1]]])
    refits = Refits(columns, owner, x[:, :1], list(range(INPUTS)), _rows(), Structure(1))
    found = refits._stand_in(1, np.zeros_like(refits.y))
    kept = [0, 2, 3]
    assert np.array_equal(found[:, kept], refits.columns[:, kept])
    assert np.corrcoef(found[:, 0], found[:, 1])[0, 1] == pytest.approx(0.8, abs=0.02)
    assert abs(np.corrcoef(found[:, 1] - 0.8 * found[:, 0], refits.columns[:, 1] - 0.8 * found[:, 0])[0, 1]) < 0.05
    assert found[:, 4] == pytest.approx(found[:, 0] / 2 - found[:, 1] / 3, abs=1e-6)


def test_trees_in_smaller_steps_need_no_guide() -> None:
    """The product of two signs, which trees find hard to begin with; input 2 goes with it and knows nothing else."""
    rng = np.random.default_rng(11)
    x = rng.normal(size=(20_000, 4))
    product = np.sign(x[:, 0]) * np.sign(x[:, 1])
    x[:, 2] = 0.25 * product + rng.normal(size=len(x))
    y = product + 0.3 * rng.normal(size=len(x))
    rows = Rows(*np.split(np.arange(len(x)), [12_000, 14_000]))
    refits = Refits(x, np.stack([np.arange(4)] * 2, 1), y[:, None], [0, 1, 2, 3], rows, trees_only=True)
    full, without = next(iter(refits.challenged(2)))
    hasty = 0.5 * np.log(refits.without({2}).mean() / refits.full.mean())
    careful = 0.5 * np.log(without.mean() / full.mean())
    assert careful < 0.005 and careful < max(hasty, 0.005)
    full, without = next(iter(refits.challenged(0)))
    assert 0.5 * np.log(without.mean() / full.mean()) > 0.5, "a cause stays one"


# New rows outside the range of the fitted ones


def test_few_rows_outside_what_was_fitted_are_left_out_and_many_are_not() -> None:
    x = np.linspace(-1, 1, 1000)[:, None]
    fit, new = np.arange(20, 980), np.r_[np.arange(0, 400), np.arange(600, 1000)]
    rows = Rows(fit, fit, new).inside(x)
    assert np.array_equal(rows.test, new[20:-20]) and np.array_equal(rows.kept, fit)
    drifting = Rows(fit[:500], fit, new).inside(x)
    assert np.array_equal(drifting.test, new)


# Limits


def test_what_is_cut_off_at_a_limit_is_a_bend_of_a_sum() -> None:
    """A tank that is filled by a difference of two flows: full and empty are functions of a sum."""
    rng = np.random.default_rng(12)
    x = rng.uniform(-1, 1, (6000, 4))
    level = x[:, 0]
    change = np.clip(level + 0.4 * (x[:, 1] - x[:, 2]), -1, 1) - level
    rows = Rows(*np.split(np.arange(len(x)), [3600, 4200]))
    owner = np.stack([np.arange(4)] * 2, 1)
    found = [Refits(x, owner, change[:, None], [0, 1, 2, 3], rows, before=b) for b in (None, level)]
    assert found[1].structure.bent and found[1].full.mean() < 0.6 * found[0].full.mean()
    assert _nats(found[1], 1) > 1 and _nats(found[1], 2) > 1 and _nats(found[1], 3) < 0.02


def test_a_distance_is_followed_closely(x: np.ndarray) -> None:
    """Leaves that hold a slope: steps alone would leave several times as much over."""
    refits = _refits(x, np.hypot(x[:, 0], x[:, 1]))
    assert refits.full.mean() < 0.01
    assert all(_nats(refits, j) > 1.5 for j in (0, 1))


def test_half_the_rows_fit_the_same_target(x: np.ndarray) -> None:
    """Outliers are drawn in once: noise with heavy tails is no misfit that more rows would mend."""
    noise = np.random.default_rng(6).standard_t(1.5, ROWS)
    refits = _refits(x, x[:, 0] + noise)
    full, half = refits.fitted_to(np.arange(len(refits.fit)) % 2 == 0)
    assert full.shape == half.shape
    assert abs(0.5 * np.log(half.mean() / full.mean())) < 0.02


@pytest.mark.parametrize("driver", [0, 1])
def test_what_an_input_has_of_its_own(driver: int) -> None:
    """Two sensors of one quantity that hardly differ: only what one has of its own tells which of them acts."""
    rng = np.random.default_rng(7)
    quantity = rng.normal(size=ROWS)
    sensors = quantity[:, None] + 0.02 * rng.normal(size=(ROWS, 2))
    columns = np.concatenate([sensors, rng.normal(size=(ROWS, 2))], 1)
    refits = _refits(columns, np.sin(2 * columns[:, driver]) + 0.1 * rng.normal(size=ROWS))
    cluster = np.arange(len(refits.test)) // 20
    nats = {j: nats_lost(*refits.with_own_variation(j, cluster), cluster) for j in (0, 1)}
    delta, stderr = nats[driver]
    assert delta > 6 * stderr
    delta, stderr = nats[1 - driver]
    assert delta < 3 * stderr
    full, without = refits.with_own_variation(driver, np.zeros(len(refits.test), int))  # one episode: no half to test
    assert np.array_equal(full, without)
