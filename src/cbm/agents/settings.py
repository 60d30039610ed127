"""The table of agents, and all numbers that steer each of them, in frozen records. No torch is imported here."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from cbm.checks import above, at_least, check_record, record_from_json
from cbm.errors import DataError, unknown_name

AlphaName = Literal["auto", "schedule"]
WIDEST, MOST_WEIGHTS = 100_000, 50_000_000
"""Units of a layer and weights between layers beyond which networks are a mistake: three of them and their moments
would take gigabytes."""


@dataclass(frozen=True)
class AgentSettings:
    """What all agents have."""

    agent: ClassVar[str]
    """Name of the agent in the table."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of each hidden layer (ReLU) of the actor and of both critics."""
    batch: int = 256
    """Transitions per update."""
    learning_rate: float = 3e-4
    """Adam's, for actor, critics and, where SAC tunes it, the entropy weight."""
    gamma: float = 0.98
    """Discount. Higher: looks further ahead, learns more slowly."""
    tau: float = 0.005
    """Share of the critics that moves into their targets at each update. Higher: faster and less stable."""
    grad_clip: float | None = 10.0
    """Longest gradient (L2 norm) of the actor and of each critic on its own; longer ones are scaled down to it.
    None: gradients are used as they are."""
    layer_norm: bool = False
    """Whether the units of the critics' hidden layers are normalised (mean 0, variance 1) before ReLU: values beyond
    what was seen stay bounded, and what demonstrations show is not mistaken for what every action leads to."""
    clip_inputs: float = 5.0
    """Normalised inputs are cut off at plus and minus this many standard deviations, then masked."""

    def __post_init__(self) -> None:
        check_record(
            self, batch=at_least(1), learning_rate=above(0), gamma=at_least(0, 1), tau=above(0, 1), grad_clip=above(0),
            clip_inputs=above(0),
        )  # fmt: skip
        weights = sum(n * m for n, m in itertools.pairwise(self.hidden))
        if max(self.hidden) > WIDEST or weights > MOST_WEIGHTS:
            size = f"{list(self.hidden)!r:.60}"
            raise DataError(f"setting hidden: {size} is too large (at most {MOST_WEIGHTS:.0e} weights)")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "hidden": list(self.hidden)}


@dataclass(frozen=True)
class SacSettings(AgentSettings):
    """One SAC agent."""

    agent: ClassVar[str] = "sac"
    """Its name in the table."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_record(self, alpha_start=above(0), alpha_finish=at_least(0), alpha_decay=at_least(0))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SacSettings:
        return record_from_json(cls, data)


@dataclass(frozen=True)
class Td3Settings(AgentSettings):
    """One TD3 agent."""

    agent: ClassVar[str] = "td3"
    """Its name in the table."""
    action_noise: float = 0.1
    """Standard deviation of the noise around actions while data are collected. Higher: explores more."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target's action: nearby actions get similar values."""
    noise_clip: float = 0.5
    """That noise is cut off at plus and minus this."""
    policy_delay: int = 2
    """Updates of the critics for each one of the actor and of the targets."""

    def __post_init__(self) -> None:
        super().__post_init__()
        zero = at_least(0)
        check_record(self, action_noise=zero, target_noise=zero, noise_clip=zero, policy_delay=at_least(1))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Td3Settings:
        return record_from_json(cls, data)


@dataclass(frozen=True)
class AgentRow:
    """One agent of the table."""

    label: str
    summary: str
    """For `--help`."""
    settings: type[SacSettings] | type[Td3Settings]
    module: str
    """Has a function `make(settings, shape)`; imported when the agent is made."""


AGENTS: dict[str, AgentRow] = {
    "sac": AgentRow("SAC", "soft actor-critic, explores by entropy", SacSettings, "cbm.agents.sac"),
    "td3": AgentRow("TD3", "deterministic policy, explores by noise", Td3Settings, "cbm.agents.td3"),
}
"""By the name on the command line, which is also the key of its settings in config.json."""


def as_agent(settings: AgentSettings, name: str) -> AgentSettings:
    """The settings of another agent, which takes over what all agents have."""
    if name not in AGENTS:
        raise unknown_name("unknown agent", name, AGENTS)
    if settings.agent == name:
        return settings
    return AGENTS[name].settings(**{field.name: getattr(settings, field.name) for field in fields(AgentSettings)})
