"""The table of agents, and all numbers that steer each of them, in frozen records. Torch is not imported here."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from cbm.checks import above, at_least, check_record, record_from_json
from cbm.errors import DataError, unknown_name

AlphaName = Literal["auto", "schedule"]
WIDEST, MOST_WEIGHTS = 100_000, 50_000_000
"""Units per layer, and weights between layers, beyond which the settings must be a mistake: three such networks with
their moments would take gigabytes."""


@dataclass(frozen=True)
class AgentSettings:
    """Settings that all agents have."""

    agent: ClassVar[str]
    """Name of the agent in the table."""
    hidden: tuple[int, ...] = (128, 128)
    """Units of each hidden layer (ReLU) of the actor and of both critics."""
    batch: int = 256
    """Transitions per update."""
    learning_rate: float = 3e-4
    """Adam's learning rate for actor, critics and, if SAC tunes it, the entropy weight."""
    gamma: float = 0.98
    """Discount factor. Higher: considers more distant rewards, learns more slowly."""
    tau: float = 0.005
    """Rate at which target critics follow the critics at each update. Higher: faster and less stable."""
    grad_clip: float | None = 10.0
    """Largest gradient norm (L2) of the actor and of each critic separately; longer gradients are scaled down to it.
    None: no limit."""
    layer_norm: bool = False
    """Whether the critics' hidden layers have layer normalisation before ReLU: values outside the data stay bounded,
    and the values of demonstrated actions are not assigned to all actions."""
    clip_inputs: float = 5.0
    """Normalised inputs are clipped at plus and minus this many standard deviations, then masked."""

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
    """Settings of a SAC agent."""

    agent: ClassVar[str] = "sac"
    """Its name in the table."""
    alpha: AlphaName = "auto"
    """Entropy weight. auto: tuned until the policy's entropy equals `target_entropy`. schedule: falls from
    `alpha_start` to `alpha_finish` over the run (the paper)."""
    alpha_start: float = 0.05
    """Entropy weight before the first update, and after a reset of the policy."""
    alpha_finish: float = 0.05
    """Schedule only: the final entropy weight."""
    alpha_decay: float = 10.0
    """Schedule only: alpha(t) = (start - finish) exp(-decay t / total) + finish, t and total in updates.
    Ten times the paper's table, as in the computations behind it."""
    target_entropy: float | None = None
    """Auto only: the desired entropy in nats; None: minus the number of actions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_record(self, alpha_start=above(0), alpha_finish=at_least(0), alpha_decay=at_least(0))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SacSettings:
        return record_from_json(cls, data)


@dataclass(frozen=True)
class Td3Settings(AgentSettings):
    """Settings of a TD3 agent."""

    agent: ClassVar[str] = "td3"
    """Its name in the table."""
    action_noise: float = 0.1
    """Standard deviation of the exploration noise. Higher: explores more."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target action (target policy smoothing): nearby actions get similar
    values."""
    noise_clip: float = 0.5
    """Bound at which that noise is clipped."""
    policy_delay: int = 2
    """Critic updates per update of the actor and the targets."""

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
    """Module with a function `make(settings, shape)`; imported when the agent is made."""


AGENTS: dict[str, AgentRow] = {
    "sac": AgentRow("SAC", "soft actor-critic, explores by entropy", SacSettings, "cbm.agents.sac"),
    "td3": AgentRow("TD3", "deterministic policy, explores by noise", Td3Settings, "cbm.agents.td3"),
}
"""By the name on the command line, which is also the key of the settings in config.json."""


def as_agent(settings: AgentSettings, name: str) -> AgentSettings:
    """The settings of another agent, with the values of all settings that agents share."""
    if name not in AGENTS:
        raise unknown_name("unknown agent", name, AGENTS)
    if settings.agent == name:
        return settings
    return AGENTS[name].settings(**{field.name: getattr(settings, field.name) for field in fields(AgentSettings)})
