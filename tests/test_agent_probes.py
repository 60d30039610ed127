"""Worlds so small that every value is known: what a wrong sign or a wrong discount would break, in every agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cbm.agents.base import MaskedAgent, Sample, Shape, make_agent
from cbm.agents.settings import AgentSettings, SacSettings, Td3Settings

COMMON: dict[str, Any] = {"hidden": (32, 32), "batch": 64, "learning_rate": 1e-2, "gamma": 0.9, "tau": 0.2}
BATCH = 64
SAC = SacSettings(**COMMON, alpha="schedule", alpha_start=1e-4, alpha_finish=1e-4)
"""Entropy is worth almost nothing, so that values are sums of rewards."""
TD3 = Td3Settings(**COMMON, policy_delay=1)
"""Targets move at every update, as SAC's do."""
both = pytest.mark.parametrize("settings", [SAC, TD3], ids=["sac", "td3"])
Probe = Callable[[torch.Generator], Sample]


pytestmark = pytest.mark.usefixtures("one_thread")


def uniform(generator: torch.Generator, columns: int) -> Tensor:
    return 2 * torch.rand(BATCH, columns, generator=generator) - 1


def rows(obs: Tensor, action: Tensor, reward: Tensor, following: Tensor, terminated: Tensor | float) -> Sample:
    nothing = obs[:, :0]
    ends = torch.as_tensor(terminated, dtype=torch.float32).expand(len(obs))
    return Sample(obs, nothing, action, reward, following, nothing, ends)


def made(settings: AgentSettings, shape: Shape) -> MaskedAgent:
    agent = make_agent(settings, shape)
    assert isinstance(agent, MaskedAgent)
    return agent


def learned(probe: Probe, updates: int, settings: AgentSettings) -> MaskedAgent:
    """An agent that has seen random actions in a probe."""
    agent, generator = made(settings, Shape(1, 0, 1, total_updates=updates)), torch.Generator().manual_seed(1)
    for _ in range(updates):
        agent.update(probe(generator))
    return agent


def values(agent: MaskedAgent, obs: list[float], action: list[float]) -> np.ndarray:
    return agent.value(np.array(obs)[:, None], np.zeros((len(obs), 0)), np.array(action)[:, None])


@both
def test_constant_reward_for_one_step_is_worth_itself(settings: AgentSettings) -> None:
    def probe(generator: torch.Generator) -> Sample:
        obs, action = uniform(generator, 1), uniform(generator, 1)
        return rows(obs, action, torch.ones(len(obs)), uniform(generator, 1), terminated=1.0)

    agent = learned(probe, 100, settings)
    np.testing.assert_allclose(values(agent, [-1, 0, 0.5, 1], [0.5, -1, 0, 1]), 1, atol=0.1)


@both
def test_reward_equal_to_the_observation(settings: AgentSettings) -> None:
    def probe(generator: torch.Generator) -> Sample:
        obs, action = uniform(generator, 1), uniform(generator, 1)
        return rows(obs, action, obs[:, 0], uniform(generator, 1), terminated=1.0)

    agent = learned(probe, 120, settings)
    np.testing.assert_allclose(values(agent, [-1, 0, 0.5, 1], [0.5, -1, 0, 1]), [-1, 0, 0.5, 1], atol=0.1)


@both
def test_two_steps_are_discounted_once(settings: AgentSettings) -> None:
    def probe(generator: torch.Generator) -> Sample:
        second = (uniform(generator, 1) > 0).float()  # from 0 to 1 without a reward, then 1 and the end
        return rows(second, uniform(generator, 1), second[:, 0], torch.ones_like(second), second[:, 0])

    agent = learned(probe, 150, settings)
    np.testing.assert_allclose(values(agent, [0, 0, 1, 1], [-0.5, 0.5, -0.5, 0.5]), [0.9, 0.9, 1, 1], atol=0.1)


@both
def test_reward_that_depends_on_the_action(settings: AgentSettings) -> None:
    def probe(generator: torch.Generator) -> Sample:
        obs, action = uniform(generator, 1).sign(), uniform(generator, 1)
        return rows(obs, action, (obs * action)[:, 0], obs, terminated=1.0)

    agent = learned(probe, 200, settings)
    np.testing.assert_allclose(values(agent, [-1, -1, 1, 1], [-0.8, 0.8, -0.8, 0.8]), [0.8, -0.8, -0.8, 0.8], atol=0.1)
    best = agent.act([[-1.0], [1.0]], np.zeros((2, 0)), deterministic=True)[:, 0]
    assert best[0] < -0.9 and best[1] > 0.9


@both
def test_a_time_limit_is_not_the_end(settings: AgentSettings) -> None:
    """A reward of 1 for ever is worth 1 / (1 - gamma), however often episodes are cut; an end makes it 1."""
    settings = replace(settings, gamma=0.5)

    def probe(ends: float) -> Probe:
        def sample(generator: torch.Generator) -> Sample:
            obs, action = uniform(generator, 1), uniform(generator, 1)
            return rows(obs, action, torch.ones(len(obs)), uniform(generator, 1), ends)

        return sample

    for ends, worth in ((0.0, 2.0), (1.0, 1.0)):
        agent = learned(probe(ends), 120, settings)
        np.testing.assert_allclose(values(agent, [-1, 0, 1], [0.5, -1, 0]), worth, atol=0.1)


def test_entropy_counts_as_reward() -> None:
    """With a fixed weight alpha, no reward and no end, Q = gamma alpha H / (1 - gamma) for the widest policy.

    The entropy of a tanh-squashed Gaussian is at most that of the uniform one, log 2 for one action.
    """
    heavy = replace(SAC, gamma=0.5, alpha_start=1.0, alpha_finish=1.0)

    def probe(generator: torch.Generator) -> Sample:
        obs, action = uniform(generator, 1), uniform(generator, 1)
        return rows(obs, action, torch.zeros(len(obs)), uniform(generator, 1), terminated=0.0)

    agent = learned(probe, 200, heavy)
    np.testing.assert_allclose(values(agent, [-1, 0, 1], [0.5, -1, 0]), np.log(2), atol=0.1)


@both
def test_the_context_is_seen_whatever_the_mask_says(settings: AgentSettings) -> None:
    def probe(generator: torch.Generator) -> Sample:
        obs, goal, action = (uniform(generator, 1) for _ in range(3))
        return Sample(obs, goal, action, goal[:, 0], obs, goal, torch.ones(len(obs)))

    agent, generator = made(settings, Shape(1, 1, 1)), torch.Generator().manual_seed(1)
    agent.set_mask(np.array([False]))
    for _ in range(120):
        agent.update(probe(generator))
    goals = np.array([[-0.7], [0.0], [0.7]])
    for obs in (-1.0, 1.0):
        np.testing.assert_allclose(agent.value(np.full((3, 1), obs), goals, np.zeros((3, 1))), goals[:, 0], atol=0.1)
