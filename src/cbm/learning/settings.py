"""All numbers that steer policy learning, except those of the agent, which have a record of their own. Presets are
functions of world and task."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from cbm.agents.settings import AGENTS, AgentSettings, SacSettings
from cbm.checks import above, at_least, check_record, record_from_json
from cbm.errors import DataError, unknown_name

Preset = Literal["laptop", "paper", "debug"]


@dataclass(frozen=True)
class LearnSettings:
    """Algorithm 1: how much is collected, learned and evaluated, and when. All steps are environment steps."""

    agent: AgentSettings = field(default_factory=SacSettings)
    """Settings of the agent, one agent for each task; in JSON under the agent's name."""
    copies: int = 8
    """Number of environments stepped at once."""
    updates_per_step: float = 0.25
    """Updates of each agent per environment step."""
    warm_up: int = 2_000
    """Steps with random actions before the first update; they determine the normalisation of the inputs."""
    capacity: int = 1_000_000
    """Size of the replay buffer in transitions; the oldest are dropped first."""
    demonstrations: int = 0
    """Scripted episodes put into the replay buffer before learning starts."""
    evaluate_every: int = 10_000
    """Steps between evaluations."""
    episodes: int = 50
    """Episodes per evaluation, with deterministic actions."""
    abstraction_every: int = 5_000
    """Steps between updates of the abstraction."""
    abstraction_from: int = 10_000
    """Step of the first update of the abstraction; until then the policy sees everything."""
    abstraction_until: int | None = None
    """Step after which the abstraction no longer changes; None: never."""
    minimum_interval: int = 10_000
    """Smallest number of steps between two changes of the abstraction."""
    on: float = 1.0
    """A variable enters the abstraction if its evidence exceeds this multiple of the decision threshold ..."""
    off: float = 0.6
    """... and leaves it below this multiple, so that evidence near the threshold does not make it switch back and
    forth."""
    weakest_effect: float = 0.0
    """Effects between variables of fewer nats are ignored. 0: all count, and the abstraction loses nothing; larger: the
    abstraction shrinks, and loses variables that rarely matter."""
    model_updates: int = 400
    """Gradient steps of the reward model, or of the partition, per update of the abstraction."""
    dynamics_updates: int = 400
    """The same for jointly learned dynamics."""
    last_action: bool = False
    """Whether jointly learned dynamics see the previous action beside the action: a variable that merely repeats the
    previous action is then no cause."""
    checkpoint_every: int = 10_000
    """Steps between checkpoints."""
    checkpoint_minutes: float = 1.0
    """Minutes after which a checkpoint is written in any case, for slow environments."""
    reset_on_change: bool = True
    """Whether actor and critics are reset when the abstraction changes, and learn again from the replay buffer."""
    catch_up: bool = True
    """Whether a policy that was reset immediately makes as many updates as before, on the same buffer. Costs time, but
    no environment steps."""
    fresh_start: bool = True
    """Whether every policy is reset at the first update of the abstraction, even if the abstraction does not change:
    what it learned from its first data impedes it, and methods are to be compared by what they keep. Needs
    `reset_on_change`."""
    share_data: bool = True
    """Whether tasks that are learned at once also learn from each other's transitions."""

    def __post_init__(self) -> None:
        one, zero = at_least(1), at_least(0)
        check_record(
            self, copies=one, capacity=one, evaluate_every=one, episodes=one, abstraction_every=one,
            checkpoint_every=one, warm_up=zero, demonstrations=zero, abstraction_from=zero, minimum_interval=zero,
            model_updates=zero, dynamics_updates=zero, abstraction_until=zero, updates_per_step=above(0), off=zero,
            checkpoint_minutes=above(0), weakest_effect=zero,
        )  # fmt: skip
        check_record(self, on=at_least(self.off))

    def to_json(self) -> dict[str, Any]:
        rest = {name: value for name, value in asdict(self).items() if name != "agent"}
        return {self.agent.agent: self.agent.to_json(), **rest}

    @classmethod
    def from_json(cls, data: Any) -> LearnSettings:
        if not isinstance(data, dict):
            return record_from_json(cls, data)
        own = {key: value for key, value in data.items() if key not in AGENTS}
        agents = [name for name in AGENTS if name in data]
        if len(agents) > 1:
            raise DataError(f"settings of two agents: {' and '.join(agents)}")
        for name in agents:
            if not isinstance(data[name], dict):
                raise DataError(f"setting {name} must hold the settings of an agent, got {data[name]!r}")
            own["agent"] = AGENTS[name].settings.from_json(data[name])
        return record_from_json(cls, own)


# alpha's start, finish and decay in the paper's table of SAC parameters, with the decay as printed
_PAPER_ALPHA = {
    ("block", "pick"): (0.9, 0.1, 0.666),
    ("block", "stack"): (0.9, 0.05, 3.333),
    ("tool", "series"): (0.9, 0.1, 5.0),
    ("cheetah", "run"): (0.5, 0.1, 1.0),
    ("walker", "walk"): (0.5, 0.1, 1.0),
}
_PAPER_DECAY_FACTOR = 10.0
PAPER_THRESHOLD = 0.02
"""The paper's threshold: effects of fewer nats do not count."""


def preset(name: Preset, world: str = "", task: str = "") -> LearnSettings:
    """`laptop` for minutes on one core, `paper` for the published table, `debug` for a quick test of the whole
    pipeline."""
    if name not in get_args(Preset):
        raise unknown_name("unknown preset", name, get_args(Preset))
    if name == "debug":
        return _debug()
    return _paper(world, task) if name == "paper" else _laptop(world)


def _laptop(world: str) -> LearnSettings:
    sac = SacSettings(layer_norm=True)
    if world in ("block", "tool"):  # objects can push each other, but that rarely matters
        return LearnSettings(
            agent=replace(sac, learning_rate=1e-3),
            demonstrations=100,
            weakest_effect=PAPER_THRESHOLD,
            abstraction_every=10_000,
        )
    if world == "contact":  # episodes of 50 steps, learned within 20 k: decide before the first update
        return LearnSettings(
            agent=replace(sac, learning_rate=1e-3, gamma=0.95),
            demonstrations=100,
            evaluate_every=2_000,
            abstraction_from=2_000,
            abstraction_every=4_000,
            minimum_interval=4_000,
        )
    if world in ("cheetah", "walker"):  # episodes of 1000 steps: larger gamma, fewer decisions
        return LearnSettings(
            agent=replace(sac, gamma=0.99, alpha_start=0.1),
            warm_up=8_000,
            evaluate_every=20_000,
            episodes=10,
            abstraction_from=20_000,
            abstraction_every=40_000,
        )
    return LearnSettings(agent=sac)


def _paper(world: str, task: str) -> LearnSettings:
    """The task's column of the paper's table; other tasks take that of their world's first task, other worlds that of
    Pick."""
    first = next((column for (of, _), column in _PAPER_ALPHA.items() if of == world), _PAPER_ALPHA["block", "pick"])
    start, finish, decay = _PAPER_ALPHA.get((world, task), first)
    sac = SacSettings(
        hidden=(256, 256),
        batch=256,
        learning_rate=1e-4,
        gamma=0.99,
        tau=0.005,
        alpha="schedule",
        alpha_start=start,
        alpha_finish=finish,
        alpha_decay=_PAPER_DECAY_FACTOR * decay,
        grad_clip=10.0,
    )
    return LearnSettings(
        agent=sac,
        copies=10,
        updates_per_step=1.0,
        warm_up=100_000,
        capacity=5_000_000,
        evaluate_every=100_000,
        episodes=50,
        abstraction_every=50_000,
        abstraction_from=100_000,
        abstraction_until=1_000_000,
        minimum_interval=50_000,
        checkpoint_every=100_000,
        catch_up=False,
        fresh_start=False,
        weakest_effect=PAPER_THRESHOLD,
    )


def _debug() -> LearnSettings:
    return LearnSettings(
        agent=SacSettings(hidden=(16, 16), batch=32),
        copies=4,
        warm_up=200,
        capacity=10_000,
        evaluate_every=400,
        episodes=4,
        abstraction_every=200,
        abstraction_from=200,
        minimum_interval=200,
        model_updates=10,
        dynamics_updates=10,
        checkpoint_every=400,
    )
