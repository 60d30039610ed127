"""Numbers that a run sends to a tracker, read back with the tracker's own library."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cbm.errors import DataError
from cbm.learning.algorithm1 import Status, learn
from cbm.runs import trackers
from cbm.runs.tracking import Tracking
from small_runs import rows_of, small_plan  # type: ignore[import-not-found]

pytestmark = pytest.mark.usefixtures("one_thread")


class Stop(Exception):
    """Ends a run as a kill does."""


@pytest.fixture(scope="module")
def stopped_and_resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its second evaluation, beyond its last checkpoint, and then went on."""
    pytest.importorskip("tensorboard")
    run = tmp_path_factory.mktemp("run")
    with pytest.raises(Stop), Tracking("tensorboard", run) as tracking:
        learn(small_plan(), run, _watch(tracking, stop_at=440))
    with Tracking("tensorboard", run) as tracking:
        learn(small_plan(), run, _watch(tracking))
    return run


def _watch(tracking: Tracking, stop_at: int = 10**9) -> Any:
    def watch(status: Status) -> None:
        tracking.look()
        if status.step >= stop_at:
            raise Stop

    return watch


def expected(run: Path) -> list[tuple[int, float]]:
    return [(int(row["step"]), float(row["return"])) for row in rows_of(run)]


def test_tensorboard_reads_the_curve_of_a_resumed_run(stopped_and_resumed: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(stopped_and_resumed / "tensorboard"))
    events.Reload()
    curve = [(event.step, event.value) for event in events.Scalars("eval/cross/return")]
    assert len(list((stopped_and_resumed / "tensorboard").iterdir())) == 2, "one file for each part of the run"
    assert [step for step, _ in curve] == [200, 400, 600], "every point once, in order"
    assert [value for _, value in curve] == pytest.approx([value for _, value in expected(stopped_and_resumed)])
    times = [event.wall_time for event in events.Scalars("eval/cross/return")]
    assert times == sorted(times)
    assert {"policy/cross/critic_loss", "policy/cross/alpha", "result/seconds"} <= set(events.Tags()["scalars"])


def test_a_finished_run_is_sent_once(stopped_and_resumed: Path) -> None:
    before = (stopped_and_resumed / "track.json").read_text()
    with Tracking("tensorboard", stopped_and_resumed) as tracking:
        tracking.look()
    assert (stopped_and_resumed / "track.json").read_text() == before


@pytest.mark.filterwarnings("ignore")  # MLflow's own, about its database library
def test_mlflow_gets_the_curve_and_goes_on_with_it(
    stopped_and_resumed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy", reason="MLflow keeps runs in a database")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    run = tmp_path / "run"
    run.mkdir()
    whole = (stopped_and_resumed / "eval.csv").read_text().splitlines(keepends=True)
    (run / "config.json").write_text(json.dumps({"command": "learn", "settings": {"gamma": 0.9}}))
    for lines, final in ((whole[:3], False), (whole[:2], False), (whole, True)):  # cut back to a checkpoint in between
        (run / "eval.csv").write_text("".join(lines))
        with Tracking("mlflow", run) as tracking:
            tracking.look(final)
    from mlflow.tracking import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("cbm")
    assert experiment is not None
    [stored] = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(stored.info.run_id, "eval/cross/return")
    assert [(point.step, point.value) for point in history] == expected(stopped_and_resumed)
    assert stored.data.params["settings.gamma"] == "0.9"
    assert stored.info.status == "FINISHED"


class Broken:
    """A tracker whose server goes away after the first point."""

    key = "broken"
    points = 0

    def __init__(self, run: Path, config: Any, key: str | None):
        if config.get("refuse"):
            raise ConnectionError("no server\nat all")

    def log(self, step: int, seconds: float, values: Any) -> None:
        Broken.points += 1
        if Broken.points > 1:
            raise ConnectionError("the server is gone")

    def close(self, finished: bool) -> None:
        raise AssertionError("it is gone")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(trackers.TRACKERS, "broken", ("json", Broken))
    monkeypatch.setattr(Broken, "points", 0)
    yield


@pytest.mark.usefixtures("broken")
def test_a_tracker_that_fails_does_not_end_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metrics.jsonl").write_text('{"phase": "a", "step": 1, "x": 2}\n' * 2)
    with Tracking("broken", tmp_path) as tracking:
        tracking.look()
        tracking.look()
    assert capsys.readouterr().err == "cbm: --track broken: the server is gone; the run goes on without it\n"


@pytest.mark.usefixtures("broken")
def test_a_tracker_that_cannot_begin_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"refuse": true}')
    with pytest.raises(DataError, match="--track broken: cannot begin: no server$"):
        Tracking("broken", tmp_path).look()


def test_a_tracker_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="wandb is not installed: pip install 'cbm-rl"):
        Tracking("wandb", tmp_path)
