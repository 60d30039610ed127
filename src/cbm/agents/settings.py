"""All numbers that steer one agent, in a frozen record."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cbm.checks import is_whole, number, one_of, record_from_json, whole
from cbm.errors import DataError

AlphaName = Literal["auto", "schedule"]
WIDEST, MOST_WEIGHTS = 100_000, 50_000_000
"""Units of a layer and weights between layers beyond which networks are a mistake: three of them and their moments
would take gigabytes."""


@dataclass(frozen=True)
class SacSettings:
    """One SAC agent."""

    hidden: tuple[int, ...] = (128, 128)
    """Units of each hidden layer (ReLU) of the actor and of both critics."""
    batch: int = 256
    """Transitions per update."""
    learning_rate: float = 3e-4
    """Adam's, for actor, critics and, where it is tuned, the entropy weight."""
    gamma: float = 0.98
    """Discount. Higher: looks further ahead, learns more slowly."""
    tau: float = 0.005
    """Share of the critics that moves into their targets at each update. Higher: faster and less stable."""
    alpha: AlphaName = "auto"
    """Weight of the entropy. auto: tuned until the policy's entropy meets `target_entropy`.
    schedule: falls from `alpha_start` to `alpha_finish` over the run (the paper)."""
    alpha_start: float = 0.05
    """Weight of the entropy before the first update, and after a reset of the policy."""
    alpha_finish: float = 0.05
    """Schedule only: the weight approached at the end."""
    alpha_decay: float = 10.0
    """Schedule only: alpha(t) = (start - finish) exp(-decay t / total) + finish, t and total in updates.
    Ten times the paper's table, as in the computations behind it."""
    target_entropy: float | None = None
    """Auto only: the entropy wanted, in nats; None: minus the number of actions."""
    grad_clip: float | None = 10.0
    """Longest gradient (L2 norm) of the actor and of each critic on its own; longer ones are scaled down to it.
    None: gradients are used as they are."""
    layer_norm: bool = False
    """Whether the units of the critics' hidden layers are normalised (mean 0, variance 1) before ReLU: values beyond
    what was seen stay bounded, and what demonstrations show is not mistaken for what every action leads to."""
    clip_inputs: float = 5.0
    """Normalised inputs are cut off at plus and minus this many standard deviations, then masked."""

    def __post_init__(self) -> None:
        hidden = self.hidden
        if not isinstance(hidden, list | tuple) or not hidden or not all(is_whole(n) and n >= 1 for n in hidden):
            raise DataError(f"setting hidden must be a list of positive whole numbers, got {hidden!r}")
        weights = sum(n * m for n, m in itertools.pairwise(hidden))
        if max(hidden) > WIDEST or weights > MOST_WEIGHTS:
            raise DataError(f"setting hidden: {list(hidden)!r:.60} is too large (at most {MOST_WEIGHTS:.0e} weights)")
        object.__setattr__(self, "hidden", tuple(hidden))
        whole(self, "batch", 1)
        number(self, "learning_rate", low=0, open_low=True)
        number(self, "gamma", low=0, high=1)
        number(self, "tau", low=0, high=1, open_low=True)
        one_of(self, "alpha", get_args(AlphaName))
        number(self, "alpha_start", low=0, open_low=True)
        number(self, "alpha_finish", low=0)
        number(self, "alpha_decay", low=0)
        number(self, "target_entropy", none=True)
        number(self, "grad_clip", low=0, open_low=True, none=True)
        number(self, "clip_inputs", low=0, open_low=True)
        if not isinstance(self.layer_norm, bool):
            raise DataError(f"setting layer_norm must be true or false, got {self.layer_norm!r}")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SacSettings:
        return record_from_json(cls, data)
