"""CausalGraph: which variable causes which one step later, how strongly, and how sure the data makes us.

Here: the frozen graph, its checks, its questions (parents, ancestors, abstraction) and graph.json in and out.
Not here: finding a graph (`cbm.discovery`), scores (`cbm.scores`), other formats (`cbm.exports`), reasons
(`cbm.abstraction.explain`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cbm.abstraction.rules import RULES, Rule, ancestors, cbm_abstraction, cdl_abstraction
from cbm.checks import (
    agree,
    layout,
    names_list,
    number,
    numbers,
    read_json,
    rounded,
    take,
    unknown_name,
    verdicts,
    zeros_and_ones,
)
from cbm.errors import DataError
from cbm.runs import atomic_write_text
from cbm.scores import Score, compare

SCHEMA = 1
ACTION = "action"  # the name of the last column
REWARD_PREFIX = "reward:"  # how a reward is named where variables and rewards share one list of names

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
TextArray = NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class RewardGraph:
    """What one reward depends on. A standard error of 0 means that none was measured."""

    parents: tuple[str, ...]
    cmi: FloatArray  # (d,)
    stderr: FloatArray  # (d,)
    verdict: TextArray  # (d,) of "edge" | "none" | "undecided"
    threshold: FloatArray  # (d,) what the CMI of each variable was compared with

    def _checked(self, where: str, variables: tuple[str, ...]) -> RewardGraph:
        """The same with clean read-only arrays and the parents in variable order."""
        names = names_list(self.parents, f"{where}.parents")
        for name in names:
            if name not in variables:
                raise unknown_name(f"{where}.parents: unknown variable", name, variables)
        shape = (len(variables),)
        verdict = verdicts(self.verdict, shape, f"{where}.verdict", variables)
        agree(np.isin(variables, names), verdict, f"{where}.parents", variables)
        return RewardGraph(
            parents=tuple(name for name in variables if name in names),
            cmi=numbers(self.cmi, shape, f"{where}.cmi", variables),
            stderr=numbers(self.stderr, shape, f"{where}.stderr", variables, non_negative=True),
            verdict=verdict,
            threshold=numbers(self.threshold, shape, f"{where}.thresholds", variables),
        )


@dataclass(frozen=True, eq=False)
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

    def __post_init__(self) -> None:
        names = _variable_names(self.variables)
        shape = (len(names), len(names) + 1)
        threshold = number(self.threshold, "threshold")
        thresholds = np.full(shape, threshold) if np.size(self.thresholds) == 0 else self.thresholds
        adjacency = zeros_and_ones(self.adjacency, shape, "adjacency", names)
        verdict = verdicts(self.verdict, shape, "verdict", names)
        agree(adjacency, verdict, "adjacency", names)
        clean: dict[str, Any] = {
            "variables": names,
            "adjacency": adjacency,
            "cmi": numbers(self.cmi, shape, "cmi", names),
            "stderr": numbers(self.stderr, shape, "stderr", names, non_negative=True),
            "verdict": verdict,
            "threshold": threshold,
            "rewards": {r: g._checked(f"rewards.{r}", names) for r, g in self.rewards.items()},
            "transitions": int(number(self.transitions, "transitions", non_negative=True)),
            "seconds": number(self.seconds, "seconds", non_negative=True),
            "thresholds": numbers(thresholds, shape, "thresholds", names),
        }
        names_list(tuple(self.rewards), "rewards")
        for key, value in clean.items():
            object.__setattr__(self, key, value)

    def __len__(self) -> int:
        return len(self.variables)

    def stronger(self, nats: float) -> CausalGraph:
        """The same without effects of fewer nats; what a variable does to its own future stays.

        A state that follows from it is smaller, and loses what those effects say. Zero: the graph as it is, with edges
        that knowledge demands and the data do not show.
        """
        if nats <= 0:
            return self
        weak = (self.cmi < nats) & ~np.eye(len(self), len(self) + 1, dtype=bool)
        return replace(
            self,
            adjacency=self.adjacency & ~weak,
            verdict=np.where(weak, "none", self.verdict),
            thresholds=np.where(weak, np.maximum(self.thresholds, nats), self.thresholds),
        )

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
        wanted = (names,) if isinstance(names, str) else names
        start = np.zeros(len(self), dtype=bool)
        start[[self.index(name) for name in wanted]] = True
        return frozenset(self.names_of(ancestors(self.adjacency, start)))

    def names_of(self, mask: BoolArray) -> tuple[str, ...]:
        return tuple(self.variables[i] for i in np.flatnonzero(mask))

    def mask(self, reward: str | None = None, rule: Rule = "cbm") -> BoolArray:
        """(d,) true for what a policy for this reward needs; rule "cdl" is the same for all rewards."""
        if rule not in RULES:
            raise unknown_name("unknown rule", rule, RULES)
        if rule == "cdl":
            if reward is not None:
                self.reward(reward)
            return cdl_abstraction(self.adjacency)
        return cbm_abstraction(self.adjacency, np.isin(self.variables, self.reward(reward).parents))

    def abstraction(self, reward: str | None = None, rule: Rule = "cbm") -> tuple[str, ...]:
        """Names of the minimal state, in variable order."""
        return self.names_of(self.mask(reward, rule))

    def compare(self, truth: ArrayLike) -> Score:
        """Score against a true graph of the same shape."""
        shape = (len(self), len(self) + 1)
        true_edges = zeros_and_ones(truth, shape, "truth", self.variables)
        return compare(self.variables, self.adjacency, self.cmi, true_edges)

    # graph.json

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "variables": list(self.variables),
            "adjacency": self.adjacency.astype(int).tolist(),
            "cmi": rounded(self.cmi),
            "stderr": rounded(self.stderr),
            "verdict": self.verdict.tolist(),
            "threshold": rounded(self.threshold),
            "rewards": {
                name: {
                    "parents": list(reward.parents),
                    "cmi": rounded(reward.cmi),
                    "abstraction": list(self.abstraction(name)),
                    "stderr": rounded(reward.stderr),
                    "verdict": reward.verdict.tolist(),
                    "thresholds": rounded(reward.threshold),
                }
                for name, reward in self.rewards.items()
            },
            "model": self.model,
            "transitions": self.transitions,
            "seconds": rounded(self.seconds),
            "version": self.version,
            "thresholds": rounded(self.thresholds),
        }

    @classmethod
    def from_json(cls, data: Any) -> CausalGraph:
        """Check every field; a DataError names the one that is wrong.

        May be absent: `thresholds` (then `threshold` everywhere); a reward's `stderr` (0, not measured)
        and `verdict` (as its parents say). Its `abstraction` follows from the graph and is computed afresh.
        """
        if not isinstance(data, dict):
            raise DataError("graph: expected a JSON object")
        if type(schema := take(data, "schema")) is not int or schema != SCHEMA:
            raise DataError(f"schema: {schema!r}, but this version reads schema {SCHEMA}")
        variables = _variable_names(take(data, "variables"))
        shape = (len(variables), len(variables) + 1)
        rewards = take(data, "rewards")
        if not isinstance(rewards, dict):
            raise DataError("rewards: expected an object with one entry for each reward")
        threshold = number(take(data, "threshold"), "threshold")
        transitions = take(data, "transitions")
        if type(transitions) is not int:
            raise DataError("transitions: expected a whole number")
        for key in ("model", "version"):
            if not isinstance(take(data, key), str):
                raise DataError(f"{key}: expected a string")
        return cls(
            variables=variables,
            adjacency=take(data, "adjacency"),
            cmi=take(data, "cmi"),
            stderr=take(data, "stderr"),
            verdict=take(data, "verdict"),
            threshold=threshold,
            rewards={name: _reward_from_json(name, r, variables, threshold) for name, r in rewards.items()},
            model=data["model"],
            transitions=transitions,
            seconds=take(data, "seconds"),
            version=data["version"],
            thresholds=numbers(data["thresholds"], shape, "thresholds", variables)
            if "thresholds" in data
            else np.empty(0),
        )

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


def _variable_names(value: Any) -> tuple[str, ...]:
    names = names_list(value, "variables")
    if not names:
        raise DataError("variables: empty, a graph needs at least one variable")
    for name in names:
        if name == ACTION or name.startswith(REWARD_PREFIX):
            raise DataError(f"variables: {name!r} is a reserved name (the action, or a reward)")
    return names


def _reward_from_json(name: str, data: Any, variables: tuple[str, ...], threshold: float) -> RewardGraph:
    where = f"rewards.{name}"
    if not isinstance(data, dict):
        raise DataError(f"{where}: expected an object")
    parents = names_list(take(data, "parents", f"{where}."), f"{where}.parents")
    for other in names_list(take(data, "abstraction", f"{where}."), f"{where}.abstraction"):
        if other not in variables:
            raise unknown_name(f"{where}.abstraction: unknown variable", other, variables)
    d = len(variables)
    return RewardGraph(
        parents=parents,
        cmi=take(data, "cmi", f"{where}."),
        stderr=data.get("stderr", np.zeros(d)),
        verdict=data.get("verdict", np.where(np.isin(variables, parents), "edge", "none")),
        threshold=data.get("thresholds", np.full(d, threshold)),
    )
