"""A log as a table: what belongs to which input, which rows stay together, and shadows that cannot matter."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.dataset import Dataset, dynamics_dataset, reward_dataset
from cbm.discovery.settings import LONGEST_CLUSTER, Settings
from cbm.discovery.split import rows_of

SETTINGS = Settings()
VARIABLES = (Variable("x"), Variable("dial", "angle"), Variable("gear", "categorical"), Variable("fixed"))


def _log(episodes: int = 40, steps: int = 25) -> Transitions:
    rng, n = np.random.default_rng(0), episodes * steps
    obs = np.stack([rng.normal(5, 3, n), rng.uniform(-3, 3, n), rng.integers(3, size=n), np.ones(n)], 1)
    after = np.stack([rng.normal(5, 3, n), rng.uniform(-3, 3, n), rng.integers(3, size=n), np.ones(n)], 1)
    rewards = {"pay": rng.normal(size=n), "won": rng.integers(2, size=n).astype(float)}
    return Transitions(
        obs, rng.uniform(-1, 1, (n, 2)), after, Factors(VARIABLES, ("a", "b")), rewards,
        {"goal": rng.normal(size=n)}, episode=np.repeat(np.arange(episodes), steps),
    )  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Dataset:
    return dynamics_dataset(_log(), SETTINGS, 0)[0]


def test_columns_and_their_inputs(found: Dataset) -> None:
    """x, sine and cosine of the dial, two of three gears, the fixed one, two numbers of the action, shadows."""
    assert found.owner[:8].tolist() == [0, 1, 1, 2, 2, 3, 4, 4]
    assert found.owner[8:].tolist() == [*range(5, 5 + SETTINGS.shadows)]
    assert (found.inputs, found.action) == (5, 4)
    varying = found.columns.std(0) > 0
    assert varying.sum() >= len(varying) - 2 and found.columns[:, varying].std(0) == pytest.approx(1)
    assert found.columns.mean(0) == pytest.approx(0, abs=1e-9)


def test_targets_are_what_ever_changes() -> None:
    found, plan = dynamics_dataset(_log(), SETTINGS, 0)
    assert plan.index.tolist() == [0, 1, 2] and plan.moving.tolist() == [True, True, True, False]
    assert not plan.changes.any(), "of what begins anew at every step the value is predicted, not the change"
    assert found.discrete.tolist() == [False, False, True]
    assert found.part.tolist() == [0, 1, 1, 2, 2, 2], "one column for each level"
    assert set(np.unique(found.y[:, 3:])) == {0.0, 1.0} and (found.y[:, 3:].sum(1) == 1).all()


def test_a_variable_that_drifts_is_predicted_by_its_change() -> None:
    data = _log()
    step = 0.01 * np.random.default_rng(1).normal(size=len(data))
    after = data.next_obs.copy()
    after[:, 0] = data.obs[:, 0] + step
    found, plan = dynamics_dataset(replace(data, next_obs=after), SETTINGS, 0)
    assert plan.changes.tolist() == [True, False, False] and plan.memory[0] > 0
    assert np.corrcoef(found.y[:, 0], step)[0, 1] == pytest.approx(1)


@pytest.mark.parametrize("inputs", ["next-state", "state-action", "both"])
def test_rewards_see_the_action_and_the_context_as_one_input(inputs: str) -> None:
    data = _log()
    found = reward_dataset(data, replace(SETTINGS, reward_inputs=inputs), 0)  # type: ignore[arg-type]
    assert (found.inputs, found.action) == (5, 4)
    assert (found.owner == 4).sum() == 3
    assert found.discrete.tolist() == [False, True]
    state = data.obs if inputs == "state-action" else data.next_obs
    assert np.corrcoef(found.columns[:, 0], state[:, 0])[0, 1] == pytest.approx(1)
    assert (found.owner == 0).sum() == (2 if inputs == "both" else 1)


def test_episodes_stay_together(found: Dataset) -> None:
    episode = np.repeat(np.arange(40), 25)
    for e in range(40):
        assert len(set(found.fold[episode == e])) == len(set(found.kept[episode == e])) == 1
    counts = np.bincount(found.fold)
    assert len(counts) == SETTINGS.folds and counts.min() >= 0.8 * counts.max()
    rows = rows_of(found, 1, 0)
    every = np.concatenate([rows.fit, rows.kept, rows.test])
    assert np.array_equal(np.sort(every), np.arange(1000)) and len(rows.kept) > 0
    assert not set(episode[rows.fit]) & set(episode[rows.test])
    assert np.array_equal(found.cluster, episode)


def test_one_long_episode_is_cut_into_blocks() -> None:
    found = dynamics_dataset(_log(1, 1000), SETTINGS, 0)[0]
    counts = np.bincount(found.fold)
    assert len(counts) == SETTINGS.folds and counts.min() > 200 and found.kept.any()
    assert (np.diff(found.fold) != 0).sum() < 50, "blocks, not single rows"
    assert np.bincount(found.cluster).tolist() == [LONGEST_CLUSTER] * 5


def test_shadows_are_real_columns_at_other_times(found: Dataset) -> None:
    real, shadows = found.columns[:, :8], found.columns[:, 8:]
    for shadow in shadows.T:
        assert any(np.allclose(np.sort(shadow), np.sort(column)) for column in real.T)
        assert not any(np.array_equal(shadow, column) for column in real[:, real.std(0) > 0].T)


def test_through_files_and_back(found: Dataset) -> None:
    again = Dataset.load(found.arrays("dynamics"), "dynamics")
    for f in fields(Dataset):
        assert np.array_equal(getattr(again, f.name), getattr(found, f.name)), f.name


def test_one_seed_one_division() -> None:
    data = _log()
    one, two, other = (dynamics_dataset(data, SETTINGS, seed)[0] for seed in (3, 3, 4))
    assert np.array_equal(one.fold, two.fold) and np.array_equal(one.columns, two.columns)
    assert not np.array_equal(one.fold, other.fold)


# Parts of a target


def _resting(share: float, seed: int = 0) -> Transitions:
    """Two coordinates of a thing that rests in some rows, and moves in both otherwise."""
    data, rng = _log(100, 50), np.random.default_rng(seed)
    moves = rng.random(len(data)) > share
    obs = rng.normal(size=(len(data), 2))
    after = obs + np.where(moves, rng.normal(size=(2, len(data))), 0.0).T
    factors = Factors((Variable("x"), Variable("y")), ("a", "b"))
    return Transitions(obs, data.action, after, factors, episode=data.episode)


def test_what_often_rests_has_two_parts_and_shares_the_first() -> None:
    data = _resting(0.7)
    found, plan = dynamics_dataset(data, SETTINGS, 0)
    moved = data.obs[:, 0] != data.next_obs[:, 0]
    assert plan.changes.all() and found.discrete.tolist() == [True, False, False]
    assert (found.rows_of(0)).all() and np.array_equal(found.y[:, 0], moved)
    assert np.array_equal(found.rows_of(1), moved) and np.array_equal(found.rows_of(2), moved)
    assert found.share == pytest.approx(np.array([[1, moved.mean(), 0], [1, 0, moved.mean()]]))
    inside = found.y[moved][:, 1:]
    assert inside.mean(0) == pytest.approx(0, abs=1e-9) and inside.std(0) == pytest.approx(1)
    assert found.variation()[0].tolist() == [moved.sum()] * 2


@pytest.mark.parametrize("share", [0.0, 0.05, 0.95])
def test_what_hardly_ever_rests_or_moves_has_one(share: float) -> None:
    found, _ = dynamics_dataset(_resting(share), SETTINGS, 0)
    assert found.share.tolist() == [[1, 0], [0, 1]] and not found.discrete.any()


@pytest.mark.parametrize(("zeros", "parts"), [(0.8, 2), (0.3, 1)])
def test_a_count_has_two_parts_if_most_rows_have_one_value(zeros: float, parts: int) -> None:
    data, rng = _log(100, 50), np.random.default_rng(0)
    after = np.where(rng.random(len(data)) < zeros, 0.0, rng.integers(1, 9, len(data)))[:, None]
    factors = Factors((Variable("dropped", "continuous"),), ("a", "b"))
    found, _ = dynamics_dataset(
        Transitions(np.roll(after, 1, 0), data.action, after, factors, episode=data.episode), SETTINGS, 0
    )
    assert found.share.shape == (1, parts) and found.discrete.tolist() == [True, False][-parts:]


def test_a_thing_that_trembles_rests() -> None:
    """As in a simulator: what lies still still changes in the last digits."""
    data = _resting(0.7)
    moved = data.obs[:, 0] != data.next_obs[:, 0]
    tremble = 1e-8 * np.random.default_rng(5).normal(size=data.obs.shape)
    found, _ = dynamics_dataset(replace(data, next_obs=data.next_obs + tremble), SETTINGS, 0)
    assert found.discrete.tolist() == [True, False, False] and np.array_equal(found.rows_of(1), moved)


def test_what_nearly_always_moves_together_shares_its_event_and_what_does_not_has_its_own() -> None:
    data = _resting(0.7)
    moved = np.flatnonzero(data.obs[:, 0] != data.next_obs[:, 0])
    for alone, parts in ((moved[:10], 3), (moved[:200], 4)):
        after = data.next_obs.copy()
        after[alone, 1] = data.obs[alone, 1]
        found, _ = dynamics_dataset(replace(data, next_obs=after), SETTINGS, 0)
        assert found.parts == parts
        assert found.rows_of(1).sum() == len(moved), "any of the two moves"
