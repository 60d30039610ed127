"""The first look at all inputs: least squares for all targets at once, and inputs that hardly vary apart."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.dataset import Dataset, dynamics_dataset
from cbm.discovery.last_action import last_actions
from cbm.discovery.part import Part
from cbm.discovery.regression import Basis
from cbm.discovery.screen import additive, tree_gains
from cbm.discovery.settings import Settings
from cbm.discovery.split import rows_of
from cbm.discovery.trees import Trees

EPISODES, STEPS = 100, 40
SETTINGS = Settings()
Rng = np.random.Generator


def _log(step: Callable[[np.ndarray, np.ndarray, Rng], list[np.ndarray]], names: str) -> Transitions:
    rng, d = np.random.default_rng(0), len(names.split())
    start = rng.normal(size=(EPISODES, d))
    state, rows = np.stack(step(start, rng.uniform(-1, 1, (EPISODES, 2)), rng), 1), []  # what goes together does so
    for _ in range(STEPS):
        action = rng.uniform(-1, 1, (EPISODES, 2))
        after = np.stack(step(state, action, rng), 1)
        rows.append((state, action, after))
        state = after
    obs, act, following = (np.stack(part, 1).reshape(EPISODES * STEPS, -1) for part in zip(*rows, strict=True))
    variables = tuple(Variable(name) for name in names.split())
    episode = np.repeat(np.arange(EPISODES), STEPS)
    return Transitions(obs, act, following, Factors(variables, ("a0", "a1")), episode=episode)


def _dataset(data: Transitions, last_action: str = "off") -> Dataset:
    rows, last = last_actions(data, last_action)
    return dynamics_dataset(rows, SETTINGS, 0, last)[0]


@pytest.fixture(scope="module")
def plain() -> Dataset:
    """x follows y, y the action, z a bent function of both; w and v are noise."""

    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        x, y = s[:, 0], s[:, 1]
        noise = rng.normal(size=(5, len(s)))
        return [y + noise[0], a[:, 0] + noise[1], np.abs(x) + 0.5 * y + noise[2], noise[3], noise[4]]

    return _dataset(_log(step, "x y z w v"))


def test_effects_stand_out_and_nothing_else_does(plain: Dataset) -> None:
    found = additive(plain, np.flatnonzero(plain.fold != 0))
    true = np.zeros((5, plain.inputs), bool)
    true[0, 1] = true[1, 5] = true[2, 0] = true[2, 1] = True
    wald = found.wald[:, : plain.inputs]
    assert wald[true].min() > 20
    absent = np.concatenate([wald[~true], found.wald[:, plain.inputs :].ravel()])
    assert abs(absent.mean()) < 0.3 and 0.7 < absent.std() < 1.4 and absent.max() < 5
    assert (found.bundle == -1).all() and np.array_equal(found.grouped, found.wald)


def test_residuals_are_those_of_least_squares(plain: Dataset) -> None:
    rows = np.flatnonzero(plain.fold != 0)
    found = additive(plain, rows)
    basis = Basis.fit(plain.columns[rows], np.stack([plain.owner, plain.owner], 1))
    known = plain.columns[rows]
    columns = np.clip(plain.columns, known.min(0), known.max(0))  # curves are not continued beyond what was seen
    features = np.column_stack([basis.features(columns)[0], np.ones(len(plain.y))])
    expected = plain.y - features @ np.linalg.lstsq(features[rows], plain.y[rows], rcond=None)[0]
    assert found.residual == pytest.approx(expected, abs=1e-4)


def test_rows_beyond_the_training_rows_are_moved_to_their_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow variables wander: new episodes are elsewhere, in more rows than may be left out."""
    monkeypatch.setattr("cbm.discovery.split.MOST_OUTSIDE", 0.05)

    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        return [s[:, k] + rng.normal(size=len(s)) for k in range(24)]

    wandering = _log(step, " ".join(f"v{k}" for k in range(24)))
    few = _dataset(wandering.select(np.flatnonzero(wandering.episode < 12)))
    part = Part(few, additive(few, np.flatnonzero(few.fold != 0)), 0, 0, 0, True)
    known, new = part.x[part.rows.fit], part.x[np.concatenate([part.rows.kept, part.rows.test])]
    assert len(part.rows.test) == (few.fold == 0).sum()
    assert (new >= known.min(0)).all() and (new <= known.max(0)).all()
    original = few.columns[part.rows.test][:, :24]
    assert 0 < (original != part.x[part.rows.test][:, :24]).any(1).mean() < 1


def test_two_nearly_equal_columns_are_one_bundle() -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        n = len(s)
        x = 0.8 * s[:, 0] + a[:, 0] + rng.normal(size=n)
        return [x, x + 1e-3 * rng.normal(size=n), s[:, 0] + rng.normal(size=n), rng.normal(size=n)]

    data = _dataset(_log(step, "x twin y w"))
    found = additive(data, np.flatnonzero(data.fold != 0))
    assert found.bundle[0] == found.bundle[1] >= 0
    assert (np.delete(found.bundle, [0, 1]) == -1).all()
    assert found.wald[2, :2].max() < 6 < found.grouped[2, 0] == found.grouped[2, 1], "only together they show"


def test_a_sum_of_others_joins_a_bundle() -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        n = len(s)
        x, y = 0.5 * s[:, 0] + a[:, 0] + rng.normal(size=n), rng.normal(size=n)
        return [x, y, x + y + 1e-3 * rng.normal(size=n), rng.normal(size=n)]

    data = _dataset(_log(step, "x y total w"))
    bundle = additive(data, np.flatnonzero(data.fold != 0)).bundle
    assert bundle[2] >= 0 and bundle[3] == -1 and bundle[2] in (bundle[0], bundle[1])


@pytest.mark.parametrize("use", ["on", "off"])
def test_what_repeats_the_last_action_goes_with_it(use: str) -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        n = len(s)
        return [2 * a[:, 0] - a[:, 1] + 3, a[:, 0] + rng.normal(size=n), rng.normal(size=n)]

    data = _dataset(_log(step, "shown noisy w"), use)
    found = additive(data, np.flatnonzero(data.fold != 0))
    assert (found.bundle == -1).all(), "what is always in view cannot take the place of anything"
    if use == "off":
        assert (found.shown == -1).all() and not found.repeats.any() and data.inputs == 4
    else:
        assert data.inputs == 5 and found.shown[0] == 4, "the input after the action is the one before it"
        assert (found.shown[1:] == -1).all() and found.repeats.tolist()[:3] == [True, False, False]


def test_readings_of_the_last_action_do_not_go_together_beside_it() -> None:
    """Each has a little noise of its own; two share theirs, and only these go together where the action is in view."""

    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        noise = 0.08 * rng.normal(size=(3, len(s)))
        told = 2 * a[:, 0] - a[:, 1]
        return [
            told + noise[0],
            told + noise[1],
            told + noise[2],
            told + noise[2] * (1 + 1e-3),
            rng.normal(size=len(s)),
        ]

    data = _dataset(_log(step, "one two three same w"), "on")
    found = additive(data, np.flatnonzero(data.fold != 0))
    assert found.shown[:5].tolist() == [6, 6, 6, 6, -1] and not found.repeats.any()
    assert found.bundle[2] == found.bundle[3] >= 0 and (found.bundle[[0, 1, 4, 5, 6]] == -1).all()


def test_what_never_varies_goes_with_nothing() -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        n = len(s)
        return [2 * a[:, 0] - a[:, 1] + 3, a[:, 0] + rng.normal(size=n), np.full(n, 0.4)]

    data = _dataset(_log(step, "shown noisy still"), "on")
    found = additive(data, np.flatnonzero(data.fold != 0))
    assert (found.bundle == -1).all() and found.shown[: data.inputs].tolist() == [4, -1, -1, -1, -1]


def test_trees_find_an_interaction_that_sums_cannot() -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        n = len(s)
        return [rng.normal(size=n), rng.normal(size=n), (s[:, 0] > 0.5) * (s[:, 1] > 0) + 0.1 * rng.normal(size=n),
                rng.normal(size=n)]  # fmt: skip

    data = _dataset(_log(step, "x y z w"))
    rows = rows_of(data, 0, 0)
    trees = Trees(data.columns, np.stack([data.owner, data.owner], 1), rows.fit, rows.kept)
    left = additive(data, np.flatnonzero(data.fold != 0)).residual
    gains, rounds = tree_gains(trees, data.inputs, left[:, 2:3])
    assert rounds > 0 and gains[:2].min() > 3 > gains[2:].max() and gains[data.inputs :].max() == pytest.approx(1)
    _, rounds = tree_gains(trees, data.inputs, left[:, 3:4])
    assert rounds <= 5, "nothing is left of noise"


def test_a_cosine_that_follows_from_its_sine_joins_its_bundle() -> None:
    """An angle of less than a right one: correlation sees nothing, a function of the sine says everything."""

    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        angle = np.clip(0.5 * s[:, 0] + a[:, 0] + 0.3 * rng.normal(size=len(s)), -1.4, 1.4)
        return [angle, np.sin(angle), np.cos(angle), rng.normal(size=len(s))]

    log = _log(step, "angle sine cosine w")
    data = _dataset(log)
    bundle = additive(data, np.flatnonzero(data.fold != 0)).bundle
    named = dict(zip(log.factors.names, bundle))
    assert named["cosine"] == named["sine"] >= 0 and named["w"] == -1
