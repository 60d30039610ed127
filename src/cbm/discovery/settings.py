"""All numbers that steer discovery, in one frozen record; presets are functions of the same name."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from cbm.errors import DataError

ModelName = Literal["implicit", "explicit", "demi"]
Preset = Literal["fast", "paper", "debug"]
Rule = Literal["calibrated", "threshold"]


@dataclass(frozen=True)
class Settings:
    """How models are built, trained and judged."""

    model: ModelName = "implicit"
    """implicit: contrastive critics (CBM). explicit: Gaussian and categorical heads (CDL).
    demi: a learned conditional critic."""
    architecture: Literal["trunk", "pairwise"] = "trunk"
    """trunk: one network for all targets. pairwise: the paper's one network per (target, input) pair."""
    width: int = 512
    """Hidden units of the trunk (of each pair network, with `pairwise`). More: finer functions, slower."""
    depth: int = 2
    """Hidden layers of the trunk."""
    code: int = 16
    """Size of the code in which a context and a candidate meet. More: richer densities."""
    knots: int = 65
    """Points on which a target's density is represented; bounds a CMI at log(knots - 1)."""
    candidates: int = 512
    """Negative samples per positive (`pairwise` only; the trunk scores its whole grid)."""
    score_penalty: float = 1e-6
    """Weight of the squared scores (lambda_1 of Eq. 5)."""
    slope_penalty: float = 1e-6
    """Weight of the squared slope of the score along the candidate (lambda_2 of Eq. 5)."""
    batch: int = 160
    """Transitions per update."""
    teaching: bool = True
    """Whether leave-one-out models learn from the full model's density, or from outcomes like the full model."""
    full_share: float = 0.1
    """Without teaching: share of each batch that sees all inputs; in the rest one is dropped per transition."""
    learning_rate: float = 3e-3
    """Peak of a warm-up and cosine schedule."""
    weight_decay: float = 0.1
    """Pull of the weights towards zero, times the learning rate; raised during training where it overfits."""
    updates: int = 2000
    """Of the published networks (preset `paper`, model `demi`), where no number of steps is given."""
    prediction_updates: int = 400
    """Of the small networks that predict from the causes found."""
    last_action: Literal["auto", "on", "off"] = "auto"
    """Whether models of the dynamics see the action before, too. auto: where most rows continue another one."""
    folds: int = 3
    """Parts into which episodes are divided; each is tested by models fitted to the others."""
    most_rows: int = 100_000
    """Rows that refits use, in whole episodes. More: weaker effects are seen, in more time and memory."""
    kept_one_in: int = 6
    """Of the episodes that models are fitted to, one in so many is kept out to choose between models."""
    false_discovery_rate: float = 0.01
    """Share of false ones among all edges that are claimed, at most. Lower: fewer edges, more undecided cells."""
    miss_rate: float = 0.02
    """Share of effects at the limit of detection that are missed. Lower: a higher limit."""
    shadows: int = 12
    """Time-shifted copies of real variables, added as inputs that cannot matter, to calibrate decisions."""
    differences: bool = True
    """Whether models also see differences of the same quantity of two objects (`hand_x`, `block_x`), where the data
    suggest that these touch or follow each other."""
    held_out: float = 0.2
    """Share of the episodes kept for measuring CMI."""
    evaluation_rows: int = 20_000
    """Held-out transitions used for CMI, at most."""
    expected: bool = True
    """Whether decisions are made on the mean of what the full model expects a dropped input to cost, as long as
    outcomes do not contradict it, or on what it did cost at the outcomes (the paper): the former is far less noisy."""
    rule: Rule = "calibrated"
    """calibrated: per-target thresholds from the shadows, with an undecided zone.
    threshold: CMI >= epsilon (the paper)."""
    epsilon: float = 0.02
    """Threshold in nats of the paper's rule."""
    smallest_effect: float = 0.001
    """Calibrated rule: effects below this many nats are never called edges."""
    strongest_share: float = 0.015
    """Calibrated rule: nor are those below this share of the target's strongest one, by which leave-one-out models of
    well-predicted targets may err."""
    reward_inputs: Literal["next-state", "state-action", "both"] = "next-state"
    """What a reward may depend on, beside the action: the state after the step, the state before it, or both."""

    def __post_init__(self) -> None:
        for name, low in (
            ("width", 1),
            ("depth", 1),
            ("code", 1),
            ("knots", 3),
            ("candidates", 1),
            ("batch", 2),
        ):
            if getattr(self, name) < low:
                raise DataError(f"setting {name} must be at least {low}, got {getattr(self, name)}")
        if not 0 < self.held_out < 1 or not 0 <= self.full_share < 1:
            raise DataError("settings held_out and full_share must lie between 0 and 1")
        if self.shadows < 0 or (self.rule == "calibrated" and self.shadows < 2):
            raise DataError(f"the calibrated rule needs at least 2 shadows, got {self.shadows}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        unknown = set(data) - {field.name for field in fields(cls)}
        if unknown:
            raise DataError(f"unknown settings: {', '.join(sorted(unknown))}")
        return cls(**data)


def preset(name: Preset, model: ModelName = "implicit") -> Settings:
    """`fast` for real use, `paper` for the published networks and losses, `debug` to try the plumbing."""
    if name not in get_args(Preset):
        raise DataError(f"unknown preset {name!r}; choose one of {', '.join(get_args(Preset))}")
    if model not in get_args(ModelName):
        raise DataError(f"unknown model {model!r}; choose one of {', '.join(get_args(ModelName))}")
    base = Settings(model=model)
    if model == "explicit":  # as published: log-likelihoods of outcomes
        base = replace(base, expected=False, smallest_effect=0.005)
    if model == "demi":  # as published: its own estimate against a fixed threshold
        base = replace(base, rule="threshold", shadows=0, differences=False, expected=False, teaching=False, batch=320)
    if name == "debug":
        return replace(base, width=64, code=8, knots=33, batch=128, shadows=min(4, base.shadows), evaluation_rows=1000)
    if name == "paper":
        return replace(
            base,
            architecture="pairwise",
            differences=False,
            expected=False,
            shadows=0,
            teaching=False,
            width=128,
            code=128,
            batch=32,
            full_share=0.5,
            learning_rate=3e-4,
            weight_decay=0.0,
            rule="threshold",
        )
    return base
