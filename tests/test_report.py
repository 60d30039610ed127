"""The report page as a file: what is collected, how it is embedded, and what is refused."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.errors import DataError
from cbm.graph import ActionEffect, CausalGraph, RewardGraph
from cbm.graph.explain import explain
from cbm.report import write_report
from cbm.report.graph_payload import name_groups
from cbm.report.page import CURVE_POINTS, collect_run, embed_json, read_training, render


def make_graph(names: tuple[str, ...], seed: int = 0) -> CausalGraph:
    """A chain: each variable causes itself and the next one, the action causes the first."""
    d = len(names)
    rng = np.random.default_rng(seed)
    edges = np.eye(d, d + 1, dtype=bool) | np.eye(d, d + 1, -1, dtype=bool)
    edges[0, d] = True
    cmi = np.where(edges, rng.uniform(0.05, 1.5, edges.shape), rng.uniform(0, 0.005, edges.shape))
    verdict = np.where(edges, "edge", "none").astype("<U9")
    verdict[0, 1] = "undecided"
    rewards = {
        reward: RewardGraph(
            parents=(names[k],),
            cmi=np.where(np.arange(d) == k, 0.4, 0.001),
            stderr=np.full(d, 0.002),
            verdict=np.where(np.arange(d) == k, "edge", "none"),
            threshold=np.full(d, 0.02),
        )
        for reward, k in (("near", 1), ("far", d - 2))
    }
    stderr = np.full(edges.shape, 0.003)
    return CausalGraph(names, edges, cmi, stderr, verdict, 0.02, rewards, "implicit", 5000, 12.5, "0.1.0")


def save_run(run_dir: Path, graph: CausalGraph, **files: Any) -> Path:
    run_dir.mkdir(parents=True)
    graph.save(run_dir)
    for stem, content in files.items():
        (run_dir / f"{stem}.json").write_text(json.dumps(content), encoding="utf-8")
    return run_dir


def payload_of(page: Path) -> dict[str, Any]:
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


NAMES = ("hand_x", "hand_y", "block_x", "block_y", "sun")


def test_page_holds_the_graph_and_the_reasons(tmp_path: Path) -> None:
    graph = make_graph(NAMES)
    run_dir = save_run(tmp_path / "run", graph, config={"preset": "fast"}, result={"ok": True})
    page = write_report([run_dir], tmp_path / "report.html")
    (run,) = payload_of(page)["runs"]
    assert run["variables"] == list(NAMES)
    assert run["finished"] and run["config"] == {"preset": "fast"}
    np.testing.assert_allclose(run["cmi"], graph.cmi, rtol=1e-3)
    assert run["counts"] == {"edges": 10, "self_edges": 5, "undecided": 1, "unsettled": 0, "cells": 40}
    assert run["links"][0] == "110001" and run["edges"][0] == "100001", "an undecided link cannot be ruled out"
    near, far = run["rewards"]
    assert [NAMES[k] for k, _ in near["kept"]] == list(graph.abstraction("near")) == ["hand_x", "hand_y"]
    assert {NAMES[k]: path for k, path in far["kept"]} == explain(graph, "far", "cbm").kept
    assert {NAMES[k]: words for k, words in far["dropped"]} == explain(graph, "far", "cbm").dropped
    assert run["truth"] is run["score"] is run["prediction"] is None
    assert not list(tmp_path.glob(".report*")), "a temporary file was left behind"


def make_doubtful_graph(names: tuple[str, ...]) -> CausalGraph:
    """Near: the sun may move hand_x, and it may depend on the action. Nothing is known about far."""
    graph = make_graph(names)
    d = len(graph)
    verdict, reason, settled = graph.verdict.copy(), np.full((d, d + 1), "", dtype=object), np.ones((d, d + 1), bool)
    verdict[0, d - 1], reason[0, d - 1], reason[0, 1] = (
        "undecided",
        "hardly varies by itself: goes with x",
        "too few rows",
    )
    settled[4, 4] = False
    action = ActionEffect(0.03, 0.01, "undecided", 0.02, "near the threshold")
    near = replace(graph.rewards["near"], limit_of_detection=0.004, action=action)
    far = replace(
        graph.rewards["far"],
        verdict=np.full(d, "undecided"),
        reason=np.full(d, "not settled before the ceiling"),
        settled=np.zeros(d, bool),
    )
    return replace(
        graph, verdict=verdict, reason=reason, settled=settled, limit_of_detection=np.full(d, 0.003),
        rewards={"near": near, "far": far}, false_discovery_rate=0.05, miss_rate=0.1,
    )  # fmt: skip


def test_page_holds_the_doubt(tmp_path: Path) -> None:
    run = collect_run(save_run(tmp_path / "run", make_doubtful_graph(NAMES)))
    near, far = run["rewards"]
    assert [NAMES[k] for k, _ in near["kept"]] == ["hand_x", "hand_y", "block_x", "block_y", "sun"]
    assert [NAMES[k] for k in near["possible"]] == ["block_x", "block_y", "sun"] and near["decided"]
    assert near["undecided_links"] == [["sun -?-> hand_x: hardly varies by itself: goes with x"]] * 3
    assert (near["links"], near["limit"], near["action"]["verdict"]) == ("01000", 0.004, "u")
    assert not far["decided"] and far["possible"] == [0, 1, 2, 3, 4] and far["settled"] == "00000"
    texts = {(row, column): run["reasons"][k] for row, column, k in run["reason"]}
    assert texts[0, 1] == "too few rows" and texts[0, 4].startswith("hardly varies") and texts[5, 5].startswith("near")
    assert len(texts) == 8 and texts[6, 0] == "not settled before the ceiling" and len(run["reasons"]) == 4
    assert run["limits"] == [0.003] * 5 and run["limit_range"] == {"low": 0.003, "median": 0.003, "high": 0.004}
    assert run["rates"] == {"false": 0.05, "missed": 0.1} and run["settled"][4] == "111101"
    assert run["counts"]["undecided"] == 8 and run["counts"]["unsettled"] == 6
    assert any("sun moves independently of x" in sentence for sentence in run["advice"])


def test_a_learning_run_is_shown_as_its_policies_saw_it(tmp_path: Path) -> None:
    run = collect_run(save_run(tmp_path / "run", make_doubtful_graph(NAMES), config={"command": "learn"}))
    assert run["as_guessed"] and [NAMES[k] for k, _ in run["rewards"][0]["kept"]] == ["hand_x", "hand_y"]
    assert run["links"] == run["edges"]


def test_truth_may_list_the_variables_in_another_order(tmp_path: Path) -> None:
    graph = make_graph(NAMES)
    truth = graph.adjacency.copy()
    truth[0, 3], truth[1, 0] = True, False  # one missed, one spurious
    order = [4, 2, 0, 3, 1]
    shuffled = truth[order][:, [*order, 5]].astype(int).tolist()
    content = {
        "variables": [NAMES[k] for k in order],
        "adjacency": shuffled,
        "rewards": {"near": ["hand_y"], "far": ["sun"]},
    }
    run = collect_run(save_run(tmp_path / "run", graph, truth=content))
    assert run["truth"]["edges"] == ["".join(map(str, row)) for row in truth.astype(int)]
    assert run["score"]["shd"] == 2
    assert run["score"]["f1"] == pytest.approx(graph.compare(truth).f1)
    near, far = run["rewards"]
    assert near["true_abstraction"] == [1]
    assert far["truth"] == "00001"


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"variables": ["other"], "adjacency": [[1, 0]]},
        {"variables": list(NAMES), "adjacency": [[1]]},
        {
            "variables": list(NAMES),
            "adjacency": np.eye(5, 6, dtype=int).tolist(),
            "rewards": {"near": ["who"]},
        },
    ],
)
def test_wrong_truth_is_refused_by_name(tmp_path: Path, content: Any) -> None:
    run_dir = save_run(tmp_path / "run", make_graph(NAMES), truth=content)
    with pytest.raises(DataError, match=r"truth\.json"):
        collect_run(run_dir)


def test_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no graph\.json"):
        write_report([tmp_path], tmp_path / "report.html")
    with pytest.raises(DataError, match="no run directory"):
        write_report([], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_prediction(tmp_path: Path) -> None:
    rollout = [{"steps": 1, "error": 0.1, "baseline": float("nan")}]
    good = {"variables": list(NAMES), "error": [0.1] * 5, "baseline": [0.8] * 5, "rollout": rollout}
    run = collect_run(save_run(tmp_path / "good", make_graph(NAMES), prediction=good))
    assert run["prediction"]["rollout"] == [{"steps": 1, "error": 0.1, "baseline": None}]
    short = save_run(tmp_path / "short", make_graph(NAMES), prediction=good | {"error": [0.1]})
    with pytest.raises(DataError, match=r"prediction\.json: .* differ in length"):
        collect_run(short)
    empty = save_run(tmp_path / "empty", make_graph(NAMES), prediction={"variables": []})
    with pytest.raises(DataError, match=r"prediction\.json: not a prediction file"):
        collect_run(empty)


def test_training_curves_survive_a_crash_and_are_thinned(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps({"phase": "dynamics", "step": k, "seconds": k, "loss_full": 1 / (k + 1)}) for k in range(999)]
    lines += ['{"phase": "rewards", "step": 1, "loss_full": NaN, "held_out_full": 0.5}', '{"phase": "rew']
    path.write_text("\n".join(lines), encoding="utf-8")
    training, note = read_training(path)
    dynamics, rewards = training
    ((key, points),) = dynamics["series"]
    assert key == "loss_full" and len(points) == CURVE_POINTS
    assert points[0] == [0, 1] and points[-1][0] == 998
    assert rewards["series"] == [["held_out_full", [[1, 0.5]]]]
    assert "left out: 1" in note and str(CURVE_POINTS) in note
    assert read_training(tmp_path / "absent.jsonl") == ([], "")


def test_groups_of_names() -> None:
    names = ("hand_x", "hand_y", "hand_z", "grip", "grip_v", "red.x", "red.y", "sun")
    assert [group["start"] for group in name_groups(names)] == [0, 3, 5, 7]
    assert [group["stem"] for group in name_groups(names)] == ["hand", "grip", "red", ""]
    assert name_groups(("a", "b", "c")) == []


@pytest.mark.parametrize(
    "name", ["</script><script>alert(1)</script>", "<!--<script>", "a&b", "\u2028\u2029", "\ud800"]
)
def test_embedded_text_cannot_leave_its_block(name: str) -> None:
    text = embed_json({"name": name})
    assert text.isascii() and not set("<>&") & set(text)
    assert json.loads(text) == {"name": name}


def test_policy_allows_exactly_the_inlined_script(tmp_path: Path) -> None:
    run_dir = save_run(tmp_path / "<b>{{script}}", make_graph(("{{script}}", "</script>", "c", "d")))
    text = write_report([run_dir], tmp_path / "report.html").read_text(encoding="utf-8")
    policy = html.unescape(re.search(r'Security-Policy" content="([^"]*)"', text)[1])  # type: ignore[index]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 1 and "<!--" not in scripts[0]
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "<title>cbm report: &lt;b&gt;{{script}}</title>" in text
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", text)
    assert payload_of(tmp_path / "report.html")["runs"][0]["variables"][0] == "{{script}}"


def test_several_runs_with_one_name(tmp_path: Path) -> None:
    first = save_run(tmp_path / "a" / "run", make_graph(NAMES))
    second = save_run(tmp_path / "b" / "run", make_graph(NAMES, seed=1))
    runs = payload_of(write_report([first, second], tmp_path / "report.html"))["runs"]
    assert [run["index"] for run in runs] == [0, 1]
    assert [run["name"] for run in runs] == [str(first), str(second)]


def test_same_run_same_page(tmp_path: Path) -> None:
    run = collect_run(save_run(tmp_path / "run", make_graph(NAMES)))
    assert render({"schema": 1, "runs": [run]}) == render({"schema": 1, "runs": [run]})
