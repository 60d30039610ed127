"""Parents of rewards learned on growing data, where they are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery import refine
from cbm.discovery.cmi import Estimate
from cbm.discovery.online import DynamicsSource
from cbm.discovery.online_estimator import OnlineEstimator
from cbm.discovery.online_reward import OnlineReward, reward_settings
from cbm.discovery.settings import Settings, preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.errors import DataError

SMALL = replace(reward_settings(Settings()), width=64, batch=160, shadows=6, evaluation_rows=1500)
EPISODE = 20
D = 6


pytestmark = pytest.mark.usefixtures("one_thread")


def _log(rows: int, reward: str, scale: float = 1.0, seed: int = 0) -> Transitions:
    """Six variables: x0, x1 independent, x2 close to x0, x3 binary, x4, x5 noise; a goal that changes with episodes."""
    rng = np.random.default_rng(seed)
    state = scale * rng.normal(size=(rows, D))
    state[:, 2] = 0.9 * state[:, 0] + 0.4 * state[:, 2]
    state[:, 3] = rng.integers(2, size=rows)
    goal = np.repeat(rng.normal(size=rows // EPISODE), EPISODE)
    rewards = {
        "product": state[:, 0] * state[:, 1],
        "goal": -np.abs(state[:, 0] - goal),
        "switch": np.where(state[:, 3] > 0, state[:, 1], 0.0),
        "hit": (state[:, 0] > 1) * 1.0,
        "never": np.zeros(rows),
    }
    kinds = ["continuous"] * 3 + ["binary"] + ["continuous"] * 2
    factors = Factors(tuple(Variable(f"x{k}", kind) for k, kind in enumerate(kinds)), ("a",))  # type: ignore[arg-type]
    return Transitions(
        obs=np.roll(state, 1, 0), action=rng.uniform(-1, 1, (rows, 1)), next_obs=state, factors=factors,
        rewards={reward: rewards[reward]}, context={"goal": goal} if reward == "goal" else {},
        episode=np.arange(rows) // EPISODE,
    )  # fmt: skip


def _split(data: Transitions) -> tuple[Transitions, Transitions]:
    held = data.episode % 5 == 4
    return data.select(~held), data.select(held)


def _parents(learner: OnlineReward, d: int = D) -> list[int]:
    verdicts = learner.verdicts()
    assert verdicts is not None
    return [int(j) for j in np.flatnonzero(verdicts.edge[0, :d])]


@pytest.mark.parametrize(
    ("reward", "parents", "updates"),
    [
        ("product", [0, 1], 120),
        pytest.param("goal", [0], 120, marks=pytest.mark.slow),
        ("switch", [1, 3], 60),
        ("hit", [0], 60),
        ("never", [], 20),
    ],
)
def test_parents(reward: str, parents: list[int], updates: int) -> None:
    data = _log(6000, reward)
    learner = OnlineReward(reward, SMALL)
    assert learner.verdicts() is None
    for rows in (4000, 6000):
        numbers = learner.learn(*_split(data.head(rows)), updates=updates)
        assert _parents(learner) == parents
    assert np.isfinite(list(numbers.values())).all() and numbers["rows"] == 4800


@pytest.mark.slow
def test_parents_stay_when_the_range_of_the_data_grows() -> None:
    """Knots of the first rows would send most of the later ones to the same value."""
    narrow, wide = _log(4000, "product"), _log(8000, "product", scale=10.0, seed=1)
    data = Transitions(
        obs=np.concatenate([narrow.obs, wide.obs]),
        action=np.concatenate([narrow.action, wide.action]),
        next_obs=np.concatenate([narrow.next_obs, wide.next_obs]),
        factors=narrow.factors,
        rewards={"product": np.concatenate([narrow.rewards["product"], wide.rewards["product"]])},
        episode=np.arange(12_000) // EPISODE,
    )
    learner = OnlineReward("product", SMALL)
    fits = []
    for rows in (4000, 8000, 12_000):
        learner.learn(*_split(data.head(rows)), updates=120)
        assert _parents(learner) == [0, 1]
        assert learner.estimator.fitted is not None
        fits.append(learner.estimator.fitted.rows)
    assert fits == [3200, 6400, 6400]


def test_a_restored_learner_goes_on_with_equal_numbers() -> None:
    """Between two fits, and across one."""
    data = _log(6000, "product")
    parts = [_split(data.head(rows)) for rows in (2000, 3000, 4500, 6000)]
    whole = OnlineReward("product", SMALL)
    numbers, states = [], []
    for part in parts:
        numbers.append(whole.learn(*part, updates=5))
        states.append(whole.tensors())
    for stop in range(1, len(parts)):
        second = OnlineReward("product", SMALL)
        second.restore(states[stop - 1])
        assert [second.learn(*part, updates=5) for part in parts[stop:]] == numbers[stop:]
        expected, actual = whole.tensors(), second.tensors()
        assert expected.keys() == actual.keys()
        for name, value in expected.items():
            assert torch.equal(value, actual[name]), name


def test_a_learner_that_has_seen_nothing_can_be_stored() -> None:
    learner = OnlineReward("product", SMALL)
    learner.restore(OnlineReward("product", SMALL).tensors())
    assert learner.verdicts() is None


def test_no_updates_still_measure() -> None:
    learner = OnlineReward("product", SMALL)
    assert learner.learn(*_split(_log(1000, "product")), updates=0) == {"rows": 800.0}
    assert learner.verdicts() is not None


def test_what_both_looks_are_sure_of() -> None:
    """What one of them imagines is no cause; what was not looked at again counts if the first look was mostly right."""
    learner = OnlineReward("product", SMALL)
    learner.learn(*_split(_log(1000, "product")), updates=0)
    first = np.zeros((2, D, D + SMALL.shadows))
    first[0, 0, :D] = 0.5, 0.5, 0.0, 0.5, 0.0, 0.4
    second = np.full(first.shape, np.inf)
    second[:, 0, :5] = 0.0
    second[0, 0, :5] = 0.5, 0.5, 0.5, 0.0, 0.0
    learner.estimator.running, learner.estimator.again = first, second
    assert _parents(learner) == [0, 1, 5]
    second[0, 0, 1] = 0.0  # one of three is confirmed: the first look is not to be trusted
    assert _parents(learner) == [0]
    learner.estimator.again = None
    assert _parents(learner) == [0, 1, 3, 5]


@pytest.mark.parametrize("keep_in_doubt", [True, False])
def test_what_is_in_doubt(keep_in_doubt: bool) -> None:
    """Causes that few rows show badly: the first look sees next to nothing, the second a little or more."""
    learner = OnlineReward("product", SMALL)
    learner.estimator.keep_in_doubt = keep_in_doubt
    learner.learn(*_split(_log(1000, "product")), updates=0)
    first = np.zeros((2, D, D + SMALL.shadows))
    first[:, 0, :D] = [0.5, 0.01, 0.01, 0.01, 0.001, 0.01], [0.1, 0.1, 0.1, 0.1, 0.001, 0.1]
    second = first.copy()
    second[:, 0, :D] = [0.5, 0.3, -0.04, -0.09, 0.3, 0.0], [0.1, 0.1, 0.1, 0.1, 0.1, 0.001]
    learner.estimator.running, learner.estimator.again = first, second
    assert _parents(learner) == ([0, 1, 2] if keep_in_doubt else [0])


def test_rounds_leave_out_what_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round has the inputs whose effect may reach the smallest that counts; the last that saw an input tells."""
    looks: list[list[int]] = []
    effects = np.array([[0.5, 0.2, -0.2, 0.004, -0.004, 0.0], [0.3, 0.1, 0.0, -0.3, 0.0, 0.0], [0.2, 0.1, 0, 0, 0, 0]])
    stderr = np.array([0.1, 0.1, 0.1, 0.1, 0.001, 0.001])
    shadows = np.zeros(SMALL.shadows)

    def look(dataset: Any, cmi: np.ndarray, error: np.ndarray, *rest: Any) -> Estimate:
        seen = cmi[0, :D] > 0
        looks.append([int(j) for j in np.flatnonzero(seen)])
        told = effects[len(looks) - 1]
        cmi, error = (np.append(np.where(seen, values, np.inf), shadows)[None] for values in (told, stderr))
        return Estimate(cmi, error)

    monkeypatch.setattr(refine, "_look", look)
    learner = OnlineReward("product", SMALL)
    learner.learn(*_split(_log(1000, "product")), updates=0)
    assert learner.estimator.fitted is not None
    first = Estimate(np.full((1, D + SMALL.shadows), 0.01), np.zeros((1, D + SMALL.shadows)))
    found = refine.refine_until_settled(learner.estimator.fitted.dataset, first, SMALL, 10, seed=0)
    assert looks == [[0, 1, 2, 3, 4, 5], [0, 1, 3], [0, 1]]
    np.testing.assert_array_equal(found.cmi[0, :D], [0.2, 0.1, -0.2, -0.3, -0.004, 0.0])


def test_refusals() -> None:
    with pytest.raises(DataError, match="unknown reward 'prodct'; did you mean 'product'"):
        OnlineReward("prodct", SMALL).learn(*_split(_log(1000, "product")), updates=1)
    with pytest.raises(DataError, match="demi"):
        OnlineEstimator(DynamicsSource(), preset("fast", "demi"), 0)


def _contact(task: str, calls: list[int], updates: int, seed: int = 0) -> list[int]:
    """Wrong parents after each call."""
    world = make_world("contact")
    data = collect(world, calls[-1], "mixed", seed=seed)
    learner = OnlineReward(task, seed=seed)
    wrong = []
    for rows in calls:
        learner.learn(*_split(data.head(rows)), updates=updates)
        verdicts = learner.verdicts()
        assert verdicts is not None
        wrong.append(int((verdicts.edge[0, : len(world.factors)] != world.truth_rewards[task]).sum()))
    return wrong


@pytest.mark.slow
def test_contact_world() -> None:
    """`stack` is made of nine variables; the gripper, closed when hand and block meet, tells of it too."""
    assert _contact("stack", [10_000, 15_000], updates=250)[-1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("task", ["pick", "stack"])
def test_contact_world_stays_right(task: str, seed: int) -> None:
    wrong = _contact(task, list(range(5000, 45_000, 5000)), updates=400, seed=seed)
    assert wrong[3:] == [0] * 5, wrong  # from 20 000 rows on
