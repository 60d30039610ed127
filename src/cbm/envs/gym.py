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

from cbm.data.factors import Factors
from cbm.envs.registry import make_world
from cbm.envs.world import World, check_values, drawn, whole_number, yes_or_no
from cbm.errors import DataError, unknown_name

Observation = Literal["box", "dict"]
Observed = np.ndarray | dict[str, np.ndarray]


class GymWorld(gymnasium.Env[Any, np.ndarray]):
    """One task in one copy of a world; `info["rewards"]` has the rewards of all its tasks.

    The reward is that of the state after the step. `info["success"]` says for each task that can succeed
    whether it has, `info["context"]` has what the world calls its context (a goal, say), where there is one.
    Episodes are truncated after `world.horizon` steps and never terminate.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        world: str | World,
        task: str | None = None,
        observation: Observation = "box",
        render_mode: str | None = None,
        show_context: bool = False,
        width: int = 320,
        height: int = 240,
        **options: Any,
    ):
        """`task` is the world's first one when not given.

        `observation` is "box" for a vector in the order of `factors`, or "dict" for one entry of
        shape (1,) for each variable by its name, which flattens to the same vector. `show_context` adds
        the context after the variables. `render_mode="rgb_array"` makes `render` give pictures of `width`
        times `height` points. `options` go to the world when it is given by name.
        """
        if render_mode not in (None, "rgb_array"):
            raise DataError(f"render_mode {render_mode!r}: only 'rgb_array' and None are possible")
        if observation not in get_args(Observation):
            raise unknown_name("unknown kind of observation", observation, get_args(Observation))
        if not isinstance(world, str) and options:
            raise DataError(f"options {', '.join(options)} are for a world that is given by its name")
        self.world = make_world(world, **options) if isinstance(world, str) else world
        if task is not None and task not in self.world.tasks:
            raise unknown_name("unknown task", task, self.world.tasks)
        self.task = self.world.tasks[0] if task is None else task
        can_render = callable(getattr(self.world, "render", None))
        if render_mode is not None:
            drawn(self.world, f"render_mode {render_mode!r}")
        self.metadata = {
            "render_modes": ["rgb_array"] if can_render else [],
            "render_fps": self.world.frames_per_second,
        }
        self.render_mode = render_mode
        self.width, self.height = (
            whole_number("environment", name, side, at_least=1) for name, side in (("width", width), ("height", height))
        )
        self.show_context = yes_or_no("environment", "show_context", show_context)
        self.observation_space = _observation_space(self.factors, observation, self.shown_context)
        self.action_space = _action_space(self.world)
        self._state: np.ndarray | None = None  # (1, S) in physical units
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
    def shown_context(self) -> tuple[str, ...]:
        """Names of the columns that the observation has after the variables: none unless `show_context`."""
        return self.world.context_names if self.show_context else ()

    @property
    def state(self) -> np.ndarray:
        """(S,) the full state in physical units, hidden parts included."""
        return self._current()[0].copy()

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observed, dict[str, Any]]:
        """`options={"state": values}` starts from that full state, as `state` gives it, and not a random one."""
        super().reset(seed=seed)
        given = dict(options or {})
        start = given.pop("state", None)
        if given:
            raise DataError(f"reset: unknown option {next(iter(given))!r}; the only one is 'state'")
        state = self.world.reset(1, self.np_random)  # drawn in any case: the numbers that follow stay the same
        if start is not None:
            state = _vector("reset: option 'state'", start, self.world.state_size)[None]
            observed = self.world.observe(state)
            for variable in range(len(self.factors)):
                check_values(self.factors, self.world.bounds, variable, observed[:, variable], "reset: option 'state'")
            getattr(self.world, "check_hidden", lambda state: None)(state)
        self._state, self._steps = state, 0
        return self._observe(), self._context_info()

    def step(self, action: np.ndarray) -> tuple[Observed, float, bool, bool, dict[str, Any]]:
        values = self._action(action)
        self._state = self.world.step(self._current(), values[None], self.np_random)
        self._steps += 1
        rewards = {task: float(reward[0]) for task, reward in self.world.rewards(self._state).items()}
        success = {task: bool(reached[0]) for task, reached in self.world.success(self._state).items()}
        info = {"rewards": rewards, "success": success, **self._context_info()}
        truncated = self._steps >= self.world.horizon
        return self._observe(), rewards[self.task], False, truncated, info

    def render(self) -> np.ndarray | None:
        """A picture (height, width, 3) of the current state."""
        if self.render_mode is None:
            return None
        return drawn(self.world).render(self._current()[0], self.width, self.height)

    def _action(self, action: Any) -> np.ndarray:
        """One row for the world: floats, or the number of a discrete action."""
        count = self.factors.discrete_actions
        if count is None:
            return _vector("step: action", action, self.world.action_size)
        value = _vector("step: action", np.atleast_1d(action), 1)
        if value[0] != np.round(value[0]) or not 0 <= value[0] < count:
            raise DataError(f"step: action {value[0]:g} is not a whole number from 0 to {count - 1}")
        return value.astype(np.int64)

    def _context_info(self) -> dict[str, Any]:
        return {"context": self._context()} if self.world.context_names else {}

    def _context(self) -> np.ndarray:
        return np.array(self.world.context(self._current())[0], np.float64)

    def _current(self) -> np.ndarray:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset before the first step")
        return self._state

    def _observe(self) -> Observed:
        values = np.array(self.world.observe(self._current())[0], np.float64)
        if self.shown_context:
            values = np.concatenate([values, self._context()])
        if isinstance(self.observation_space, spaces.Box):
            return values
        names = (*self.factors.names, *self.shown_context)
        return {name: values[i : i + 1] for i, name in enumerate(names)}


def _observation_space(factors: Factors, kind: Observation, context: tuple[str, ...]) -> spaces.Space[Any]:
    """Bounds where the variables declare them."""
    unbounded = [np.inf] * len(context)
    low = np.array([-np.inf if v.low is None else v.low for v in factors.variables] + [-bound for bound in unbounded])
    high = np.array([np.inf if v.high is None else v.high for v in factors.variables] + unbounded)
    if kind == "box":
        return spaces.Box(low, high, dtype=np.float64)
    names = (*factors.names, *context)
    parts = ((name, spaces.Box(low[i], high[i], (1,), np.float64)) for i, name in enumerate(names))
    return spaces.Dict(OrderedDict(parts))  # a plain dict would be sorted, and flatten to another order


def _action_space(world: World) -> spaces.Space[Any]:
    if world.factors.discrete_actions is not None:
        return spaces.Discrete(world.factors.discrete_actions)
    return spaces.Box(-1.0, 1.0, (world.action_size,), np.float32)


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
