"""CausalGraph: which variable causes which one step later, how strongly, and how sure the data makes us.

Here: the frozen graph, its checks and its questions (parents, ancestors, what a reward certainly and possibly needs).
Not here: finding a graph (`cbm.discovery`), its file (`json_format`), `scores`, other formats (`export`), reasons
(`explain`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbm.errors import DataError, unknown_name
from cbm.graph.bootstrap import Bootstrap
from cbm.graph.checks import (
    agree,
    maybe_number,
    maybe_numbers,
    names_list,
    number,
    numbers,
    or_default,
    reasons,
    verdicts,
    zeros_and_ones,
)
from cbm.graph.display import plot_matrix, report_html, summary_of
from cbm.graph.json_format import ACTION, REWARD_PREFIX, SCHEMA, graph_from_json, graph_to_json, variable_names
from cbm.graph.reward import NEAR, UNSETTLED, ActionEffect, RewardGraph
from cbm.graph.rules import RULES, Rule, ancestors, cbm_abstraction, cdl_abstraction
from cbm.graph.scores import Score, compare
from cbm.runs.files import atomic_write_text, layout, read_json

__all__ = ["ACTION", "REWARD_PREFIX", "SCHEMA", "ActionEffect", "CausalGraph", "RewardGraph"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
TextArray = NDArray[np.str_]


@dataclass(frozen=True, eq=False, repr=False)
class CausalGraph:
    """adjacency[i, j] is true when variable j at time t causes variable i at t+1; the action comes last.

    The arrays are checked, copied and read-only, so a graph can be shared without fear.
    """

    variables: tuple[str, ...]
    adjacency: BoolArray  # (d, d+1)
    cmi: FloatArray  # (d, d+1) conditional mutual information in nats
    stderr: FloatArray  # (d, d+1) its standard error; 0 means that none was measured
    verdict: TextArray
    """(d, d+1) of "edge" | "none" | "undecided"; adjacency may have an undecided cell either way."""
    threshold: float
    """Reference threshold; each cell's own is in `thresholds`."""
    rewards: dict[str, RewardGraph] = field(default_factory=dict)
    model: str = "unknown"
    transitions: int = 0
    seconds: float = 0.0
    version: str = ""
    thresholds: FloatArray = field(default_factory=lambda: np.empty(0))
    """(d, d+1); left out, every cell gets `threshold`."""
    settled: BoolArray = field(default_factory=lambda: np.empty(0, bool))
    """(d, d+1) whether models and tests of each cell ended by themselves, not at a ceiling of time; left out: all."""
    reason: TextArray = field(default_factory=lambda: np.empty(0, "<U1"))
    """(d, d+1) why a cell is undecided, in one short sentence; "" where it is decided."""
    limit_of_detection: FloatArray = field(default_factory=lambda: np.empty(0))
    """(d,) nats: "none" means that there is no effect on this variable above it. NaN, or left out: not known."""
    last_action: bool = False
    """Whether the models saw the action before the current one."""
    false_discovery_rate: float = math.nan
    """At most this share of the edges is expected to be wrong; NaN: not controlled."""
    miss_rate: float = math.nan
    """At most this share of the effects above the limit of detection is expected to be missed; NaN: not controlled."""
    bootstrap: Bootstrap | None = None
    """How often edges and variables came out when episodes were resampled; None: they were not."""

    def __post_init__(self) -> None:
        names = variable_names(self.variables)
        shape = (len(names), len(names) + 1)
        threshold = number(self.threshold, "threshold")
        thresholds = or_default(self.thresholds, np.full(shape, threshold))
        adjacency = zeros_and_ones(self.adjacency, shape, "adjacency", names)
        verdict = verdicts(self.verdict, shape, "verdict", names)
        settled = or_default(self.settled, np.ones(shape, bool))
        reason = or_default(self.reason, np.full(shape, ""))
        limit = or_default(self.limit_of_detection, np.full(len(names), np.nan))
        if not isinstance(self.last_action, bool | np.bool_):
            raise DataError("last_action: must be true or false")
        agree(adjacency, verdict, "adjacency", names)
        clean: dict[str, Any] = {
            "variables": names,
            "adjacency": adjacency,
            "cmi": numbers(self.cmi, shape, "cmi", names),
            "stderr": numbers(self.stderr, shape, "stderr", names, non_negative=True),
            "verdict": verdict,
            "threshold": threshold,
            "rewards": {r: g.checked(f"rewards.{r}", names) for r, g in self.rewards.items()},
            "transitions": int(number(self.transitions, "transitions", non_negative=True)),
            "seconds": number(self.seconds, "seconds", non_negative=True),
            "thresholds": numbers(thresholds, shape, "thresholds", names),
            "settled": zeros_and_ones(settled, shape, "settled", names),
            "reason": reasons(reason, verdict, "reason", names),
            "limit_of_detection": maybe_numbers(limit, (len(names),), "limit_of_detection", names),
            "last_action": bool(self.last_action),
            "false_discovery_rate": maybe_number(self.false_discovery_rate, "false_discovery_rate", highest=1.0),
            "miss_rate": maybe_number(self.miss_rate, "miss_rate", highest=1.0),
        }
        names_list(tuple(self.rewards), "rewards")
        for key, value in clean.items():
            object.__setattr__(self, key, value)

    def __len__(self) -> int:
        return len(self.variables)

    def __repr__(self) -> str:
        return summary_of(self)

    def _repr_html_(self) -> str:
        """For notebooks: the heat map and the minimal states, as the report draws them."""
        return report_html(self)

    def plot(self, reward: str | None = None, ax: Any = None) -> Any:
        """Draw the matrix with matplotlib and return its axes; with a reward, the names that it needs are bold."""
        return plot_matrix(self, reward, ax)

    def stronger(self, nats: float) -> CausalGraph:
        """The same without effects of fewer nats; what a variable does to its own future stays.

        A state that follows from it is smaller, and loses what those effects say. Zero: the graph as it is, with edges
        that knowledge demands and the data do not show. Undecided cells stay, whatever was measured, unless they were
        settled and an effect of so many nats is all but ruled out.
        """
        if nats <= 0:
            return self
        measured = self.settled & (self.reason == NEAR) & (self.cmi + 2 * self.stderr < nats)
        weak = np.where(self.verdict == "undecided", measured, self.cmi < nats)
        weak &= ~np.eye(len(self), len(self) + 1, dtype=bool)
        left_out, limit = weak & (self.verdict != "none"), self.limit_of_detection
        return replace(
            self,
            adjacency=self.adjacency & ~weak,
            verdict=np.where(weak, "none", self.verdict),
            thresholds=np.where(weak, np.maximum(self.thresholds, nats), self.thresholds),
            limit_of_detection=np.where(left_out.any(1), np.maximum(limit, nats), limit),
        )

    def with_undecided_as(self, edges: bool) -> CausalGraph:
        """The same with undecided cells as edges, or as none, in the best guess; verdicts stay as they are."""
        keep = ("edge", "undecided") if edges else ("edge",)
        rewards = {
            name: replace(reward, parents=self.names_of(np.isin(reward.verdict, keep)))
            for name, reward in self.rewards.items()
        }
        return replace(self, adjacency=np.isin(self.verdict, keep), rewards=rewards)

    # Questions

    def index(self, name: str) -> int:
        """Row of a variable."""
        if name not in self.variables:
            raise unknown_name("unknown variable", name, self.variables)
        return self.variables.index(name)

    def reward(self, name: str | None) -> RewardGraph:
        if name is None or name not in self.rewards:
            raise unknown_name("unknown reward", name, self.rewards)
        return self.rewards[name]

    def parents(self, name: str) -> tuple[str, ...]:
        """Direct causes of a variable, in column order; the action counts as "action" and has none itself."""
        if name == ACTION:
            return ()
        columns = (*self.variables, ACTION)
        return tuple(columns[j] for j in np.flatnonzero(self.adjacency[self.index(name)]))

    def children(self, name: str) -> tuple[str, ...]:
        """Variables that a variable, or "action", causes directly."""
        column = len(self) if name == ACTION else self.index(name)
        return tuple(self.variables[i] for i in np.flatnonzero(self.adjacency[:, column]))

    def ancestors(self, names: str | Iterable[str]) -> frozenset[str]:
        """The named variables and every state variable with a causal path to one of them."""
        chosen = (names,) if isinstance(names, str) else names
        start = np.zeros(len(self), dtype=bool)
        start[[self.index(name) for name in chosen]] = True
        return frozenset(self.names_of(ancestors(self.adjacency, start)))

    def names_of(self, mask: BoolArray) -> tuple[str, ...]:
        return tuple(self.variables[i] for i in np.flatnonzero(mask))

    @property
    def decided(self) -> bool:
        """Whether anything is known about the dynamics: at least one cell is an edge, or none."""
        return bool((self.verdict != "undecided").any())

    @property
    def is_settled(self) -> bool:
        """Whether every cell was decided, or left undecided, by the data and not by a ceiling."""
        actions = [reward.action.reason for reward in self.rewards.values() if reward.action is not None]
        cells = [self.settled, *(reward.settled for reward in self.rewards.values())]
        return UNSETTLED not in actions and all(bool(settled.all()) for settled in cells)

    def undecided(self) -> int:
        """How many cells have no verdict, those of the rewards included."""
        rewards = self.rewards.values()
        cells = [self.verdict.ravel(), *(reward.verdict for reward in rewards)]
        actions = [reward.action.verdict for reward in rewards if reward.action is not None]
        return int((np.concatenate(cells) == "undecided").sum()) + actions.count("undecided")

    @property
    def certain_edges(self) -> BoolArray:
        """(d, d+1) decided edges only."""
        return self.verdict == "edge"

    @property
    def possible_edges(self) -> BoolArray:
        """(d, d+1) decided edges, and undecided cells: these cannot be ruled out, whatever the best guess."""
        return self.verdict != "none"

    def mask(self, reward: str | None = None, rule: Rule = "cbm", *, certain_only: bool = False) -> BoolArray:
        """(d,) true for what a policy for this reward needs; rule "cdl" is the same for all rewards.

        With what cannot be ruled out, because a link to it is undecided; `certain_only` leaves this out.
        """
        edges = self.certain_edges if certain_only else self.possible_edges
        if self._without_reward(reward, rule):
            return cdl_abstraction(edges)
        verdict = self.reward(reward).verdict
        return cbm_abstraction(edges, verdict == "edge" if certain_only else verdict != "none")

    def guessed_mask(self, reward: str | None = None, rule: Rule = "cbm") -> BoolArray:
        """(d,) the same by the best guess, `adjacency` and `parents`; learning beside a policy goes by it."""
        if self._without_reward(reward, rule):
            return cdl_abstraction(self.adjacency)
        return cbm_abstraction(self.adjacency, np.isin(self.variables, self.reward(reward).parents))

    def abstraction(
        self, reward: str | None = None, rule: Rule = "cbm", *, certain_only: bool = False
    ) -> tuple[str, ...]:
        """Names of the minimal state, in variable order: what is certainly needed, and what cannot be ruled out."""
        return self.names_of(self.mask(reward, rule, certain_only=certain_only))

    def certain(self, reward: str | None = None, rule: Rule = "cbm") -> tuple[str, ...]:
        """Names of what is certainly needed: every link of a path to the reward is decided."""
        return self.names_of(self.mask(reward, rule, certain_only=True))

    def possible(self, reward: str | None = None, rule: Rule = "cbm") -> tuple[str, ...]:
        """Names of what is not certainly needed and cannot be ruled out."""
        return self.names_of(self.mask(reward, rule) & ~self.mask(reward, rule, certain_only=True))

    def _without_reward(self, reward: str | None, rule: Rule) -> bool:
        """Whether the rule asks for no reward; an unknown rule or reward is an error."""
        if rule not in RULES:
            raise unknown_name("unknown rule", rule, RULES)
        if rule == "cdl" and reward is not None:
            self.reward(reward)
        return rule == "cdl"

    def compare(self, truth: ArrayLike) -> Score:
        """Score against a true graph of the same shape."""
        shape = (len(self), len(self) + 1)
        true_edges = zeros_and_ones(truth, shape, "truth", self.variables)
        return compare(self.variables, self.adjacency, self.cmi, true_edges)

    # graph.json

    def to_json(self) -> dict[str, Any]:
        return graph_to_json(self)

    @classmethod
    def from_json(cls, data: Any) -> CausalGraph:
        """Check every field; a DataError names the one that is wrong.

        May be absent: `thresholds` (then `threshold` everywhere), everything that schema 2 added; a reward's `stderr`
        (0, not measured) and `verdict` (as its parents say). What a reward needs is computed afresh.
        """
        return cls(**graph_from_json(data))

    def dumps(self) -> str:
        """Text of graph.json, one matrix row a line."""
        return layout(self.to_json()) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write graph.json under this name, or into this directory, in one step."""
        target = Path(path)
        atomic_write_text(target / "graph.json" if target.is_dir() else target, self.dumps())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CausalGraph:
        """Read a graph.json, or the one in a run directory."""
        source = Path(path)
        if source.is_dir():
            source = source / "graph.json"
        try:
            return cls.from_json(read_json(source))
        except DataError as error:
            message = str(error)
            raise DataError(message if str(source) in message else f"{source}: {message}") from error
