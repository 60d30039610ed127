"""SAC on the state a mask leaves: Tianshou's policy and entropy weight, with both critics in one batched pass.

The numbers are those of Tianshou's `SAC` on the same weights, batches and noise. The buffer, the environments and
the choice of the mask live elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tianshou.algorithm.modelfree.sac import SACPolicy
from torch import Tensor, nn

from cbm.agents.entropy import make_alpha
from cbm.agents.networks import Actor, Critics, Optimiser
from cbm.agents.normalise import Normaliser
from cbm.agents.settings import SacSettings
from cbm.errors import DataError


@dataclass(frozen=True)
class Sample:
    """Transitions to learn from, float32 tensors."""

    obs: Tensor  # (B, d)
    context: Tensor  # (B, c)
    action: Tensor  # (B, a)
    reward: Tensor  # (B,)
    next_obs: Tensor  # (B, d)
    next_context: Tensor  # (B, c)
    terminated: Tensor  # (B,) 1 where nothing can follow; a time limit is not such an end


class Agent:
    """Four verbs: `act`, `update`, `value`, `reset`; and `tensors` / `restore` to go on exactly where it was."""

    def __init__(
        self, variables: int, context: int, actions: int, settings: SacSettings, seed: int, total_updates: int
    ):
        self.variables, self.context, self.actions, self.settings = variables, context, actions, settings
        self.generator = torch.Generator().manual_seed(seed)
        self.normaliser = Normaliser(variables + context, settings.clip_inputs)
        self.set_mask(np.ones(variables, dtype=bool))
        shape = (variables + context, actions, settings.hidden, self.generator)
        self.actor = Actor(*shape)
        self.critics, self.targets = (Critics(*shape, settings.layer_norm) for _ in range(2))
        self.targets.requires_grad_(False).load_state_dict(self.critics.state_dict())
        self.actor_optimiser = Optimiser(self.actor, settings.learning_rate, settings.grad_clip)
        self.critic_optimiser = Optimiser(self.critics, settings.learning_rate, settings.grad_clip)
        self.alpha = make_alpha(settings, actions, total_updates)
        self.updates = 0

    def reset(self) -> None:
        """New networks, targets equal to them, fresh optimisers, alpha at its start. Normaliser and mask stay."""
        self.actor.initialise(self.generator)
        self.critics.initialise(self.generator)
        self.targets.load_state_dict(self.critics.state_dict())
        self.actor_optimiser.reset()
        self.critic_optimiser.reset()
        self.alpha.reset()

    # What the networks see

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(d,) the variables that are seen; the context always is."""
        return self._seen[: self.variables].numpy() > 0

    def set_mask(self, mask: ArrayLike) -> None:
        kept = np.asarray(mask)
        if kept.shape != (self.variables,) or kept.dtype != bool:
            expected = f"expected {self.variables} booleans, one for each variable"
            raise DataError(f"mask: shape {kept.shape} of {kept.dtype}, {expected}")
        self._seen = torch.cat((torch.from_numpy(kept.astype(np.float32)), torch.ones(self.context)))

    def inputs(self, obs: Tensor, context: Tensor) -> Tensor:
        """Normalised first, then masked: a zero says that nothing unusual is known."""
        return self.normaliser(torch.cat((obs, context), 1)).mul_(self._seen)  # (B, d + c)

    # Acting

    @torch.no_grad()
    def act(self, obs: ArrayLike, context: ArrayLike, deterministic: bool = False) -> NDArray[np.float64]:
        """(n, a) actions in [-1, 1] in (n, d) observations and (n, c) contexts."""
        state = self.inputs(*self._pair(obs, context))
        if deterministic:
            action = torch.tanh(self.actor.gaussian(state)[0])
        else:
            action, _ = self.actor.sample(state, self._noise(len(state)))
        return action.numpy().astype(np.float64)

    @torch.no_grad()
    def value(self, obs: ArrayLike, context: ArrayLike, action: ArrayLike) -> NDArray[np.float64]:
        """(n,) the smaller of the two critics' values."""
        state = self.inputs(*self._pair(obs, context))
        return self.critics(state, _floats(action)).amin(0).numpy().astype(np.float64)

    def policy(self) -> SACPolicy:
        """The actor behind normalisation and mask as a policy of Tianshou; it sees observation and context in a row."""
        box = gymnasium.spaces.Box(-1.0, 1.0, (self.actions,))
        return SACPolicy(actor=_Behind(self), action_space=box, action_scaling=False)

    def _pair(self, obs: ArrayLike, context: ArrayLike) -> tuple[Tensor, Tensor]:
        pair = _floats(obs), _floats(context)
        for name, rows, size in zip(("observations", "context"), pair, (self.variables, self.context)):
            if rows.ndim != 2 or rows.shape[1] != size:
                raise DataError(f"{name}: shape {tuple(rows.shape)}, expected (n, {size})")
        return pair

    def _noise(self, rows: int) -> Tensor:
        return torch.randn(rows, self.actions, generator=self.generator)

    # Learning

    def update(self, sample: Sample) -> dict[str, float]:
        """One step of SAC (Haarnoja et al., arXiv 1812.05905), in the order of its Algorithm 1."""
        gamma, tau, alpha = self.settings.gamma, self.settings.tau, self.alpha.value
        state = self.inputs(sample.obs, sample.context)
        next_inputs = self.inputs(sample.next_obs, sample.next_context)

        with torch.no_grad():
            action, log_density = self.actor.sample(next_inputs, self._noise(len(next_inputs)))
            value = self.targets(next_inputs, action).amin(0) - alpha * log_density  # Eq. 3, with the smaller critic
            td_target = sample.reward + gamma * (1 - sample.terminated) * value  # (B,)
        q = self.critics(state, sample.action)  # (2, B)
        critic_loss = (q - td_target).pow(2).mean(1).sum()  # Eq. 5, both critics
        self.critic_optimiser.step(critic_loss)

        action, log_density = self.actor.sample(state, self._noise(len(state)))  # Eq. 8
        actor_loss = (alpha * log_density - self.critics(state, action).amin(0)).mean()  # Eq. 9
        self.actor_optimiser.step(actor_loss)

        self.alpha.update(-log_density.detach())  # Eq. 18, or the schedule

        with torch.no_grad():
            for target, source in zip(self.targets.parameters(), self.critics.parameters()):
                target.lerp_(source, tau)
        self.updates += 1

        metrics = {
            "critic_loss": critic_loss.item() / 2,  # of one critic on average
            "actor_loss": actor_loss.item(),
            "alpha": alpha,
            "q": q.detach().mean().item(),
            "entropy": -log_density.detach().mean().item(),
        }
        if not math.isfinite(metrics["critic_loss"] + metrics["actor_loss"]):
            shown = ", ".join(f"{name} {value:.3g}" for name, value in metrics.items())
            raise FloatingPointError(
                f"SAC diverged at update {self.updates} ({shown}): a lower learning rate or smaller rewards may help"
            )
        return metrics

    # Going on later

    def _live(self) -> dict[str, Tensor]:
        """Tensors that are changed in place."""
        live = {f"actor.{name}": tensor for name, tensor in self.actor.state_dict().items()}
        live |= {f"critics.{name}": tensor for name, tensor in self.critics.state_dict().items()}
        live |= {f"targets.{name}": tensor for name, tensor in self.targets.state_dict().items()}
        live |= {f"actor_optimiser.{name}": tensor for name, tensor in self.actor_optimiser.tensors().items()}
        live |= {f"critic_optimiser.{name}": tensor for name, tensor in self.critic_optimiser.tensors().items()}
        return live | {"seen": self._seen}

    def _small(self) -> dict[str, Tensor]:
        small = {"generator": self.generator.get_state(), "updates": torch.tensor(self.updates)}
        small |= {f"alpha.{name}": tensor for name, tensor in self.alpha.tensors().items()}
        return small | {f"normaliser.{name}": tensor for name, tensor in self.normaliser.tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that an exact continuation needs."""
        return {name: tensor.detach().clone() for name, tensor in self._live().items()} | self._small()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        live, small = self._live(), self._small()
        for name, tensor in (live | small).items():
            if name not in tensors:
                raise DataError(f"checkpoint: {name} is missing")
            if tensors[name].shape != tensor.shape:
                found, expected = tuple(tensors[name].shape), tuple(tensor.shape)
                raise DataError(f"checkpoint: {name} has shape {found}, expected {expected}")
        for name, tensor in live.items():
            tensor.copy_(tensors[name])
        self.generator.set_state(tensors["generator"])
        self.updates = int(tensors["updates"])
        self.alpha.restore(_below("alpha.", tensors))
        self.normaliser.restore(_below("normaliser.", tensors))


class _Behind(nn.Module):
    """An agent's actor as Tianshou calls it."""

    def __init__(self, agent: Agent):
        super().__init__()
        self.actor = agent.actor
        self._inputs = agent.inputs

    def forward(self, obs: ArrayLike | Tensor, state: Any = None, info: Any = None) -> Any:
        rows = torch.as_tensor(obs, dtype=torch.float32)
        mean, log_sigma = self.actor.gaussian(self._inputs(rows, rows[:, :0]))
        return (mean, log_sigma.exp()), state


def _floats(rows: ArrayLike) -> Tensor:
    return torch.from_numpy(np.asarray(rows, dtype=np.float32))


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
