"""Two tasks at once on the contact world: shared rows and dynamics, and for each task a state of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.abstraction.dynamics import JointDynamics
from cbm.agents.base import Sample
from cbm.agents.sac import Sac
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.graph import CausalGraph
from cbm.learning.algorithm1 import learn
from cbm.learning.learner import Learner
from cbm.learning.plan import Plan
from cbm.learning.replay import Replay
from cbm.learning.settings import preset

pytestmark = pytest.mark.usefixtures("two_threads")
PICK = ["hand_x", "hand_y", "hand_z", "gripper", "block0_x", "block0_y", "block0_z"]
STACK = PICK[:4] + ["block1_x", "block1_y", "block1_z", "fixed_x", "fixed_y", "fixed_z"]


def _plan(**changes: Any) -> Plan:
    settings = replace(preset("debug"), **changes.pop("settings", {}))
    return Plan("contact", ("pick", "stack"), "cbm", 600, settings, together=True, preset="debug", **changes)


def test_each_task_gets_a_state_of_its_own(tmp_path: Path, graph_of: Callable[..., CausalGraph]) -> None:
    graph_of(collect(make_world("contact"), 300)).save(tmp_path / "graph.json")
    result = learn(_plan(dynamics=tmp_path / "graph.json", rewards="run"), tmp_path / "run")
    assert {task: found["kept"] for task, found in result["tasks"].items()} == {"pick": PICK, "stack": STACK}
    assert all(found["exact"] for found in result["tasks"].values())
    steps = [line.split(",") for line in (tmp_path / "run" / "eval.csv").read_text().splitlines()[1:]]
    assert [(row[0], row[5], row[8]) for row in steps] == [
        ("400", "7", "pick"), ("400", "10", "stack"), ("600", "7", "pick"), ("600", "10", "stack")
    ]  # fmt: skip
    graph = CausalGraph.load(tmp_path / "run")
    assert graph.abstraction("pick") == tuple(PICK) and graph.abstraction("stack") == tuple(STACK)


def test_dynamics_and_policies_see_the_rows_of_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[int, int, set[int]]] = []
    learn_dynamics = JointDynamics.learn

    def spy(self: JointDynamics, experience: Any, updates: int) -> dict[str, float]:
        assert isinstance(experience, Replay)
        train, held = experience.transitions(False), experience.transitions(True)
        assert set(train.rewards) == {"pick", "stack"} and not set(train.episode) & set(held.episode)
        looks.append((id(self), len(train) + len(held), set(experience.source[: len(experience)].tolist())))
        return learn_dynamics(self, experience, updates)

    monkeypatch.setattr(JointDynamics, "learn", spy)
    few = {"abstraction_every": 200, "model_updates": 2, "dynamics_updates": 2}
    learn(_plan(settings=few, options={"distractors": 2}), tmp_path)
    assert len({model for model, _, _ in looks}) == 1  # one model for both tasks
    assert [rows for _, rows, _ in looks] == [2 * step for step in (200, 400, 600)]  # once a decision, on all rows
    assert all(sources == {0, 1} for _, _, sources in looks)
    phases = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["task"] for line in phases if line["step"] == 200] == [None, "pick", "stack"]  # dynamics, two rewards


@pytest.mark.parametrize("shared", [True, False])
def test_rewards_are_each_tasks_own(shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row that a policy learns from has the reward that its task gives for the state it leads to."""
    world: Any = make_world("contact")
    seen: dict[str, list[Sample]] = {"pick": [], "stack": []}
    agents: dict[int, str] = {}
    update = Sac.update
    improve = Learner.improve

    def spy_improve(self: Learner, replay: Replay, step: int) -> None:
        agents[id(self.agent)] = self.task
        improve(self, replay, step)

    def spy(self: Sac, sample: Sample) -> dict[str, float]:
        seen[agents[id(self)]].append(sample)
        return update(self, sample)

    monkeypatch.setattr(Learner, "improve", spy_improve)
    monkeypatch.setattr(Sac, "update", spy)
    plan = replace(_plan(settings={"share_data": shared}), method="oracle")
    learn(plan, tmp_path)
    rows = {}
    for task, samples in seen.items():
        assert len(samples) == 100
        states = np.concatenate([sample.next_obs.numpy() for sample in samples]).astype(float)
        rewards = np.concatenate([sample.reward.numpy() for sample in samples])
        assert np.allclose(world.rewards(states)[task], rewards, atol=1e-4)
        rows[task] = {tuple(state[:7]) for state in states}
    assert bool(rows["pick"] & rows["stack"]) == shared
