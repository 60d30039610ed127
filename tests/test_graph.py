"""CausalGraph: its questions, its file, the messages for broken files; Score against hand-counted answers."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.errors import DataError
from cbm.graph import ActionEffect, CausalGraph, RewardGraph
from cbm.graph.scores import auroc

NAMES = ("hand_x", "block_x", "light", "marker")
# hand <- hand, action; block <- hand, block; light and marker <- themselves
ADJACENCY = np.array([[1, 0, 0, 0, 1], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0]], dtype=bool)


def make_graph(**changes: Any) -> CausalGraph:
    cmi = np.where(ADJACENCY, 0.3, 0.001)
    parents = np.array([False, True, False, False])
    fields: dict[str, Any] = {
        "variables": NAMES,
        "adjacency": ADJACENCY,
        "cmi": cmi,
        "stderr": np.full((4, 5), 0.0004),
        "verdict": np.where(ADJACENCY, "edge", "none"),
        "threshold": 0.01,
        "rewards": {
            "push": RewardGraph(
                ("block_x",),
                np.where(parents, 0.5, 0.002),
                np.full(4, 0.01),
                np.where(parents, "edge", "none"),
                np.full(4, 0.05),
            )
        },
        "model": "implicit",
        "transitions": 1000,
        "seconds": 12.5,
        "version": "0.1.0",
    }
    return CausalGraph(**(fields | changes))


def test_questions() -> None:
    graph = make_graph()
    assert graph.parents("block_x") == ("hand_x", "block_x")
    assert graph.parents("hand_x") == ("hand_x", "action")
    assert graph.parents("action") == ()
    assert graph.children("hand_x") == ("hand_x", "block_x")
    assert graph.children("action") == ("hand_x",)
    assert graph.ancestors(["block_x"]) == {"hand_x", "block_x"}
    assert graph.ancestors("hand_x") == {"hand_x"}
    assert graph.ancestors([]) == frozenset()
    assert graph.abstraction("push") == ("hand_x", "block_x")
    assert graph.mask("push").tolist() == [True, True, False, False]
    assert graph.abstraction("push", "cdl") == ("hand_x", "block_x")
    assert graph.mask(rule="cdl").dtype == bool
    assert (graph.thresholds == 0.01).all()


def test_stronger_leaves_out_weak_effects_but_no_memory() -> None:
    cmi = np.where(ADJACENCY, 0.3, 0.001)
    cmi[1, 0], cmi[1, 1] = 0.02, 0.02  # the hand moves the block a little; the block stays where it is
    graph = make_graph(cmi=cmi)
    strong = graph.stronger(0.03)
    assert strong.parents("block_x") == ("block_x",) and strong.parents("hand_x") == ("hand_x", "action")
    assert strong.abstraction("push") == ("block_x",)
    assert strong.verdict[1, 0] == "none" and strong.thresholds[1, 0] == 0.03 and strong.thresholds[1, 1] == 0.01
    assert graph.parents("block_x") == ("hand_x", "block_x")
    demanded = make_graph(cmi=np.where(ADJACENCY, -0.001, 0.0))  # by knowledge: the data do not show them
    assert (demanded.stronger(0.0).adjacency == ADJACENCY).all()
    for same in (graph.stronger(0.0), graph.stronger(0.02)):
        assert (same.adjacency == graph.adjacency).all() and same.abstraction("push") == ("hand_x", "block_x")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda g: g.parents("hand_y"), "'hand_y'; did you mean 'hand_x'"),
        (lambda g: g.children("Light"), "'Light'; did you mean 'light'"),
        (lambda g: g.ancestors(["qqq"]), "unknown variable 'qqq'; there are: hand_x, block_x"),
        (lambda g: g.abstraction("psh"), "unknown reward 'psh'; did you mean 'push'"),
        (lambda g: g.abstraction("psh", "cdl"), "unknown reward 'psh'"),
        (lambda g: g.abstraction(), "unknown reward: none given"),
        (lambda g: g.mask("push", "cmb"), "unknown rule 'cmb'; did you mean 'cbm'"),
    ],
)
def test_unknown_names_suggest_close_ones(ask: Any, message: str) -> None:
    with pytest.raises(DataError, match=message.replace("?", r"\?")):
        ask(make_graph())


def test_arrays_are_copies_and_read_only() -> None:
    adjacency = ADJACENCY.copy()
    graph = make_graph(adjacency=adjacency)
    adjacency[:] = False
    assert graph.adjacency.sum() == ADJACENCY.sum()
    for array in (graph.adjacency, graph.cmi, graph.verdict, graph.rewards["push"].cmi):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]


def test_json_has_the_agreed_keys() -> None:
    data = make_graph().to_json()
    assert list(data) == [
        "schema", "variables", "adjacency", "cmi", "stderr", "verdict", "threshold", "rewards", "model",
        "transitions", "seconds", "version", "thresholds", "settled", "reason", "limit_of_detection", "last_action",
        "false_discovery_rate", "miss_rate",
    ]  # fmt: skip
    assert data["schema"] == 2
    assert data["adjacency"][1] == [1, 1, 0, 0, 0]
    assert type(data["adjacency"][0][0]) is int
    assert set(data["rewards"]["push"]) == {
        "parents", "cmi", "certain", "possible", "abstraction", "stderr", "verdict", "thresholds", "settled",
        "reason", "limit_of_detection", "action",
    }  # fmt: skip
    assert data["rewards"]["push"]["abstraction"] == data["rewards"]["push"]["certain"] == ["hand_x", "block_x"]
    assert data["rewards"]["push"]["possible"] == [] and data["rewards"]["push"]["action"] is None
    assert data["settled"][0] == [1, 1, 1, 1, 1] and data["reason"] == []
    assert data["limit_of_detection"] == [None] * 4 and data["miss_rate"] is data["false_discovery_rate"] is None
    json.dumps(data, allow_nan=False)


def test_numbers_keep_six_digits() -> None:
    cmi = make_graph().cmi.copy()
    cmi[0, 1] = 1.23456789e-7
    assert make_graph(cmi=cmi).to_json()["cmi"][0][1] == 1.23457e-7


def test_save_and_load(tmp_path: Path) -> None:
    graph = make_graph(variables=('händ "x"', "block\\x", "<script>", "a\nb"), rewards={})
    graph.save(tmp_path / "graph.json")
    for source in (tmp_path, tmp_path / "graph.json"):
        again = CausalGraph.load(source)
        assert again.to_json() == graph.to_json()
        assert again.variables == graph.variables
    assert [p.name for p in tmp_path.iterdir()] == ["graph.json"], "no temporary file stays behind"
    text = (tmp_path / "graph.json").read_text(encoding="utf-8")
    assert "[1, 1, 0, 0, 0]" in text, "one matrix row a line"
    with_rewards = make_graph()
    with_rewards.save(tmp_path)
    assert CausalGraph.load(tmp_path).to_json() == with_rewards.to_json()


def test_save_where_one_cannot(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot write"):
        make_graph().save(tmp_path / "missing" / "graph.json")


def test_extras_may_be_absent() -> None:
    data = make_graph().to_json()
    del data["thresholds"]
    for key in ("stderr", "verdict", "thresholds"):
        del data["rewards"]["push"][key]
    graph = CausalGraph.from_json(data)
    assert (graph.thresholds == 0.01).all()
    reward = graph.rewards["push"]
    assert reward.verdict.tolist() == ["none", "edge", "none", "none"]
    assert (reward.stderr == 0).all()
    assert (reward.threshold == 0.01).all()


REQUIRED_KEYS = (
    "schema", "variables", "adjacency", "cmi", "stderr", "verdict", "threshold", "rewards", "model",
    "transitions", "seconds", "version",
)  # fmt: skip


@pytest.mark.parametrize("key", REQUIRED_KEYS)
def test_missing_key_is_named(key: str) -> None:
    data = make_graph().to_json()
    del data[key]
    with pytest.raises(DataError, match=f"^{key}: missing"):
        CausalGraph.from_json(data)


ACTION = {"cmi": 0.1, "stderr": 0.01, "verdict": "edge", "threshold": 0.05, "reason": ""}


def put(data: Any, path: str, value: Any) -> None:
    *first, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in first:
        data = data[part]
    data[last] = value


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", 3, "^schema: 3, but this version reads schema 1 and 2"),
        ("schema", 0, "^schema: 0"),
        ("schema", True, "^schema: True"),
        ("schema", "1", "^schema"),
        ("variables", "abcd", "^variables: expected a list"),
        ("variables", [], "^variables: empty"),
        ("variables.1", "hand_x", "^variables: 'hand_x' appears twice"),
        ("variables.1", "action", "^variables: 'action' is a reserved"),
        ("variables.1", "reward:a", "^variables: 'reward:a' is a reserved"),
        ("variables.1", "", "^variables: '' is not a usable"),
        ("variables.1", 7, "^variables: 7"),
        ("variables.1", "\ud800", "^variables: .* not a usable"),
        ("adjacency", [[1, 0], [0, 1]], r"^adjacency: shape \(2, 2\), expected \(4, 5\)"),
        ("adjacency.1", [1, 0], "^adjacency: rows differ"),
        ("adjacency.1.1", 2, r"^adjacency\[1, 1\] \(row 'block_x'\): must be 0 or 1"),
        ("adjacency.1.1", "1", "^adjacency: must hold"),
        ("adjacency.1.1", 0, r"^adjacency\[1, 1\].*the verdict is edge"),
        ("adjacency.1.2", 1, r"^adjacency\[1, 2\].*verdict is none"),
        ("cmi.0.1", float("nan"), r"^cmi\[0, 1\] \(row 'hand_x'\): not a finite"),
        ("cmi.0.1", None, "^cmi: must hold numbers"),
        ("cmi.0.1", "0.5", "^cmi: must hold numbers"),
        ("cmi.0.1", 10**400, "^cmi: must hold numbers"),
        ("stderr.2.0", -1.0, r"^stderr\[2, 0\].*negative"),
        ("stderr.2.0", float("inf"), r"^stderr\[2, 0\]"),
        ("verdict.0.0", "maybe", r"^verdict\[0, 0\].*must be one of edge, none, undecided"),
        ("verdict.0.0", 1.5, "^verdict"),
        ("threshold", None, "^threshold"),
        ("threshold", float("inf"), "^threshold: not a finite"),
        ("thresholds", [], "^thresholds: shape"),
        ("thresholds.0.0", float("nan"), r"^thresholds\[0, 0\]"),
        ("model", 3, "^model"),
        ("version", None, "^version"),
        ("transitions", 1.5, "^transitions"),
        ("transitions", -1, "^transitions"),
        ("seconds", "x", "^seconds"),
        ("rewards", [], "^rewards: expected"),
        ("rewards.push", [], r"^rewards\.push: expected"),
        (
            "rewards.push.parents",
            ["blok_x"],
            r"^rewards\.push\.parents: unknown variable 'blok_x'; did you mean",
        ),
        ("rewards.push.parents", ["light"], r"^rewards\.push\.parents\[2\] \(row 'light'\)"),
        ("rewards.push.cmi", [1.0], r"^rewards\.push\.cmi: shape \(1,\), expected \(4,\)"),
        ("rewards.push.cmi.0", float("nan"), r"^rewards\.push\.cmi\[0\]"),
        ("rewards.push.stderr.0", -1, r"^rewards\.push\.stderr\[0\]"),
        ("rewards.push.verdict.0", "yes", r"^rewards\.push\.verdict\[0\]"),
        ("rewards.push.thresholds", [0.1], r"^rewards\.push\.thresholds: shape"),
        ("rewards.push.abstraction", ["nobody"], r"^rewards\.push\.abstraction: unknown variable"),
        ("rewards.push.possible", ["nobody"], r"^rewards\.push\.possible: unknown variable"),
        ("rewards.push.certain", "hand_x", r"^rewards\.push\.certain: expected a list"),
        ("settled", [], "^settled: shape"),
        ("settled.0", [1, 1], "^settled: rows differ"),
        ("settled.0.0", 2, r"^settled\[0, 0\] \(row 'hand_x'\): must be 0 or 1"),
        ("reason", {}, "^reason: expected a list of objects with effect, cause, reason"),
        ("reason", [{"effect": "light", "cause": "light"}], r"^reason\[0\]: expected an object with the texts"),
        ("reason", [{"effect": "lght", "cause": "light", "reason": "x"}], r"^reason\[0\]\.effect: .*'lght'; did you"),
        ("reason", [{"effect": "light", "cause": "no", "reason": "x"}], r"^reason\[0\]\.cause: unknown variable 'no'"),
        ("reason", [{"effect": "light", "cause": "light", "reason": 7}], r"^reason\[0\]"),
        ("limit_of_detection", [], r"^limit_of_detection: shape"),
        ("limit_of_detection", [0.1], r"^limit_of_detection: shape \(1,\), expected \(4,\)"),
        ("limit_of_detection.2", -0.1, r"^limit_of_detection\[2\] \(row 'light'\): must not be negative"),
        ("limit_of_detection.2", float("inf"), r"^limit_of_detection\[2\] \(row 'light'\): not a finite"),
        ("limit_of_detection.2", "x", "^limit_of_detection: must hold numbers or null"),
        ("last_action", 1, "^last_action: must be true or false"),
        ("false_discovery_rate", 1.5, "^false_discovery_rate: must not be above 1"),
        ("miss_rate", -0.1, "^miss_rate: must not be negative"),
        ("miss_rate", "low", "^miss_rate: must hold numbers or null"),
        ("rewards.push.settled", [1], r"^rewards\.push\.settled: shape"),
        ("rewards.push.settled", [], r"^rewards\.push\.settled: shape"),
        ("rewards.push.reason", [{"cause": "who", "reason": "x"}], r"^rewards\.push\.reason\[0\]\.cause: unknown"),
        ("rewards.push.limit_of_detection", -1, r"^rewards\.push\.limit_of_detection: must not be negative"),
        ("rewards.push.action", [], r"^rewards\.push\.action: expected an object"),
        ("rewards.push.action", {"cmi": 0.1}, r"^rewards\.push\.action\.stderr: missing"),
        ("rewards.push.action", ACTION | {"verdict": "yes"}, r"^rewards\.push\.action\.verdict: must be one of"),
        ("rewards.push.action", ACTION | {"cmi": None}, r"^rewards\.push\.action\.cmi: must hold numbers"),
        ("rewards.push.action", ACTION | {"stderr": -1}, r"^rewards\.push\.action\.stderr: must not be negative"),
        ("rewards.push.action", ACTION | {"reason": 3}, r"^rewards\.push\.action\.reason: must hold strings"),
    ],
)
def test_broken_field_is_named(path: str, value: Any, message: str) -> None:
    data = copy.deepcopy(make_graph().to_json())
    put(data, path, value)
    with pytest.raises(DataError, match=message):
        CausalGraph.from_json(data)


@pytest.mark.parametrize("key", ["parents", "cmi", "abstraction"])
def test_missing_reward_key_is_named(key: str) -> None:
    data = make_graph().to_json()
    del data["rewards"]["push"][key]
    with pytest.raises(DataError, match=rf"^rewards\.push\.{key}: missing"):
        CausalGraph.from_json(data)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_broken_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "graph.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="graph.json"):
        CausalGraph.load(tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read .*graph.json"):
        CausalGraph.load(tmp_path)


def test_undecided_cells_go_either_way() -> None:
    verdict = make_graph().verdict.copy()
    verdict[0, 0] = verdict[0, 1] = "undecided"
    graph = make_graph(verdict=verdict)
    assert graph.adjacency[0, 0] and not graph.adjacency[0, 1]
    assert CausalGraph.from_json(graph.to_json()).verdict[0, 1] == "undecided"


def make_doubtful_graph() -> CausalGraph:
    """Whether the marker moves the block is undecided, and so is what the action does to the marker."""
    verdict = make_graph().verdict.copy()
    verdict[1, 3] = verdict[3, 4] = "undecided"
    reason = np.full((4, 5), "", dtype=object)
    reason[1, 3], reason[3, 4] = "near the threshold", "models disagree"
    settled = np.ones((4, 5), dtype=bool)
    settled[3, 4] = False
    action = ActionEffect(0.01, 0.02, "undecided", 0.05, "too few rows")
    push = replace(make_graph().rewards["push"], limit_of_detection=0.004, action=action)
    return make_graph(
        verdict=verdict, reason=reason, settled=settled, limit_of_detection=[0.001, np.nan, 0.002, 0.0],
        last_action=True, false_discovery_rate=0.05, miss_rate=0.1, rewards={"push": push},
    )  # fmt: skip


def test_doubt_is_written_and_read(tmp_path: Path) -> None:
    graph = make_doubtful_graph()
    data = json.loads(graph.dumps())
    assert data["reason"] == [
        {"effect": "block_x", "cause": "marker", "reason": "near the threshold"},
        {"effect": "marker", "cause": "action", "reason": "models disagree"},
    ]
    assert '\n    {"effect": "block_x", "cause": "marker", "reason": "near the threshold"},\n' in graph.dumps()
    assert data["settled"][3] == [1, 1, 1, 1, 0] and data["limit_of_detection"] == [0.001, None, 0.002, 0.0]
    assert (data["last_action"], data["false_discovery_rate"], data["miss_rate"]) == (True, 0.05, 0.1)
    push = data["rewards"]["push"]
    assert (push["certain"], push["possible"]) == (["hand_x", "block_x"], ["marker"])
    assert push["abstraction"] == ["hand_x", "block_x", "marker"] and push["limit_of_detection"] == 0.004
    assert push["action"] == ACTION | {"cmi": 0.01, "stderr": 0.02, "verdict": "undecided", "reason": "too few rows"}
    graph.save(tmp_path)
    again = CausalGraph.load(tmp_path)
    assert again.to_json() == graph.to_json()
    assert again.reason[1, 3] == "near the threshold" and again.reason[0, 0] == "" and not again.settled[3, 4]
    assert again.rewards["push"].action == graph.rewards["push"].action
    for array in (again.settled, again.reason, again.limit_of_detection, again.rewards["push"].settled):
        assert not array.flags.writeable
    assert again.undecided() == 3


def test_schema_1_is_read_with_defaults() -> None:
    data = make_doubtful_graph().to_json() | {"schema": 1}
    for key in ("settled", "reason", "limit_of_detection", "last_action", "false_discovery_rate", "miss_rate"):
        del data[key]
    for key in ("certain", "possible", "settled", "reason", "limit_of_detection", "action"):
        del data["rewards"]["push"][key]
    graph = CausalGraph.from_json(data)
    assert graph.settled.all() and (graph.reason == "").all() and np.isnan(graph.limit_of_detection).all()
    assert not graph.last_action and np.isnan(graph.false_discovery_rate) and np.isnan(graph.miss_rate)
    reward = graph.rewards["push"]
    assert reward.settled.all() and (reward.reason == "").all() and np.isnan(reward.limit_of_detection)
    assert reward.action is None and graph.possible("push") == ("marker",)
    assert graph.to_json()["schema"] == 2


def test_a_decided_cell_has_no_reason() -> None:
    graph = make_doubtful_graph()
    assert (replace(graph, verdict=make_graph().verdict).reason == "").all()
    weak = graph.stronger(0.1)
    assert weak.verdict[1, 3] == "none" and weak.reason[1, 3] == "" and weak.possible("push") == ()
    assert weak.limit_of_detection[[0, 2, 3]].tolist() == [0.001, 0.002, 0.0]
    assert weak.verdict[3, 4] == "undecided", "what was not settled, or cannot be told apart, may be of any size"


@pytest.mark.parametrize(
    ("reason", "settled", "stderr", "verdict"),
    [
        ("near the threshold", True, 0.01, "none"), ("near the threshold", True, 0.06, "undecided"),
        ("near the threshold", False, 0.01, "undecided"),
        ("hardly varies by itself: goes with x", True, 0.0, "undecided"),
    ],
)  # fmt: skip
def test_doubt_is_not_cut_off_by_what_was_measured(reason: str, settled: bool, stderr: float, verdict: str) -> None:
    graph = make_doubtful_graph()
    every: dict[str, Any] = {
        "reason": graph.reason.copy(),
        "settled": graph.settled.copy(),
        "stderr": graph.stderr.copy(),
    }
    for name, value in (("reason", reason), ("settled", settled), ("stderr", stderr)):
        every[name][1, 3] = value
    assert replace(graph, **every).stronger(0.1).verdict[1, 3] == verdict


def test_score_counts() -> None:
    truth = ADJACENCY.copy()
    truth[2, 3] = True  # marker -> light is missed
    truth[0, 4] = False  # action -> hand_x is spurious
    score = make_graph().compare(truth)
    assert score.shd == 2
    assert score.cells == 20
    assert score.accuracy == pytest.approx(18 / 20)
    assert score.precision == pytest.approx(5 / 6)
    assert score.recall == pytest.approx(5 / 6)
    assert score.f1 == pytest.approx(5 / 6)
    assert score.missed == (("light", "marker"),)
    assert score.spurious == (("hand_x", "action"),)
    # Self-loops: four right, hand -> block and marker -> light missed, nothing spurious.
    assert score.self_loops_accuracy == pytest.approx(18 / 20)
    assert score.self_loops_f1 == pytest.approx(2 * 4 / (4 + 6))
    data = json.loads(json.dumps(score.to_json(), allow_nan=False))
    assert data["missed"] == [{"effect": "light", "cause": "marker"}]
    assert data["self_loops"]["accuracy"] == pytest.approx(0.9)
    table = score.table()
    assert "marker -> light" in table and "action -> hand_x" in table and "90.0 %" in table
    assert "and 1 more" in score.table(edges=0)


def test_score_corner_cases() -> None:
    graph = make_graph()
    perfect = graph.compare(ADJACENCY.astype(int))
    assert (perfect.accuracy, perfect.f1, perfect.shd, perfect.auroc) == (1.0, 1.0, 0, 1.0)
    assert perfect.missed == perfect.spurious == ()
    nothing = graph.compare(np.zeros((4, 5)))
    assert (nothing.precision, nothing.recall, nothing.f1, nothing.auroc) == (0.0, 0.0, 0.0, None)
    assert "undefined" in nothing.table()
    empty = make_graph(adjacency=np.zeros((4, 5)), verdict=np.full((4, 5), "none"))
    assert empty.compare(np.zeros((4, 5))).f1 == 1.0
    assert empty.compare(ADJACENCY).precision == 0.0
    with pytest.raises(DataError, match=r"^truth: shape \(4, 4\), expected \(4, 5\)"):
        graph.compare(np.zeros((4, 4)))
    with pytest.raises(DataError, match=r"^truth\[0, 0\]"):
        graph.compare(np.full((4, 5), 0.5))


def test_self_loop_baseline_of_the_block_world() -> None:
    """A known number: 480 true edges of 2256 leave 80.8 % to a graph of self-loops."""
    groups = {"eef": range(0, 6), "gripper": range(6, 10)}
    truth = np.zeros((47, 48), dtype=bool)
    np.fill_diagonal(truth, True)
    truth[:6, :6] = truth[:6, 47] = True
    truth[6:10, :10] = truth[6:10, 47] = True
    for block in (range(10, 17), range(17, 24), range(24, 31)):
        for i in block:
            truth[i, [*groups["eef"], *groups["gripper"], *block, 47]] = True
    assert truth.sum() == 480
    graph = CausalGraph(
        variables=tuple(f"v{k}" for k in range(47)),
        adjacency=truth,
        cmi=truth.astype(float),
        stderr=np.zeros((47, 48)),
        verdict=np.where(truth, "edge", "none"),
        threshold=0.02,
    )
    assert round(100 * graph.compare(truth).self_loops_accuracy, 1) == 80.8


def test_auroc_is_the_pairwise_count() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = rng.integers(0, 6, size=(4, 5)).astype(float)  # few values, many ties
        truth = rng.random((4, 5)) < 0.4
        if truth.all() or not truth.any():
            continue
        wins = [(p > n) + 0.5 * (p == n) for p in values[truth] for n in values[~truth]]
        assert auroc(values, truth) == pytest.approx(np.mean(wins), abs=1e-12)


def test_imports_stay_light() -> None:
    code = (
        "import sys, cbm.graph, cbm.graph.export, cbm.graph.knowledge, cbm.graph.explain\n"
        "heavy = {'torch', 'networkx', 'rich', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
