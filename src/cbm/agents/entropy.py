"""The weight of the entropy in SAC, as Tianshou's `Alpha`: the paper's schedule, or tuned to a target."""

from __future__ import annotations

import math

import torch
from tianshou.algorithm.modelfree.sac import Alpha
from torch import Tensor

from cbm.agents.settings import SacSettings


class ScheduledAlpha(Alpha):
    """alpha(t) = (start - finish) exp(-decay t / total) + finish, with t the number of updates so far."""

    def __init__(self, start: float, finish: float, decay: float, total: int):
        self.start, self.finish, self.decay, self.total = start, finish, decay, max(1, total)
        self.reset()

    def reset(self) -> None:
        self.updates = 0

    @property
    def value(self) -> float:
        share = self.updates / self.total
        return (self.start - self.finish) * math.exp(-self.decay * share) + self.finish  # appendix, "SAC Policy"

    def update(self, entropy: Tensor) -> None:
        self.updates += 1

    def tensors(self) -> dict[str, Tensor]:
        return {"updates": torch.tensor(self.updates)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.updates = int(tensors["updates"])


class TunedAlpha(Alpha):
    """Adam on log alpha with loss -log alpha · (target - entropy), as in Tianshou's `AutoAlpha`.

    The derivative of that loss is known, so one number is moved by hand: no graph, no optimiser object.
    """

    def __init__(self, start: float, target: float, learning_rate: float):
        self.start, self.target, self.learning_rate = start, target, learning_rate
        self.reset()

    def reset(self) -> None:
        self.log, self.slope, self.square, self.updates = math.log(self.start), 0.0, 0.0, 0

    @property
    def value(self) -> float:
        return math.exp(self.log)

    def update(self, entropy: Tensor) -> float:
        lack = self.target - float(entropy.mean())
        loss = -self.log * lack
        self.updates += 1
        self.slope = 0.9 * self.slope + 0.1 * -lack  # Adam with its usual constants
        self.square = 0.999 * self.square + 0.001 * lack**2
        slope = self.slope / (1 - 0.9**self.updates)
        spread = math.sqrt(self.square / (1 - 0.999**self.updates))
        self.log -= self.learning_rate * slope / (spread + 1e-8)
        return loss

    def tensors(self) -> dict[str, Tensor]:
        moments = torch.tensor([self.log, self.slope, self.square], dtype=torch.float64)
        return {"moments": moments, "updates": torch.tensor(self.updates)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.log, self.slope, self.square = tensors["moments"].tolist()
        self.updates = int(tensors["updates"])


def make_alpha(settings: SacSettings, actions: int, total_updates: int) -> ScheduledAlpha | TunedAlpha:
    if settings.alpha == "schedule":
        return ScheduledAlpha(settings.alpha_start, settings.alpha_finish, settings.alpha_decay, total_updates)
    target = -float(actions) if settings.target_entropy is None else settings.target_entropy
    return TunedAlpha(settings.alpha_start, target, settings.learning_rate)
