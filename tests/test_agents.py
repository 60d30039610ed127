"""What every agent promises: the mask, resets, exact continuation, in a file and in a run that was stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from cbm.agents.base import MaskedAgent, Sample, Shape, make_agent
from cbm.agents.settings import AGENTS, AgentSettings, SacSettings, Td3Settings, as_agent
from cbm.errors import DataError
from cbm.learning.algorithm1 import learn
from cbm.learning.assess import policies
from cbm.learning.plan import Plan
from cbm.learning.settings import LearnSettings, preset
from small_runs import small_settings  # type: ignore[import-not-found]

VARIABLES, CONTEXT, ACTIONS = 4, 1, 2
pytestmark = pytest.mark.usefixtures("one_thread")
every = pytest.mark.parametrize("name", AGENTS)


def make(name: str, seed: int = 0) -> MaskedAgent:
    settings = as_agent(SacSettings(hidden=(8, 8), batch=16), name)
    agent = make_agent(settings, Shape(VARIABLES, CONTEXT, ACTIONS, seed, total_updates=20))
    assert isinstance(agent, MaskedAgent)
    agent.normaliser.update(np.random.default_rng(3).normal(1.0, 2.0, (200, VARIABLES + CONTEXT)))
    agent.normaliser.freeze()
    return agent


def draw(seed: int) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    obs, after = (torch.randn(16, VARIABLES, generator=generator) for _ in range(2))
    context, action = torch.randn(16, CONTEXT, generator=generator), torch.rand(16, ACTIONS, generator=generator)
    return Sample(obs, context, action, obs[:, 0], after, context, torch.zeros(16))


@every
def test_masked_variables_have_no_influence(name: str) -> None:
    kept, sample = np.array([True, False, True, False]), draw(0)
    wild = replace(sample, obs=sample.obs.clone(), next_obs=sample.next_obs.clone())
    for obs in (wild.obs, wild.next_obs):
        obs[:, ~kept] += 1e6
    quiet, loud = make(name), make(name)
    for agent in (quiet, loud):
        agent.set_mask(kept)
    for _ in range(3):
        assert quiet.update(sample) == loud.update(wild)
    for deterministic in (True, False):
        a = quiet.act(sample.obs, sample.context, deterministic)
        np.testing.assert_array_equal(a, loud.act(wild.obs, wild.context, deterministic))
        assert np.abs(a).max() <= 1
    changed = quiet.act(sample.obs, sample.context + 1, deterministic=True)
    assert not np.allclose(changed, quiet.act(sample.obs, sample.context, deterministic=True))  # never masked


@every
def test_exact_continuation_and_reset(name: str, tmp_path: Path) -> None:
    agent, other = make(name), make(name, seed=77)
    agent.set_mask(np.arange(VARIABLES) != 1)
    for step in range(3):
        agent.update(draw(step))
    save_file(agent.tensors(), tmp_path / "agent.safetensors")
    other.restore(load_file(tmp_path / "agent.safetensors"))
    for step in range(3, 6):
        assert agent.update(draw(step)) == other.update(draw(step))
        np.testing.assert_array_equal(agent.act(draw(0).obs, draw(0).context), other.act(draw(0).obs, draw(0).context))
    before = agent.tensors()
    for one in (agent, other):
        one.reset()
        one.update(draw(6))
    for key, tensor in agent.tensors().items():
        assert torch.equal(tensor, other.tensors()[key]), key
        if key.startswith(("actor.", "critics.")):
            assert not torch.equal(tensor, before[key])


@every
def test_unusable_snapshots(name: str) -> None:
    agent = make(name)
    stored = agent.tensors()
    with pytest.raises(DataError, match="checkpoint: generator is missing"):
        agent.restore({key: tensor for key, tensor in stored.items() if key != "generator"})
    with pytest.raises(DataError, match="checkpoint: seen has shape"):
        agent.restore({**stored, "seen": torch.zeros(2)})


def test_td3_moves_its_actor_every_second_time() -> None:
    agent = make("td3")
    weights = []
    for step in range(4):
        agent.update(draw(step))
        tensors = agent.tensors()
        weights.append([tensors[f"{part}.weights.0"] for part in ("actor", "target_actor", "targets")])
    for part in range(3):
        first, second, third, fourth = (weight[part] for weight in weights)
        assert torch.equal(second, third) and not torch.equal(first, second) and not torch.equal(third, fourth)


# In a run


class Stop(Exception):
    pass


def test_a_stopped_run_of_td3_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    settings = small_settings()
    plan = Plan("light", ("cross",), "full", 600, replace(settings, agent=as_agent(settings.agent, "td3")))
    whole = learn(plan, tmp_path / "whole")

    def stop(status: Any) -> None:
        if status.step >= 400:
            raise Stop

    with pytest.raises(Stop):
        learn(plan, tmp_path / "parts", stop)
    parts = learn(plan, tmp_path / "parts")
    assert parts["tasks"] == whole["tasks"]
    without_seconds = [
        [line.split(",")[:1] + line.split(",")[2:] for line in (tmp_path / run / "eval.csv").read_text().splitlines()]
        for run in ("whole", "parts")
    ]
    assert without_seconds[0] == without_seconds[1]
    assert set(policies(tmp_path / "parts").agents) == {"cross"}


def test_settings_stand_under_the_name_of_the_agent() -> None:
    settings = preset("laptop", "contact", "pick")
    td3 = replace(settings, agent=as_agent(settings.agent, "td3"))
    assert isinstance(td3.agent, Td3Settings) and td3.agent.gamma == 0.95 and td3.agent.learning_rate == 1e-3
    assert {"td3", "sac"} & td3.to_json().keys() == {"td3"}
    for one in (settings, td3):
        assert LearnSettings.from_json(one.to_json()) == one
    with pytest.raises(DataError, match="settings of two agents: sac and td3"):
        LearnSettings.from_json({"sac": {}, "td3": {}})
    with pytest.raises(DataError, match="unknown agent 'td4'; did you mean 'td3'"):
        as_agent(settings.agent, "td4")


@pytest.mark.parametrize("field", ["action_noise", "target_noise", "noise_clip", "policy_delay"])
def test_td3_refuses(field: str) -> None:
    with pytest.raises(DataError, match=f"setting {field} must be"):
        Td3Settings.from_json({field: -1})


def test_the_command(run: Any, refused: Any, tmp_path: Path) -> None:
    small = ("--preset", "debug", "--steps", 400, "--method", "full", "--quiet", "--json")
    arguments = ("learn", "light", "--agent", "td3", "--set", "td3.action_noise=0.3", "--out", tmp_path / "run", *small)
    code, _, errors = run(*arguments)
    assert code == 0, errors
    config = (tmp_path / "run" / "config.json").read_text()
    assert '"td3"' in config and '"action_noise": 0.3' in config and '"sac"' not in config
    assert run("evaluate", tmp_path / "run", "--episodes", 2)[0] == 0
    refused(run("learn", "light", "--agent", "dqn", "--out", tmp_path / "x"), "unknown agent 'dqn'")
    refused(run("learn", "light", "--set", "action_noise=1", "--out", tmp_path / "x"), "unknown setting 'action_noise'")


def test_the_base_of_settings_is_no_agent() -> None:
    assert all(issubclass(row.settings, AgentSettings) for row in AGENTS.values())
    assert all(row.settings.agent == name for name, row in AGENTS.items())
