"""Table 1: what is scored, against which graph, and that finished rows are not computed again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

pytest.importorskip("mujoco")

from benchmarks import table1
from cbm.envs.registry import make_world
from cbm.graph import CausalGraph

LAST: tuple[Literal["off", "on", "auto"], ...] = ("off", "on", "auto")


def _graph(adjacency: np.ndarray, names: tuple[str, ...]) -> CausalGraph:
    values = adjacency.astype(float)
    verdict = np.where(adjacency, "edge", "none")
    return CausalGraph(
        variables=names, adjacency=adjacency, cmi=values, stderr=0 * values, verdict=verdict, threshold=0.02,
        rewards={}, model="implicit", transitions=1, seconds=0.0, version="0", thresholds=values,
    )  # fmt: skip


@pytest.mark.parametrize(("name", "edges"), [("block", 480), ("tool", 660)])
def test_the_true_graph_gets_full_marks(name: Any, edges: int) -> None:
    world = make_world(name)
    assert world.truths["paper"].sum() == edges
    for truth in ("physical", "paper"):
        row = table1.scored(_graph(world.truths[truth], world.factors.names), world, name, truth)
        assert row["accuracy"] == row["f1"] == row["auroc"] == 1 and row["shd"] == row["distractors_kept"] == 0
        assert all(row[task] == 1 for task in table1.TASKS[name])


def test_self_loops_score_what_they_are_known_to_score() -> None:
    """80.8 % of the paper-consistent graph; kept is then only what the rewards read."""
    world = make_world("block")
    loops = np.eye(47, 48, dtype=bool)
    row = table1.scored(_graph(loops, world.factors.names), world, "block", "paper")
    assert row["accuracy"] == pytest.approx(0.808, abs=5e-4) and row["self_loops"] == row["accuracy"]
    assert row["pick"] == pytest.approx(1 - (17 - 8) / 47)  # hand, fingers and block: 3 + 2 + 3 of 17 are read
    assert row["stack"] == pytest.approx(1 - (20 - 11) / 47)


def test_distractors_that_are_kept_are_counted() -> None:
    world = make_world("block", distractors=2)
    names = world.factors.names
    adjacency = world.truths["paper"].copy()
    eef, distractor = names.index("eef_x"), len(names) - 1
    adjacency[eef, distractor] = True
    assert table1.scored(_graph(adjacency, names), world, "block", "paper")["distractors_kept"] == 2  # one per task


def test_rows_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    world = make_world("tool")

    def fake(data: Any, **options: Any) -> CausalGraph:
        calls.append(options["seed"])
        assert not data.rewards and len(data) == 4000
        return _graph(world.truth, world.factors.names)

    monkeypatch.setattr(table1, "discover", fake)
    options = table1.Options(worlds=("tool",), models=("explicit",), quick=True, out=tmp_path / "t.csv")
    first = table1.main(options)
    again = table1.main(options)
    assert calls == [0] and first["rows"] == again["rows"] and len(first["rows"]) == 4
    assert {row["truth"]: row["series"] for row in first["rows"]} == {"physical": 1.0, "paper": 1.0}


@pytest.mark.slow
def test_rows_with_the_last_action_are_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, seen = make_world("tool"), []

    def fake(data: Any, **options: Any) -> CausalGraph:
        seen.append((options["settings"].last_action, options["run"].name))
        return _graph(world.truth, world.factors.names)

    monkeypatch.setattr(table1, "discover", fake)
    options = table1.Options(
        worlds=("tool",), models=("implicit",), quick=True, out=tmp_path / "t.csv", runs=tmp_path / "runs"
    )
    rows = [row for last in LAST for row in table1.main(replace(options, last_action=last))["rows"]]
    assert seen == [(last, f"tool-implicit-0-{last}-0") for last in LAST]
    assert [row["last_action"] for row in rows] == [0] * 4 + [1] * 4 + [2] * 4


def test_the_published_rule_is_a_threshold() -> None:
    world = make_world("block")
    weak = replace(_graph(world.truth, world.factors.names), cmi=np.where(world.truth, 0.019, 0.0))
    assert table1.scored(weak, world, "block", "physical")["recall"] == 1
    assert table1.scored(weak, world, "block", "physical", "threshold")["recall"] == 0
