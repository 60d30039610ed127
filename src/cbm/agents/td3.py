"""TD3 (Fujimoto et al., arXiv 1802.09477): a deterministic policy, updated less often than its twin critics.

Three changes to DDPG: the smaller of two critics, noise on the target action, and delayed policy updates. What it
shares with other agents is in `base.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cbm.agents.base import MaskedAgent, Metrics, Sample, Shape
from cbm.agents.networks import Critics, Networks, Optimiser, follow
from cbm.agents.settings import Td3Settings


class Actor(Networks):
    """A deterministic policy: one action for every state."""

    def __init__(
        self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator, device: torch.device
    ):
        super().__init__(1, (inputs, *hidden, actions), generator, device=device)

    def forward(self, state: Tensor) -> Tensor:
        """(B, actions) in (-1, 1)."""
        return torch.tanh(self.outputs(state)[0])


class Td3(MaskedAgent):
    """Explores with Gaussian noise of fixed size around its actions."""

    settings: Td3Settings

    def __init__(self, settings: Td3Settings, shape: Shape):
        super().__init__(settings, shape)
        self.settings = settings
        sizes = (shape.variables + shape.context, shape.actions, settings.hidden, self.generator, self.device)
        self.actor, self.target_actor = (Actor(*sizes) for _ in range(2))
        self.critics, self.targets = (Critics(*sizes, settings.layer_norm) for _ in range(2))
        self.actor_optimiser = Optimiser(self.actor, settings.learning_rate, settings.grad_clip)
        self.critic_optimiser = Optimiser(self.critics, settings.learning_rate, settings.grad_clip)
        self.networks = {
            "actor": self.actor,
            "target_actor": self.target_actor,
            "critics": self.critics,
            "targets": self.targets,
        }
        self.optimisers = {"actor_optimiser": self.actor_optimiser, "critic_optimiser": self.critic_optimiser}
        self.actor_loss = 0.0
        """Loss of the actor's last update, logged between its updates too."""
        self._copy_to_targets()

    def _copy_to_targets(self) -> None:
        self.target_actor.requires_grad_(False).load_state_dict(self.actor.state_dict())
        self.targets.requires_grad_(False).load_state_dict(self.critics.state_dict())

    def policy(self, state: Tensor, deterministic: bool) -> Tensor:
        action: Tensor = self.actor(state)
        if deterministic:
            return action
        return (action + self.settings.action_noise * self.noise(len(state))).clamp(-1, 1)

    def reset(self) -> None:
        """New networks with targets equal to them, fresh optimisers. Normaliser and mask stay."""
        self.actor.initialise(self.generator)
        self.critics.initialise(self.generator)
        self._copy_to_targets()
        self.actor_optimiser.reset()
        self.critic_optimiser.reset()
        self.actor_loss = 0.0

    def update(self, sample: Sample) -> Metrics:
        """One step of TD3, in the order of its Algorithm 1."""
        settings, sample = self.settings, sample.to(self.device)
        state = self.inputs(sample.obs, sample.context)
        next_inputs = self.inputs(sample.next_obs, sample.next_context)

        with torch.no_grad():
            noise = (settings.target_noise * self.noise(len(state))).clamp(-settings.noise_clip, settings.noise_clip)
            action = (self.target_actor(next_inputs) + noise).clamp(-1, 1)  # Eq. 14, target policy smoothing
            value = self.targets(next_inputs, action).amin(0)  # Eq. 10, the smaller critic
            td_target = sample.reward + settings.gamma * (1 - sample.terminated) * value  # (B,)
        q = self.critics(state, sample.action)  # (2, B)
        critic_loss = (q - td_target).pow(2).mean(1).sum()
        self.critic_optimiser.step(critic_loss)

        self.updates += 1
        if self.updates % settings.policy_delay == 0:
            actor_loss = -self.critics(state, self.actor(state))[0].mean()  # the first critic's gradient
            self.actor_optimiser.step(actor_loss)
            self.actor_loss = actor_loss.item()
            follow(self.target_actor, self.actor, settings.tau)
            follow(self.targets, self.critics, settings.tau)

        return self.check(
            {
                "critic_loss": critic_loss.item() / 2,  # mean over the two critics
                "actor_loss": self.actor_loss,
                "q": q.detach().mean().item(),
            }
        )

    def more_state(self) -> dict[str, Tensor]:
        return {"actor_loss": torch.tensor(self.actor_loss, dtype=torch.float64)}

    def restore_more(self, tensors: Mapping[str, Tensor]) -> None:
        self.actor_loss = float(tensors["actor_loss"])


def make(settings: Td3Settings, shape: Shape) -> Td3:
    return Td3(settings, shape)
