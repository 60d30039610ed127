"""Transitions: conversion, episodes, selection and splits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.errors import DataError
from logs import arrays, full  # type: ignore[import-not-found]

# construction -----------------------------------------------------------------------------------------


def test_types_are_converted() -> None:
    data = arrays()
    factors = Factors((Variable("a"), Variable("b"), Variable("c")), ("u", "v"))
    made = Transitions(
        data["obs"].astype(np.float32),
        data["action"].astype(np.float16),
        data["next_obs"].round().astype(np.int16),
        factors,
        {"r": data["reward"].round().astype(int)},
        terminated=np.zeros(60, int),
        truth=np.ones((3, 4)),
    )
    assert made.obs.dtype == made.next_obs.dtype == made.action.dtype == made.rewards["r"].dtype == np.float64
    assert made.terminated is not None and made.terminated.dtype == bool
    assert made.truth is not None and made.truth.dtype == bool
    assert made.episode.dtype == np.int64
    assert len(made) == 60
    assert "60 rows" in repr(made) and "3 variables" in repr(made)


def test_default_names() -> None:
    made = Transitions.from_arrays(arrays())
    assert made.factors.names == ("obs_0", "obs_1", "obs_2")
    assert made.factors.action_names == ("action_0", "action_1")
    assert list(made.rewards) == ["reward"]


def test_a_reward_may_have_the_name_of_a_variable() -> None:
    data = arrays()
    data["reward_obs_1"] = data.pop("reward")
    assert list(Transitions.from_arrays(data).rewards) == ["obs_1"]


def test_one_integer_column_is_a_discrete_action() -> None:
    data = arrays() | {"action": np.arange(60, dtype=np.uint8) % 4}
    made = Transitions.from_arrays(data)
    assert made.factors.discrete_actions == 4
    assert made.action.shape == (60, 1) and made.action.dtype == np.int64
    assert made.factors.action_names == ("action",)
    assert Transitions.from_arrays(data | {"discrete_actions": 6}).factors.discrete_actions == 6
    whole = data | {"action": data["action"].astype(float), "discrete_actions": np.array(4)}
    assert Transitions.from_arrays(whole).action.dtype == np.int64
    assert Transitions.from_arrays(data | {"action": data["action"] > 1}).factors.discrete_actions == 2


def test_other_actions_are_vectors() -> None:
    data = arrays()
    integers = Transitions.from_arrays(data | {"action": np.arange(120).reshape(60, 2)})
    assert integers.factors.discrete_actions is None and integers.action.dtype == np.float64
    flat = Transitions.from_arrays(data | {"action": data["action"][:, 0]})
    assert flat.action.shape == (60, 1) and flat.factors.discrete_actions is None


def test_kinds_and_groups_of_the_file_win() -> None:
    data = arrays() | {"kinds": ["angle", "continuous", "binary"], "groups": [b"arm", b"arm", b""]}
    factors = Transitions.from_arrays(data).factors
    assert factors.kinds == ("angle", "continuous", "binary")
    assert factors.groups() == {"arm": [0, 1], "obs_2": [2]}


def test_a_scaled_and_shifted_flag_is_binary() -> None:
    data = arrays()
    flag = np.arange(61) % 2 * 1000.0 + 100
    data["obs"][:, 1], data["next_obs"][:, 1] = flag[:-1], flag[1:]
    assert Transitions.from_arrays(data).factors.kinds == ("continuous", "binary", "continuous")


# episodes ---------------------------------------------------------------------------------------------


def test_episodes_from_continuity() -> None:
    data = arrays(rows=60, episodes=12)
    expected = np.repeat(np.arange(12), 5)
    np.testing.assert_array_equal(Transitions.from_arrays(data).episode, expected)
    rounded = data | {"next_obs": data["next_obs"].astype(np.float32)}
    np.testing.assert_array_equal(Transitions.from_arrays(rounded).episode, expected)


def test_episodes_from_flags_and_given() -> None:
    data = arrays(rows=12, episodes=12)
    ends, cuts = np.zeros(12, bool), np.zeros(12, bool)
    ends[3] = cuts[8] = True
    flagged = Transitions.from_arrays(data | {"terminated": ends, "truncated": cuts})
    np.testing.assert_array_equal(flagged.episode, np.repeat([0, 1, 2], [4, 5, 3]))
    given_ids = np.arange(12) // 6 * 10.0
    chosen = Transitions.from_arrays(data | {"terminated": ends, "episode": given_ids})
    np.testing.assert_array_equal(chosen.episode, given_ids)


def test_shuffled_rows_are_one_episode_each() -> None:
    data = arrays(rows=40, episodes=4)
    order = np.random.default_rng(3).permutation(40)
    data = {name: values[order] for name, values in data.items()}
    episode = Transitions.from_arrays(data).episode
    joined = np.flatnonzero((data["next_obs"][:-1] == data["obs"][1:]).all(axis=1))  # neighbours by luck
    assert episode[-1] == 39 - len(joined)


# select and split -------------------------------------------------------------------------------------


def test_select_and_head() -> None:
    data = full()
    for rows in ([4, 2], np.array([4, 2]), np.array([-56, 2])):
        part = data.select(rows)
        np.testing.assert_array_equal(part.obs, data.obs[[4, 2]])
        np.testing.assert_array_equal(part.rewards["pick"], data.rewards["pick"][[4, 2]])
        np.testing.assert_array_equal(part.episode, data.episode[[4, 2]])
        assert part.factors is data.factors
    assert len(data.select(data.obs[:, 0] > 0)) == (data.obs[:, 0] > 0).sum()
    assert len(data.select(3)) == 1
    np.testing.assert_array_equal(data.head(1000).obs, data.obs)
    np.testing.assert_array_equal(data.head(7).action, data.action[:7])
    for nothing in (lambda: data.select([]), lambda: data.head(0), lambda: data.select(np.zeros(60, bool))):
        with pytest.raises(DataError, match="no rows"):
            nothing()


def numbered(lengths: list[int]) -> Transitions:
    """Rows that carry their own number, in episodes of the lengths given."""
    rows = sum(lengths)
    obs = np.arange(rows, dtype=float)[:, None]
    factors = Factors((Variable("row"),), ("action",))
    return Transitions(obs, obs.copy(), obs + 1, factors, episode=np.repeat(np.arange(len(lengths)), lengths))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=40), st.floats(0.01, 0.99), st.integers(0, 5))
def test_a_split_is_a_partition(lengths: list[int], share: float, seed: int) -> None:
    if sum(lengths) < 2:
        lengths = [2]
    data = numbered(lengths)
    train, held = data.split(share, seed)
    rows = np.concatenate([train.obs[:, 0], held.obs[:, 0]])
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(data)))
    assert len(train) and len(held)
    assert (np.diff(train.obs[:, 0]) > 0).all() and (np.diff(held.obs[:, 0]) > 0).all()
    again = data.split(share, seed)[1]
    np.testing.assert_array_equal(held.obs, again.obs)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2, 0.5])
def test_many_episodes_stay_whole(share: float) -> None:
    data = numbered([10] * 100)
    train, held = data.split(share)
    assert not set(train.episode) & set(held.episode)
    assert len(held) == round(1000 * share)
    assert not np.array_equal(held.obs, data.split(share, seed=1)[1].obs)


@pytest.mark.parametrize("lengths", [[1000], [500, 500], [100] * 9, [2000] + [1] * 30])
def test_few_or_unequal_episodes_are_cut_into_blocks(lengths: list[int]) -> None:
    data = numbered(lengths)
    train, held = data.split(0.1)
    assert len(held) == pytest.approx(0.1 * len(data), rel=0.5)
    pieces = 1 + int((np.diff(held.obs[:, 0]) > 1).sum())
    assert pieces <= 4  # consecutive rows rather than scattered ones
    assert len(train) + len(held) == len(data)


def test_interleaved_episodes_are_cut_along_themselves() -> None:
    data = numbered([400])
    object.__setattr__(data, "episode", np.arange(400) % 4)
    train, held = data.split(0.1)
    neighbours = np.isin(held.obs[:, 0] + 4, held.obs[:, 0]).mean()
    assert neighbours > 0.9
    assert len(train) + len(held) == 400


def test_bad_splits() -> None:
    data = full()
    for share in (0, 1, -0.1, 1.5, float("nan")):
        with pytest.raises(DataError, match="between 0 and 1"):
            data.split(share)
    with pytest.raises(DataError, match="at least 2 rows"):
        data.select([0]).split()
    assert [len(part) for part in data.head(2).split()] == [1, 1]
