"""Invariant causal prediction on systems whose parents are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from cbm.abstraction.icp import Icp, by_context, consecutive_blocks
from cbm.abstraction.invariance import Inputs, Model, invariant_parents, passes, preselect, welch
from cbm.abstraction.method import Setup, make_method
from cbm.abstraction.table import IcpSettings
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.errors import DataError

LENGTH = 20


@dataclass(frozen=True)
class Log:
    data: Transitions

    def transitions(self, held_out: bool) -> Transitions:
        return self.data


def structural(seed: int, nonlinear: bool = False, rows: int = 1500) -> tuple[Inputs, np.ndarray]:
    """x0 -> x1 -> y <- x2, y -> x3 (a child), x4 beside it; environment 1 intervenes on all but y."""
    rng = np.random.default_rng(seed)
    shift, width = np.zeros(2 * rows), np.ones(2 * rows)
    shift[rows:], width[rows:] = 1.0, 2.0
    noise = rng.normal(size=(2 * rows, 6))
    x0 = width * noise[:, 0] + shift
    x1 = 0.8 * x0 + width * noise[:, 1]
    x2 = -0.5 * x0 + noise[:, 2] * (1 + shift)
    y = (x1 * np.tanh(x2) if nonlinear else x1 - 0.7 * x2) + 0.5 * noise[:, 3]
    x3 = (1 - 0.5 * shift) * y + 0.4 * width * noise[:, 4]
    columns = np.stack([x0, x1, x2, x3, noise[:, 5]], 1)
    columns = (columns - columns.mean(0)) / columns.std(0)
    return Inputs(columns, np.arange(5), np.zeros((2 * rows, 0)), (np.arange(2 * rows) >= rows).astype(int)), y


def world(seed: int, episodes: int = 200, behaviours: tuple[float, ...] = (0.0, 1.5)) -> Transitions:
    """a -> s0 -> s1 -> reward -> s2 (which shows it); s3 follows s1 and matters to nobody; s4 is noise.

    Episodes differ in behaviour: which action is taken on average, how much it varies, how noisy the display is.
    """
    rng = np.random.default_rng(seed)
    kind = np.arange(episodes) * len(behaviours) // episodes
    mean = np.array(behaviours)[kind]
    scale = 1.0 + (kind > 0)
    s, rows = rng.normal(size=(episodes, 5)), []
    for _ in range(LENGTH):
        a, e = mean + scale * rng.normal(size=episodes), rng.normal(size=(episodes, 6))
        after = np.empty_like(s)
        after[:, 0] = 0.5 * s[:, 0] + a + 0.5 * e[:, 0]
        after[:, 1] = 0.4 * s[:, 1] + 0.8 * s[:, 0] + 0.5 * e[:, 1]
        reward = 1.5 * after[:, 1] + 0.3 * e[:, 5]
        after[:, 2] = reward + scale * e[:, 2]
        after[:, 3] = 0.3 * s[:, 3] + s[:, 1] + scale * e[:, 3]
        after[:, 4] = e[:, 4]
        rows.append((s, a[:, None], after, reward, mean))
        s = after
    obs, action, after, reward, mean = (np.stack(part, 1).reshape(episodes * LENGTH, -1) for part in zip(*rows))
    return Transitions(
        obs=obs, action=action, next_obs=after, rewards={"go": reward[:, 0]}, context={"mean": mean[:, 0]},
        factors=Factors(tuple(Variable(f"s{k}") for k in range(5)), ("push",)),
        episode=np.repeat(np.arange(episodes), LENGTH),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_the_parents_in_a_linear_system_of_two_environments(seed: int) -> None:
    inputs, y = structural(seed)
    found = invariant_parents(inputs, y, 0.01, 8)
    assert found.parents.tolist() == [False, True, True, False, False]
    assert found.accepted >= 1


def test_the_set_of_parents_passes_and_a_child_or_a_missing_parent_does_not() -> None:
    inputs, y = structural(1)
    model = Model(inputs)

    def accepted(subset: list[int]) -> bool:
        return passes(model.residual(y, subset), y, inputs.environment, 0.01)

    assert accepted([1, 2]) and accepted([0, 1, 2])
    assert not any(accepted(subset) for subset in ([], [1], [2], [3], [1, 3], [1, 2, 3], [0, 1, 2, 3]))


def test_the_true_set_is_rejected_no_more_often_than_the_level_says() -> None:
    rejected = 0
    for seed in range(200):
        inputs, y = structural(seed, rows=300)
        rejected += not passes(Model(inputs).residual(y, [1, 2]), y, inputs.environment, 0.05)
    assert rejected <= 20  # of 10 expected at most: three standard deviations


def test_interactions_need_random_features() -> None:
    """A product of parents is no sum of them: linear regression finds no set that passes."""
    for seed in range(2):
        inputs, y = structural(seed, nonlinear=True)
        linear = invariant_parents(inputs, y, 0.01, 8)
        assert not linear.parents.any() and linear.accepted == 0
        assert invariant_parents(inputs, y, 0.01, 8, "random-features").parents.tolist() == [0, 1, 1, 0, 0]


def test_one_distribution_everywhere_tells_nothing() -> None:
    """Without interventions the empty set passes: nothing is known to be a cause."""
    inputs, y = structural(0)
    half = len(y) // 2
    same = Inputs(inputs.columns[:half], inputs.owner, inputs.always[:half], np.arange(half) % 2)
    found = invariant_parents(same, y[:half], 0.01, 8)
    assert not found.parents.any() and (found.accepted, found.tested) == (1, 1)


def test_preselection_takes_what_explains_the_target() -> None:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(2000, 40))
    y = columns[:, 3] - 2 * columns[:, 17] + 0.5 * columns[:, 30] + 0.1 * rng.normal(size=2000)
    model = Model(Inputs(columns, np.arange(40), np.zeros((2000, 0)), np.arange(2000) % 2))
    assert {3, 17, 30} <= set(preselect(model, y, 8))
    assert preselect(model, y, 2) == [3, 17]


def test_welch_agrees_with_scipy() -> None:
    from scipy import stats

    rng = np.random.default_rng(1)
    a, b = rng.normal(size=40), 0.4 + 2 * rng.normal(size=70)
    assert welch(a, b) == pytest.approx(stats.ttest_ind(a, b, equal_var=False).pvalue, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_causes_of_the_reward_and_their_causes(seed: int) -> None:
    """The display of the reward, and what merely follows the state, are left out."""
    data = world(seed)
    method = Icp(data.factors, "go", seed)
    numbers = method.learn(Log(data), 1)
    assert method.mask().tolist() == [True, True, False, False, False]
    assert numbers["kept"] == 2 and numbers["environments"] == 2 and "empty" not in numbers
    assert method.graph() is None


def test_environments_by_a_context() -> None:
    data = world(0, behaviours=(0.0, 1.5, -1.0))
    assert np.unique(by_context("mean")(data)).tolist() == [0, 1, 2]
    method = Icp(data.factors, "go", environments=by_context("mean"))
    assert method.learn(Log(data), 1)["environments"] == 3
    with pytest.raises(DataError, match="no context 'wind'"):
        by_context("wind")(data)


def test_blocks_are_whole_episodes_in_order() -> None:
    data = world(0, episodes=9)
    labels = consecutive_blocks(3)(data)
    assert labels.tolist() == np.repeat([0, 0, 0, 1, 1, 1, 2, 2, 2], LENGTH).tolist()


def test_no_set_that_passes_keeps_everything_and_says_so() -> None:
    data = world(0)
    late = data.episode >= 100
    broken = Transitions(
        obs=data.obs, action=data.action, next_obs=data.next_obs, factors=data.factors, episode=data.episode,
        rewards={"go": data.rewards["go"] + 5.0 * late},
    )  # fmt: skip
    method = Icp(data.factors, "go")
    numbers = method.learn(Log(broken), 1)
    assert numbers["accepted"] == 0 and numbers["empty"] == 1 and numbers["kept"] == 0
    assert method.mask().all()


def test_a_single_episode_is_one_environment() -> None:
    data = world(0, episodes=1)
    method = Icp(data.factors, "go")
    assert method.learn(Log(data), 1)["empty"] == 1
    assert method.mask().all()


def test_resume_is_exact() -> None:
    data = world(3)
    first, second = (Icp(data.factors, "go", settings=IcpSettings(rows=1000)) for _ in range(2))
    first.learn(Log(data), 1)
    second.restore(first.tensors())
    assert np.array_equal(first.mask(), second.mask())
    assert first.learn(Log(data), 1) == second.learn(Log(data), 1)
    assert np.array_equal(first.mask(), second.mask()) and first.calls == second.calls == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levle": 0.1}, "did you mean 'level'"),
        ({"environments": 1}, "environments must be a whole number of at least 2, got 1"),
        ({"level": 2.0}, "level must be a number above 0 and at most 1, got 2.0"),
        ({"candidates": 30}, "candidates must be a whole number of at least 1 and at most 16, got 30"),
        ({"regression": "linar"}, "regression must be one of linear, random-features, got 'linar'"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    data = world(0, episodes=20)
    with pytest.raises(DataError, match=message):
        make_method("icp", Setup(data.factors, "go"), options).learn(Log(data), 1)


def test_a_missing_reward_is_named() -> None:
    data = world(0, episodes=20)
    with pytest.raises(DataError, match="no reward 'stop'"):
        Icp(data.factors, "stop").learn(Log(data), 1)
