"""The table of methods: everything about a method that is needed outside its own file.

The command line and its help, the report with its palette, benchmarks and docs read it here. A new method needs a file,
a row, and a record of its options if it has any. Neither torch nor any method is imported here.
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
"""Rows that each environment must have, for `icp`."""


@dataclass(frozen=True)
class PartitionSettings:
    """How a partition of the variables is learned."""

    start_temperature: float = 5.0
    """Temperature of the Gumbel-softmax until `warm_up` is over."""
    final_temperature: float = 0.5
    """Temperature after `anneal` more updates, then constant. Lower: larger gradients on variables that are still
    undecided."""
    warm_up: int = 400
    """Updates of the networks on random partitions before the partition itself is learned."""
    anneal: int = 1200
    """Updates over which the temperature falls linearly."""
    size_penalty: float = 0.01
    """Cost in nats of each variable in class 0. Higher: fewer variables are kept."""
    y_share: float = 0.0
    """Denoised MDP: cost of a variable in y, relative to x. The paper penalises x only."""
    reward_weight: float = 10.0
    """Nats per standard deviation of absolute error of the reward (a Laplace density of scale 1 / weight)."""
    adversary_weight: float = 1.0
    """TIA: weight of the adversary, which tries to predict the reward from the irrelevant class, relative to
    `reward_weight`."""
    inner_steps: int = 5
    """TIA: adversary steps per update."""
    selector: Selector = "attached"
    """Whether a variable moves to where it is predicted better (attached), or only to where it helps others
    (detached)."""
    dynamics: Weights = "scratch"
    """scratch: all weights continue to be trained. pretrained: after the warm-up only the last layers are."""
    z_inputs: ZInputs = "original"
    """Denoised MDP: z sees everything and the action (original), or only z (own)."""
    width: int = 128
    """Hidden units of the dynamics network and of the reward networks."""
    batch: int = 128
    """Transitions per update; each has its own partition."""
    learning_rate: float = 3e-3
    """Learning rate of the networks."""
    logit_rate: float = 0.02
    """Learning rate of the logits. Too high: the partition settles before the networks have learnt anything."""

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
        """Temperature at an update; it starts to fall when the warm-up ends."""
        share = (step - self.warm_up) / max(self.anneal, 1)
        return self.start_temperature + (self.final_temperature - self.start_temperature) * min(max(share, 0.0), 1.0)


@dataclass(frozen=True)
class IcpSettings:
    """How invariant causes are searched for."""

    environments: int = 2
    """Number of consecutive parts of the experience that serve as environments: early behaviour, late behaviour."""
    level: float = 0.05
    """Significance level of all tests of one search together. Higher: sets are rejected sooner, more causes are
    claimed."""
    candidates: int = 8
    """Variables among which causes are searched, at most. Each additional one doubles the time."""
    rows: int = 4000
    """Transitions used for a search, at most."""
    regression: Regression = "linear"
    """The form that the effect of a set of causes may have."""

    def __post_init__(self) -> None:
        check_record(
            self, environments=at_least(2), level=above(0, 1), candidates=at_least(1, 16), rows=at_least(2 * SMALLEST)
        )


Options = PartitionSettings | IcpSettings


@dataclass(frozen=True)
class MethodRow:
    """One method of the table."""

    label: str
    """Name in tables and charts."""
    summary: str
    """The variables that it keeps, for help and docs."""
    light: str
    """Colour on a white page ..."""
    dark: str
    """... and on the dark page; a test checks that the colours differ for all common kinds of colour vision."""
    mark: str
    """Marker as named by matplotlib; curves.js draws the same."""
    needs: Needs = "nothing"
    """graph: dynamics from a run of `cbm discover`, or learned alongside the policy. truth: the world's true graph."""
    pretrains: bool = False
    """Whether it has dynamics of its own, which can be pretrained on a log."""
    options: type[Options] | None = None
    """The record of its options."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults that differ from the record's."""

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
    """Names in the order of tables and charts: methods that know the truth first."""
    return tuple(sorted(METHODS, key=lambda name: METHODS[name].needs != "truth"))


def method_options(name: str, options: Mapping[str, Any]) -> Options | None:
    """The record of a method's options, checked; None for a method without options."""
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
