"""Verdicts of whole discoveries on small systems, each made to be hard in one way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.discover import discover
from cbm.discovery.evidence import Evidence
from cbm.discovery.measure import _Part
from cbm.discovery.settings import SELF_MEMORY, Settings
from cbm.discovery.targets import self_memory
from cbm.graph import CausalGraph
from cbm.graph.reward import UNSETTLED

Rng = np.random.Generator
Step = Callable[[np.ndarray, np.ndarray, Rng], list[np.ndarray]]
SETTINGS = replace(Settings(), prediction_updates=1)


def _log(step: Step, names: str, episodes: int = 100, horizon: int = 40) -> Transitions:
    """Copies of a system under random actions; the first states are those of a step from random ones."""
    rng = np.random.default_rng(0)
    state = rng.normal(size=(episodes, len(names.split())))
    rows: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(horizon + 1):
        action = rng.uniform(-1, 1, (episodes, 2))
        after = np.stack(step(state, action, rng), 1).astype(float)
        rows.append((state, action, after))
        state = after
    obs, act, following = (np.stack(part, 1).reshape(episodes * horizon, -1) for part in zip(*rows[1:], strict=True))
    factors = Factors(tuple(Variable(name) for name in names.split()), ("a0", "a1"))
    return Transitions(obs, act, following, factors, episode=np.repeat(np.arange(episodes), horizon))


def _discover(data: Transitions, **changes: object) -> CausalGraph:
    return discover(data, settings=replace(SETTINGS, **changes), workers=0)  # type: ignore[arg-type]


def _edges(graph: CausalGraph) -> set[str]:
    columns = [*graph.variables, "A"]
    return {f"{columns[j]} -> {graph.variables[i]}" for i, j in zip(*np.nonzero(graph.verdict == "edge"))}


# Interactions, spread, noise


def _signs(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
    p, q = s[:, 0], s[:, 1]
    noise = rng.normal(size=s.T.shape)
    return [0.5 * p + noise[0], 0.5 * q + noise[1], np.sign(p) * np.sign(q) + 0.3 * noise[2], noise[3]]


@pytest.fixture(scope="module")
def signs() -> CausalGraph:
    return _discover(_log(_signs, "p q xor w"))


def test_an_interaction_of_which_each_part_alone_says_nothing(signs: CausalGraph) -> None:
    assert signs.verdict[2].tolist() == ["edge", "edge", "none", "none", "none"]
    assert signs.cmi[2, :2].min() > 0.8, "1.2 nats there are"


def test_an_effect_on_the_spread_alone() -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        noise = rng.normal(size=s.T.shape)
        return [noise[0] * np.exp(0.7 * np.tanh(s[:, 1])), noise[1], noise[2]]

    assert _edges(_discover(_log(step, "wide w v", episodes=400))) == {"w -> wide"}


def test_noise_has_no_cause(signs: CausalGraph) -> None:
    assert set(signs.verdict[3]) == {"none"}
    assert not signs.last_action, "it was looked at, and tells nothing"


def test_all_edges(signs: CausalGraph) -> None:
    assert _edges(signs) == {"p -> p", "q -> q", "p -> xor", "q -> xor"} and signs.is_settled
    assert (signs.false_discovery_rate, signs.miss_rate) == (SETTINGS.false_discovery_rate, SETTINGS.miss_rate)


def test_what_is_ruled_out_lies_below_the_limit_of_detection(signs: CausalGraph) -> None:
    reach = signs.cmi + stats.norm.isf(signs.miss_rate) * signs.stderr
    none = signs.verdict == "none"
    assert (reach <= signs.limit_of_detection[:, None] + 1e-12)[none].all()


@pytest.mark.parametrize("seed", range(3))
def test_pure_noise_gives_no_edge(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    obs, after = rng.normal(size=(2, 1500, 6))
    after[:, 3:] = rng.standard_t(2.5, (1500, 3))
    factors = Factors(tuple(Variable(f"n{k}") for k in range(6)), ("a",))
    rewards = {"luck": rng.normal(size=1500)}
    data = Transitions(obs, rng.normal(size=(1500, 1)), after, factors, rewards, episode=np.arange(1500) // 30)
    graph = _discover(data)
    assert not (graph.verdict == "edge").any() and not graph.rewards["luck"].parents
    assert graph.rewards["luck"].action is not None and graph.rewards["luck"].action.verdict != "edge"


# Twins


def test_twin_sensors_are_undecided_and_named() -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        speed, _, place, _ = s.T
        noise = rng.normal(size=s.T.shape)
        after = 0.8 * speed + 0.5 * a[:, 0] + 0.2 * noise[0]
        return [after, after + 1e-3 * noise[1], 0.5 * place + 0.5 * speed + 0.1 * noise[2], noise[3]]

    graph = _discover(_log(step, "speed twin place w"))
    place = graph.variables.index("place")
    assert graph.verdict[place].tolist() == ["undecided", "undecided", "edge", "none", "none"]
    assert graph.reason[place, 0] == "hardly varies by itself: goes with twin"
    assert graph.reason[place, 1] == "hardly varies by itself: goes with speed"
    assert graph.settled.all(), "more time would not tell them apart"
    assert (graph.verdict[:2, 4] == "edge").all() and set(graph.verdict[3]) == {"none"}


# The action


def test_a_reward_of_the_action_has_no_parent_that_merely_shows_it() -> None:
    def step(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
        noise = rng.normal(size=s.T.shape)
        return [a[:, 0] + 1e-3 * noise[0], 0.7 * s[:, 1] + a[:, 1] + 0.3 * noise[1], noise[2]]

    data = _log(step, "shown place w")
    rng = np.random.default_rng(1)
    effort = -0.1 * data.action[:, 0] ** 2
    rewards = {
        "effort": effort,
        "both": effort + 0.1 * data.next_obs[:, 1] + 0.01 * rng.normal(size=len(data)),
        "state": data.next_obs[:, 1] + 0.1 * rng.normal(size=len(data)),
    }
    graph = _discover(replace(data, rewards=rewards))
    assert {name: reward.parents for name, reward in graph.rewards.items()} == {
        "effort": (), "both": ("place",), "state": ("place",)
    }  # fmt: skip
    actions = {name: reward.action for name, reward in graph.rewards.items()}
    assert all(action is not None for action in actions.values())
    verdicts = {name: action.verdict for name, action in actions.items() if action is not None}
    assert verdicts == {"effort": "edge", "both": "edge", "state": "none"}
    assert graph.abstraction("effort") == () and graph.abstraction("both") == ("place",)


def _late(s: np.ndarray, a: np.ndarray, rng: Rng) -> list[np.ndarray]:
    """A velocity that nobody measures is set by the action, and moves the place one step later."""
    place, velocity = s[:, 0], s[:, 2]
    noise = 0.05 * rng.normal(size=len(s))
    return [0.9 * place + 0.5 * velocity + noise, a[:, 0] - a[:, 1], a[:, 0] - a[:, 1], rng.normal(size=len(s))]


@pytest.fixture(scope="module")
def late() -> Transitions:
    whole = _log(_late, "place shown velocity w")
    seen = [0, 1, 3]
    factors = Factors(tuple(whole.factors.variables[j] for j in seen), whole.factors.action_names)
    return replace(whole, obs=whole.obs[:, seen], next_obs=whole.next_obs[:, seen], factors=factors)


@pytest.mark.parametrize("use", ["auto", "on"])
def test_what_repeats_the_last_action_is_no_cause_of_what_that_still_moves(late: Transitions, use: str) -> None:
    graph = _discover(late, last_action=use)
    assert _edges(graph) == {"place -> place", "A -> place", "A -> shown"} and graph.last_action
    assert set(graph.verdict[2]) == {"none"}


def test_without_the_last_action_what_is_shown_is_all_there_is(late: Transitions) -> None:
    graph = _discover(late, last_action="off")
    assert _edges(graph) == {"place -> place", "shown -> place", "A -> shown"} and not graph.last_action


def test_rows_out_of_order_have_no_last_action(late: Transitions) -> None:
    shuffled = late.select(np.random.default_rng(0).permutation(len(late)))
    graph = _discover(shuffled)
    assert "shown -> place" in _edges(graph) and not graph.last_action


# Units


def test_units_and_offsets_do_not_matter(signs: CausalGraph) -> None:
    data = _log(_signs, "p q xor w")
    unit, offset = np.array([1e3, 1e-4, 7.0, 1e6]), np.array([5.0, 0.0, -1e2, 1e5])
    moved = _discover(replace(data, obs=data.obs * unit + offset, next_obs=data.next_obs * unit + offset))
    assert np.array_equal(moved.verdict, signs.verdict)
    assert moved.cmi == pytest.approx(signs.cmi, abs=0.02, rel=0.05)


# A ceiling


def test_a_ceiling_claims_nothing_that_was_not_measured() -> None:
    data = replace(_log(_signs, "p q xor w"), rewards={"luck": np.random.default_rng(2).normal(size=4000)})
    graph = discover(data, steps=3, settings=SETTINGS, workers=0)
    assert not graph.is_settled and not graph.settled.all() and not graph.rewards["luck"].settled.any()
    true = {"p -> p", "q -> q", "p -> xor", "q -> xor"}
    assert _edges(graph) <= true
    missing = ~graph.settled
    assert (graph.verdict[missing] == "undecided").all() and (graph.reason[missing] == UNSETTLED).all()
    assert (graph.rewards["luck"].verdict == "undecided").all() and not graph.rewards["luck"].parents
    action = graph.rewards["luck"].action
    assert action is not None and (action.verdict, action.reason) == ("undecided", UNSETTLED)
    assert missing.all(1).any(), "some targets were not looked at"
    assert set(graph.possible("luck")) == set(graph.variables)


# What a variable was


def _depths(seed: int = 0, copies: int = 200, steps: int = 40) -> Transitions:
    """place: what it was, plus a push. depth: a reading of the next place, wavy, with noise of its own, no memory."""
    rng = np.random.default_rng(seed)
    place, depth = rng.uniform(0, 10, copies), rng.normal(size=copies)
    rows: list[tuple[np.ndarray, ...]] = []
    for _ in range(steps):
        push = rng.normal(size=copies)
        after = place + 0.04 * push + 0.02 * rng.normal(size=copies), np.sin(2 * place) + 0.1 * rng.normal(size=copies)
        rows.append((np.stack([place, depth], 1), push[:, None], np.stack(after, 1)))
        place, depth = after
    obs, action, following = (np.stack(part, 1).reshape(copies * steps, -1) for part in zip(*rows, strict=True))
    factors = Factors((Variable("place"), Variable("depth")), ("push",))
    return Transitions(obs, action, following, factors, episode=np.repeat(np.arange(copies), steps))


def test_a_slow_reading_has_no_memory_and_what_is_carried_on_has() -> None:
    data = _depths()
    assert self_memory(data)[1] > SELF_MEMORY  # a sum of bent lines cannot follow the waves: its change looks simpler
    graph = discover(data, workers=1)
    assert graph.verdict[0].tolist() == ["edge", "none", "edge"]
    assert graph.verdict[1, 0] == "edge" and graph.verdict[1, 1] != "edge" and graph.cmi[1, 1] < 0.1
    assert graph.stderr[0, 0] > 0 and graph.cmi[0, 0] > 2  # measured, like any other cell


def test_the_candidate_that_harms_most_goes_first() -> None:
    found = Evidence(*(np.array(part) for part in (
        [-0.2, -0.1, -0.3, -0.001, -0.4], [0.02, 0.02, 0.02, 0.02, 0.02], [2] * 5, [0.0] * 5, [0.0] * 5,
    )))  # fmt: skip
    data = SimpleNamespace(exogenous=4, inputs=5)  # input 4 is always in view, and input 2 is the variable's own past
    part = SimpleNamespace(candidates=[0, 1, 2, 3, 4], own=2, data=data, bundle=np.array([-1, -1, -1, -1, -1]))
    assert _Part._most_harmful(part, found) == 0  # type: ignore[arg-type]
    part.bundle[0] = 0
    assert _Part._most_harmful(part, found) == 1  # type: ignore[arg-type]
    part.candidates = [2, 3, 4]
    assert _Part._most_harmful(part, found) is None  # type: ignore[arg-type]
