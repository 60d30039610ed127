"""Algorithm 1: what happens at which step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cbm.agents.sac import Sac
from cbm.learning import algorithm1
from cbm.learning import learner as learner_module
from cbm.learning import replay as replay_module
from cbm.learning.algorithm1 import learn
from small_runs import lines_of, rows_of, small_plan, small_settings  # type: ignore[import-not-found]

HEADER = "step,seconds,return,success,length,kept,seed,method,task"
D = 6  # variables of the light world


pytestmark = pytest.mark.usefixtures("one_thread")


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
        reset = Sac.reset

        def counted(agent: Sac) -> None:
            resets.append(agent.updates)
            reset(agent)

        monkeypatch.setattr(learner_module, "make_method", lambda name, **setup: Scripted(masks))
        monkeypatch.setattr(Sac, "reset", counted)
        monkeypatch.setattr(replay_module, "FEWEST", 0)  # however few rows there are
        return resets

    return use


@pytest.mark.parametrize("catch_up", [False, True])
def test_the_mask_changes_when_it_may_and_resets_the_policy(scripted: Any, tmp_path: Path, catch_up: bool) -> None:
    settings = small_settings(
        abstraction_from=200, abstraction_every=40, minimum_interval=100, updates_per_step=0.5, catch_up=catch_up
    )
    masks = [[0, 1], [0, 1], [0, 2], [0, 2], [0, 1], [0, 1], [0, 1]]
    resets = scripted(masks)
    result = learn(small_plan(settings=settings, steps=460), tmp_path)
    decisions = lines_of(tmp_path, "abstraction.jsonl")
    assert [d["reset"] for d in decisions] == [d["changed"] for d in decisions]
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
    kept = {int(row["step"]): int(row["kept"]) for row in rows_of(tmp_path)}
    assert kept == {200: 2, 400: 2, 460: 2}


@pytest.mark.parametrize("fresh_start", [False, True])
def test_every_policy_starts_anew_once(scripted: Any, tmp_path: Path, fresh_start: bool) -> None:
    """Also that of a method which keeps what it kept."""
    settings = small_settings(abstraction_from=200, abstraction_every=40, updates_per_step=0.5, fresh_start=fresh_start)
    resets = scripted([list(range(D))])
    learn(small_plan(settings=settings, steps=400), tmp_path)
    assert resets == ([(200 - 4 - 100) // 2] if fresh_start else [])
    decisions = lines_of(tmp_path, "abstraction.jsonl")
    assert not any(line["changed"] for line in decisions)
    assert [line["step"] for line in decisions if line["reset"]] == ([200] if fresh_start else [])


def test_no_reset_unless_wanted_and_nothing_after_the_last_look(scripted: Any, tmp_path: Path) -> None:
    settings = small_settings(
        abstraction_from=200, abstraction_every=40, minimum_interval=0, abstraction_until=300, reset_on_change=False
    )
    resets = scripted([[0], [1], [2], [3], [4]])
    learn(small_plan(settings=settings, steps=400), tmp_path)
    assert resets == []
    assert [line["step"] for line in lines_of(tmp_path, "abstraction.jsonl")] == [100, 200, 240, 280]


def test_updates_rows_and_evaluations_are_counted(scripted: Any, tmp_path: Path) -> None:
    scripted([[0]])
    learn(small_plan(settings=small_settings(updates_per_step=0.3, catch_up=False)), tmp_path)
    metrics = lines_of(tmp_path, "metrics.jsonl")
    policy = [line for line in metrics if line["phase"] == "policy"]
    assert [line["step"] for line in policy] == [200, 400, 600]
    assert [line["updates"] for line in policy] == [30, 60, 60]  # 0.3 for each step after the warm-up
    assert policy[0]["train_return"] is not None and "alpha" in policy[0]
    looks = [line for line in metrics if line["phase"] == "reward"]
    assert [line["step"] for line in looks] == [200, 400, 600] and looks[0]["task"] == "cross"
    assert looks[0]["updates"] == 10 and 0.5 * 200 < looks[0]["rows"] < 200  # the rest is held out
    assert (tmp_path / "eval.csv").read_text().splitlines()[0] == HEADER
    assert [row["step"] for row in rows_of(tmp_path)] == ["200", "400", "600"]
    assert rows_of(tmp_path)[0]["success"] == ""  # this task has no notion of it
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["tasks"]["cross"]["exact"] is False and result["tasks"]["cross"]["success"] is None
    assert set(result["spent"]) == {"collect", "policy", "evaluation", "abstraction"}


def test_actions_are_random_in_the_warm_up_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[tuple[int, bool]] = []
    act = Sac.act

    def spy(self: Sac, obs: Any, context: Any, deterministic: bool = False) -> np.ndarray:
        calls.append((len(obs), deterministic))
        return act(self, obs, context, deterministic)

    monkeypatch.setattr(Sac, "act", spy)
    learn(small_plan(steps=300, settings=small_settings(evaluate_every=1000)), tmp_path)
    assert calls.count((4, False)) == (300 - 100) // 4
    assert [call for call in calls if call[1]] == [(3, True)] * 100  # one evaluation, at the end


def test_demonstrations_come_first_and_are_in_the_config(tmp_path: Path) -> None:
    seen: list[int] = []
    settings = small_settings(demonstrations=5)
    task = algorithm1.Learning._tell

    def tell(self: Any, learners: Any) -> None:
        seen.append(len(self.replay))
        task(self, learners)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algorithm1.Learning, "_tell", tell)
        learn(small_plan(settings=settings, steps=200), tmp_path)
    assert seen[0] == 5 * 100 + 4
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["demonstrations"] == 5 and config["demonstration_policies"] == ["mixed"]
    assert lines_of(tmp_path, "metrics.jsonl")[0] == {
        "phase": "demonstrations", "task": None, "step": 0, "rows": 500
    }  # fmt: skip
