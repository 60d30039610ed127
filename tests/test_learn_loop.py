"""Algorithm 1: what happens at which step; a run stopped anywhere ends as one that was left alone."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cbm.errors import DataError
from cbm.tasks import learner as learner_module
from cbm.tasks import loop
from cbm.tasks import replay as replay_module
from cbm.tasks.agent import Agent
from cbm.tasks.loop import Progress, Status, learn
from cbm.tasks.plan import Plan
from cbm.tasks.settings import LearnSettings, SacSettings, preset

HEADER = "step,seconds,return,success,length,kept,seed,method,task"
D = 6  # variables of the light world


@pytest.fixture(autouse=True, scope="module")
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as in child processes: sums in another order round differently
    yield
    torch.set_num_threads(before)


def _settings(**changes: Any) -> LearnSettings:
    sac = SacSettings(hidden=(8, 8), batch=16)
    base = replace(preset("debug"), sac=sac, warm_up=100, evaluate_every=200, episodes=3, checkpoint_every=120)
    return replace(base, **changes)


def _plan(**changes: Any) -> Plan:
    settings = changes.pop("settings", _settings())
    return replace(Plan("light", ("cross",), "full", 600, settings, preset="debug"), **changes)


def _rows(run: Path) -> list[dict[str, str]]:
    """eval.csv without what differs between equal runs."""
    with (run / "eval.csv").open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def _lines(run: Path, name: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / name).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def _same(run: Path, reference: Path) -> None:
    assert _rows(run) == _rows(reference)
    for name in ("abstraction.jsonl", "metrics.jsonl"):
        assert _lines(run, name) == _lines(reference, name)


# What happens when


class Scripted:
    """A method whose mask is given for each look that it takes."""

    name = "scripted"

    def __init__(self, masks: list[list[int]]):
        self.masks, self.looks = masks, 0

    def learn(self, experience: Any, updates: int) -> dict[str, float]:
        self.looks += 1
        return {"rows": float(len(experience.transitions(False))), "updates": float(updates)}

    def mask(self) -> np.ndarray:
        if self.looks == 0:
            return np.ones(D, bool)
        return np.isin(np.arange(D), self.masks[min(self.looks, len(self.masks)) - 1])

    def graph(self) -> None:
        return None

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"looks": torch.tensor(self.looks)}

    def restore(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.looks = int(tensors["looks"])


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[list[int]]], list[int]]:
    """Use that method; returns the list to which the updates at each reset of the policy are added."""

    def use(masks: list[list[int]]) -> list[int]:
        resets: list[int] = []
        reset = Agent.reset

        def counted(agent: Agent) -> None:
            resets.append(agent.updates)
            reset(agent)

        monkeypatch.setattr(learner_module, "make_method", lambda name, **setup: Scripted(masks))
        monkeypatch.setattr(Agent, "reset", counted)
        monkeypatch.setattr(replay_module, "FEWEST", 0)  # however few rows there are
        return resets

    return use


@pytest.mark.parametrize("catch_up", [False, True])
def test_the_mask_changes_when_it_may_and_resets_the_policy(scripted: Any, tmp_path: Path, catch_up: bool) -> None:
    settings = _settings(
        abstraction_from=200, abstraction_every=40, minimum_interval=100, updates_per_step=0.5, catch_up=catch_up
    )
    masks = [[0, 1], [0, 1], [0, 2], [0, 2], [0, 1], [0, 1], [0, 1]]
    resets = scripted(masks)
    result = learn(_plan(settings=settings, steps=460), tmp_path)
    decisions = _lines(tmp_path, "abstraction.jsonl")
    assert [(d["step"], d["changed"], len(d["kept"])) for d in decisions] == [
        (100, False, D),  # the end of the warm-up
        (200, True, 2),
        (240, False, 2),
        (280, False, 2),  # wants another one, too early
        (320, True, 2),
        (360, False, 2),  # wants the first one back, too early
        (400, False, 2),
        (440, True, 2),
    ]
    names = ("position", "speed", "light")
    assert [d["kept"] for d in decisions[1:] if d["changed"]] == [
        [names[0], names[1]], [names[0], names[2]], [names[0], names[1]]
    ]  # fmt: skip
    due = [(step - 4 - 100) // 2 for step in (200, 320, 440)]  # before the updates of that step
    assert resets == (list(np.cumsum(due)) if catch_up else due)
    assert result["tasks"]["cross"]["kept"] == [names[0], names[1]]
    kept = {int(row["step"]): int(row["kept"]) for row in _rows(tmp_path)}
    assert kept == {200: 2, 400: 2, 460: 2}


@pytest.mark.parametrize("fresh_start", [False, True])
def test_every_policy_starts_anew_once(scripted: Any, tmp_path: Path, fresh_start: bool) -> None:
    """Also that of a method which keeps what it kept."""
    settings = _settings(abstraction_from=200, abstraction_every=40, updates_per_step=0.5, fresh_start=fresh_start)
    resets = scripted([list(range(D))])
    learn(_plan(settings=settings, steps=400), tmp_path)
    assert resets == ([(200 - 4 - 100) // 2] if fresh_start else [])
    assert not any(line["changed"] for line in _lines(tmp_path, "abstraction.jsonl"))


def test_no_reset_unless_wanted_and_nothing_after_the_last_look(scripted: Any, tmp_path: Path) -> None:
    settings = _settings(
        abstraction_from=200, abstraction_every=40, minimum_interval=0, abstraction_until=300, reset_on_change=False
    )
    resets = scripted([[0], [1], [2], [3], [4]])
    learn(_plan(settings=settings, steps=400), tmp_path)
    assert resets == []
    assert [line["step"] for line in _lines(tmp_path, "abstraction.jsonl")] == [100, 200, 240, 280]


def test_updates_rows_and_evaluations_are_counted(scripted: Any, tmp_path: Path) -> None:
    scripted([[0]])
    learn(_plan(settings=_settings(updates_per_step=0.3, catch_up=False)), tmp_path)
    metrics = _lines(tmp_path, "metrics.jsonl")
    policy = [line for line in metrics if line["phase"] == "policy"]
    assert [line["step"] for line in policy] == [200, 400, 600]
    assert [line["updates"] for line in policy] == [30, 60, 60]  # 0.3 for each step after the warm-up
    assert policy[0]["train_return"] is not None and "alpha" in policy[0]
    looks = [line for line in metrics if line["phase"] == "reward"]
    assert [line["step"] for line in looks] == [200, 400, 600] and looks[0]["task"] == "cross"
    assert looks[0]["updates"] == 10 and 0.5 * 200 < looks[0]["rows"] < 200  # the rest is held out
    assert (tmp_path / "eval.csv").read_text().splitlines()[0] == HEADER
    assert [row["step"] for row in _rows(tmp_path)] == ["200", "400", "600"]
    assert _rows(tmp_path)[0]["success"] == ""  # this task has no notion of it
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["tasks"]["cross"]["exact"] is False and result["tasks"]["cross"]["success"] is None
    assert set(result["spent"]) == {"collect", "policy", "evaluation", "abstraction"}


def test_actions_are_random_in_the_warm_up_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[int, bool]] = []
    act = Agent.act

    def spy(self: Agent, obs: Any, context: Any, deterministic: bool = False) -> np.ndarray:
        calls.append((len(obs), deterministic))
        return act(self, obs, context, deterministic)

    monkeypatch.setattr(Agent, "act", spy)
    learn(_plan(steps=300, settings=_settings(evaluate_every=1000)), tmp_path)
    assert calls.count((4, False)) == (300 - 100) // 4
    assert [call for call in calls if call[1]] == [(3, True)] * 100  # one evaluation, at the end


def test_demonstrations_come_first_and_are_in_the_config(tmp_path: Path) -> None:
    seen: list[int] = []
    settings = _settings(demonstrations=5)
    task = loop.Learning._tell

    def tell(self: Any, learners: Any) -> None:
        seen.append(len(self.replay))
        task(self, learners)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Learning, "_tell", tell)
        learn(_plan(settings=settings, steps=200), tmp_path)
    assert seen[0] == 5 * 100 + 4
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["demonstrations"] == 5 and config["demonstration_policies"] == ["mixed"]
    assert _lines(tmp_path, "metrics.jsonl")[0] == {
        "phase": "demonstrations", "task": None, "step": 0, "rows": 500
    }  # fmt: skip


# Stopping and going on


STEPS = 600
TWO: dict[str, Any] = {"tasks": ("cross", "park")}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that nobody disturbed: one task, two in turn, two at once, and with a model of the dynamics to learn."""
    runs = {}
    for name, changes in _kinds().items():
        runs[name] = tmp_path_factory.mktemp(name)
        learn(_plan(**changes), runs[name])
    return runs


def _kinds() -> dict[str, dict[str, Any]]:
    return {
        "one": {"settings": _settings(demonstrations=2)},
        "in turn": {**TWO, "steps": 400},
        "at once": {**TWO, "together": True, "steps": 400, "settings": _settings(share_data=False)},
        "jointly": {**TWO, "together": True, "steps": 400, "method": "cbm"},
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
    learn(_plan(**_kinds()["one"]), tmp_path / "again")
    _same(tmp_path / "again", reference["one"])
    learn(_plan(**_kinds()["one"], seed=1), tmp_path / "other")
    assert _rows(tmp_path / "other") != _rows(reference["one"])


@pytest.mark.parametrize("kind", ["one", "in turn", "at once", "jointly", "partition", "icp"])
def test_killed_again_and_again(kind: str, reference: dict[str, Path], tmp_path: Path) -> None:
    plan = _plan(**_kinds()[kind])
    late = 61 if plan.steps >= 400 else 22
    for turns in (10, 35, late, 2):  # before the first checkpoint, after one, late or in the second task, ...
        with pytest.raises(Stop):
            learn(plan, tmp_path, _stop_after(turns))
    learn(plan, tmp_path)
    _same(tmp_path, reference[kind])
    assert (
        json.loads((tmp_path / "result.json").read_text())["tasks"]
        == (json.loads((reference[kind] / "result.json").read_text())["tasks"])
    )


def test_ctrl_c_saves_at_once(reference: dict[str, Path], tmp_path: Path) -> None:
    plan = _plan(**_kinds()["one"])

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
    _same(tmp_path, reference["one"])


def test_a_damaged_checkpoint_costs_steps_but_not_the_run(
    reference: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = _plan(**_kinds()["one"])
    with pytest.raises(Stop):
        learn(plan, tmp_path, _stop_at(500))
    newest = sorted((tmp_path / "checkpoint").glob("[0-9]*"))[-1]
    assert newest.name == "00000480.safetensors"
    newest.write_bytes(newest.read_bytes()[:1000])
    steps: list[int] = []
    learn(plan, tmp_path, lambda status: steps.append(status.step))
    assert steps[0] == 364
    assert "00000480.safetensors" in (said := capsys.readouterr().err) and "00000360.safetensors" in said
    _same(tmp_path, reference["one"])


def test_a_foreign_environment_begins_new_episodes_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = replace(_plan(steps=300, settings=_settings(episodes=1)), world="gymnasium:Pendulum-v1", tasks=("reward",))
    with pytest.raises(Stop):
        learn(plan, tmp_path, _stop_at(200))
    assert capsys.readouterr().err == ""
    learn(plan, tmp_path)
    assert "its episodes cannot be saved, new ones begin" in capsys.readouterr().err
    assert [row["step"] for row in _rows(tmp_path)] == ["200", "300"]


def test_only_damaged_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        learn(_plan(), tmp_path, _stop_at(500))
    for path in (tmp_path / "checkpoint").glob("[0-9]*"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="no checkpoint can be read"):
        learn(_plan(), tmp_path)


def test_a_finished_run_is_left_alone(reference: dict[str, Path]) -> None:
    run = reference["one"]
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    result = learn(_plan(**_kinds()["one"]), run, _stop_after(1))
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert result == json.loads((run / "result.json").read_text())
    assert len(list((run / "checkpoint").iterdir())) == 1  # the last state; rows are not needed any more


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 3}, "seed 0, not 3"),
        ({"method": "oracle"}, 'method "full", not "oracle"'),
        ({"settings": _settings(demonstrations=2, sac=SacSettings(hidden=(8, 8), batch=17))}, "sac.batch 16, not 17"),
        ({"options": {"world_seed": 1, "distractors": 1}}, "options"),
    ],
)
def test_a_directory_of_another_run(changes: dict[str, Any], said: str, reference: dict[str, Path]) -> None:
    with pytest.raises(DataError, match=said):
        learn(_plan(**{**_kinds()["one"], **changes}), reference["one"])


def test_a_directory_of_another_command(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"command": "discover"}')
    with pytest.raises(DataError, match="`cbm discover`"):
        learn(_plan(), tmp_path)


DRIVER = """
import json, os, signal, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from cbm.tasks.loop import learn
from cbm.tasks.plan import plan_of

turns = int(sys.argv[2])
def watch(status):
    global turns
    turns -= 1
    if turns == 0:
        os.kill(os.getpid(), signal.SIGKILL)
learn(plan_of(json.loads(sys.argv[3])), Path(sys.argv[1]), watch)
"""


def test_kill_9_in_a_process_of_its_own(reference: dict[str, Path], tmp_path: Path) -> None:
    config = json.loads((reference["one"] / "config.json").read_text())
    for turns in (70, 45):
        command = [sys.executable, "-c", DRIVER, str(tmp_path), str(turns), json.dumps(config)]
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=120)
        assert done.returncode == -signal.SIGKILL
    learn(_plan(**_kinds()["one"]), tmp_path)
    _same(tmp_path, reference["one"])
