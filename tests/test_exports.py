"""Exports: each format against a three-variable graph written by hand, and names that need care."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

from cbm.errors import DataError
from cbm.graph import ActionEffect, CausalGraph, RewardGraph
from cbm.graph.export import FORMATS, SUFFIXES, export, to_networkx
from cbm.graph.rules import ancestors

# b <- a, b; a <- a, action; c <- b (undecided)
ADJACENCY = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 0, 0]], dtype=bool)
NASTY = (
    'quo"te',
    "back\\slash\\",
    "<script>alert('x')</script>",
    "ünïcødé → 猫",
    "a,b;c",
    "two\nlines",
    "&lt;",
    "\x07",
)


def make_graph(names: tuple[str, str, str] = ("a", "b", "c"), reward: str = "win") -> CausalGraph:
    verdict = np.where(ADJACENCY, "edge", "none").astype("<U9")
    verdict[2, 1] = "undecided"
    cmi = np.where(ADJACENCY, [[0.5, 0, 0, 0.25], [0.125, 1, 0, 0], [0, 0.01, 0, 0]], 0.0)
    entry = RewardGraph(
        (names[2],),
        np.array([0, 0, 0.75]),
        np.full(3, 0.1),
        np.array(["none", "none", "edge"]),
        np.full(3, 0.02),
    )
    return CausalGraph(
        variables=names,
        adjacency=ADJACENCY,
        cmi=cmi,
        stderr=np.full((3, 4), 0.05),
        verdict=verdict,
        threshold=0.02,
        rewards={reward: entry},
    )


EDGES = {("a", "a"), ("action", "a"), ("a", "b"), ("b", "b"), ("b", "c"), ("c", "reward:win")}


def test_networkx_by_hand() -> None:
    graph = to_networkx(make_graph())
    assert set(graph.edges) == EDGES
    assert dict(graph.nodes(data="kind")) == {
        "a": "state", "b": "state", "c": "state", "action": "action", "reward:win": "reward",
    }  # fmt: skip
    assert graph.edges["action", "a"] == {"cmi": 0.25, "stderr": 0.05, "verdict": "edge", "guess": True}
    assert graph.edges["b", "c"]["verdict"] == "undecided"
    assert graph.edges["c", "reward:win"] == {"cmi": 0.75, "stderr": 0.1, "verdict": "edge", "guess": True}


def test_networkx_ancestors_of_the_reward_are_the_abstraction() -> None:
    graph = make_graph()
    assert nx.ancestors(to_networkx(graph), "reward:win") - {"action"} == set(graph.abstraction("win"))
    start = np.array([False, True, False])
    assert set(graph.names_of(ancestors(graph.adjacency, start))) == {"a", "b"}


def test_doubt_and_the_action_are_exported() -> None:
    """What minimal states keep is in every format: undecided links, and what a reward owes to the action."""
    graph = make_graph()
    verdict = graph.verdict.copy()
    verdict[0, 2] = "undecided"
    reward = replace(graph.rewards["win"], action=ActionEffect(1.5, 0.1, "edge", 0.05, ""))
    doubtful = replace(graph, verdict=verdict, rewards={"win": reward})
    network = to_networkx(doubtful)
    assert network.edges["c", "a"]["verdict"] == "undecided" and not network.edges["c", "a"]["guess"]
    assert network.edges["action", "reward:win"]["cmi"] == 1.5
    assert '"c" -> "a"' in export(doubtful, "dot") and "action,reward:win,1.5,0.1,edge,1" in export(doubtful, "csv")


def test_a_reward_may_have_the_name_of_a_variable() -> None:
    network = to_networkx(make_graph(reward="b"))
    assert set(network) == {"a", "b", "c", "action", "reward:b"}
    assert set(network.predecessors("reward:b")) == {"c"}


def test_node_link_round_trip() -> None:
    text = export(make_graph(), "networkx")
    again = nx.node_link_graph(json.loads(text), edges="edges")
    assert nx.utils.graphs_equal(again, to_networkx(make_graph()))


def test_dot_by_hand() -> None:
    assert export(make_graph(), "dot") == (
        "digraph cbm {\n"
        "  rankdir=LR;\n"
        '  "a" [shape=ellipse];\n'
        '  "b" [shape=ellipse];\n'
        '  "c" [shape=ellipse];\n'
        '  "action" [shape=box];\n'
        '  "reward:win" [shape=diamond];\n'
        '  "a" -> "a" [label="0.5"];\n'
        '  "action" -> "a" [label="0.25"];\n'
        '  "a" -> "b" [label="0.125"];\n'
        '  "b" -> "b" [label="1"];\n'
        '  "b" -> "c" [label="0.01", style=dashed];\n'
        '  "c" -> "reward:win" [label="0.75"];\n'
        "}\n"
    )


DOT_STRING = r'"(?:[^"\\\n]|\\.)*"'  # what the DOT lexer takes as one quoted string
DOT_LINE = re.compile(rf"  {DOT_STRING}(?: -> {DOT_STRING})? \[[a-z]+=.*\];")


def read_dot_string(text: str) -> str:
    plain = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text[1:-1])
    return plain.replace("&amp;", "&")


@pytest.mark.parametrize("name", NASTY)
def test_dot_quotes_names(name: str) -> None:
    text = export(make_graph((name, "b", "c"), reward=name), "dot")
    assert isinstance(text, str)
    lines = text.split("\n")[2:-2]
    assert all(DOT_LINE.fullmatch(line) for line in lines)
    first = re.match(rf"  ({DOT_STRING})", lines[0])
    assert first is not None and read_dot_string(first[1]) == name


def test_graphml_round_trip() -> None:
    text = export(make_graph(), "graphml")
    assert isinstance(text, str)
    again = nx.read_graphml(io.BytesIO(text.encode()))
    expected = to_networkx(make_graph())
    assert dict(again.nodes(data=True)) == dict(expected.nodes(data=True))
    assert {e: again.edges[e] for e in again.edges} == {e: expected.edges[e] for e in expected.edges}


@pytest.mark.parametrize("name", NASTY)
def test_graphml_holds_any_name(name: str) -> None:
    graph = make_graph((name, "b", "c"), reward=name)
    text = export(graph, "graphml")
    assert isinstance(text, str)
    again = nx.read_graphml(io.BytesIO(text.encode()))
    shown = "\\x07" if name == "\x07" else name
    assert set(again.nodes) == {shown, "b", "c", "action", f"reward:{shown}"}
    assert again.has_edge(shown, "b") and again.has_edge("action", shown)


def test_graphml_refuses_names_it_would_confuse() -> None:
    with pytest.raises(DataError, match="GraphML"):
        export(make_graph(("\x07", "\\x07", "c")), "graphml")


def test_json_round_trip() -> None:
    text = export(make_graph(), "json")
    assert CausalGraph.from_json(json.loads(text)).to_json() == make_graph().to_json()


def test_csv_by_hand() -> None:
    rows = list(csv.reader(io.StringIO(str(export(make_graph(), "csv")), newline="")))
    assert rows[0] == ["cause", "effect", "cmi", "stderr", "verdict", "edge"]
    assert rows[1] == ["a", "a", "0.5", "0.05", "edge", "1"]
    assert rows[2] == ["b", "a", "0", "0.05", "none", "0"]
    assert rows[4] == ["action", "a", "0.25", "0.05", "edge", "1"]
    assert ["b", "c", "0.01", "0.05", "undecided", "1"] in rows
    assert rows[-1] == ["c", "reward:win", "0.75", "0.1", "edge", "1"]
    assert len(rows) == 1 + 3 * 4 + 3
    assert {(row[0], row[1]) for row in rows[1:] if row[5] == "1"} == EDGES


@pytest.mark.parametrize("name", [*NASTY, "car\rriage"])
def test_csv_holds_any_name(name: str, tmp_path: Path) -> None:
    export(make_graph((name, "b", "c")), "csv", tmp_path / "edges.csv")
    with open(tmp_path / "edges.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    assert rows[0]["cause"] == rows[0]["effect"] == name


def load_npz(content: str | bytes) -> dict[str, np.ndarray]:
    assert isinstance(content, bytes)
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


def test_tigramite_by_hand() -> None:
    arrays = load_npz(export(make_graph(), "tigramite"))
    lag0 = [[""] * 4] * 4
    lag1 = [  # row = cause a, b, c, action; column = effect
        ["-->", "-->", "", ""],
        ["", "-->", "-->", ""],
        ["", "", "", ""],
        ["-->", "", "", ""],
    ]
    assert arrays["graph"].shape == (4, 4, 2)
    assert arrays["graph"].dtype == np.dtype("<U3")
    assert arrays["graph"][:, :, 0].tolist() == lag0
    assert arrays["graph"][:, :, 1].tolist() == lag1
    assert arrays["val_matrix"][3, 0, 1] == 0.25
    assert arrays["val_matrix"][0, 1, 1] == 0.125
    assert arrays["val_matrix"][1, 0, 1] == 0
    assert arrays["var_names"].tolist() == ["a", "b", "c", "action"]


def test_causal_learn_by_hand() -> None:
    arrays = load_npz(export(make_graph(), "causal-learn"))
    names = ["a[t]", "b[t]", "c[t]", "action[t]", "a[t+1]", "b[t+1]", "c[t+1]"]
    assert arrays["names"].tolist() == names
    expected = np.zeros((7, 7), dtype=int)
    for cause, effect in (("a", "a"), ("action", "a"), ("a", "b"), ("b", "b"), ("b", "c")):
        i, j = names.index(f"{cause}[t]"), names.index(f"{effect}[t+1]")
        expected[i, j], expected[j, i] = -1, 1  # i -> j: tail at i, arrow head at j
    assert arrays["graph"].tolist() == expected.tolist()


@pytest.mark.parametrize("name", NASTY)
def test_arrays_hold_any_name(name: str) -> None:
    graph = make_graph((name, "b", "c"))
    assert load_npz(export(graph, "tigramite"))["var_names"][0] == name
    assert load_npz(export(graph, "causal-learn"))["names"][4] == f"{name}[t+1]"


@pytest.mark.parametrize("format", FORMATS)
def test_file_holds_what_is_returned(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"out{SUFFIXES[format]}"
    content = export(make_graph(NASTY[:3]), format, path)
    assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert export(make_graph(NASTY[:3]), format) == content, "the same graph gives the same file"


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown format 'graphlm'; did you mean 'graphml'"):
        export(make_graph(), "graphlm")
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(DataError, match="cannot write"):
        export(make_graph(), "csv", taken)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"], "no temporary file stays behind"
