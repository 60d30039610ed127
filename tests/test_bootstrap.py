"""Resampled episodes: copies stay together, shares come out, and a finished run can be given them later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cbm
from cbm.cli.bootstrap_table import rare_sentence, unsteady_edges, variable_rows
from cbm.discovery.bootstrap import resampled_rows
from cbm.discovery.settings import preset
from cbm.errors import DataError
from cbm.graph.bootstrap import Bootstrap
from cbm.report.graph_payload import reward_payload


def log(rows: int = 600) -> cbm.Transitions:
    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(rows, 2)), rng.normal(size=(rows, 1))
    after = np.column_stack([obs[:, 0] + action[:, 0], obs[:, 1]]) + 0.1 * rng.normal(size=(rows, 2))
    arrays = {"obs": obs, "action": action, "next_obs": after, "episode": np.arange(rows) // 20}
    return cbm.Transitions.from_arrays(arrays | {"reward_x/y": after[:, 0]})


def test_episodes_are_drawn_whole_and_copies_keep_their_number() -> None:
    episode = np.arange(600) // 20
    rows = resampled_rows(episode, 0, 1)
    numbers, counts = np.unique(episode[rows], return_counts=True)
    assert len(rows) == 600 and len(numbers) < 30 and (counts % 20 == 0).all() and counts.max() > 20
    assert not np.array_equal(rows, resampled_rows(episode, 0, 2))
    np.testing.assert_array_equal(rows, resampled_rows(episode, 0, 1))


def test_shares_are_in_the_graph_and_survive_a_file(tmp_path: Path) -> None:
    data, settings = log(), preset("debug")
    plain = cbm.discover(data, settings=settings, run=tmp_path / "run", workers=0)
    assert plain.bootstrap is None and "bootstrap" not in plain.to_json()
    graph = cbm.discover(data, settings=settings, run=tmp_path / "run", workers=0, bootstrap=2)
    assert graph.bootstrap is not None and graph.bootstrap.replicates == 2
    assert graph.bootstrap.edges.shape == (2, 3) and graph.bootstrap.edges[0, 2] == 1.0
    assert graph.bootstrap.abstraction["x/y"][0] == 1.0
    read = cbm.CausalGraph.load(tmp_path / "run")
    assert read.to_json() == graph.to_json() and read.to_json()["adjacency"] == plain.to_json()["adjacency"]
    [row] = [row for row in variable_rows(read, graph.bootstrap, ["x/y"]) if row[0] == "obs_0"]
    assert row == ["obs_0", "2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replicates": 0}, "bootstrap.replicates"),
        ({"edges": [[2, 0]]}, "bootstrap.edges"),
        ({"edges": "x"}, "bootstrap.edges"),
        ({"rewards": {"r": {}}}, "bootstrap.rewards.r"),
        ({"rewards": None}, "bootstrap: expected"),
        ({"rewards": {"q": {"certain": [0], "abstraction": [1]}}}, "unknown reward 'q'"),
        ({"rewards": {"r": {"certain": [1], "abstraction": [0]}}}, "more often certain"),
    ],
)
def test_a_damaged_field_is_named(change: dict[str, object], message: str) -> None:
    good = {"replicates": 2, "edges": [[0.5, 1.0]], "rewards": {"r": {"certain": [1], "abstraction": [1]}}}
    assert Bootstrap.from_json(good, 1, ["r"]).to_json() == good
    with pytest.raises(DataError, match=message):
        Bootstrap.from_json(good | change, 1, ["r"])


def test_the_tables_count_logs() -> None:
    graph = cbm.discover(log(), settings=preset("debug"), workers=0)
    edges = np.array([[1.0, 0.2, 1.0], [0.0, 0.6, 0.0]])
    found = Bootstrap(5, edges, {"x/y": np.array([0.4, 0.0])}, {"x/y": np.array([0.8, 0.2])})
    assert variable_rows(graph, found, ["x/y"]) == [["obs_0", "2 to 4"]]
    assert rare_sentence(graph, found, ["x/y"]) == "1 other not ruled out in at most 1, and never certainly needed"
    shown = reward_payload(replace(graph, bootstrap=found), "x/y", None)["bootstrap"]
    assert shown == {"certain": [2, 0], "kept": [4, 1]}  # what the report's chips say
    rows = unsteady_edges(graph, found)
    assert [row[:2] for row in rows] == [["obs_1 -> obs_1", "3"], ["obs_1 -> obs_0", "1"]]
    assert [row[2] for row in rows] == [str(graph.verdict[1, 1]), str(graph.verdict[0, 1])]
