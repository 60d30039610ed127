"""Abstraction rules against networkx and hand-drawn graphs; explanations word by word."""

from __future__ import annotations

import json
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbm.errors import DataError
from cbm.graph import CausalGraph, RewardGraph
from cbm.graph.explain import explain, plus_minus
from cbm.graph.rules import (
    action_relevant,
    ancestors,
    cbm_abstraction,
    cdl_abstraction,
    controllable,
    descendants,
)


def random_adjacency(rng: np.random.Generator) -> np.ndarray:
    d = int(rng.integers(1, 13))
    density = float(rng.choice([0.05, 0.15, 0.3, 0.6]))
    return rng.random((d, d + 1)) < density


def as_networkx(adjacency: np.ndarray) -> Any:
    """State variables 0..d-1 and the action d, cell by cell."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(adjacency.shape[1]))
    graph.add_edges_from((int(j), int(i)) for i, j in np.argwhere(adjacency))
    return graph


def test_closure_equals_networkx_on_random_graphs() -> None:
    rng = np.random.default_rng(0)
    loops = cycles = 0
    for _ in range(200):
        adjacency = random_adjacency(rng)
        d = len(adjacency)
        reference = as_networkx(adjacency)
        state = reference.subgraph(range(d))
        loops += nx.number_of_selfloops(state) > 0
        cycles += any(len(c) > 1 for c in nx.strongly_connected_components(state))
        for node in range(d):
            start = np.arange(d) == node
            assert set(np.flatnonzero(ancestors(adjacency, start))) == nx.ancestors(state, node) | {node}
            assert set(np.flatnonzero(descendants(adjacency, start))) == nx.descendants(state, node) | {node}
        within = nx.descendants(reference, d)
        assert set(np.flatnonzero(controllable(adjacency))) == within
        influences = set().union(*(nx.ancestors(state, v) for v in within)) - within
        assert set(np.flatnonzero(action_relevant(adjacency))) == influences
        assert set(np.flatnonzero(cdl_abstraction(adjacency))) == within | influences
    assert loops > 50 and cycles > 50, "the random graphs must hold what the test is about"


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_abstraction_is_closed_minimal_and_monotone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    adjacency = random_adjacency(rng)
    d = len(adjacency)
    parents = rng.random(d) < 0.3
    kept = cbm_abstraction(adjacency, parents)
    assert (kept >= parents).all()
    assert not adjacency[kept][:, :d][:, ~kept].any(), "no edge leads in from outside"
    reference = as_networkx(adjacency).subgraph(range(d))
    for extra in np.flatnonzero(kept & ~parents):
        assert any(nx.has_path(reference, extra, p) for p in np.flatnonzero(parents)), "nothing is kept in vain"
    more = adjacency | (rng.random(adjacency.shape) < 0.1)
    assert (cbm_abstraction(more, parents) >= kept).all()
    without_action = adjacency.copy()
    without_action[:, -1] = ~without_action[:, -1]
    assert (cbm_abstraction(without_action, parents) == kept).all(), "the action column does not matter"


def test_rules_leave_their_arguments_alone() -> None:
    adjacency = np.array([[1, 1, 0], [0, 1, 1]], dtype=bool)
    start = np.array([True, False])
    assert ancestors(adjacency, start).all()
    assert start.tolist() == [True, False]
    with pytest.raises(AssertionError, match="expected"):
        ancestors(np.eye(2, dtype=bool), start)


# A car that the action drives, a lamp that switches the light the car obeys, a mirror that shows the light,
# a marker on its own, and a goal that only the reward sees.
NAMES = ("car", "light", "lamp", "mirror", "marker", "goal")


def make_graph(**undecided: float) -> CausalGraph:
    cmi = np.full((6, 7), 0.0004)
    edges = {(0, 0): 0.9, (0, 1): 0.2134, (0, 6): 0.8, (1, 1): 0.5, (1, 2): 0.35, (2, 2): 0.4, (3, 1): 0.6,
             (4, 4): 0.7, (5, 5): 0.5}  # fmt: skip
    for cell, value in edges.items():
        cmi[cell] = value
    adjacency = cmi > 0.01
    verdict = np.where(adjacency, "edge", "none").astype("<U9")
    if undecided:
        cmi[0, 4], verdict[0, 4] = undecided["value"], "undecided"
    parents = np.isin(NAMES, ["car", "goal"])
    reward = RewardGraph(
        ("car", "goal"),
        np.where(parents, 0.35, 0.0021),
        np.where(parents, 0.01, 0.0003),
        np.where(parents, "edge", "none"),
        np.full(6, 0.05),
    )
    stderr = np.full((6, 7), 0.0002)
    stderr[0, 1] = 0.004
    return CausalGraph(NAMES, adjacency, cmi, stderr, verdict, 0.01, rewards={"drive": reward})


def test_rules_on_the_car_world() -> None:
    graph = make_graph()
    assert graph.abstraction("drive") == ("car", "light", "lamp", "goal")
    assert graph.abstraction("drive", "cdl") == ("car", "light", "lamp")
    assert graph.names_of(controllable(graph.adjacency)) == ("car",)
    assert graph.names_of(action_relevant(graph.adjacency)) == ("light", "lamp")


def test_explain_cbm() -> None:
    explanation = explain(make_graph(), "drive", "cbm")
    data = json.loads(json.dumps(explanation.to_json()))
    assert list(data) == [
        "reward", "rule", "certain", "possible", "abstraction", "kept", "dropped", "decided", "undecided_links",
        "coarse_limits",
    ]  # fmt: skip
    assert data["certain"] == data["abstraction"] and data["possible"] == [] and data["undecided_links"] == {}
    assert data["decided"] is True
    assert (data["reward"], data["rule"]) == ("drive", "cbm")
    assert data["abstraction"] == ["car", "light", "lamp", "goal"] == list(data["kept"])
    assert data["kept"] == {
        "car": "car -> reward drive (CMI 0.35 ± 0.01)",
        "light": "light -> car -> reward drive (CMI 0.213 ± 0.004, 0.35 ± 0.01)",
        "lamp": "lamp -> light -> car -> reward drive (CMI 0.3500 ± 0.0002, 0.213 ± 0.004, 0.35 ± 0.01)",
        "goal": "goal -> reward drive (CMI 0.35 ± 0.01)",
    }
    assert list(data["dropped"]) == ["mirror", "marker"]
    assert data["dropped"]["mirror"] == (
        "no edge to anything kept; strongest: mirror -> reward drive CMI 0.0021 ± 0.0003, threshold 0.05 (none)"
    )


def test_explain_says_which_undecided_link_lets_a_variable_in() -> None:
    for value, size in ((0.009, "0.0090"), (0.001, "0.0010")):
        explanation = explain(make_graph(value=value), "drive")
        assert explanation.certain == ("car", "light", "lamp", "goal") and explanation.possible == ("marker",)
        path = f"marker -?-> car -> reward drive (CMI {size} ± 0.0002 undecided, 0.35 ± 0.01)"
        assert explanation.kept["marker"] == path
        assert explanation.undecided_links == {"marker": ("marker -?-> car: no reason is recorded",)}
        assert list(explanation.dropped) == ["mirror"]
        only = explain(make_graph(value=value), "drive", certain_only=True)
        assert only.abstraction == only.certain == explanation.certain and only.possible == ("marker",)
        assert only.dropped["marker"] == f"cannot be ruled out: {path}"
        guessed = explain(make_graph(value=value), "drive", as_guessed=True)  # the best guess has no edge there
        assert (guessed.abstraction, guessed.dropped) == (only.abstraction, only.dropped)


def test_explain_cdl() -> None:
    graph = make_graph()
    explanation = explain(graph, None, "cdl")
    assert explanation.kept == {
        "car": "action -> car: controllable",
        "light": "action-relevant: light -> car, which the action controls",
        "lamp": "action-relevant: lamp -> light -> car, which the action controls",
    }
    assert list(explanation.dropped) == ["mirror", "marker", "goal"]
    # light -> mirror is an edge, but light is out of the action's reach, so that does not keep it.
    assert explanation.dropped["mirror"].startswith(
        "not reached from the action, and not a cause of anything that is; strongest: "
    )
    assert "light -> mirror" not in explanation.dropped["mirror"]
    assert explanation.to_json()["reward"] is None
    assert explain(graph, "drive", "cdl").kept == explanation.kept


def test_explain_takes_a_shortest_path() -> None:
    # a -> b -> c -> reward and a -> c: the direct link wins; d -> {b, c}: shorter again, though weaker.
    adjacency = np.zeros((4, 5), dtype=bool)
    for effect, cause in ((1, 0), (2, 1), (2, 0), (1, 3), (2, 3)):
        adjacency[effect, cause] = True
    adjacency[0, 4] = True
    cmi = np.where(adjacency, 0.1, 0.0)
    cmi[1, 3] = 0.9
    names = ("a", "b", "c", "d")
    reward = RewardGraph(("c",), np.zeros(4), np.zeros(4), np.array(["none", "none", "edge", "none"]), np.full(4, 0.1))
    verdict = np.where(adjacency, "edge", "none")
    graph = CausalGraph(names, adjacency, cmi, np.zeros((4, 5)), verdict, 0.02, rewards={"r": reward})
    kept = explain(graph, "r").kept
    assert kept["a"] == "a -> c -> reward r (CMI 0.1, 0)"
    assert kept["d"] == "d -> c -> reward r (CMI 0.1, 0)"
    controlled = explain(graph, "r", "cdl").kept
    assert controlled["c"] == "action -> a -> c: controllable"
    assert controlled["b"] == "action -> a -> b: controllable"


def test_explain_prefers_the_stronger_of_two_shortest_paths() -> None:
    # d reaches the reward's parents a and b directly; its link to b is the stronger one.
    adjacency = np.zeros((3, 4), dtype=bool)
    adjacency[0, 2] = adjacency[1, 2] = True
    cmi = np.zeros((3, 4))
    cmi[0, 2], cmi[1, 2] = 0.1, 0.3
    reward = RewardGraph(("a", "b"), np.ones(3), np.zeros(3), np.array(["edge", "edge", "none"]), np.ones(3))
    verdict = np.where(adjacency, "edge", "none")
    graph = CausalGraph(("a", "b", "d"), adjacency, cmi, np.zeros((3, 4)), verdict, 0.02, rewards={"r": reward})
    assert explain(graph, "r").kept["d"] == "d -> b -> reward r (CMI 0.3, 1)"


def test_explain_a_reward_without_parents() -> None:
    reward = RewardGraph((), np.zeros(1), np.zeros(1), np.array(["none"]), np.full(1, 0.1))
    cells = np.ones((1, 2))
    graph = CausalGraph(("x",), cells > 0, cells, cells, np.full((1, 2), "edge"), 0.02, rewards={"r": reward})
    explanation = explain(graph, "r")
    assert explanation.abstraction == ()
    assert explanation.dropped["x"] == ("no edge to the reward; strongest: x -> reward r CMI 0, threshold 0.1 (none)")
    assert "certainly needed: none" in explanation.text()


def test_every_variable_is_explained_once() -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        adjacency = random_adjacency(rng)
        d = len(adjacency)
        names = tuple(f"v{k}" for k in range(d))
        parents = rng.random(d) < 0.3
        verdict = np.where(parents, "edge", "none")
        reward = RewardGraph(tuple(np.array(names)[parents]), rng.random(d), rng.random(d), verdict, np.ones(d))
        graph = CausalGraph(
            names, adjacency, rng.random((d, d + 1)), rng.random((d, d + 1)),
            np.where(adjacency, "edge", "none"), 0.02, rewards={"r": reward},
        )  # fmt: skip
        for rule in ("cbm", "cdl"):
            explanation = explain(graph, "r", rule)
            assert explanation.abstraction == graph.abstraction("r", rule) == tuple(explanation.kept)
            assert sorted([*explanation.kept, *explanation.dropped]) == sorted(names)
            for evidence in explanation.dropped.values():
                assert "(edge)" not in evidence, "a dropped variable has no edge that would keep it"
            assert not any("-?->" in path for path in explanation.kept.values())


def test_text_is_aligned() -> None:
    lines = explain(make_graph(), "drive").text().splitlines()
    assert lines[0] == "reward drive, rule cbm: 4 of 6 variables kept"
    assert lines[2] == "certainly needed" and lines[8] == "dropped"
    assert lines[3].startswith("  car     car -> ")
    assert lines[9].startswith("  mirror  no edge")


def test_explain_errors() -> None:
    with pytest.raises(DataError, match="did you mean 'drive'"):
        explain(make_graph(), "driv")
    with pytest.raises(DataError, match="none given"):
        explain(make_graph(), None)
    with pytest.raises(DataError, match="unknown rule"):
        explain(make_graph(), "drive", "tia")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "stderr", "text"),
    [
        (0.21312, 0.0042, "0.213 ± 0.004"),
        (0.0004, 0.0002, "0.0004 ± 0.0002"),
        (0.35, 0.01, "0.35 ± 0.01"),
        (12.3, 2.0, "12 ± 2"),
        (0.12345, 0.0, "0.123"),
        (0.12345, 3e-9, "0.123 ± 3e-09"),
    ],
)
def test_plus_minus(value: float, stderr: float, text: str) -> None:
    assert plus_minus(value, stderr) == text
