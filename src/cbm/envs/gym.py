"""The Gymnasium interface around one copy of a world.

    env = gymnasium.make("cbm/Contact-v0", task="stack", blocks=4, observation="dict")

With the same seed and actions it gives the same numbers as the vectorised world with one copy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal, get_args

import gymnasium
import numpy as np
from gymnasium import spaces

from cbm.checks import unknown_name
from cbm.envs.registry import make_world
from cbm.envs.world import World
from cbm.errors import DataError
from cbm.factors import Factors

Observation = Literal["box", "dict"]
Observed = np.ndarray | dict[str, np.ndarray]


class GymWorld(gymnasium.Env[Any, np.ndarray]):
    """One task in one copy of a world; `info["rewards"]` has the rewards of all its tasks.

    The reward is that of the state after the step. Episodes are truncated after `world.horizon` steps
    and never terminate.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        world: str | World,
        task: str | None = None,
        observation: Observation = "box",
        render_mode: None = None,
        **options: Any,
    ):
        """`task` is the world's first one when not given.

        `observation` is "box" for a vector in the order of `factors`, or "dict" for one entry of
        shape (1,) for each variable by its name, which flattens to the same vector. `options` go to
        the world when it is given by name.
        """
        if render_mode is not None:
            raise DataError(f"render_mode {render_mode!r}: worlds are not rendered, only None is possible")
        if observation not in get_args(Observation):
            raise unknown_name("unknown kind of observation", observation, get_args(Observation))
        if not isinstance(world, str) and options:
            raise DataError(f"options {', '.join(options)} are for a world that is given by its name")
        self.world = make_world(world, **options) if isinstance(world, str) else world
        if task is not None and task not in self.world.tasks:
            raise unknown_name("unknown task", task, self.world.tasks)
        self.task = self.world.tasks[0] if task is None else task
        self.render_mode = render_mode
        self.observation_space = _observation_space(self.factors, observation)
        self.action_space = spaces.Box(-1.0, 1.0, (self.world.action_size,), np.float32)
        self._state: np.ndarray | None = None  # (1, d) in physical units
        self._steps = 0

    @property
    def factors(self) -> Factors:
        """Names and kinds of the variables, in the order of the observation."""
        return self.world.factors

    @property
    def tasks(self) -> tuple[str, ...]:
        """All tasks of the world."""
        return self.world.tasks

    @property
    def true_graph(self) -> np.ndarray:
        """(d, d+1) booleans: [i, j] true when variable j at t causes i at t+1; the action comes last."""
        return self.world.truth.copy()

    @property
    def true_rewards(self) -> dict[str, np.ndarray]:
        """For each task the (d,) booleans of the variables its reward is computed from."""
        return {task: parents.copy() for task, parents in self.world.truth_rewards.items()}

    @property
    def state(self) -> np.ndarray:
        """(d,) the physical state, before any rescaling of the observation."""
        return self._current()[0].copy()

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """`options={"state": values}` starts from that physical state instead of a random one."""
        super().reset(seed=seed)
        given = dict(options or {})
        start = given.pop("state", None)
        if given:
            raise DataError(f"reset: unknown option {next(iter(given))!r}; the only one is 'state'")
        state = self.world.reset(1, self.np_random)  # drawn in any case: the numbers that follow stay the same
        if start is not None:
            state = _vector("reset: option 'state'", start, len(self.factors))[None]
        self._state, self._steps = state, 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        values = _vector("step: action", action, self.world.action_size)
        self._state = self.world.step(self._current(), values[None], self.np_random)
        self._steps += 1
        rewards = {task: float(reward[0]) for task, reward in self.world.rewards(self._state).items()}
        truncated = self._steps >= self.world.horizon
        return self._observe(), rewards[self.task], False, truncated, {"rewards": rewards}

    def _current(self) -> np.ndarray:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        return self._state

    def _observe(self) -> Observed:
        values = np.array(self.world.observe(self._current())[0], np.float64)
        if isinstance(self.observation_space, spaces.Box):
            return values
        return {name: values[i : i + 1] for i, name in enumerate(self.factors.names)}


def _observation_space(factors: Factors, kind: Observation) -> spaces.Space[Any]:
    """Bounds where the variables declare them."""
    low = np.array([-np.inf if v.low is None else v.low for v in factors.variables])
    high = np.array([np.inf if v.high is None else v.high for v in factors.variables])
    if kind == "box":
        return spaces.Box(low, high, dtype=np.float64)
    parts = ((name, spaces.Box(low[i], high[i], (1,), np.float64)) for i, name in enumerate(factors.names))
    return spaces.Dict(OrderedDict(parts))  # a plain dict would be sorted, and flatten to another order


def _vector(what: str, value: Any, size: int) -> np.ndarray:
    """A fresh vector of finite floats."""
    try:
        array = np.array(value, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{what} must hold {size} numbers") from None
    if array.shape != (size,):
        raise DataError(f"{what} has shape {array.shape}, expected ({size},)")
    if not np.isfinite(array).all():
        raise DataError(f"{what} is not finite at position {int(np.argmin(np.isfinite(array)))}")
    return array
