"""A killed, interrupted or damaged run ends in the same result as one that was left alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbm.data.transitions import Transitions
from cbm.discovery import checkpoint as checkpoint_module
from cbm.discovery import train
from cbm.discovery.discover import discover
from cbm.discovery.pipeline import Progress
from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.graph import CausalGraph

ROWS, UPDATES = 300, 160  # so that prediction reports three times
SETTINGS = replace(preset("debug"), prediction_updates=UPDATES)
STAGES = ("screening", "measuring", "prediction")

DRIVER = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
import torch
torch.set_num_threads(1)
from cbm.discovery import checkpoint
from cbm.discovery.discover import discover
from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world

run, rows, updates, stage, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
checkpoint.EVERY_SECONDS = 0.0
heard = []

def watch(name, done):
    heard.append(name)
    if name == stage and heard.count(name) >= times:
        os.kill(os.getpid(), signal.SIGKILL)

settings = replace(preset("debug"), prediction_updates=updates)
data = replace(collect(make_world("light"), rows), rewards={}, truth_rewards={})
discover(data, settings=settings, run=run, progress=watch, workers=1)
"""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data() -> Transitions:
    return replace(collect(make_world("light"), ROWS), rewards={}, truth_rewards={})


@pytest.fixture(scope="module")
def reference(data: Transitions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbed."""
    run = tmp_path_factory.mktemp("undisturbed")
    _discover(data, run)
    return run


def _discover(data: Transitions, run: Path, progress: Progress | None = None) -> CausalGraph:
    return discover(data, settings=SETTINGS, run=run, progress=progress, workers=0)


def _graph(run: Path) -> dict[str, Any]:
    graph: dict[str, Any] = json.loads((run / "graph.json").read_text())
    assert graph.pop("seconds") >= 0
    return graph


def _metrics(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def _same(run: Path, reference: Path) -> None:
    assert _graph(run) == _graph(reference)
    assert (run / "prediction.json").read_text() == (reference / "prediction.json").read_text()
    results = [json.loads((where / "result.json").read_text()) for where in (run, reference)]
    assert results[0]["updates"] == results[1]["updates"] == {"prediction": UPDATES}
    assert _metrics(run) == _metrics(reference)  # every step once, in order, with the same losses
    assert not list(run.rglob("*.tmp"))


def _jobs(run: Path) -> set[str]:
    return {path.name for path in (run / "checkpoint" / "jobs").glob("*")}


def _child(run: Path, stage: str = "-", times: int = 0) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DRIVER, str(run), str(ROWS), str(UPDATES), stage, str(times)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


class Stop(Exception):
    """Ends a run without giving it the chance to save anything, as a kill does."""


def _stopper(stage: str, times: int, error: type[BaseException] = Stop) -> Progress:
    """Raises when so much has been heard of the stage."""
    heard: list[str] = []

    def watch(name: str, done: float) -> None:
        heard.append(name)
        if name == stage and heard.count(name) >= times:
            raise error

    return watch


def test_reference_reports_every_stage(data: Transitions, tmp_path: Path) -> None:
    heard: list[str] = []
    _discover(data, tmp_path, lambda stage, done: heard.append(stage))
    found = list(dict.fromkeys(heard))
    assert [stage for stage in found if stage != "measuring again"] == list(STAGES)
    steps = [row["step"] for row in _metrics(tmp_path) if row["phase"] == "prediction"]
    assert steps == [50, 100, 150] or steps == [50, 100, 150, 160]


@pytest.mark.slow
def test_killed_again_and_again(data: Transitions, reference: Path, tmp_path: Path) -> None:
    """From outside as soon as a job is stored, then in later stages; each time a fresh process with a worker.

    Whoever goes on need not have one.
    """
    run = tmp_path / "run"
    child = _child(run)
    deadline = time.monotonic() + 100
    while not _jobs(run):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not (run / "graph.json").exists()
    for stage, times in (("measuring", 3), ("prediction", 2)):
        assert _child(run, stage, times).wait() == -signal.SIGKILL
        assert not (run / "result.json").exists()
    _discover(data, run)
    _same(run, reference)


@pytest.mark.parametrize(
    ("stage", "times"),
    [
        pytest.param("screening", 1, marks=pytest.mark.slow),
        pytest.param("measuring", 1, marks=pytest.mark.slow),
        ("measuring", 5),
        ("prediction", 1),
    ],
)
def test_stopped_without_a_chance_to_save(
    data: Transitions, reference: Path, tmp_path: Path, stage: str, times: int
) -> None:
    with pytest.raises(Stop):
        _discover(data, tmp_path, _stopper(stage, times))
    _discover(data, tmp_path)
    _same(tmp_path, reference)


@pytest.fixture(scope="module")
def stopped(data: Transitions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that stopped while it tested predictions, with a checkpoint after each step."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_module, "EVERY_SECONDS", 0.0)
        with pytest.raises(Stop):
            _discover(data, run, _stopper("prediction", 3))
    return run


def test_stopped_with_a_checkpoint_a_step_back(
    data: Transitions, reference: Path, stopped: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    _discover(data, run)
    _same(run, reference)


def test_finished_jobs_are_not_run_again(data: Transitions, reference: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        _discover(data, tmp_path, _stopper("measuring", 4))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoint" / "jobs").glob("*")}
    assert len(before) == 6  # two screens (one more without the last action) and four targets
    with pytest.raises(Stop):
        _discover(data, tmp_path, _stopper("measuring", 1))
    after = {path: path.stat().st_mtime_ns for path in (tmp_path / "checkpoint" / "jobs").glob("*")}
    assert len(after) == 7 and all(after[path] == written for path, written in before.items())


def test_keyboard_interrupt_saves_and_goes_on(data: Transitions, reference: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _discover(data, tmp_path, _stopper("measuring", 2, KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        _discover(data, tmp_path, _stopper("prediction", 2, KeyboardInterrupt))
    saved = checkpoint_module.Checkpoint(tmp_path / "checkpoint")
    assert saved.notes["stage"] == "prediction" and int(saved.running["step"][0]) == 100
    _discover(data, tmp_path)
    _same(tmp_path, reference)


def test_keyboard_interrupt_inside_an_update(
    data: Transitions, reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move = train.Trainer._move_average

    def interrupt(self: train.Trainer) -> None:
        if self.step >= 100:
            raise KeyboardInterrupt
        move(self)

    with monkeypatch.context() as patch:
        patch.setattr(train.Trainer, "_move_average", interrupt)
        with pytest.raises(KeyboardInterrupt):
            _discover(data, tmp_path)
    _discover(data, tmp_path)
    _same(tmp_path, reference)


DAMAGES = {"truncated": None, "empty": b"", "text": b"{}", "noise": bytes(range(256)) * 4}


def _damage(path: Path, damage: str) -> None:
    content, new = path.read_bytes(), DAMAGES[damage]
    path.write_bytes(content[: len(content) // 2] if new is None else new)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_starts_again(
    data: Transitions, reference: Path, stopped: Path, tmp_path: Path, damage: str
) -> None:
    run = Path(shutil.copytree(stopped, tmp_path / "run"))
    generations = sorted((run / "checkpoint").glob("*.safetensors"))
    assert len(generations) == 2
    for path in generations:
        _damage(path, damage)
    _discover(data, run)
    _same(run, reference)


@pytest.mark.parametrize("damage", [pytest.param("truncated", marks=pytest.mark.slow), "noise"])
def test_a_damaged_job_is_run_again(data: Transitions, reference: Path, tmp_path: Path, damage: str) -> None:
    with pytest.raises(Stop):
        _discover(data, tmp_path, _stopper("measuring", 3))
    jobs = sorted((tmp_path / "checkpoint" / "jobs").glob("dynamics-*"))
    assert len(jobs) > 1
    for path in jobs[:2]:
        _damage(path, damage)
    with pytest.warns(UserWarning, match="is damaged"):
        _discover(data, tmp_path)
    _same(tmp_path, reference)


def test_finished_run_is_left_untouched(data: Transitions, reference: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in reference.rglob("*")}
    heard: list[str] = []
    graph = _discover(data, reference, lambda stage, done: heard.append(stage))
    assert {path: path.stat().st_mtime_ns for path in reference.rglob("*")} == before
    assert not heard
    stored = graph.to_json()
    stored.pop("seconds")
    assert stored == _graph(reference)
