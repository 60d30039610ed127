"""Soft actor-critic (Haarnoja et al., arXiv 1812.05905): a squashed Gaussian policy, twin critics in one batched pass.

It computes the same numbers as Tianshou's `SAC` from the same weights, batches and noise. What it shares with other
agents (mask, normalisation, checkpoints) is in `base.py`; the replay buffer, the environments and the choice of the
mask are elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from cbm.agents.base import MaskedAgent, Metrics, Sample, Shape, below
from cbm.agents.networks import Critics, Networks, Optimiser, follow
from cbm.agents.settings import SacSettings

LOG_SIGMA = (-20.0, 2.0)
"""Bounds of the policy's log standard deviation, as in Tianshou."""
EPSILON = 2.0**-23
"""Added to 1 - tanh², as in Tianshou (the rounding unit of 32 bits)."""


class Actor(Networks):
    """A Gaussian with state-dependent mean and deviation, squashed into (-1, 1) by tanh."""

    def __init__(
        self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator, device: torch.device
    ):
        super().__init__(1, (inputs, *hidden, 2 * actions), generator, device=device)

    def gaussian(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """(B, actions) means and log standard deviations, before squashing."""
        mean, log_sigma = self.outputs(state)[0].chunk(2, 1)
        return mean, log_sigma.clamp(*LOG_SIGMA)

    def sample(self, state: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(B, actions) actions from standard normal `noise`, and their (B,) log-densities."""
        mean, log_sigma = self.gaussian(state)
        action = torch.tanh(mean + log_sigma.exp() * noise)
        normal = -0.5 * noise.pow(2) - log_sigma - 0.5 * math.log(2 * math.pi)
        return action, (normal - torch.log(1 - action.pow(2) + EPSILON)).sum(1)


class Sac(MaskedAgent):
    """Maximises reward and entropy; the entropy weight alpha is tuned or follows a schedule."""

    settings: SacSettings

    def __init__(self, settings: SacSettings, shape: Shape):
        super().__init__(settings, shape)
        self.settings = settings
        sizes = (shape.variables + shape.context, shape.actions, settings.hidden, self.generator, self.device)
        self.actor = Actor(*sizes)
        self.critics, self.targets = (Critics(*sizes, settings.layer_norm) for _ in range(2))
        self.targets.requires_grad_(False).load_state_dict(self.critics.state_dict())
        self.actor_optimiser = Optimiser(self.actor, settings.learning_rate, settings.grad_clip)
        self.critic_optimiser = Optimiser(self.critics, settings.learning_rate, settings.grad_clip)
        self.networks = {"actor": self.actor, "critics": self.critics, "targets": self.targets}
        self.optimisers = {"actor_optimiser": self.actor_optimiser, "critic_optimiser": self.critic_optimiser}
        self.alpha = make_alpha(settings, shape.actions, shape.total_updates)

    def policy(self, state: Tensor, deterministic: bool) -> Tensor:
        if deterministic:
            return torch.tanh(self.actor.gaussian(state)[0])
        return self.actor.sample(state, self.noise(len(state)))[0]

    def reset(self) -> None:
        """New networks with targets equal to them, fresh optimisers, alpha at its start. Normaliser and mask stay."""
        self.actor.initialise(self.generator)
        self.critics.initialise(self.generator)
        self.targets.load_state_dict(self.critics.state_dict())
        self.actor_optimiser.reset()
        self.critic_optimiser.reset()
        self.alpha.reset()

    def update(self, sample: Sample) -> Metrics:
        """One step of SAC, in the order of its Algorithm 1."""
        gamma, tau, alpha = self.settings.gamma, self.settings.tau, self.alpha.value
        sample = sample.to(self.device)
        state = self.inputs(sample.obs, sample.context)
        next_inputs = self.inputs(sample.next_obs, sample.next_context)

        with torch.no_grad():
            action, log_density = self.actor.sample(next_inputs, self.noise(len(next_inputs)))
            value = self.targets(next_inputs, action).amin(0) - alpha * log_density  # Eq. 3, with the smaller critic
            td_target = sample.reward + gamma * (1 - sample.terminated) * value  # (B,)
        q = self.critics(state, sample.action)  # (2, B)
        critic_loss = (q - td_target).pow(2).mean(1).sum()  # Eq. 5, both critics
        self.critic_optimiser.step(critic_loss)

        action, log_density = self.actor.sample(state, self.noise(len(state)))  # Eq. 8
        actor_loss = (alpha * log_density - self.critics(state, action).amin(0)).mean()  # Eq. 9
        self.actor_optimiser.step(actor_loss)

        self.alpha.update(-log_density.detach())  # Eq. 18, or the schedule
        follow(self.targets, self.critics, tau)
        self.updates += 1
        return self.check(
            {
                "critic_loss": critic_loss.item() / 2,  # mean over the two critics
                "actor_loss": actor_loss.item(),
                "alpha": alpha,
                "q": q.detach().mean().item(),
                "entropy": -log_density.detach().mean().item(),
            }
        )

    def more_state(self) -> dict[str, Tensor]:
        return {f"alpha.{name}": tensor for name, tensor in self.alpha.tensors().items()}

    def restore_more(self, tensors: Mapping[str, Tensor]) -> None:
        self.alpha.restore(below("alpha.", tensors))


def make(settings: SacSettings, shape: Shape) -> Sac:
    return Sac(settings, shape)


# The weight of the entropy


class Alpha(Protocol):
    """The entropy weight."""

    @property
    def value(self) -> float: ...

    def update(self, entropy: Tensor) -> float | None:
        """Called after each update, with the (B,) entropies of the policy's actions."""
        ...

    def reset(self) -> None: ...

    def tensors(self) -> dict[str, Tensor]: ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None: ...


class ScheduledAlpha:
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

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.updates = int(tensors["updates"])


class TunedAlpha:
    """Adam on log alpha with loss -log alpha · (target - entropy), as in Tianshou's `AutoAlpha`.

    The derivative of that loss is known, so the single parameter is updated by hand, without autograd or an optimiser.
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

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.log, self.slope, self.square = tensors["moments"].tolist()
        self.updates = int(tensors["updates"])


def make_alpha(settings: SacSettings, actions: int, total_updates: int) -> Alpha:
    if settings.alpha == "schedule":
        return ScheduledAlpha(settings.alpha_start, settings.alpha_finish, settings.alpha_decay, total_updates)
    target = -float(actions) if settings.target_entropy is None else settings.target_entropy
    return TunedAlpha(settings.alpha_start, target, settings.learning_rate)
