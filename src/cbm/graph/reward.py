"""RewardGraph: which variables one reward depends on, and whether it depends on the action itself.

A part of `cbm.graph.CausalGraph`, which checks it together with its variables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cbm.errors import unknown_name
from cbm.graph.checks import (
    agree,
    maybe_number,
    names_list,
    number,
    numbers,
    or_default,
    reasons,
    verdicts,
    zeros_and_ones,
)

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
TextArray = NDArray[np.str_]


UNSETTLED = "not settled before the ceiling"
NEAR = "near the threshold"
"""The reason of a cell that was left open for want of time, and not by the data."""


@dataclass(frozen=True)
class ActionEffect:
    """Whether a reward depends on the action itself, beyond what the variables say."""

    cmi: float
    stderr: float
    verdict: str  # "edge" | "none" | "undecided"
    threshold: float
    reason: str = ""
    """Why it is undecided; "" where it is decided."""

    def checked(self, where: str) -> ActionEffect:
        verdict = verdicts(self.verdict, (), f"{where}.verdict", ())
        return ActionEffect(
            cmi=number(self.cmi, f"{where}.cmi"),
            stderr=number(self.stderr, f"{where}.stderr", non_negative=True),
            verdict=str(verdict),
            threshold=number(self.threshold, f"{where}.threshold"),
            reason=str(reasons(self.reason, verdict, f"{where}.reason", ())),
        )


@dataclass(frozen=True, eq=False)
class RewardGraph:
    """What one reward depends on. A standard error of 0 means that none was measured."""

    parents: tuple[str, ...]
    """The best guess; an undecided variable may be in it or not."""
    cmi: FloatArray  # (d,)
    stderr: FloatArray  # (d,)
    verdict: TextArray  # (d,) of "edge" | "none" | "undecided"
    threshold: FloatArray  # (d,) what the CMI of each variable was compared with
    settled: BoolArray = field(default_factory=lambda: np.empty(0, bool))
    """(d,) whether models and tests of each cell ended by themselves; left out: all did."""
    reason: TextArray = field(default_factory=lambda: np.empty(0, "<U1"))
    """(d,) why a cell is undecided; "" where it is decided."""
    limit_of_detection: float = math.nan
    """Nats; "none" means that there is no effect above it. NaN: not known."""
    action: ActionEffect | None = None
    """None: not measured."""

    @property
    def decided(self) -> bool:
        """Whether anything is known about it: at least one variable is a cause, or is none."""
        return bool((self.verdict != "undecided").any())

    def checked(self, where: str, variables: tuple[str, ...]) -> RewardGraph:
        """The same with clean read-only arrays and the parents in variable order."""
        names = names_list(self.parents, f"{where}.parents")
        for name in names:
            if name not in variables:
                raise unknown_name(f"{where}.parents: unknown variable", name, variables)
        shape = (len(variables),)
        verdict = verdicts(self.verdict, shape, f"{where}.verdict", variables)
        agree(np.isin(variables, names), verdict, f"{where}.parents", variables)
        settled = or_default(self.settled, np.ones(shape, bool))
        reason = or_default(self.reason, np.full(shape, ""))
        return RewardGraph(
            parents=tuple(name for name in variables if name in names),
            cmi=numbers(self.cmi, shape, f"{where}.cmi", variables),
            stderr=numbers(self.stderr, shape, f"{where}.stderr", variables, non_negative=True),
            verdict=verdict,
            threshold=numbers(self.threshold, shape, f"{where}.thresholds", variables),
            settled=zeros_and_ones(settled, shape, f"{where}.settled", variables),
            reason=reasons(reason, verdict, f"{where}.reason", variables),
            limit_of_detection=maybe_number(self.limit_of_detection, f"{where}.limit_of_detection"),
            action=None if self.action is None else self.action.checked(f"{where}.action"),
        )
