"""Options of single methods, as frozen records; methods without options have none. No torch is imported here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from cbm.checks import above, at_least, check_record

Selector = Literal["attached", "detached"]
Weights = Literal["scratch", "pretrained"]
ZInputs = Literal["original", "own"]
Regression = Literal["linear", "random-features"]
SMALLEST = 20
"""Rows that an environment must have, for `icp`."""


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
        zero, positive = at_least(0), above(0)
        check_record(
            self, start_temperature=positive, final_temperature=positive, warm_up=zero, anneal=zero, size_penalty=zero,
            y_share=zero, reward_weight=zero, adversary_weight=zero, inner_steps=zero, width=at_least(1),
            batch=at_least(1), learning_rate=positive, logit_rate=positive,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def temperature(self, step: int) -> float:
        """At an update; the straight line begins when the warm-up ends."""
        share = (step - self.warm_up) / max(self.anneal, 1)
        return self.start_temperature + (self.final_temperature - self.start_temperature) * min(max(share, 0.0), 1.0)


@dataclass(frozen=True)
class IcpSettings:
    """How invariant causes are searched for."""

    environments: int = 2
    """Consecutive parts of the experience that count as environments: early behaviour and late."""
    level: float = 0.05
    """Level of all tests of one search together. Higher: sets are rejected sooner, more causes are claimed."""
    candidates: int = 8
    """Variables among which causes are searched, at most. Each one more doubles the time."""
    rows: int = 4000
    """Transitions of a search, at most."""
    regression: Regression = "linear"
    """What the effect of a set of causes may look like."""

    def __post_init__(self) -> None:
        check_record(
            self, environments=at_least(2), level=above(0, 1), candidates=at_least(1, 16), rows=at_least(2 * SMALLEST)
        )
