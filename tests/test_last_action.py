"""The last action beside the action: whose it is, and which variables only repeat it."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.last_action import last_actions, repetitions, with_last_action
from cbm.errors import DataError


def numbered(episode: list[int], name: str = "go") -> Transitions:
    """Rows whose action is their own number and whose state counts the steps of their episode."""
    number = np.array(episode)
    row = np.arange(len(episode), dtype=float)[:, None]
    step = np.array([[(number[:k] == e).sum()] for k, e in enumerate(number)], float)
    return Transitions(step, row, step + 1, Factors((Variable("step"),), (name,)), episode=number)


def test_the_last_action_stands_beside_the_action() -> None:
    both = with_last_action(numbered([0, 0, 0, 1, 2, 2]))
    assert both.factors.action_names == ("go", "last go")
    assert both.action.tolist() == [[1, 0], [2, 1], [5, 4]] and both.obs[:, 0].tolist() == [1, 2, 1]
    assert both.episode.tolist() == [0, 0, 2]


def test_it_is_that_of_the_same_episode() -> None:
    assert with_last_action(numbered([0, 1, 0, 1, 0, 1])).action.tolist() == [[2, 0], [3, 1], [4, 2], [5, 3]]


def test_a_choice_becomes_indicators() -> None:
    obs = np.arange(4.0)[:, None]
    factors = Factors((Variable("x"),), ("gear",), discrete_actions=3)
    both = with_last_action(Transitions(obs, np.array([2, 0, 1, 1]), obs + 1, factors))
    assert both.factors.discrete_actions is None
    assert both.factors.action_names == ("gear=0", "gear=1", "gear=2", "last gear=0", "last gear=1", "last gear=2")
    assert both.action.tolist() == [[1, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0]]


def test_single_rows_have_none() -> None:
    data = numbered([0, 1, 2])
    assert not repetitions(data).any()
    with pytest.raises(DataError, match="no row continues another"):
        with_last_action(data)


def test_rows_out_of_order_have_none() -> None:
    data = numbered([0] * 6).select([0, 2, 4, 1, 3, 5])
    with pytest.raises(DataError, match="no row continues another"):
        with_last_action(data)


def test_a_name_that_is_taken() -> None:
    data = numbered([0, 0, 0, 0])
    both = with_last_action(with_last_action(data))
    assert both.factors.action_names == ("go", "last go", "last last go", "last last last go")
    assert both.action.tolist() == [[2, 1, 1, 0], [3, 2, 2, 1]]


def test_many_choices_and_few_rows_fit_anything() -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(61, 1)).cumsum(0)
    data = Transitions(obs[:-1], np.arange(60), obs[1:], Factors((Variable("x"),), ("gear",), discrete_actions=60))
    assert not repetitions(data).any()


@pytest.mark.parametrize("choices", [None, 4])
def test_repetitions_are_told_from_what_has_a_life_of_its_own(choices: int | None) -> None:
    rng = np.random.default_rng(0)
    episode = np.repeat(np.arange(10), 30)
    action = rng.normal(size=(300, 2)) if choices is None else rng.integers(choices, size=(300, 1))
    shown = action @ [1.0, -2.0] if choices is None else np.array([3.0, 1.0, 1.0, 7.0])[action[:, 0]]
    after = np.stack([shown, shown + 0.1 * rng.normal(size=300), rng.normal(size=300), np.ones(300)], 1)
    obs = np.roll(after, 1, 0)
    obs[np.arange(300) % 30 == 0] = 5.0  # what an episode starts with is nobody's action
    names = tuple(Variable(name) for name in ("shown", "noisy", "free", "fixed"))
    factors = Factors(names, ("a", "b") if choices is None else ("gear",), choices)
    data = Transitions(obs, action, after, factors, episode=episode)
    assert repetitions(data).tolist() == [True, False, False, False]
    blank = with_last_action(data)
    assert (blank.obs[:, 0] == 0).all() and (blank.next_obs == after[episode == np.roll(episode, 1)]).all()
    assert len(blank) == 290 and (blank.obs[:, 1:] == data.select(np.arange(300) % 30 > 0).obs[:, 1:]).all()


def test_what_a_variable_records_of_the_previous_action_is_not_hidden() -> None:
    """A buffer that a motor reads its command from is a variable like any other; a projection is not the action."""
    rng = np.random.default_rng(0)
    episode, action = np.repeat(np.arange(10), 30), rng.normal(size=(300, 2))
    after = np.stack([action[:, 0], action @ [1.0, -2.0]], 1)
    obs = np.roll(after, 1, 0)
    obs[np.arange(300) % 30 == 0] = 0.0
    factors = Factors((Variable("buffer"), Variable("shown")), ("a", "b"))
    data = Transitions(obs, action, after, factors, episode=episode)
    part, last = last_actions(data, "auto")
    assert last is not None and last[:, 0] == pytest.approx((part.obs[:, 0] - part.obs[:, 1]) / 2)
    both = last_actions(data, "on")[1]
    assert both is not None and both.shape == (290, 2)
    one = Transitions(obs[:, :1], action[:, :1], after[:, :1], Factors((Variable("buffer"),), ("a",)), episode=episode)
    assert last_actions(one, "auto")[1] is None
