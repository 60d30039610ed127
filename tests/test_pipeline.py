"""Discovery as jobs: the same result with any number of workers, beside other work, and in several sittings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.discover import discover
from cbm.discovery.pipeline import Ceiling
from cbm.discovery.settings import Settings
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.reward import UNSETTLED
from cbm.jobs import Job, Store

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = replace(Settings(), prediction_updates=60)
TRUE = {"y -> x", "A -> y", "x -> z", "z -> z"}


@pytest.fixture(scope="module")
def data() -> Transitions:
    """x follows y, y the action, z is a bent function of x and itself; w is noise."""
    rng, n = np.random.default_rng(0), 60
    state, rows = rng.normal(size=(n, 4)), []
    for _ in range(30):
        action = rng.uniform(-1, 1, (n, 1))
        noise = rng.normal(size=(4, n))
        after = np.stack([
            0.8 * state[:, 1] + 0.3 * noise[0], action[:, 0] + 0.3 * noise[1],
            0.4 * state[:, 2] + np.abs(state[:, 0]) + 0.3 * noise[2], noise[3],
        ], 1)  # fmt: skip
        rows.append((state, action, after))
        state = after
    obs, act, following = (np.stack(part, 1).reshape(n * 30, -1) for part in zip(*rows, strict=True))
    rewards = {"pay": following[:, 0] + 0.1 * rng.normal(size=len(obs)), "luck": rng.normal(size=len(obs))}
    factors = Factors(tuple(Variable(name) for name in "xyzw"), ("a",))
    return Transitions(obs, act, following, factors, rewards, episode=np.repeat(np.arange(n), 30))


@pytest.fixture(scope="module")
def reference(data: Transitions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("reference")
    discover(data, settings=SETTINGS, run=run, workers=1)
    return run


def _graph(run: Path) -> dict[str, Any]:
    graph: dict[str, Any] = json.loads((run / "graph.json").read_text())
    assert graph.pop("seconds") >= 0
    return graph


def _edges(graph: CausalGraph) -> set[str]:
    columns = [*graph.variables, "A"]
    return {f"{columns[j]} -> {graph.variables[i]}" for i, j in zip(*np.nonzero(graph.verdict == "edge"))}


@contextmanager
def _busy(count: int = 2) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_the_graph_is_right(reference: Path) -> None:
    graph = CausalGraph.load(reference)
    assert _edges(graph) == TRUE and graph.is_settled
    assert graph.rewards["pay"].parents == ("x",) and graph.rewards["luck"].parents == ()
    assert graph.abstraction("pay") == ("x", "y")


@pytest.mark.parametrize("workers", [0, 2])
def test_any_number_of_workers(data: Transitions, reference: Path, tmp_path: Path, workers: int) -> None:
    discover(data, settings=SETTINGS, run=tmp_path, workers=workers)
    assert _graph(tmp_path) == _graph(reference)
    assert (tmp_path / "prediction.json").read_text() == (reference / "prediction.json").read_text()


def test_beside_a_busy_machine(data: Transitions, reference: Path, tmp_path: Path) -> None:
    with _busy():
        discover(data, settings=SETTINGS, run=tmp_path, workers=2)
    assert _graph(tmp_path) == _graph(reference)


def test_in_several_sittings(data: Transitions, reference: Path, tmp_path: Path) -> None:
    """Every sitting adds to what is known and claims nothing false; the last one ends with the same graph."""
    known = -1
    for _ in range(12):
        graph = discover(data, steps=3, settings=SETTINGS, run=tmp_path, workers=0)
        assert _edges(graph) <= TRUE
        stored = json.loads((tmp_path / "result.json").read_text())
        assert stored["settled"] == graph.is_settled
        if graph.is_settled:
            break
        assert (graph.verdict[~graph.settled] == "undecided").all()
        assert (graph.reason[~graph.settled] == UNSETTLED).all()
        jobs = len(list((tmp_path / "checkpoint" / "jobs").iterdir()))
        assert jobs > known
        known = jobs
    assert _graph(tmp_path) == _graph(reference)


def test_a_first_sitting_and_the_rest(data: Transitions, reference: Path, tmp_path: Path) -> None:
    graph = discover(data, steps=3, settings=SETTINGS, run=tmp_path, workers=1)
    assert not graph.is_settled and _edges(graph) <= TRUE
    measured = [path.name for path in (tmp_path / "checkpoint" / "jobs").iterdir() if "screen" not in path.name]
    assert len(measured) == 3, "steps are measured targets"
    assert not (tmp_path / "prediction.json").exists(), "no model predicts from causes that are not settled"
    discover(data, settings=SETTINGS, run=tmp_path, workers=1)
    assert _graph(tmp_path) == _graph(reference)


def test_no_time_at_all_and_then_enough(data: Transitions, reference: Path, tmp_path: Path) -> None:
    """Neither minutes nor steps are part of what makes a call the same."""
    config = json.loads((reference / "config.json").read_text())
    assert not {"minutes", "steps", "workers"} & set(config)
    graph = discover(data, minutes=1e-6, settings=SETTINGS, run=tmp_path, workers=0)
    assert not graph.settled.any() and not (graph.verdict == "edge").any()
    assert all(not reward.parents and not reward.settled.any() for reward in graph.rewards.values())
    discover(data, minutes=5.0, settings=SETTINGS, run=tmp_path, workers=0)
    assert _graph(tmp_path) == _graph(reference)


def test_a_settled_run_is_taken_as_it_is(data: Transitions, reference: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in reference.rglob("*")}
    heard: list[str] = []
    graph = discover(
        data, minutes=1e-6, settings=SETTINGS, run=reference, progress=lambda stage, _: heard.append(stage)
    )
    assert graph.is_settled and not heard
    assert {path: path.stat().st_mtime_ns for path in reference.rglob("*")} == before
    assert not (reference / "checkpoint" / "jobs").exists(), "what only serves to go on is gone"


def test_one_seed_one_graph(data: Transitions, reference: Path) -> None:
    same = discover(data, settings=SETTINGS, workers=0).to_json()
    same.pop("seconds")
    assert same == _graph(reference), "with or without a run directory"
    other = discover(data, settings=SETTINGS, workers=0, seed=1)
    assert other.to_json()["cmi"] != same["cmi"] and _edges(other) == TRUE


def test_progress_is_told(data: Transitions, tmp_path: Path) -> None:
    heard: list[tuple[str, float]] = []
    discover(
        data,
        settings=SETTINGS,
        workers=0,
        run=tmp_path / "run",
        progress=lambda stage, done: heard.append((stage, done)),
    )
    stages = list(dict.fromkeys(stage for stage, _ in heard))
    assert stages[:2] == ["screening", "measuring"] and stages[-1] == "prediction"
    for stage in stages:
        done = [fraction for name, fraction in heard if name == stage]
        assert done == sorted(done) and done[0] >= 0 and done[-1] <= 1


def test_without_a_run_directory_nothing_is_trained_to_predict(data: Transitions) -> None:
    heard: list[str] = []
    discover(data, settings=SETTINGS, workers=0, progress=lambda stage, _: heard.append(stage))
    assert "measuring" in heard and "prediction" not in heard


def test_a_negative_number_of_workers(data: Transitions) -> None:
    with pytest.raises((DataError, ValueError), match="workers"):
        discover(data, settings=SETTINGS, workers=-1)


def test_a_ceiling_counts_what_is_new() -> None:
    jobs = [Job(f"j{k}", "cbm.jobs.examples:scale", {}) for k in range(5)]
    store = Store(None)
    assert Ceiling().allow(jobs, store) == jobs
    limited = Ceiling(jobs=3)
    assert limited.allow(jobs, store) == jobs[:3] and limited.allow(jobs, store) == []
