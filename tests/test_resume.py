"""A killed, interrupted or damaged run ends in the same result as one that was left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cbm.discovery import checkpoint as checkpoint_module
from cbm.discovery import training
from cbm.discovery.discover import Progress, discover
from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.graph import CausalGraph
from cbm.transitions import Transitions

STEPS = 700  # so that the shortest stage, prediction, still reports twice
PHASES = ("dynamics", "dynamics-again", "rewards", "rewards-again", "prediction")

DRIVER = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from cbm.discovery import checkpoint
from cbm.discovery.discover import discover
from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world

run, steps, phase, lines = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
checkpoint.EVERY_SECONDS = 0.0

def watch(stage, done):
    log = run / "metrics.jsonl"
    seen = [json.loads(line)["phase"] for line in log.read_text().splitlines()] if log.exists() else []
    if seen and seen[-1] == phase and seen.count(phase) >= lines:
        os.kill(os.getpid(), signal.SIGKILL)

discover(collect(make_world("light"), 3000), steps=steps, settings=preset("debug"), run=run, progress=watch)
"""


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def data() -> Transitions:
    return collect(make_world("light"), 3000)


@pytest.fixture(scope="module")
def reference(data: Transitions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody disturbed."""
    run = tmp_path_factory.mktemp("undisturbed")
    _discover(data, run)
    return run


def _discover(data: Transitions, run: Path, progress: Progress | None = None) -> CausalGraph:
    return discover(data, steps=STEPS, settings=preset("debug"), run=run, progress=progress)


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
    assert results[0]["updates"] == results[1]["updates"] and set(results[0]["updates"]) == set(PHASES)
    assert _metrics(run) == _metrics(reference)  # every step once, in order, with the same losses


def _child(run: Path, phase: str = "-", lines: int = 0) -> subprocess.Popen[bytes]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", DRIVER, str(run), str(STEPS), phase, str(lines)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


class Stop(Exception):
    """Ends a run without giving it the chance to save anything, as a kill does."""


def _stopper(run: Path, phase: str, lines: int, error: type[BaseException] = Stop) -> Progress:
    """Raises once the log holds so many lines of the phase."""

    def watch(stage: str, done: float) -> None:
        seen = [row["phase"] for row in _metrics(run)] if (run / "metrics.jsonl").exists() else []
        if seen and seen[-1] == phase and seen.count(phase) >= lines:
            raise error

    return watch


def test_reference_reports_every_phase(reference: Path) -> None:
    steps: dict[str, list[int]] = {}
    for row in _metrics(reference):
        steps.setdefault(row["phase"], []).append(row["step"])
    assert tuple(steps) == PHASES
    for found in steps.values():
        assert found == [50 * (k + 1) for k in range(len(found))] and len(found) >= 2


def test_one_seed_gives_one_result(data: Transitions, reference: Path, tmp_path: Path) -> None:
    without_files = discover(data, steps=STEPS, settings=preset("debug")).to_json()
    without_files.pop("seconds")
    assert without_files == _graph(reference)
    other = discover(data, steps=STEPS, settings=preset("debug"), seed=1).to_json()
    assert other["cmi"] != without_files["cmi"]


def test_killed_again_and_again(reference: Path, tmp_path: Path) -> None:
    """From outside as soon as there is a checkpoint, then in every later stage; each time a fresh process."""
    run = tmp_path / "run"
    child = _child(run)
    deadline = time.monotonic() + 240
    while not (run / "checkpoint" / "state.safetensors").exists():
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.005)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    assert not (run / "graph.json").exists()
    for phase in ("dynamics-again", "rewards", "prediction"):
        assert _child(run, phase, 2).wait() == -signal.SIGKILL
        assert not (run / "result.json").exists()
    assert _child(run).wait() == 0
    _same(run, reference)
    assert not list(run.rglob("*.tmp"))


@pytest.mark.parametrize("phase", PHASES)
def test_stopped_with_a_checkpoint_a_step_back(
    data: Transitions, reference: Path, tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "EVERY_SECONDS", 0.0)
    with pytest.raises(Stop):
        _discover(data, tmp_path, _stopper(tmp_path, phase, 2))
    _discover(data, tmp_path)
    _same(tmp_path, reference)


@pytest.mark.parametrize("every", [0.0, 1e9])
@pytest.mark.parametrize("phase", PHASES)
def test_stopped_before_the_first_checkpoint_of_a_stage(
    data: Transitions, reference: Path, tmp_path: Path, phase: str, every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "EVERY_SECONDS", every)
    with pytest.raises(Stop):
        _discover(data, tmp_path, _stopper(tmp_path, phase, 1))
    _discover(data, tmp_path)
    _same(tmp_path, reference)


def test_keyboard_interrupt_saves_and_goes_on(data: Transitions, reference: Path, tmp_path: Path) -> None:
    for phase in ("dynamics", "rewards-again"):
        with pytest.raises(KeyboardInterrupt):
            _discover(data, tmp_path, _stopper(tmp_path, phase, 2, KeyboardInterrupt))
        saved = checkpoint_module.Checkpoint(tmp_path / "checkpoint" / "state.safetensors")
        assert saved.notes["stage"] == phase and int(saved.running["step"][0]) == 100
    _discover(data, tmp_path)
    _same(tmp_path, reference)


@pytest.mark.parametrize("place", ["refocus", "learn"])
def test_keyboard_interrupt_inside_an_update(
    data: Transitions, reference: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if place == "refocus":
            patch.setattr(training, "measure", interrupt)  # the long part of it
        else:
            move = training.Trainer._move_average
            patch.setattr(
                training.Trainer, "_move_average", lambda self: interrupt() if self.step >= 100 else move(self)
            )
        with pytest.raises(KeyboardInterrupt):
            _discover(data, tmp_path)
    _discover(data, tmp_path)
    _same(tmp_path, reference)


@pytest.mark.parametrize("damage", ["truncated", "empty", "noise", "text"])
def test_damaged_checkpoint_starts_again(
    data: Transitions, reference: Path, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_module, "EVERY_SECONDS", 0.0)
    with pytest.raises(Stop):
        _discover(data, tmp_path, _stopper(tmp_path, "dynamics", 3))
    path = tmp_path / "checkpoint" / "state.safetensors"
    content = path.read_bytes()
    damaged = {"truncated": content[: len(content) // 2], "empty": b"", "noise": os.urandom(1000), "text": b"{}"}
    path.write_bytes(damaged[damage])
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
