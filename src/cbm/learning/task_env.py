"""The environment of a policy: a built-in world by its name, or any Gymnasium environment by its id."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np

from cbm.data.factors import Factors
from cbm.envs.registry import WORLDS, make_world
from cbm.envs.world import Rng, World
from cbm.errors import DataError, unknown_name
from cbm.graph.rules import cbm_abstraction
from cbm.learning.vector_env import REWARD, EpisodeCounter, GymVectorEnv, VectorEnv, WorldVectorEnv, action_bounds

GYMNASIUM = "gymnasium:"
"""Prefix of the id of an environment that is not built in."""
DISTRACTORS = ("controllable distractor", "uncontrollable distractor")


class TaskEnv(Protocol):
    """An environment with its tasks: makes vector environments, and provides the true graph if it is known."""

    name: str
    factors: Factors
    context_names: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether the state of a vector environment can be saved, so that a resumed run gives the same results."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]: ...

    @property
    def world(self) -> World | None: ...

    @property
    def truth(self) -> np.ndarray | None:
        """(d, d+1) the graph that the oracle uses: the paper's if the world has it, otherwise the physical one."""
        ...

    @property
    def truth_rewards(self) -> Mapping[str, np.ndarray]: ...

    def vector_env(
        self, copies: int, rng: Rng, counter: EpisodeCounter | None = None, staggered: bool = False
    ) -> VectorEnv: ...


class WorldTaskEnv:
    """A built-in world."""

    exact = True

    def __init__(self, name: str, options: Mapping[str, Any] | None = None, world: World | None = None):
        """`world`: the world itself, if it exists already."""
        self.name = name
        self.world: World = world if world is not None else make_world(name, **(options or {}))
        self.factors, self.tasks = self.world.factors, self.world.tasks
        self.context_names = self.world.context_names
        if self.factors.discrete_actions is not None:
            raise DataError(f"{name}: its actions are discrete, policies are learned for continuous ones only")
        self.truth: np.ndarray | None = self.world.truths.get("paper", self.world.truth)
        self.truth_rewards: Mapping[str, np.ndarray] = self.world.truth_rewards

    def vector_env(
        self, copies: int, rng: Rng, counter: EpisodeCounter | None = None, staggered: bool = False
    ) -> VectorEnv:
        return WorldVectorEnv(self.world, copies, rng, counter, staggered)


class GymTaskEnv:
    """Any Gymnasium environment whose actions are a Box; its only task is `reward`."""

    exact = False
    tasks = (REWARD,)
    context_names: tuple[str, ...] = ()
    world: World | None = None
    truth: np.ndarray | None = None

    def __init__(self, name: str, options: Mapping[str, Any] | None = None):
        """The option `names` names the variables; otherwise the environment's spaces or its `variable_names` do."""
        self.name = name
        given = dict(options or {})
        names = given.pop("names", None)
        self.make = partial(gymnasium.make, name.removeprefix(GYMNASIUM), **given)
        try:
            env = self.make()
        except gymnasium.error.Error as error:
            raise DataError(f"{name}: {error}") from None
        except (TypeError, ValueError, AssertionError, LookupError, ImportError) as error:
            # an unknown option or value, or a module that is not installed
            raise DataError(f"{name}: cannot be made ({type(error).__name__}: {error})") from None
        action_bounds(env.action_space)
        names = names or getattr(env.unwrapped, "variable_names", None)
        try:
            self.factors = Factors.from_spaces(env.observation_space, env.action_space, names)
        except DataError as error:
            raise DataError(f"{name}: {error}") from None
        self.truth_rewards: Mapping[str, np.ndarray] = {}
        env.close()

    def vector_env(
        self, copies: int, rng: Rng, counter: EpisodeCounter | None = None, staggered: bool = False
    ) -> VectorEnv:
        return GymVectorEnv(self.make, copies, rng, counter)


def make_task_env(name: str, options: Mapping[str, Any] | None = None) -> TaskEnv:
    """`contact`, `block`, ... or `gymnasium:ID`."""
    if name.startswith(GYMNASIUM):
        return GymTaskEnv(name, options)
    if name not in WORLDS and name in gymnasium.registry:
        raise DataError(f"unknown world {name!r}; for the Gymnasium environment write {GYMNASIUM}{name}")
    return WorldTaskEnv(name, options)


def check_task(task_env: TaskEnv, task: str) -> None:
    if task not in task_env.tasks:
        raise unknown_name(f"{task_env.name}: unknown task", task, task_env.tasks)


def oracle(task_env: TaskEnv, task: str) -> np.ndarray | None:
    """(d,) booleans: the variables that the task needs according to the true graph; None if that is unknown."""
    if task_env.truth is None or task not in task_env.truth_rewards:
        return None
    return cbm_abstraction(task_env.truth, task_env.truth_rewards[task])


def distractors(factors: Factors) -> np.ndarray:
    """(d,) booleans: variables that serve as distractors, including markers."""
    return np.array([v.group in DISTRACTORS or v.group.startswith("marker") for v in factors.variables])
