"""Gives any Gymnasium agent the minimal state.

    env = cbm.AbstractionWrapper(env, graph, reward="pick")

It accepts flat Box observations and Dict observations, which are flattened in Gymnasium's order. Context (such as a
goal) that an environment shows after its variables is always kept, after the kept variables.
"""

from __future__ import annotations

import os
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from cbm.data.factors import Factors
from cbm.errors import DataError, unknown_name
from cbm.graph import CausalGraph
from cbm.graph.checks import check_same_names, zeros_and_ones
from cbm.graph.rules import Rule

Mode = Literal["drop", "mask"]


class AbstractionWrapper(gymnasium.ObservationWrapper[np.ndarray, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Shows the agent only the variables that a reward needs."""

    mask: np.ndarray
    """(d,) booleans over the variables, the first columns of the flat observation: true for variables that are kept."""
    kept: tuple[str, ...]
    """Names of the kept variables, in the order of the observation."""
    shown_context: tuple[str, ...]
    """Names of the columns after the variables, which are always kept; `factors` does not include them."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        graph: CausalGraph | str | os.PathLike[str] | ArrayLike,
        reward: str | None = None,
        mode: Mode = "drop",
        rule: Rule = "cbm",
        certain_only: bool = False,
    ):
        """`graph` is a causal graph, or a run that has one, from which `reward` and `rule` select; or (d,) booleans.

        Variables that cannot be ruled out are kept too, unless `certain_only`. `mode="drop"` shrinks the observation to
        the kept variables. `mode="mask"` keeps its shape and sets the others to 0; if 0 is not a neutral value,
        normalise inside this wrapper.
        """
        gymnasium.utils.RecordConstructorArgs.__init__(
            self, graph=graph, reward=reward, mode=mode, rule=rule, certain_only=certain_only
        )
        gymnasium.ObservationWrapper.__init__(self, env)
        if mode not in get_args(Mode):
            raise unknown_name("unknown mode", mode, get_args(Mode))
        self.mode = mode
        box = _flat_space(env.observation_space)
        known, self.shown_context = _known_columns(env, len(box.low))
        in_keys = _factors_of_dict(env)
        if known is not None and in_keys is not None:
            _check_order((*known.names, *self.shown_context), in_keys.names)
        if isinstance(graph, str | os.PathLike):
            graph = CausalGraph.load(graph)
        if isinstance(graph, CausalGraph):
            columns = len(box.low) - len(self.shown_context)
            same_names = in_keys is not None and set(in_keys.names) == set(graph.variables)
            _check_same_variables(graph, columns, known or (in_keys if same_names else None))  # then their order counts
            self.mask = graph.mask(reward, rule, certain_only=certain_only)
            self.kept = graph.names_of(self.mask)
        else:
            if reward is not None:
                raise DataError(f"reward {reward!r}: a mask is the same for every reward, a graph is needed")
            if certain_only:
                raise DataError("certain_only: a mask has no verdicts, a graph is needed")
            names = (known or in_keys or Factors.from_spaces(box, spaces.Discrete(1))).names
            self.mask = zeros_and_ones(graph, (len(names),), "mask", names)
            self.kept = tuple(names[i] for i in np.flatnonzero(self.mask))
        if mode == "drop" and not self.kept + self.shown_context:
            hint = _why_empty(graph, reward, rule) if isinstance(graph, CausalGraph) else ""
            raise DataError(f"the abstraction keeps no variable, and an observation cannot be empty{hint}")
        self._known = known
        self._columns = np.append(self.mask, np.ones(len(self.shown_context), dtype=bool))
        self.observation_space = self._space(box)

    @property
    def factors(self) -> Factors | None:
        """The meaning of the remaining columns, if the environment provides it, so that wrappers can be stacked."""
        if self._known is None or self.mode == "mask":
            return self._known
        variables = tuple(self._known.variables[i] for i in np.flatnonzero(self.mask))
        return Factors(variables, self._known.action_names, self._known.discrete_actions)

    def observation(self, observation: Any) -> np.ndarray:
        flat = np.asarray(spaces.flatten(self.env.observation_space, observation))
        if flat.shape != self._columns.shape:
            raise DataError(f"observation: shape {flat.shape}, expected {self._columns.shape}")
        return flat[self._columns] if self.mode == "drop" else np.where(self._columns, flat, 0).astype(flat.dtype)

    def _space(self, box: spaces.Box) -> spaces.Box:
        dtype: Any = box.dtype
        if self.mode == "drop":
            return spaces.Box(box.low[self._columns], box.high[self._columns], dtype=dtype)
        low = np.where(self._columns, box.low, np.minimum(box.low, 0))  # the bounds must include 0
        high = np.where(self._columns, box.high, np.maximum(box.high, 0))
        return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def _check_order(named: tuple[str, ...], in_keys: tuple[str, ...]) -> None:
    """A Dict is flattened in the order of its keys; where it has the names of `factors`, they must agree."""
    if set(named) == set(in_keys) and named != in_keys:
        at = next(i for i, (name, key) in enumerate(zip(named, in_keys, strict=True)) if name != key)
        raise DataError(
            f"the environment's factors (and shown_context) say that column {at} is {named[at]!r}, but its Dict has "
            f"{in_keys[at]!r} there: keys are flattened in Gymnasium's order"
        )


def _why_empty(graph: CausalGraph, reward: str | None, rule: Rule) -> str:
    if doubtful := graph.possible(reward, rule):
        return f"; nothing is certain, but without certain_only it keeps {len(doubtful)} that cannot be ruled out"
    if rule != "cbm" or reward is None:
        return ""
    action = graph.rewards[reward].action
    if action is not None and action.verdict == "edge":
        return f"; reward {reward!r} depends on the action alone"
    return f"; no cause of reward {reward!r} was found"


def _flat_space(space: spaces.Space[Any]) -> spaces.Box:
    """The space of the flattened observation."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return space
    if isinstance(space, spaces.Dict):
        flat = spaces.flatten_space(space)
        if isinstance(flat, spaces.Box):
            return flat
    shown = " ".join(str(space).split())
    raise DataError(f"observation space {shown} is not supported (a flat Box, or a Dict of Box)")


def _known_columns(env: gymnasium.Env[Any, Any], columns: int) -> tuple[Factors | None, tuple[str, ...]]:
    """The variables according to the environment, and the names of the context columns after them.

    Neither if another wrapper has changed the number of columns.
    """
    factors = env.get_wrapper_attr("factors") if env.has_wrapper_attr("factors") else None
    if not isinstance(factors, Factors):
        return None, ()
    context = tuple(env.get_wrapper_attr("shown_context")) if env.has_wrapper_attr("shown_context") else ()
    if len(factors) + len(context) == columns:
        return factors, context
    return (factors, ()) if len(factors) == columns else (None, ())


def _factors_of_dict(env: gymnasium.Env[Any, Any]) -> Factors | None:
    """Names from the keys of a Dict space."""
    if not isinstance(env.observation_space, spaces.Dict):
        return None
    try:
        return Factors.from_spaces(env.observation_space, spaces.Discrete(1))
    except DataError:  # for example nested: its columns have no names of their own
        return None


def _check_same_variables(graph: CausalGraph, columns: int, factors: Factors | None) -> None:
    if factors is None:
        if len(graph) != columns:
            raise DataError(f"the graph has {len(graph)} variables, the observation {columns} columns")
        return
    check_same_names(graph.variables, factors.names)
