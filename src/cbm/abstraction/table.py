"""The table of methods: everything that is known of a method outside its own file.

The command line and its help, the report with its palette, benchmarks and docs read it here. A new method is its file
and a row, with a record of its options where it has any. Neither torch nor any method is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from cbm.checks import above, at_least, check_record
from cbm.errors import DataError, unknown_name

Needs = Literal["nothing", "graph", "truth"]
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


Options = PartitionSettings | IcpSettings


@dataclass(frozen=True)
class MethodRow:
    """One method of the table."""

    label: str
    """In tables and charts."""
    summary: str
    """What it keeps, for help and docs."""
    light: str
    """Colour on white …"""
    dark: str
    """… and on the dark page; a test computes that colours stay apart for all common kinds of colour vision."""
    mark: str
    """As matplotlib names it; curves.js draws the same."""
    needs: Needs = "nothing"
    """graph: dynamics, of a run of `cbm discover` or learned beside the policy. truth: the world's own graph."""
    pretrains: bool = False
    """Whether it has dynamics of its own, which may be learned on a log first."""
    options: type[Options] | None = None
    """The record of its options."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Where they differ from the record's."""

    @property
    def option_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in fields(self.options)) if self.options is not None else ()


METHODS: dict[str, MethodRow] = {
    "cbm": MethodRow(
        "CBM", "what the reward depends on, directly or through others", "#1f4a94", "#4a76f5", "s", needs="graph"
    ),
    "cdl": MethodRow(
        "CDL", "what the action can influence, and what that depends on", "#ed8610", "#ea9410", "^", needs="graph"
    ),
    "tia": MethodRow(
        "TIA", "a learned part that explains the reward, apart from one that must not", "#0b8a63", "#70b88e", "D",
        pretrains=True, options=PartitionSettings,
    ),
    "denoised": MethodRow(
        "Denoised MDP", "a learned part that is controllable and matters to the reward", "#bb78b4", "#b57cc4", "v",
        pretrains=True, options=PartitionSettings, defaults={"size_penalty": 0.05},
    ),
    "icp": MethodRow(
        "ICP", "what has the same effect on the reward in all environments", "#00a6ff", "#3fd0ff", "P",
        options=IcpSettings,
    ),
    "oracle": MethodRow("Oracle", "what the true graph says", "#1b2028", "#e6eaf0", "o", needs="truth"),
    "full": MethodRow("Full", "everything", "#d92b12", "#b85a24", "X"),
}  # fmt: skip
"""By the name on the command line; the module is `cbm.abstraction.NAME`."""


def method_row(name: str) -> MethodRow:
    if name not in METHODS:
        raise unknown_name("unknown method", name, METHODS)
    return METHODS[name]


def in_tables() -> tuple[str, ...]:
    """Names in the order of tables and charts: first what knows the truth."""
    return tuple(sorted(METHODS, key=lambda name: METHODS[name].needs != "truth"))


def method_options(name: str, options: Mapping[str, Any]) -> Options | None:
    """The record of a method's options, checked; None for methods that have none."""
    row = method_row(name)
    for option in options:
        if option not in row.option_names:
            raise unknown_name(f"method {name!r}: unknown option", option, row.option_names)
    if row.options is None:
        return None
    try:
        return row.options(**{**row.defaults, **options})
    except DataError as error:
        raise DataError(f"method {name!r}: {error}") from None


def help_text() -> str:
    """One line for each method."""
    return "\n".join(f"{name}: {row.summary}." for name, row in METHODS.items())
