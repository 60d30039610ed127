"""A run stopped anywhere ends as one that was left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cbm.agents.settings import SacSettings
from cbm.discovery.models.candidates import CandidateNetworks
from cbm.discovery.train import Trainer
from cbm.errors import DataError
from cbm.learning.algorithm1 import Progress, Status, learn
from small_runs import assert_same, rows_of, small_plan, small_settings  # type: ignore[import-not-found]

STEPS = 600
TWO: dict[str, Any] = {"tasks": ("cross", "park")}
FEW = {"model_updates": 3, "dynamics_updates": 3}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that nobody disturbed: one task, two in turn, two at once, and with a model of the dynamics to learn."""
    runs = {}
    for name, changes in _kinds().items():
        runs[name] = tmp_path_factory.mktemp(name)
        learn(small_plan(**changes), runs[name])
    return runs


def _kinds() -> dict[str, dict[str, Any]]:
    return {
        "one": {"settings": small_settings(demonstrations=2)},
        "in turn": {**TWO, "steps": 400},
        "at once": {**TWO, "together": True, "steps": 400, "settings": small_settings(share_data=False)},
        "jointly": {**TWO, "together": True, "steps": 400, "method": "cbm", "settings": small_settings(**FEW)},
        "last action": {"steps": 400, "method": "cbm", "settings": small_settings(last_action=True, **FEW)},
        "partition": {"method": "tia", "steps": 300, "method_options": {"warm_up": 10, "width": 16}},
        "icp": {"method": "icp", "steps": 400},
    }


class Stop(Exception):
    """Ends a run without giving it the chance to save anything, as a kill does."""


def _stop_at(step: int, error: type[BaseException] = Stop) -> Progress:
    def watch(status: Status) -> None:
        if status.step >= step:
            raise error

    return watch


def _stop_after(calls: int) -> Progress:
    left = [calls]

    def watch(status: Status) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Stop

    return watch


def test_two_runs_with_one_seed_are_equal(reference: dict[str, Path], tmp_path: Path) -> None:
    learn(small_plan(**_kinds()["one"]), tmp_path / "again")
    assert_same(tmp_path / "again", reference["one"])
    learn(small_plan(**_kinds()["one"], seed=1), tmp_path / "other")
    assert rows_of(tmp_path / "other") != rows_of(reference["one"])


@pytest.mark.parametrize("kind", ["one", "in turn", "at once", "jointly", "last action", "partition", "icp"])
def test_killed_again_and_again(kind: str, reference: dict[str, Path], tmp_path: Path) -> None:
    plan = small_plan(**_kinds()[kind])
    late = 61 if plan.steps >= 400 else 22
    for turns in (10, 35, late, 2):  # before the first checkpoint, after one, late or in the second task, ...
        with pytest.raises(Stop):
            learn(plan, tmp_path, _stop_after(turns))
    (tmp_path / "checkpoint" / ".00000400.safetensors.1.ab.tmp").write_bytes(b"half")  # killed while it was written
    learn(plan, tmp_path)
    assert_same(tmp_path, reference[kind])
    assert not list((tmp_path / "checkpoint").glob(".*"))
    assert (
        json.loads((tmp_path / "result.json").read_text())["tasks"]
        == (json.loads((reference[kind] / "result.json").read_text())["tasks"])
    )


def test_ctrl_c_saves_at_once(reference: dict[str, Path], tmp_path: Path) -> None:
    plan = small_plan(**_kinds()["one"])

    def interrupt(status: Status) -> None:
        if status.step == 204:  # no checkpoint is due here
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        learn(plan, tmp_path, interrupt)
    assert signal.getsignal(signal.SIGINT) is before
    assert (tmp_path / "checkpoint" / "00000204.safetensors").is_file()
    steps: list[int] = []
    learn(plan, tmp_path, lambda status: steps.append(status.step))
    assert steps[0] == 208
    assert_same(tmp_path, reference["one"])


def test_ctrl_c_while_the_abstraction_is_decided(
    reference: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models that are trained from the start at a decision do not end the turn."""
    plan, update, asked = small_plan(**_kinds()["jointly"]), Trainer.update, [1]

    def interrupted(trainer: Trainer, progress: float) -> Any:
        if asked and isinstance(trainer.model, CandidateNetworks):
            os.kill(os.getpid(), signal.SIGINT)
            asked.clear()
        return update(trainer, progress)

    monkeypatch.setattr(Trainer, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        learn(plan, tmp_path)
    assert not asked and list((tmp_path / "checkpoint").glob("*.safetensors"))
    learn(plan, tmp_path)
    assert_same(tmp_path, reference["jointly"])


def test_a_damaged_checkpoint_costs_steps_but_not_the_run(
    reference: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = small_plan(**_kinds()["one"])
    with pytest.raises(Stop):
        learn(plan, tmp_path, _stop_at(500))
    newest = sorted((tmp_path / "checkpoint").glob("[0-9]*"))[-1]
    assert newest.name == "00000480.safetensors"
    newest.write_bytes(newest.read_bytes()[:1000])
    steps: list[int] = []
    learn(plan, tmp_path, lambda status: steps.append(status.step))
    assert steps[0] == 364
    assert "00000480.safetensors" in (said := capsys.readouterr().err) and "00000360.safetensors" in said
    assert_same(tmp_path, reference["one"])


def test_a_foreign_environment_begins_new_episodes_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = replace(
        small_plan(steps=300, settings=small_settings(episodes=1)), world="gymnasium:Pendulum-v1", tasks=("reward",)
    )
    with pytest.raises(Stop):
        learn(plan, tmp_path, _stop_at(200))
    assert capsys.readouterr().err == ""
    learn(plan, tmp_path)
    assert "its episodes cannot be saved, new ones begin" in capsys.readouterr().err
    assert [row["step"] for row in rows_of(tmp_path)] == ["200", "300"]


def test_only_damaged_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        learn(small_plan(), tmp_path, _stop_at(500))
    for path in (tmp_path / "checkpoint").glob("[0-9]*"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="no checkpoint can be read"):
        learn(small_plan(), tmp_path)


def test_a_finished_run_is_left_alone(reference: dict[str, Path]) -> None:
    run = reference["one"]
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    result = learn(small_plan(**_kinds()["one"]), run, _stop_after(1))
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert result == json.loads((run / "result.json").read_text())
    assert len(list((run / "checkpoint").iterdir())) == 1  # the last state; rows are not needed any more


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 3}, "seed 0, not 3"),
        ({"method": "oracle"}, 'method "full", not "oracle"'),
        (
            {"settings": small_settings(demonstrations=2, agent=SacSettings(hidden=(8, 8), batch=17))},
            "sac.batch 16, not 17",
        ),
        ({"options": {"world_seed": 1, "distractors": 1}}, "options"),
    ],
)
def test_a_directory_of_another_run(changes: dict[str, Any], said: str, reference: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=said):
        learn(small_plan(**{**_kinds()["one"], **changes}), reference["one"])


def test_a_directory_of_another_command(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"command": "discover"}')
    with pytest.raises(DataError, match="`cbm discover`"):
        learn(small_plan(), tmp_path)


DRIVER = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from cbm.learning.algorithm1 import learn
from cbm.learning.plan import plan_of

turns = int(sys.argv[2])
def watch(status):
    global turns
    turns -= 1
    if turns == 0:
        os.kill(os.getpid(), signal.SIGKILL)
learn(plan_of(json.loads(sys.argv[3])), Path(sys.argv[1]), watch)
"""


@pytest.mark.slow
def test_kill_9_in_a_process_of_its_own(reference: dict[str, Path], tmp_path: Path) -> None:
    config = json.loads((reference["one"] / "config.json").read_text())
    for turns in (70, 45):
        command = [sys.executable, "-c", DRIVER, str(tmp_path), str(turns), json.dumps(config)]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=120)
        assert done.returncode == -signal.SIGKILL
    learn(small_plan(**_kinds()["one"]), tmp_path)
    assert_same(tmp_path, reference["one"])
