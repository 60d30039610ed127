"""Minimal states with doubt in them: what is certainly needed, what cannot be ruled out, and what would settle it.

The world of these tests has six variables. The reward depends on a, and b moves a: certain. Whether c moves b, whether
d moves c, and whether the reward depends on e are undecided. f moves nothing. The action moves a.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest

from cbm.cli.results import (
    against_truth,
    doubt_sentence,
    graph_sentence,
    needs_sentence,
    result_json,
    show_result,
)
from cbm.graph import ActionEffect, CausalGraph, RewardGraph
from cbm.graph.advice import advice
from cbm.graph.explain import action_sentence, explain
from cbm.graph.knowledge import Knowledge
from cbm.graph.limits import coarse_limits, limits_sentence

NAMES = ("a", "b", "c", "d", "e", "f")
EDGES = {("a", "b"), ("a", "action"), *((name, name) for name in NAMES)}  # (effect, cause)
OPEN = {("b", "c"): "near the threshold", ("c", "d"): "hardly varies by itself: goes with f"}


def cells(pairs: Any) -> np.ndarray:
    matrix = np.zeros((6, 7), dtype=bool)
    for effect, cause in pairs:
        matrix[NAMES.index(effect), (*NAMES, "action").index(cause)] = True
    return matrix


def make_graph(guess: Any = (), **changes: Any) -> CausalGraph:
    """`guess`: undecided cells that the best guess takes for edges."""
    edges, undecided = cells(EDGES), cells(OPEN)
    verdict = np.where(edges, "edge", np.where(undecided, "undecided", "none"))
    reason = np.full((6, 7), "", dtype=object)
    for (effect, cause), text in OPEN.items():
        reason[NAMES.index(effect), NAMES.index(cause)] = text
    reward = RewardGraph(
        parents=("a",), cmi=np.array([0.5, 0, 0, 0, 0.02, 0]), stderr=np.full(6, 0.01), threshold=np.full(6, 0.03),
        verdict=np.array(["edge", "none", "none", "none", "undecided", "none"]),
        reason=np.array(["", "", "", "", "models disagree", ""]), limit_of_detection=0.005,
    )  # fmt: skip
    fields: dict[str, Any] = {
        "variables": NAMES, "adjacency": edges | cells(guess), "cmi": edges * 0.3 + undecided * 0.01,
        "stderr": np.full((6, 7), 0.001), "verdict": verdict, "threshold": 0.02, "reason": reason,
        "limit_of_detection": np.full(6, 0.004), "rewards": {"r": reward},
    }  # fmt: skip
    return CausalGraph(**(fields | changes))


def undecided_reward(reason: str) -> RewardGraph:
    nothing = np.zeros(6)
    return RewardGraph((), nothing, nothing, np.full(6, "undecided"), nothing, reason=np.full(6, reason))


# Certain and possible


@pytest.mark.parametrize("guess", [(), (("b", "c"),), (("c", "d"), ("b", "c"))])
def test_undecided_links_let_in_what_they_may_carry_whatever_the_best_guess(guess: Any) -> None:
    graph = make_graph(guess)
    assert graph.certain("r") == ("a", "b")
    assert graph.possible("r") == ("c", "d", "e")
    assert graph.abstraction("r") == ("a", "b", "c", "d", "e")
    assert graph.mask("r").tolist() == [True] * 5 + [False]
    assert graph.abstraction("r", certain_only=True) == graph.certain("r")
    assert graph.mask("r", certain_only=True).tolist() == [True, True] + [False] * 4
    assert graph.parents("b") == (("b", "c") if ("b", "c") in guess else ("b",)), "parents are the best guess"


def test_the_best_guess_of_a_graph() -> None:
    assert make_graph().names_of(make_graph().guessed_mask("r")) == ("a", "b")
    guessed = make_graph([("b", "c")])
    assert guessed.names_of(guessed.guessed_mask("r")) == ("a", "b", "c")
    assert guessed.names_of(guessed.guessed_mask(rule="cdl")) == ("a", "b", "c")


def test_cdl_has_certain_and_possible_too() -> None:
    graph = make_graph()
    assert graph.certain(rule="cdl") == ("a", "b") and graph.possible(rule="cdl") == ("c", "d")
    assert graph.abstraction("r", "cdl") == ("a", "b", "c", "d")
    assert graph.abstraction("r", "cdl", certain_only=True) == ("a", "b")
    verdict = graph.verdict.copy()
    verdict[5, 6] = "undecided"  # the action may move f
    explanation = explain(replace(graph, verdict=verdict), None, "cdl")
    assert explanation.possible == ("c", "d", "f") and explanation.certain == ("a", "b")
    assert explanation.kept["f"] == "action -?-> f: controllable"
    assert explanation.kept["d"] == "action-relevant: d -?-> c -?-> b -> a, which the action controls"
    verdict[0, 6] = "undecided"  # and may not move a
    explanation = explain(replace(graph, verdict=verdict), None, "cdl")
    assert explanation.certain == () and explanation.possible == ("a", "b", "c", "d", "f")
    assert explanation.kept["b"] == "action-relevant: b -> a, which the action may control: action -?-> a"
    assert explanation.undecided_links["b"] == ("action -?-> a: no reason is recorded",)


def test_controllable_variables_are_called_so_however_long_the_path() -> None:
    """action -> x -> y -> z and z -> x: z is nearer to x than the action is to z, but it is controllable."""
    edges = np.zeros((3, 4), dtype=bool)
    edges[0, 3] = edges[1, 0] = edges[2, 1] = edges[0, 2] = True
    verdict = np.where(edges, "edge", "none")
    graph = CausalGraph(("x", "y", "z"), edges, edges * 1.0, edges * 0.0, verdict, 0.5)
    assert explain(graph, None, "cdl").kept["z"] == "action -> x -> y -> z: controllable"


def test_sets_agree_with_networkx_on_random_graphs() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        d = int(rng.integers(1, 9))
        names = tuple(f"v{k}" for k in range(d))
        verdict = rng.choice(["edge", "none", "undecided"], p=[0.2, 0.6, 0.2], size=(d, d + 1))
        reward_verdict = rng.choice(["edge", "none", "undecided"], size=d)
        guess = rng.random((d, d + 1)) < 0.5
        parents = (reward_verdict == "edge") | ((reward_verdict == "undecided") & (rng.random(d) < 0.5))
        reward = RewardGraph(tuple(np.array(names)[parents]), rng.random(d), np.ones(d), reward_verdict, np.ones(d))
        adjacency = (verdict == "edge") | ((verdict == "undecided") & guess)
        cmi = rng.random((d, d + 1))
        graph = CausalGraph(names, adjacency, cmi, cmi, verdict, 0.1, rewards={"r": reward})
        for certain_only, known in ((True, ["edge"]), (False, ["edge", "undecided"])):
            drawn = nx.DiGraph()
            drawn.add_nodes_from((*range(d), "r"))
            drawn.add_edges_from((j, i) for i, j in np.argwhere(np.isin(verdict[:, :d], known)))
            drawn.add_edges_from((j, "r") for j in np.flatnonzero(np.isin(reward_verdict, known)))
            expected = sorted(nx.ancestors(drawn, "r"))
            assert np.flatnonzero(graph.mask("r", certain_only=certain_only)).tolist() == expected
        for rule in ("cbm", "cdl"):
            certain, both = graph.mask("r", rule, certain_only=True), graph.mask("r", rule)
            assert (certain <= graph.guessed_mask("r", rule)).all() and (graph.guessed_mask("r", rule) <= both).all()
            explanation = explain(graph, "r", rule)
            for name in explanation.certain:
                assert "-?->" not in explanation.kept[name]
            for name in explanation.possible:
                assert explanation.kept[name].count("-?->") == len(explanation.undecided_links[name]) > 0
            assert not any("undecided" in evidence for evidence in explanation.dropped.values())


def test_paths_have_as_few_undecided_links_as_possible() -> None:
    explanation = explain(make_graph(), "r")
    assert explanation.kept["d"] == (
        "d -?-> c -?-> b -> a -> reward r "
        "(CMI 0.010 ± 0.001 undecided, 0.010 ± 0.001 undecided, 0.300 ± 0.001, 0.50 ± 0.01)"
    )
    assert explanation.undecided_links == {
        "c": ("c -?-> b: near the threshold",),
        "d": ("d -?-> c: hardly varies by itself: goes with f", "c -?-> b: near the threshold"),
        "e": ("e -?-> reward r: models disagree",),
    }
    # A longer path with one undecided link is better than a short one with another undecided link more.
    verdict = make_graph().verdict.copy()
    verdict[2, 5], verdict[4, 5] = "edge", "undecided"  # f -> c is sure, f -> e is not
    assert (
        explain(make_graph(verdict=verdict, adjacency=cells(EDGES | {("c", "f")})), "r")
        .kept["f"]
        .startswith("f -> c -?-> b -> a -> reward r")
    )


def test_what_is_dropped_comes_with_the_limit_of_detection() -> None:
    dropped = explain(make_graph(), "r").dropped
    assert dropped == {
        "f": "no edge to anything kept; strongest: f -> a CMI 0.000 ± 0.001, threshold 0.02 (none), "
        "limit of detection 0.004"
    }
    unknown = explain(make_graph(limit_of_detection=np.full(6, np.nan)), "r").dropped["f"]
    assert "limit of detection" not in unknown


def test_knowledge_settles_what_was_undecided() -> None:
    required = Knowledge(required=frozenset({("c", "b"), ("e", "reward:r")}))
    graph = required.apply(make_graph())
    assert graph.certain("r") == ("a", "b", "c", "e") and graph.possible("r") == ("d",)
    assert graph.reason[1, 2] == "" and graph.rewards["r"].reason[4] == ""
    graph = Knowledge(forbidden=frozenset({("c", "b"), ("e", "reward:*")})).apply(make_graph())
    assert graph.certain("r") == ("a", "b") and graph.possible("r") == ()


def test_knowledge_that_a_reward_does_not_see_the_action() -> None:
    reward = replace(make_graph().rewards["r"], action=ActionEffect(0.01, 0.01, "undecided", 0.02, "models disagree"))
    graph = make_graph(rewards={"r": reward})
    for forbidden in (("action", "reward:r"), ("*", "reward:*"), ("action", "*")):
        settled = Knowledge(forbidden=frozenset({forbidden})).apply(graph).rewards["r"].action
        assert settled is not None and (settled.verdict, settled.reason, settled.cmi) == ("none", "", 0.01)
    kept = Knowledge(forbidden=frozenset({("c", "b")})).apply(graph).rewards["r"].action
    assert kept == reward.action


# Advice


def test_advice_groups_reasons_and_says_what_to_do() -> None:
    graph = make_graph()
    assert advice(graph) == [
        "1 undecided cell: near the threshold; collect more data: four times as many rows halve the errors",
        "1 undecided cell: causes that go together; collect data in which d moves independently of f",
        "1 undecided cell: models disagree; collect more varied data, of e above all, or use --knowledge",
    ]
    assert advice(make_graph(verdict=np.where(cells(EDGES), "edge", "none"), rewards={})) == []


def with_reasons(reasons: dict[tuple[str, str], str]) -> CausalGraph:
    reason = np.full((6, 7), "", dtype=object)
    for (effect, cause), text in reasons.items():
        reason[NAMES.index(effect), (*NAMES, "action").index(cause)] = text
    verdict = np.where(cells(reasons), "undecided", "none")
    return make_graph(adjacency=np.zeros((6, 7)), verdict=verdict, reason=reason, rewards={})


@pytest.mark.parametrize(
    ("reasons", "sentence"),
    [
        ({("a", "b"): "not settled before the ceiling"}, "run again with more --minutes"),
        ({("a", "b"): "too few rows (12)"}, "too few rows; collect a longer log"),
        ({("a", "b"): "smaller than what models do not fit"}, "with b varied alone"),
        ({("a", "b"): "hardly varies by itself: goes with c (r = 0.99)"}, "b moves independently of c"),
        ({("a", "b"): "hardly varies by itself"}, "b moves independently of the others"),
        ({("a", "b"): "hardly ever changes (3 rows)"}, "in which b changes more often"),
        (dict.fromkeys([("a", "b"), ("a", "c"), ("a", "d")], "hardly ever changes (3 rows)"), "in which a changes"),
        (dict.fromkeys([("b", "a"), ("c", "a"), ("d", "a")], "hardly ever changes (3 rows)"), "in which a changes"),
        ({("a", "b"): "hardly ever changes (3 rows)", ("c", "d"): "hardly ever changes (5 rows)"}, "b and d change"),
        ({("a", name): "models disagree" for name in "bcdef"}, "5 undecided cells: .* of b, c, d and 2 more above all"),
        ({("a", "b"): "the moon is full"}, "the moon is full; more data may settle this"),
        ({("a", "b"): ""}, "no reason is recorded; more data may settle this"),
    ],
)
def test_advice_for_each_kind_of_reason(reasons: dict[tuple[str, str], str], sentence: str) -> None:
    (found,) = advice(with_reasons(reasons))
    assert re.search(sentence.replace("(", r"\("), found), found


def test_advice_puts_first_what_holds_up_a_state() -> None:
    reasons = {("f", name): "too few rows" for name in "abcde"} | {("a", "f"): "near the threshold"}
    graph = with_reasons(reasons)
    assert advice(graph)[0].startswith("5 undecided cells: too few rows")
    parents = np.array(["edge", *["none"] * 5])
    reward = RewardGraph(("a",), np.zeros(6), np.zeros(6), parents, np.zeros(6))
    assert advice(replace(graph, rewards={"r": reward}))[0].startswith("5 undecided cells: too few rows")
    reasons = {("f", name): "too few rows" for name in "bcde"}  # f moves nothing now: it is no part of the state
    graph = replace(with_reasons(reasons | {("a", "b"): "near the threshold"}), rewards={"r": reward})
    assert [line.split(";")[0] for line in advice(graph)] == [
        "1 undecided cell: near the threshold",
        "4 undecided cells: too few rows",
    ]


# The summary


def told(graph: CausalGraph, capsys: pytest.CaptureFixture[str], truth: np.ndarray | None = None) -> str:
    rewards = {"r": np.array([True] + [False] * 5)}
    data: Any = SimpleNamespace(truth=truth, truth_rewards=rewards)
    show_result(graph, data, Path("run"), last_action=True)
    return " ".join(capsys.readouterr().out.split())


def test_summary_names_what_is_certain_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    reward = replace(make_graph().rewards["r"], action=ActionEffect(0.1, 0.01, "edge", 0.02))
    out = told(make_graph(rewards={"r": reward}), capsys)
    assert "r certainly needs 2 of 6 variables a, b" in out and "only through the others: b" in out
    assert (
        "cannot be ruled out: c, d (c -?-> b: near the threshold), e (e -?-> reward r: models disagree) "
        "It depends on the action itself." in out
    )
    assert "graph: 8 edges of 42 possible ones, 3 cells undecided" in out
    assert out.count("settle ") == 2 and "independently of f in short: r needs 2 of 6" in out, "advice, then one line"


def test_nothing_found_is_no_finding_when_nothing_is_decided(capsys: pytest.CaptureFixture[str]) -> None:
    graph = make_graph(rewards={"r": undecided_reward("not settled before the ceiling")})
    out = told(graph, capsys, truth=cells(EDGES))
    words = "none of the 6 variables could be tied to it or ruled out: not settled before the ceiling"
    assert f"r is undecided: {words}" in out and "needs" not in out and "nothing found" not in out
    assert needs_sentence(graph, "r") == f"r is undecided: {words}"
    text = explain(graph, "r", certain_only=True).text()
    assert text.startswith("reward r, rule cbm: undecided, 0 of 6 variables kept")
    assert "certainly needed: nothing is known yet" in text
    nothing = np.full((6, 7), "undecided")
    assert graph_sentence(replace(graph, verdict=nothing)) == "undecided, 48 cells"


@pytest.mark.parametrize(
    ("verdict", "changes", "sentence"),
    [
        ("none", {}, "r needs 0 of 6: nothing found that it depends on, above 0.005 nats"),
        ("none", {"limit_of_detection": np.nan}, "r needs 0 of 6: nothing found that it depends on"),
        ("none", {"settled": np.zeros(6, bool)}, "r needs 0 of 6: undecided: nothing had settled"),
        ("undecided", {}, "r certainly needs 0 of 6: nothing found that it certainly depends on, above 0.005 nats"),
    ],
)
def test_a_reward_without_certain_causes(verdict: str, changes: dict[str, Any], sentence: str) -> None:
    verdicts = np.array(["none", "none", "none", "none", verdict, "none"])
    reward = replace(make_graph().rewards["r"], parents=(), verdict=verdicts, **changes)
    assert needs_sentence(make_graph(rewards={"r": reward}), "r").startswith(sentence)


def test_many_doubts_are_counted_not_listed() -> None:
    verdict = np.array(["edge", *["undecided"] * 5])
    reward = replace(make_graph().rewards["r"], verdict=verdict, reason=np.array(["", "p", "q", "s", "t", "u"]))
    graph = make_graph(
        verdict=np.where(np.eye(6, 7) > 0, "edge", "none"), adjacency=np.eye(6, 7), rewards={"r": reward}
    )
    assert doubt_sentence(graph, "r") == (
        "cannot be ruled out: b (b -?-> reward r: p), c (c -?-> reward r: q), d (d -?-> reward r: s), "
        "e (e -?-> reward r: t), and 1 more"
    )


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        (None, ""),
        (ActionEffect(0.1, 0.01, "edge", 0.02), "It depends on the action itself."),
        (ActionEffect(0.0, 0.01, "none", 0.02), "It does not depend on the action itself."),
        (
            ActionEffect(0.0, 0.01, "undecided", 0.02, "near the threshold"),
            "Whether it depends on the action itself is undecided: near the threshold.",
        ),
    ],
)
def test_whether_a_reward_depends_on_the_action(action: ActionEffect | None, sentence: str) -> None:
    assert action_sentence(replace(make_graph().rewards["r"], action=action)) == sentence


def test_against_the_true_graph_doubt_is_no_mistake() -> None:
    truth = cells(EDGES)
    data: Any = SimpleNamespace(truth=truth, truth_rewards={"r": np.array([True] + [False] * 5)})
    assert against_truth(make_graph(), data, "r") == (
        "The true graph gives 2 variables; not ruled out, though not needed: c, d, e."
    )
    data.truth_rewards["r"] = np.array([False, False, False, False, False, True])
    assert against_truth(make_graph(), data, "r") == (
        "The true graph gives 1 variables; missing: f; too many: a, b; not ruled out, though not needed: c, d, e."
    )


def test_result_json_has_the_doubt(tmp_path: Path) -> None:
    data: Any = SimpleNamespace(truth=None)
    settled = np.ones((6, 7), bool)
    settled[1, 2] = False
    result = result_json(make_graph(settled=settled), data, tmp_path, already=False)
    assert result["undecided"] == 3 and result["unsettled"] == 1 and len(result["advice"]) == 3
    assert result["rewards"]["r"] == {
        "parents": ["a"], "decided": True, "certain": ["a", "b"], "possible": ["c", "d", "e"],
        "abstraction": ["a", "b", "c", "d", "e"], "action": None,
        "undecided_links": {
            "c": ["c -?-> b: near the threshold"],
            "d": ["d -?-> c: hardly varies by itself: goes with f", "c -?-> b: near the threshold"],
            "e": ["e -?-> reward r: models disagree"],
        },
        "coarse_limits": {},
    }  # fmt: skip


def test_a_state_says_where_only_strong_effects_would_have_been_seen() -> None:
    graph = make_graph()
    assert coarse_limits(graph, "r") == {}, "no limits are known"
    limits = np.array([0.3, 0.02, np.nan, 0.9, 0.2, 5.0])  # f is not in the state
    rewards = {"r": replace(graph.rewards["r"], limit_of_detection=0.15)}
    coarse = coarse_limits(replace(graph, limit_of_detection=limits, rewards=rewards), "r")
    assert coarse == {"d": 0.9, "a": 0.3, "e": 0.2, "reward r": 0.15}
    assert limits_sentence(coarse) == (
        "weak causes may be missing: none would have been seen below 0.15 nats on reward r, 0.9 nats on d, "
        "0.3 nats on a, up to 0.2 nats on 1 more"
    )
