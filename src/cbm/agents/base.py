"""The interface of every agent, and what agents with a mask share.

`Agent` is all that Algorithm 1 needs. `MaskedAgent` contains what does not depend on the update rule: normalised and
masked inputs, actions as arrays, and a state for checkpoints. An agent built on it is one file with its update rule,
and one row in `settings.AGENTS`.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from cbm.agents.networks import Critics, Networks, Optimiser
from cbm.agents.normalise import Normaliser
from cbm.agents.settings import AGENTS, AgentSettings
from cbm.errors import DataError

Metrics = dict[str, float]


@dataclass(frozen=True)
class Sample:
    """Transitions to learn from, as float32 tensors."""

    obs: Tensor  # (B, d)
    context: Tensor  # (B, c)
    action: Tensor  # (B, a)
    reward: Tensor  # (B,)
    next_obs: Tensor  # (B, d)
    next_context: Tensor  # (B, c)
    terminated: Tensor  # (B,) 1 at an end state; a time limit is not one

    def to(self, device: torch.device) -> Sample:
        return Sample(*(getattr(self, field.name).to(device) for field in fields(self)))


class Agent(Protocol):
    """A policy that learns: `act`, `update`, `reset`; a mask; and a state from which it continues exactly."""

    normaliser: Normaliser
    """Fitted to the inputs of the warm-up, then frozen."""

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(d,) booleans: the variables that the policy sees; it always sees the context."""
        ...

    def set_mask(self, mask: ArrayLike) -> None: ...

    def act(self, obs: ArrayLike, context: ArrayLike, deterministic: bool = False) -> NDArray[np.float64]:
        """(n, a) actions in [-1, 1] for (n, d) observations and (n, c) contexts."""
        ...

    def update(self, sample: Sample) -> Metrics:
        """One gradient step; returns metrics."""
        ...

    def reset(self) -> None:
        """Start with a new, untrained policy; normaliser and mask stay."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed for an exact continuation, as copies on the CPU."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`, on whatever device this agent is."""
        ...


@dataclass(frozen=True)
class Shape:
    """The sizes for which an agent is made."""

    variables: int
    context: int
    actions: int
    seed: int = 0
    total_updates: int = 1
    """Updates in the whole run, for schedules."""
    device: str = "cpu"


def make_agent(settings: AgentSettings, shape: Shape) -> Agent:
    """The agent that belongs to these settings; each agent's module has a function `make`."""
    return cast(Agent, importlib.import_module(AGENTS[settings.agent].module).make(settings, shape))


class MaskedAgent(ABC):
    """Networks behind normalisation and mask.

    A subclass puts its networks and optimisers into `networks` and `optimisers`, which are stored in checkpoints.
    Random numbers are drawn on the CPU and moved, so that they are the same on every device.
    """

    critics: Critics
    settings: AgentSettings

    def __init__(self, settings: AgentSettings, shape: Shape):
        self.variables, self.context, self.actions = shape.variables, shape.context, shape.actions
        self.device = torch.device(shape.device)
        self.generator = torch.Generator().manual_seed(shape.seed)
        self.normaliser = Normaliser(shape.variables + shape.context, settings.clip_inputs, shape.device)
        self.set_mask(np.ones(shape.variables, dtype=bool))
        self.networks: dict[str, Networks] = {}
        self.optimisers: dict[str, Optimiser] = {}
        self.updates = 0

    # What an agent adds

    @abstractmethod
    def policy(self, state: Tensor, deterministic: bool) -> Tensor:
        """(B, a) actions in [-1, 1] for (B, d + c) normalised and masked states."""

    @abstractmethod
    def update(self, sample: Sample) -> Metrics:
        """One gradient step."""

    @abstractmethod
    def reset(self) -> None:
        """Start with a new, untrained policy."""

    def more_state(self) -> dict[str, Tensor]:
        """State besides networks and optimisers."""
        return {}

    def restore_more(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027
        """The inverse of `more_state`."""

    # What the networks see

    @property
    def mask(self) -> NDArray[np.bool_]:
        return self._seen[: self.variables].cpu().numpy() > 0

    def set_mask(self, mask: ArrayLike) -> None:
        kept = np.asarray(mask)
        if kept.shape != (self.variables,) or kept.dtype != bool:
            expected = f"expected {self.variables} booleans, one for each variable"
            raise DataError(f"mask: shape {kept.shape} of {kept.dtype}, {expected}")
        seen = np.concatenate([kept.astype(np.float32), np.ones(self.context, np.float32)])
        self._seen = torch.from_numpy(seen).to(self.device)

    def inputs(self, obs: Tensor, context: Tensor) -> Tensor:
        """Normalised first, then masked, so that a masked variable looks like its mean."""
        return self.normaliser(torch.cat((obs, context), 1)).mul_(self._seen)  # (B, d + c)

    # Acting

    @torch.no_grad()
    def act(self, obs: ArrayLike, context: ArrayLike, deterministic: bool = False) -> NDArray[np.float64]:
        action = self.policy(self._state(obs, context), deterministic)
        return np.asarray(action.cpu().numpy().astype(np.float64))

    @torch.no_grad()
    def value(self, obs: ArrayLike, context: ArrayLike, action: ArrayLike) -> NDArray[np.float64]:
        """(n,) the smaller of the two critics' values."""
        chosen = self.critics(self._state(obs, context), self._floats(action))
        return np.asarray(chosen.amin(0).cpu().numpy().astype(np.float64))

    def noise(self, rows: int) -> Tensor:
        """(rows, a) standard normal numbers."""
        return torch.randn(rows, self.actions, generator=self.generator).to(self.device)

    def _state(self, obs: ArrayLike, context: ArrayLike) -> Tensor:
        pair = self._floats(obs), self._floats(context)
        for name, rows, size in zip(("observations", "context"), pair, (self.variables, self.context)):
            if rows.ndim != 2 or rows.shape[1] != size:
                raise DataError(f"{name}: shape {tuple(rows.shape)}, expected (n, {size})")
        return self.inputs(*pair)

    def _floats(self, rows: ArrayLike) -> Tensor:
        return torch.from_numpy(np.asarray(rows, dtype=np.float32)).to(self.device)

    def check(self, metrics: Metrics) -> Metrics:
        """Refuse losses that have diverged."""
        if not all(math.isfinite(value) for name, value in metrics.items() if name.endswith("_loss")):
            shown = ", ".join(f"{name} {value:.3g}" for name, value in metrics.items())
            raise FloatingPointError(
                f"{AGENTS[self.settings.agent].label} diverged at update {self.updates} ({shown}): "
                "a lower learning rate or smaller rewards may help"
            )
        return metrics

    # State for checkpoints

    def _live(self) -> dict[str, Tensor]:
        """Tensors that are changed in place."""
        live = {f"{part}.{name}": t for part, one in self.networks.items() for name, t in one.state_dict().items()}
        live |= {f"{part}.{name}": t for part, one in self.optimisers.items() for name, t in one.tensors().items()}
        return live | {"seen": self._seen}

    def _small(self) -> dict[str, Tensor]:
        small = {"generator": self.generator.get_state(), "updates": torch.tensor(self.updates)}
        return small | self.more_state() | {f"normaliser.{name}": t for name, t in self.normaliser.tensors().items()}

    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor.detach().cpu().clone() for name, tensor in self._live().items()} | self._small()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        live = self._live()
        for name, tensor in (live | self._small()).items():
            if name not in tensors:
                raise DataError(f"checkpoint: {name} is missing")
            if tensors[name].shape != tensor.shape:
                found, expected = tuple(tensors[name].shape), tuple(tensor.shape)
                raise DataError(f"checkpoint: {name} has shape {found}, expected {expected}")
        for name, tensor in live.items():
            tensor.copy_(tensors[name])
        self.generator.set_state(tensors["generator"])
        self.updates = int(tensors["updates"])
        self.restore_more(tensors)
        self.normaliser.restore(below("normaliser.", tensors))


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
