"""The interface of every method that chooses a policy's variables; `table.py` lists the methods.

A method is updated with the experience from time to time, and always has a mask over the d state variables. Its module
is imported when the method is made: each has a function `make(setup) -> Method`. Torch is not imported here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

import numpy as np

from cbm.abstraction.table import Options, method_options
from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.errors import DataError, unknown_name
from cbm.graph import CausalGraph
from cbm.graph.checks import check_same_names

if TYPE_CHECKING:
    from torch import Tensor

Rewards = Literal["run", "learned"]
"""Source of a reward's parents: the run that the dynamics come from, or a model learned alongside the policy."""


class Experience(Protocol):
    """The data that a method may learn from; it grows between two updates."""

    def transitions(self, held_out: bool) -> Transitions:
        """All rows so far, in the order in which they were added, with the rewards of all tasks and the context: those
        of the training episodes, or of the held-out ones."""
        ...


class Dynamics(Protocol):
    """The causal graph of the dynamics; one object serves all tasks."""

    frozen: bool
    """Whether the graph was found before, so that `learn` does nothing."""

    def graph(self) -> CausalGraph:
        """The current graph; before there is evidence no edge is excluded."""
        ...

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        """Some gradient steps and one measurement of the dependencies; returns metrics."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that changes; after `restore`, learning continues with the same numbers."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None: ...


class Method(Protocol):
    """Chooses the state variables that one task's policy sees."""

    name: str

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        """Some gradient steps and one evaluation; returns metrics, {} if there is nothing to learn.

        Does not update shared dynamics: their owner calls their `learn` first, once for all tasks.
        """
        ...

    def mask(self) -> np.ndarray:
        """(d,) booleans, the current abstraction; everything while there is no evidence."""
        ...

    def graph(self) -> CausalGraph | None:
        """The graph behind the mask, with this task's reward, for methods that have one."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that changes; after `restore`, learning continues with the same numbers."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None: ...


@dataclass(frozen=True, eq=False)
class Setup:
    """Everything that a method needs when it is made."""

    factors: Factors
    task: str
    context_names: tuple[str, ...] = ()
    dynamics: Dynamics | None = None
    rewards: Rewards = "learned"
    on: float = 1.0
    """A dependency is accepted when its evidence exceeds this multiple of the threshold ..."""
    off: float = 0.6
    """... and dropped when it falls below this multiple."""
    seed: int = 0
    truth: np.ndarray | None = None
    """(d, d+1) the world's true graph; for the oracle only."""
    truth_reward: np.ndarray | None = None
    """(d,) the true parents of the task's reward; for the oracle only."""
    options: Options | None = None
    """The record of the method's own options, according to the table; None for a method without options."""
    device: str = "cpu"
    """Device of the networks that are learned alongside the policy."""

    def known_dynamics(self, method: str) -> Dynamics:
        if self.dynamics is None:
            raise DataError(f"method {method!r} needs dynamics: a run of `cbm discover`, or ones learned jointly")
        check_same_names(self.dynamics.graph().variables, self.factors.names)
        return self.dynamics


def make_method(name: str, setup: Setup, options: Mapping[str, Any] | None = None) -> Method:
    """A method by its name, with its options by theirs; tasks that are given the same dynamics object share it."""
    chosen = method_options(name, options or {})
    if setup.rewards not in get_args(Rewards):
        raise unknown_name("unknown source of rewards", setup.rewards, get_args(Rewards))
    if not 0 < setup.off <= setup.on:
        raise DataError(f"the thresholds must satisfy 0 < off <= on, got on={setup.on:g} and off={setup.off:g}")
    module = importlib.import_module(f"cbm.abstraction.{name}")
    return cast(Method, module.make(replace(setup, options=chosen)))
