"""What every method of choosing a policy's variables can do, and the table of methods.

A method looks at the experience now and then, and has at any time a mask over the d state variables. Its module is
imported when the method is made: each has a function `make(setup) -> Method`. No torch is imported here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, get_args

import numpy as np

from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.errors import DataError, unknown_name
from cbm.graph import CausalGraph
from cbm.graph.checks import check_same_names

if TYPE_CHECKING:
    from torch import Tensor

METHODS = {
    "cbm": "cbm.abstraction.cbm",
    "cdl": "cbm.abstraction.cdl",
    "tia": "cbm.abstraction.tia",
    "denoised": "cbm.abstraction.denoised",
    "icp": "cbm.abstraction.icp",
    "oracle": "cbm.abstraction.oracle",
    "full": "cbm.abstraction.full",
}
"""Module of each method, by the name on the command line."""

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
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of single methods; each checks its own with `check_options`."""

    def known_dynamics(self, method: str) -> Dynamics:
        if self.dynamics is None:
            raise DataError(f"method {method!r} needs dynamics: a run of `cbm discover`, or ones learned jointly")
        check_same_names(self.dynamics.graph().variables, self.factors.names)
        return self.dynamics

    def check_options(self, method: str, known: tuple[str, ...] = ()) -> None:
        for option in self.options:
            if option not in known:
                raise unknown_name(f"method {method!r}: unknown option", option, known)


def make_method(
    name: str,
    *,
    factors: Factors,
    task: str,
    context_names: tuple[str, ...] = (),
    dynamics: Dynamics | None = None,
    rewards: Rewards = "learned",
    on: float = 1.0,
    off: float = 0.6,
    seed: int = 0,
    truth: np.ndarray | None = None,
    truth_reward: np.ndarray | None = None,
    options: Mapping[str, Any] | None = None,
) -> Method:
    """A method by its name; tasks share dynamics when they are given the same object."""
    if name not in METHODS:
        raise unknown_name("unknown method", name, METHODS)
    if rewards not in get_args(Rewards):
        raise unknown_name("unknown source of rewards", rewards, get_args(Rewards))
    if not 0 < off <= on:
        raise DataError(f"the thresholds must satisfy 0 < off <= on, got on={on:g} and off={off:g}")
    setup = Setup(
        factors, task, tuple(context_names), dynamics, rewards, on, off, seed, truth, truth_reward, dict(options or {})
    )
    module = importlib.import_module(METHODS[name])
    return cast(Method, module.make(setup))
