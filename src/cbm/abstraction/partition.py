"""Every variable in one of K classes: a distribution over partitions that gradients can move.

The logits (d, K) are all there is. A hard Gumbel-softmax sample (Jang et al. 2017) assigns each variable of each row
of a batch to a class; gradients pass as if the sample were soft. The temperature only scales those gradients: which
class is drawn does not depend on it. Who may see whom, and what is predicted, is up to TIA and Denoised MDP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cbm.checks import is_finite
from cbm.errors import DataError, unknown_name

Selector = Literal["attached", "detached"]
Weights = Literal["scratch", "pretrained"]
ZInputs = Literal["original", "own"]


@dataclass(frozen=True)
class PartitionSettings:
    """How a partition is learned."""

    start_temperature: float = 5.0
    """Of the Gumbel-softmax, until `warm_up` is over."""
    final_temperature: float = 0.5
    """Reached after `anneal` more updates, then kept. Lower: larger gradients on variables still undecided."""
    warm_up: int = 400
    """Updates of the networks on random partitions before the partition itself begins to move."""
    anneal: int = 1200
    """Updates over which the temperature falls, in a straight line."""
    size_penalty: float = 0.01
    """Nats that a variable costs in class 0. Higher: fewer are kept."""
    y_share: float = 0.0
    """Denoised MDP: what a variable costs in y, relative to x. The paper's penalty is on x alone."""
    reward_weight: float = 10.0
    """Nats per standard deviation of absolute error of the reward (a Laplace density of scale 1 / weight)."""
    adversary_weight: float = 1.0
    """TIA: how much it matters that the irrelevant class does not predict the reward, relative to `reward_weight`."""
    inner_steps: int = 5
    """TIA: steps of the adversary for every update."""
    selector: Selector = "attached"
    """Whether a variable moves where it is predicted better (attached), or only where it helps others (detached)."""
    dynamics: Weights = "scratch"
    """scratch: all weights go on learning. pretrained: after the warm-up only the last layers do."""
    z_inputs: ZInputs = "original"
    """Denoised MDP: z sees everything and the action (original), or z alone (own)."""
    width: int = 128
    """Hidden units of the dynamics network and of the reward networks."""
    batch: int = 128
    """Transitions of an update; each has a partition of its own."""
    learning_rate: float = 3e-3
    """Of the networks."""
    logit_rate: float = 0.02
    """Of the logits. Too high, and the partition settles before the networks have learnt anything."""

    def __post_init__(self) -> None:
        choices = {"selector": Selector, "dynamics": Weights, "z_inputs": ZInputs}
        for name, kind in choices.items():
            if getattr(self, name) not in get_args(kind):
                raise unknown_name(f"option {name}", getattr(self, name), get_args(kind))
        positive = ("start_temperature", "final_temperature", "width", "batch", "learning_rate", "logit_rate")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in choices:
                continue
            whole = field.type == "int"
            good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not good or not is_finite(value) or value < 0 or (value == 0 and field.name in positive):
                wanted = "a whole number" if whole else "a number"
                raise DataError(f"option {field.name}: {value!r} is not {wanted} that can be used")

    @classmethod
    def from_options(cls, method: str, options: Mapping[str, Any], **defaults: Any) -> PartitionSettings:
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise unknown_name(f"method {method!r}: unknown option", name, known)
        return cls(**{**defaults, **options})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def temperature(self, step: int) -> float:
        """At an update; the straight line begins when the warm-up ends."""
        share = (step - self.warm_up) / max(self.anneal, 1)
        return self.start_temperature + (self.final_temperature - self.start_temperature) * min(max(share, 0.0), 1.0)


class Partition:
    """Class probabilities of d variables, and samples of partitions."""

    def __init__(self, start: Tensor, seed: int):
        self.logits = nn.Parameter(start.clone())  # (d, K)
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def classes(self) -> int:
        return self.logits.shape[1]

    def sample(self, rows: int, temperature: float) -> Tensor:
        """(B, d, K) one-hot members, one partition per row; the gradient is that of the soft sample."""
        noise = torch.empty(rows, *self.logits.shape).exponential_(generator=self.generator).log()
        soft = ((self.logits - noise) / temperature).softmax(-1)
        hard = functional.one_hot(soft.detach().argmax(-1), self.classes).to(soft.dtype)
        return hard + (soft - soft.detach())

    def probabilities(self) -> np.ndarray:
        """(d, K)."""
        return np.asarray(self.logits.detach().softmax(-1).numpy())

    def lead(self) -> np.ndarray:
        """(d,) probability of class 0 over that of the strongest other: 1 at a tie, which keeps the variable."""
        logits = self.logits.detach()
        return np.asarray((logits[:, 0] - logits[:, 1:].amax(1)).exp().numpy())
