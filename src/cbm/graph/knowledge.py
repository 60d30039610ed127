"""Prior knowledge: edges that must be there and edges that cannot, as pairs (cause, effect).

As a JSON file:
    {"required": [["hand_x", "block0_x"], ["action", "hand_x"], ["block0_x", "reward:pick"]],
     "forbidden": [["marker_x", "*"], ["*", "fixed_x"], ["action", "light"]]}

A forbidden pair may have "*" on either side: any variable or the action as the cause, any variable or reward
as the effect ("reward:*": any reward). "*" never stands for a variable's own past: ["*", "fixed_x"] says that
nothing *else* moves fixed_x. To forbid a self-edge, name it twice: ["x", "x"].
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.errors import DataError, unknown_name
from cbm.graph.graph import ACTION, REWARD_PREFIX, CausalGraph, RewardGraph
from cbm.runs.files import read_json

ANY = "*"
ANY_REWARD = REWARD_PREFIX + ANY
Pair = tuple[str, str]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class KnowledgeMasks:
    """The same knowledge as arrays, in the layout of a graph's adjacency (row = effect)."""

    required: BoolArray  # (d, d+1)
    forbidden: BoolArray  # (d, d+1)
    required_rewards: dict[str, BoolArray]  # (d,) each
    forbidden_rewards: dict[str, BoolArray]  # (d,) each


@dataclass(frozen=True)
class Knowledge:
    """Required and forbidden edges; a pair that is both is an error as soon as it is written down."""

    required: frozenset[Pair] = frozenset()
    forbidden: frozenset[Pair] = frozenset()

    def __post_init__(self) -> None:
        for title, pairs in (("required", self.required), ("forbidden", self.forbidden)):
            for cause, effect in sorted(pairs):
                _check_pair(title, cause, effect)
        for pair in sorted(self.required):
            for pattern in sorted(self.forbidden):
                if _covers(pattern, pair):
                    by = "" if pattern == pair else f" by {_show(pattern)}"
                    raise DataError(f"{_show(pair)} is both required and forbidden{by}")

    @classmethod
    def from_json(cls, data: Any) -> Knowledge:
        if not isinstance(data, dict):
            raise DataError('knowledge: expected an object with "required" and "forbidden"')
        for key in data:
            if key not in ("required", "forbidden"):
                raise unknown_name("knowledge: unknown key", key, ("required", "forbidden"))
        return cls(_pairs(data, "required"), _pairs(data, "forbidden"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Knowledge:
        source = Path(path)
        data = read_json(source)
        try:
            return cls.from_json(data)
        except DataError as error:
            raise DataError(f"{source}: {error}") from error

    def to_json(self) -> dict[str, list[list[str]]]:
        return {
            "required": [list(pair) for pair in sorted(self.required)],
            "forbidden": [list(pair) for pair in sorted(self.forbidden)],
        }

    def masks(self, variables: Iterable[str], rewards: Iterable[str] = ()) -> KnowledgeMasks:
        """Arrays for these variables and rewards; a name that is not among them is an error."""
        names, reward_names = tuple(variables), tuple(rewards)
        causes = (*names, ACTION)
        effects = (*names, *(REWARD_PREFIX + reward for reward in reward_names))
        for title, pairs in (("required", self.required), ("forbidden", self.forbidden)):
            for cause, effect in sorted(pairs):
                if cause != ANY and cause not in causes:
                    raise unknown_name(f"{title} {_show((cause, effect))}: unknown cause", cause, causes)
                if effect not in (ANY, ANY_REWARD) and effect not in effects:
                    raise unknown_name(f"{title} {_show((cause, effect))}: unknown effect", effect, effects)
        d = len(names)
        required = _matrix(self.required, causes, effects)
        forbidden = _matrix(self.forbidden, causes, effects)
        return KnowledgeMasks(
            required=required[:d],
            forbidden=forbidden[:d],
            required_rewards={r: required[d + k, :d] for k, r in enumerate(reward_names)},
            forbidden_rewards={r: forbidden[d + k, :d] for k, r in enumerate(reward_names)},
        )

    def apply(self, graph: CausalGraph) -> CausalGraph:
        """The graph with this knowledge enforced on edges and verdicts; the measured CMI stays as it is.

        Required edges are certain and forbidden ones are none, whatever was undecided.
        """
        masks = self.masks(graph.variables, graph.rewards)
        rewards: dict[str, RewardGraph] = {}
        for name, reward in graph.rewards.items():
            required, forbidden = masks.required_rewards[name], masks.forbidden_rewards[name]
            parents = (np.isin(graph.variables, reward.parents) | required) & ~forbidden
            verdict = _enforced(reward.verdict, required, forbidden)
            rewards[name] = replace(reward, parents=graph.names_of(parents), verdict=verdict)
            if reward.action is not None and self._forbids(ACTION, REWARD_PREFIX + name):
                rewards[name] = replace(rewards[name], action=replace(reward.action, verdict="none", reason=""))
        return replace(
            graph,
            adjacency=(graph.adjacency | masks.required) & ~masks.forbidden,
            verdict=_enforced(graph.verdict, masks.required, masks.forbidden),
            rewards=rewards,
        )

    def _forbids(self, cause: str, effect: str) -> bool:
        return any(_covers(pattern, (cause, effect)) for pattern in self.forbidden)


def _show(pair: Pair) -> str:
    return f"{pair[0]} -> {pair[1]}"


def _check_pair(title: str, cause: str, effect: str) -> None:
    where = f"{title} {_show((cause, effect))}"
    if title == "required" and (ANY in (cause, effect) or effect == ANY_REWARD):
        raise DataError(f"{where}: only a forbidden pair may have a wildcard")
    if effect == ACTION:
        raise DataError(f"{where}: the action is chosen by the policy, a graph holds no causes of it")
    if cause.startswith(REWARD_PREFIX):
        raise DataError(f"{where}: a reward causes nothing")
    if title == "required" and cause == ACTION and effect.startswith(REWARD_PREFIX):
        raise DataError(f"{where}: the parents of a reward are state variables only")


def _covers(pattern: Pair, pair: Pair) -> bool:
    """Whether a forbidden pair, perhaps with wildcards, speaks of this very edge."""
    if pattern == pair:
        return True
    (cause, effect), (p_cause, p_effect) = pair, pattern
    if cause == effect:
        return False
    effect_fits = p_effect in (ANY, effect) or (p_effect == ANY_REWARD and effect.startswith(REWARD_PREFIX))
    return p_cause in (ANY, cause) and effect_fits


def _matrix(pairs: frozenset[Pair], causes: tuple[str, ...], effects: tuple[str, ...]) -> BoolArray:
    cells = np.zeros((len(effects), len(causes)), dtype=bool)
    for pattern in pairs:
        for i, effect in enumerate(effects):
            for j, cause in enumerate(causes):
                if _covers(pattern, (cause, effect)):
                    cells[i, j] = True
    return cells


def _enforced(verdict: NDArray[np.str_], required: BoolArray, forbidden: BoolArray) -> NDArray[np.str_]:
    return np.where(required, "edge", np.where(forbidden, "none", verdict))


def _pairs(data: dict[str, Any], key: str) -> frozenset[Pair]:
    value = data.get(key, [])
    if not isinstance(value, list):
        raise DataError(f"{key}: expected a list of [cause, effect] pairs")
    for k, pair in enumerate(value):
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)):
            raise DataError(f"{key}[{k}]: expected [cause, effect], two names, got {pair!r}")
    return frozenset((cause, effect) for cause, effect in value)
