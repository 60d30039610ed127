"""What every method of choosing a policy's variables can do; `table.py` lists the methods.

A method looks at the experience now and then, and has at any time a mask over the d state variables. Its module is
imported when the method is made: each has a function `make(setup) -> Method`. No torch is imported here.
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
"""Where a reward's parents come from: the run that the dynamics come from, or a model learned beside the policy."""


class Experience(Protocol):
    """What a method may learn from; it grows between two looks at it."""

    def transitions(self, held_out: bool) -> Transitions:
        """All rows so far, in the order in which they came, with rewards of all tasks and the context: those of
        episodes to learn from, or of episodes to measure on."""
        ...


class Dynamics(Protocol):
    """The causal graph of the dynamics; one object serves all tasks."""

    frozen: bool
    """Whether `learn` does nothing: the graph was found before."""

    def graph(self) -> CausalGraph:
        """As it stands; before there is evidence no edge is excluded."""
        ...

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        """Some gradient updates and one evaluation of the dependencies; numbers for the log."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that changes: after `restore` of it, learning goes on with equal numbers."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None: ...


class Method(Protocol):
    """Chooses the state variables that one task's policy sees."""

    name: str

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        """Some gradient updates and one evaluation; numbers for the log, {} where there is nothing to learn.

        Shared dynamics are not touched: whoever owns them calls their `learn` first, once for all tasks.
        """
        ...

    def mask(self) -> np.ndarray:
        """(d,) booleans, the abstraction as it now stands; everything while there is no evidence."""
        ...

    def graph(self) -> CausalGraph | None:
        """The graph that the mask was read from, with this task's reward, for methods that have one."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """Everything that changes: after `restore` of it, learning goes on with equal numbers."""
        ...

    def restore(self, tensors: Mapping[str, Tensor]) -> None: ...


@dataclass(frozen=True, eq=False)
class Setup:
    """What a method is told when it is made."""

    factors: Factors
    task: str
    context_names: tuple[str, ...] = ()
    dynamics: Dynamics | None = None
    rewards: Rewards = "learned"
    on: float = 1.0
    """A dependency is taken up when its evidence exceeds this many thresholds …"""
    off: float = 0.6
    """… and given up when it falls below this many."""
    seed: int = 0
    truth: np.ndarray | None = None
    """(d, d+1) the world's true graph; for the oracle only."""
    truth_reward: np.ndarray | None = None
    """(d,) the true parents of the task's reward; for the oracle only."""
    options: Options | None = None
    """The record of the method's own options, as the table says; None for methods that have none."""
    device: str = "cpu"
    """Where networks compute that are learned beside the policy."""

    def known_dynamics(self, method: str) -> Dynamics:
        if self.dynamics is None:
            raise DataError(f"method {method!r} needs dynamics: a run of `cbm discover`, or ones learned jointly")
        check_same_names(self.dynamics.graph().variables, self.factors.names)
        return self.dynamics


def make_method(name: str, setup: Setup, options: Mapping[str, Any] | None = None) -> Method:
    """A method by its name, with its options by theirs; tasks share dynamics when they are given the same object."""
    chosen = method_options(name, options or {})
    if setup.rewards not in get_args(Rewards):
        raise unknown_name("unknown source of rewards", setup.rewards, get_args(Rewards))
    if not 0 < setup.off <= setup.on:
        raise DataError(f"the thresholds must satisfy 0 < off <= on, got on={setup.on:g} and off={setup.off:g}")
    module = importlib.import_module(f"cbm.abstraction.{name}")
    return cast(Method, module.make(replace(setup, options=chosen)))
