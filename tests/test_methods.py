"""Methods that read their mask from a graph, and the dynamics they share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from cbm.abstraction.cbm import LearnedRewards
from cbm.abstraction.dynamics import FrozenDynamics, JointDynamics, joint_settings
from cbm.abstraction.hysteresis import Hysteresis
from cbm.abstraction.method import Method, Setup, make_method
from cbm.abstraction.oracle import true_graph
from cbm.abstraction.table import METHODS
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.models.base import TrunkModel
from cbm.discovery.online import DynamicsSource, OnlineDiscovery
from cbm.discovery.online_estimator import OnlineEstimator
from cbm.discovery.settings import ModelName
from cbm.discovery.stored import dataset_from_tensors, dataset_tensors
from cbm.discovery.tensor_dataset import dynamics_rows
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.errors import DataError
from cbm.graph import CausalGraph

LIGHT = make_world("light")
SMALL = replace(joint_settings(), shadows=6, evaluation_rows=2000)


pytestmark = pytest.mark.usefixtures("one_thread")


class Log:
    """Experience: the first rows of a log."""

    def __init__(self, data: Transitions, rows: int | None = None):
        self.data = data if rows is None else data.head(rows)

    def transitions(self, held_out: bool) -> Transitions:
        return self.data.select((self.data.episode % 5 == 4) == held_out)


@pytest.fixture(scope="module")
def data() -> Transitions:
    return collect(LIGHT, 12_000, "mixed", seed=0)


def _truth(rewards: bool = True) -> CausalGraph:
    return true_graph(LIGHT.factors.names, LIGHT.truth, LIGHT.truth_rewards if rewards else {})


def _method(name: str, task: str = "cross", **setup: object) -> Method:
    setup = {"factors": LIGHT.factors, "dynamics": FrozenDynamics(_truth()), "rewards": "run"} | setup
    options = setup.pop("options", None)
    return make_method(name, Setup(task=task, **setup), options)  # type: ignore[arg-type]


def _kept(method: Method) -> set[str]:
    return {name for name, kept in zip(LIGHT.factors.names, method.mask()) if kept}


# Two thresholds


def test_settle() -> None:
    settle, thresholds = Hysteresis(on=1.0, off=0.6), np.full(3, 0.02)
    evidence = [[0.03, 0.015, 0.0], [0.015, 0.015, 0.021], [0.011, 0.019, 0.013], [0.02, 0.03, 0.011]]
    wanted = [[1, 0, 0], [1, 0, 1], [0, 0, 1], [0, 1, 0]]
    for now, then in zip(evidence, wanted):
        assert settle.move(np.array(now), thresholds).tolist() == [bool(v) for v in then]
    assert settle.verdict(np.array(["edge", "edge", "edge"])).tolist() == ["undecided", "edge", "undecided"]
    again = Hysteresis()
    again.restore(settle.tensors())
    assert again.move(np.array([0.015, 0.015, 0.015]), thresholds).tolist() == [False, True, False]


def test_settle_in_doubt_as_it_was() -> None:
    """What may be above the threshold is on at first; it goes when it is surely below, and comes back surely above."""
    settle, thresholds, doubt = Hysteresis(on=1.0, off=0.5), np.full(3, 0.02), np.array([0.05, 0.05, 0.001])
    evidence = [[0.0, -0.04, 0.018], [-0.03, 0.06, 0.03], [-0.05, 0.08, 0.012], [0.06, -0.03, 0.005]]
    wanted = [[1, 0, 0], [1, 0, 1], [0, 1, 1], [0, 1, 0]]
    for now, then in zip(evidence, wanted):
        assert settle.move(np.array(now), thresholds, doubt).tolist() == [bool(v) for v in then]


# The table of methods, and what it refuses


def test_the_table_has_the_methods_of_the_paper() -> None:
    assert tuple(METHODS) == ("cbm", "cdl", "tia", "denoised", "icp", "oracle", "full")


@pytest.mark.parametrize(
    ("name", "setup", "message"),
    [
        ("cmb", {}, "unknown method 'cmb'; did you mean 'cbm'"),
        ("cbm", {"dynamics": None}, "method 'cbm' needs dynamics"),
        ("cdl", {"dynamics": None}, "method 'cdl' needs dynamics"),
        ("cbm", {"rewards": "runs"}, "unknown source of rewards 'runs'"),
        ("cbm", {"options": {"depth": 3}}, "method 'cbm': unknown option 'depth'"),
        ("cbm", {"on": 0.5, "off": 0.6}, "0 < off <= on"),
        ("cbm", {"task": "crss"}, "no reward 'crss': it has cross, park; `--rewards learned`"),
        ("cbm", {"dynamics": FrozenDynamics(_truth(rewards=False))}, "no reward 'cross': it has none"),
        ("cbm", {"dynamics": JointDynamics(LIGHT.factors, SMALL)}, "dynamics are learned jointly"),
        ("oracle", {}, "needs the true graph"),
    ],
)
def test_refusals(name: str, setup: dict[str, object], message: str) -> None:
    with pytest.raises(DataError) as refused:
        _method(name, **setup)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_a_graph_of_another_world_is_refused(tmp_path: Path) -> None:
    _truth().save(tmp_path / "graph.json")
    other = Factors((*LIGHT.factors.variables[:-1], Variable("rain")), LIGHT.factors.action_names)
    with pytest.raises(DataError, match="only in the graph: wind; only in the environment: rain") as refused:
        FrozenDynamics.load(tmp_path, other)
    assert str(tmp_path) in str(refused.value)
    turned = Factors(LIGHT.factors.variables[::-1], LIGHT.factors.action_names)
    with pytest.raises(DataError, match="same names in another order: column 0 is 'position' in the graph, 'wind'"):
        _method("cdl", factors=turned)
    assert FrozenDynamics.load(tmp_path, LIGHT.factors).graph().variables == LIGHT.factors.names


def test_weak_effects_of_a_run_can_be_left_out(tmp_path: Path) -> None:
    graph, d = _truth(), len(LIGHT.factors)
    weak = np.where(np.arange(d + 1) == LIGHT.factors.names.index("countdown"), 0.01, 1.0)
    replace(graph, cmi=np.where(graph.adjacency, weak, 0.0)).save(tmp_path / "graph.json")
    for weakest, kept in ((0.0, {"speed", "light", "countdown"}), (0.03, {"speed", "light"})):
        dynamics = FrozenDynamics.load(tmp_path, LIGHT.factors, weakest)
        assert _kept(_method("cbm", dynamics=dynamics)) == kept


@pytest.mark.parametrize("guess", [False, True])
def test_undecided_links_of_a_run_count_unless_only_the_certain_is_wanted(tmp_path: Path, guess: bool) -> None:
    """Whether the wind moves the light is undecided, whatever the best guess: it cannot be ruled out."""
    graph = _truth()
    verdict, adjacency = graph.verdict.astype("<U9"), graph.adjacency.copy()
    cell = graph.index("light"), graph.index("wind")
    verdict[cell], adjacency[cell] = "undecided", guess
    replace(graph, verdict=verdict, adjacency=adjacency).save(tmp_path / "graph.json")
    for certain_only, more in ((False, {"wind"}), (True, set())):
        dynamics = FrozenDynamics.load(tmp_path, LIGHT.factors, certain_only=certain_only)
        assert _kept(_method("cbm", dynamics=dynamics)) == {"speed", "light", "countdown"} | more
        assert _kept(_method("cdl", dynamics=dynamics)) == {"position", "speed", "radio"}
        learned = _method("cbm", dynamics=dynamics, rewards="learned")
        learned.hysteresis.chosen = np.isin(LIGHT.factors.names, ["light"])  # type: ignore[attr-defined]
        assert _kept(learned) == {"light", "countdown"} | more
        assert dynamics.graph().verdict[cell] == "undecided"


# Masks from known graphs


def test_cdl_drops_the_light_and_cbm_keeps_it() -> None:
    assert _kept(_method("cdl")) == {"position", "speed", "radio"}
    assert _kept(_method("cbm")) == {"speed", "light", "countdown"}
    assert _kept(_method("cbm", task="park")) == {"position", "speed"}


def test_full_and_oracle() -> None:
    assert _method("full").mask().all()
    oracle = _method("oracle", truth=LIGHT.truth, truth_reward=LIGHT.truth_rewards["cross"])
    assert _kept(oracle) == {"speed", "light", "countdown"}
    graph = oracle.graph()
    assert graph is not None and graph.rewards["cross"].parents == ("speed", "light")
    assert (graph.adjacency == LIGHT.truth).all()


def test_without_a_parent_everything_is_kept() -> None:
    none = {"cross": np.zeros(6, bool)}
    dynamics = FrozenDynamics(true_graph(LIGHT.factors.names, LIGHT.truth, none))
    method = _method("cbm", dynamics=dynamics)
    assert method.learn(Log(collect(LIGHT, 200)), 1) == {"empty": 1.0} and method.mask().all()
    still = FrozenDynamics(true_graph(LIGHT.factors.names, np.eye(6, 7, dtype=bool), none))
    method = _method("cdl", dynamics=still)
    assert method.learn(Log(collect(LIGHT, 200)), 1) == {"empty": 1.0} and method.mask().all()


# Learned beside a policy


@pytest.mark.slow
def test_two_tasks_on_joint_dynamics(data: Transitions) -> None:
    """From no evidence, when everything is kept, to the two minimal states."""
    dynamics = JointDynamics(LIGHT.factors, SMALL, seed=1)
    setup = {"dynamics": dynamics, "rewards": "learned"}
    methods = {task: _method("cbm", task=task, **setup) for task in ("cross", "park")}
    methods["any"] = _method("cdl", dynamics=dynamics)
    assert dynamics.graph().adjacency.all() and (dynamics.graph().verdict == "undecided").all()
    assert all(method.mask().all() for method in methods.values())
    for rows in (8000, 12_000):
        numbers = dynamics.learn(Log(data, rows), 100)
        for method in methods.values():
            method.learn(Log(data, rows), 60)
    assert (dynamics.graph().adjacency != LIGHT.truth).sum() <= 2  # speed and light, say, which go together
    assert numbers["edges"] == dynamics.graph().adjacency.sum() and numbers["changed"] <= 2
    assert _kept(methods["cross"]) == {"speed", "light", "countdown"}
    assert _kept(methods["park"]) == {"position", "speed"}
    assert {"position", "speed", "radio"} <= _kept(methods["any"]) and "wind" not in _kept(methods["any"])
    found = dynamics.graph()
    assert _kept(methods["any"]) == set(found.names_of(found.guessed_mask(None, "cdl"))), "by the best guess"
    graph = methods["cross"].graph()
    assert graph is not None and graph.rewards["cross"].parents == ("speed", "light")
    again = CausalGraph.from_json(graph.to_json())
    assert again.names_of(again.guessed_mask("cross")) == ("speed", "light", "countdown")


@pytest.mark.parametrize("last_action", [False, True])
def test_joint_dynamics_may_see_the_last_action(last_action: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only repeats it is then blank before the step; it stays an effect like any other."""
    world = make_world("light", distractors=2)
    given: list[Transitions] = []
    learn = OnlineDiscovery.learn

    def spy(self: OnlineDiscovery, train: Transitions, held: Transitions, updates: int) -> dict[str, float]:
        given.extend((train, held))
        return learn(self, train, held, updates)

    monkeypatch.setattr(OnlineDiscovery, "learn", spy)
    dynamics = JointDynamics(world.factors, SMALL, seed=2, last_action=last_action)
    dynamics.learn(Log(collect(world, 2000)), 15)
    echoes = [world.factors.names.index(name) for name in ("cd0", "cd1")]
    for part in given:
        assert part.obs[:, echoes].any() == (not last_action) and part.next_obs[:, echoes].any()
        assert part.action.shape[1] == (4 if last_action else 2)
    graph = dynamics.graph()
    assert graph.variables == world.factors.names and graph.adjacency.shape == (10, 11)
    if last_action:
        assert not graph.adjacency[:, echoes].any()


def test_restored_dynamics_and_methods_go_on_with_equal_numbers(data: Transitions) -> None:
    def both() -> tuple[JointDynamics, Method]:
        dynamics = JointDynamics(LIGHT.factors, SMALL, seed=2)
        return dynamics, _method("cbm", dynamics=dynamics, rewards="learned", seed=3)

    def learn(pair: tuple[JointDynamics, Method], rows: int) -> list[dict[str, float]]:
        return [pair[0].learn(Log(data, rows), 5), pair[1].learn(Log(data, rows), 5)]

    whole, second = both(), both()
    for rows in (2000, 3000):
        learn(whole, rows)
    second[0].restore(whole[0].tensors())
    second[1].restore(whole[1].tensors())
    assert (second[1].mask() == whole[1].mask()).all()
    assert learn(second, 5000) == learn(whole, 5000)
    for k in range(2):
        wanted, found = whole[k].tensors(), second[k].tensors()
        assert wanted.keys() == found.keys() and all(torch.equal(wanted[name], found[name]) for name in wanted)
    assert whole[0].graph().dumps() == second[0].graph().dumps()


def test_the_model_of_rewards_is_that_of_the_dynamics() -> None:
    for model in get_args(ModelName)[:2]:
        dynamics = JointDynamics(LIGHT.factors, joint_settings(model))
        method = _method("cbm", dynamics=dynamics, rewards="learned")
        assert isinstance(method, LearnedRewards) and method.reward.settings.model == model


def test_explicit_dynamics_learn(data: Transitions) -> None:
    dynamics = JointDynamics(LIGHT.factors, replace(joint_settings("explicit"), width=64, shadows=6), seed=0)
    dynamics.learn(Log(data, 3000), 20)
    graph = dynamics.graph()
    assert graph.model == "explicit" and graph.transitions == 2400


# What lies beneath


def test_a_fitted_problem_survives_storage(data: Transitions) -> None:
    estimator = OnlineEstimator(DynamicsSource(), SMALL, 0)
    dataset = estimator.refit(data.head(1500), data.select(slice(1500, 2000))).dataset
    again = dataset_from_tensors(dataset_tensors(dataset))
    rows = [dynamics_rows(p, data.head(300), np.random.default_rng(0)) for p in (dataset, again)]
    for name in ("x", "u", "width", "y", "level"):
        assert torch.equal(getattr(rows[0], name), getattr(rows[1], name)), name
    x = rows[0].x
    assert torch.equal(dataset.encoder(x), again.encoder(x)) and dataset.levels == again.levels


def test_weights_are_carried_over(data: Transitions) -> None:
    """Fitted again to the same rows, the model is the same function; to other rows, nearly."""
    estimator = OnlineEstimator(DynamicsSource(), SMALL, 0)
    train, held = (Log(data, 3000).transitions(held) for held in (False, True))
    estimator.learn(train, held, 60)
    assert estimator.fitted is not None
    old = estimator.fitted
    old.trainer.use_average()
    rows = dynamics_rows(old.dataset, held, np.random.default_rng(0))
    nothing = torch.full((len(rows),), -1)

    def scores() -> torch.Tensor:
        assert estimator.fitted is not None
        model = estimator.fitted.trainer.model
        assert isinstance(model, TrunkModel)
        return model.trunk.rest(model.trunk.first_layer(model.trunk.encoder(rows.x), nothing)).detach()

    before = scores()
    estimator.refit(train, held)
    assert torch.allclose(scores(), before, atol=1e-6)
    estimator.refit(*(Log(data).transitions(held) for held in (False, True)))
    assert float((scores() - before).std() / before.std()) < 0.3


def test_online_discovery_by_single_steps(data: Transitions) -> None:
    """Scales from warm-up data, then batch by batch."""
    online = OnlineDiscovery(data.head(4000), SMALL)
    assert online.graph().adjacency.all()
    rng = np.random.default_rng(0)
    for _ in range(300):
        numbers = online.update(data.select(rng.integers(9000, size=160)))
    assert set(numbers) == {"loss_full", "loss_masked"}
    cmi = online.evaluate(data.select(slice(9000, None)))
    assert cmi.shape == LIGHT.truth.shape
    graph = online.graph()
    assert (graph.adjacency == LIGHT.truth).mean() > 0.9
