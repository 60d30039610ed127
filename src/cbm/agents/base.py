"""What every agent can do, and the half that agents with a mask share.

`Agent` is all that Algorithm 1 asks for. `MaskedAgent` has what does not depend on how the policy learns: inputs that
are normalised and masked, actions as arrays, and a state that a checkpoint can hold. An agent on top of it is one file
with its update rule, and one row in `settings.AGENTS`.
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
    """Transitions to learn from, float32 tensors."""

    obs: Tensor  # (B, d)
    context: Tensor  # (B, c)
    action: Tensor  # (B, a)
    reward: Tensor  # (B,)
    next_obs: Tensor  # (B, d)
    next_context: Tensor  # (B, c)
    terminated: Tensor  # (B,) 1 where nothing can follow; a time limit is not such an end

    def to(self, device: torch.device) -> Sample:
        return Sample(*(getattr(self, field.name).to(device) for field in fields(self)))


class Agent(Protocol):
    """A policy that learns: `act`, `update`, `reset`; a mask; and its state, to go on exactly where it was."""

    normaliser: Normaliser
    """Fitted to the inputs of the warm-up, then frozen."""

    @property
    def mask(self) -> NDArray[np.bool_]:
        """(d,) the variables that are seen; the context always is."""
        ...

    def set_mask(self, mask: ArrayLike) -> None: ...

    def act(self, obs: ArrayLike, context: ArrayLike, deterministic: bool = False) -> NDArray[np.float64]:
        """(n, a) actions in [-1, 1] in (n, d) observations and (n, c) contexts."""
        ...

    def update(self, sample: Sample) -> Metrics:
        """One step of learning; numbers for the log."""
        ...

    def reset(self) -> None:
        """A new policy that knows nothing; normaliser and mask stay."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that an exact continuation needs, as copies on the CPU."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """The undo of `tensors`, on whatever device this agent is."""
        ...


@dataclass(frozen=True)
class Shape:
    """What an agent is made for."""

    variables: int
    context: int
    actions: int
    seed: int = 0
    total_updates: int = 1
    """Of the whole run, for schedules."""
    device: str = "cpu"


def make_agent(settings: AgentSettings, shape: Shape) -> Agent:
    """The agent that these settings are for; each agent's module has a function `make`."""
    return cast(Agent, importlib.import_module(AGENTS[settings.agent].module).make(settings, shape))


class MaskedAgent(ABC):
    """Networks behind normalisation and mask.

    An agent puts its networks and optimisers into `networks` and `optimisers`: they are what a checkpoint holds.
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
        """(B, a) actions in [-1, 1] in (B, d + c) normalised and masked states."""

    @abstractmethod
    def update(self, sample: Sample) -> Metrics:
        """One step of learning."""

    @abstractmethod
    def reset(self) -> None:
        """A new policy that knows nothing."""

    def more_state(self) -> dict[str, Tensor]:
        """What changes besides networks and optimisers."""
        return {}

    def restore_more(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027
        """The undo of `more_state`."""

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
        """Normalised first, then masked: a zero says that nothing unusual is known."""
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
        """Refuse losses that grew without bounds."""
        if not all(math.isfinite(value) for name, value in metrics.items() if name.endswith("_loss")):
            shown = ", ".join(f"{name} {value:.3g}" for name, value in metrics.items())
            raise FloatingPointError(
                f"{AGENTS[self.settings.agent].label} diverged at update {self.updates} ({shown}): "
                "a lower learning rate or smaller rewards may help"
            )
        return metrics

    # Going on later

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
    """Tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
