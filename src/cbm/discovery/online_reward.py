"""The parents of one task's reward, learned on growing data.

The same masked estimator as for the dynamics, on (next state; context) -> reward: the full model, one model without
each variable, and the CMI from the two on held-out episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from cbm.data.transitions import Transitions
from cbm.discovery.decide import Verdicts
from cbm.discovery.online_estimator import OnlineEstimator, unfinished
from cbm.discovery.settings import REWARD_SHARE, Settings
from cbm.discovery.tensor_dataset import Rows, TensorDataset, reward_dataset, reward_rows
from cbm.errors import unknown_name

WIDTH, BATCH, ROWS = 128, 320, 6000  # one target needs fewer hidden units, so larger batches are affordable


class RewardSource:
    """s_{t+1} (with the context always in view) -> the reward of one task; or from (s_t, a_t)."""

    def __init__(self, task: str, state_action: bool):
        self.task, self.state_action = task, state_action

    def fit(
        self, train: Transitions, held: Transitions, settings: Settings, seed: int
    ) -> tuple[TensorDataset, dict[str, Tensor]]:
        rewards = [self.task]
        found = reward_dataset(
            train, held, rewards, settings.shadows, seed, self.state_action, settings.differences, among_variables=True
        )
        return found, {}

    def rows(self, dataset: TensorDataset, data: Transitions, rng: np.random.Generator) -> Rows:
        return reward_rows(dataset, data, [self.task], rng, self.state_action)


class OnlineReward:
    """A reward model theta_rew that is updated with the data (Algorithm 1, line 7), and its dependencies (line 8)."""

    def __init__(self, task: str, settings: Settings | None = None, seed: int = 0, device: str = "cpu"):
        self.task = task
        self.settings = settings or reward_settings(Settings())
        source = RewardSource(task, self.settings.reward_inputs == "state-action")
        self.estimator = OnlineEstimator(source, self.settings, seed, keep_in_doubt=True, device=device)

    def learn(self, train: Transitions, held: Transitions, updates: int) -> dict[str, float]:
        """Some updates and one measurement; returns the losses."""
        if self.task not in train.rewards:
            raise unknown_name("unknown reward", self.task, train.rewards)
        return self.estimator.learn(train, held, updates)

    def verdicts(self) -> Verdicts | None:
        """(1, inputs) verdicts on the state variables, then on action and context if there are any; None before any
        data."""
        return self.estimator.verdicts()

    def tensors(self) -> dict[str, Tensor]:
        return self.estimator.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.estimator.restore(tensors)


def reward_settings(settings: Settings) -> Settings:
    """The settings of the dynamics, with a network and a measurement of the size that one target needs."""
    width, rows = min(WIDTH, settings.width), min(ROWS, settings.evaluation_rows)
    share = max(REWARD_SHARE, settings.strongest_share)
    smaller = replace(settings, width=width, batch=max(BATCH, settings.batch), evaluation_rows=rows)
    return unfinished(replace(smaller, strongest_share=share))
