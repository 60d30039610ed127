"""What a built-in world is: a batch of factored systems stepped at once, with its true graph.

A world is a pure function of (state, action, random numbers). `GymWorld` in `gym.py` puts the
Gymnasium interface around one copy; `collect.py` steps many at a time to make data; `verify.py` finds
the graph of one by intervention. `WorldBase` has what most worlds have in common. Also here: the
checks of options, policy names and values that worlds share.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol, cast

import numpy as np

from cbm.checks import is_number
from cbm.data.factors import Factors
from cbm.errors import DataError

Rng = np.random.Generator
Policy = Callable[[np.ndarray, Rng], np.ndarray]
"""Maps full states (n, S) to actions (n, a); may keep per-copy memory of what it is doing."""


class World(Protocol):
    """n independent copies of one factored system; states are (n, S) arrays in physical units.

    A state may hold more than the d variables: the full state of a simulator, a goal, what touched what
    in the last step. Everything random comes from the generator that is passed in, and a call draws the
    same amount of numbers whatever the state is, so that two states stepped with equal generators
    differ only by what the difference of the states causes.
    """

    factors: Factors
    """Names and kinds of the d variables and of the action."""
    action_size: int
    """Actions are (n, action_size) arrays; floats outside [-1, 1] are clipped. Where
    `factors.discrete_actions` is a number, they are (n, 1) integers."""
    horizon: int
    """Steps of an episode. Episodes end by this limit only, so the end is a truncation."""
    truth: np.ndarray
    """(d, d+1) booleans: [i, j] true when variable j at t causes variable i at t+1; the action comes last."""
    truth_rewards: dict[str, np.ndarray]
    """For each task the (d,) booleans of the variables its reward is computed from."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Every task's reward is computed at every step, so one data set serves them all."""
        ...

    @property
    def policies(self) -> tuple[str, ...]:
        """Names that `policy` takes; every world has `random` and `mixed`."""
        ...

    @property
    def state_size(self) -> int:
        """S, the number of columns of a state."""
        ...

    @property
    def context_names(self) -> tuple[str, ...]:
        """Names of the columns of `context`."""
        ...

    @property
    def truths(self) -> dict[str, np.ndarray]:
        """Graphs by name; `physical` is `truth`, what interventions show."""
        ...

    @property
    def settable(self) -> np.ndarray:
        """(d,) booleans: the variables that `intervene` can set."""
        ...

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest possible value (d,) of each variable as observed, infinite where there is none."""
        ...

    @property
    def frames_per_second(self) -> int:
        """Steps in a second, for moving pictures in real time."""
        ...

    @property
    def parallel(self) -> bool:
        """Stepping is slow enough that collecting data in several processes pays."""
        ...

    @property
    def metres(self) -> np.ndarray | None:
        """(d,) metres in one unit of each variable that is a coordinate of an object, nan for others; None where
        the world has no such unit."""
        ...

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        """Starting states (n, S)."""
        ...

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        """Next states (n, S) of the n copies."""
        ...

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """Reward of each task (n,), computed on the state after the step."""
        ...

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """(n,) booleans for each task that can succeed: it has, in this state."""
        ...

    def events(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """(n,) booleans of what happens in a state and is worth counting, such as `block0 held`."""
        ...

    def observe(self, state: np.ndarray) -> np.ndarray:
        """The d variables (n, d), as a sensor reports them."""
        ...

    def context(self, state: np.ndarray) -> np.ndarray:
        """(n, c) values that rewards and policies may see and that are never modelled or masked: a goal, say."""
        ...

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        """A copy in which one variable has these values (n,), as observed, and all others are as before."""
        ...

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        """A data-collecting policy for n copies."""
        ...


class DrawnWorld(World, Protocol):
    """A world that can draw itself."""

    def render(self, state: np.ndarray, width: int, height: int) -> np.ndarray:
        """One state (S,) as a picture (height, width, 3) of bytes."""
        ...


class WorldBase:
    """What holds for a world unless it says otherwise: its state is what is observed, and nothing else."""

    factors: Factors
    truth: np.ndarray
    context_names: tuple[str, ...] = ()
    frames_per_second: int = 20
    parallel: bool = False
    metres: np.ndarray | None = None

    @cached_property
    def state_size(self) -> int:
        return len(self.factors)

    @cached_property
    def truths(self) -> dict[str, np.ndarray]:
        return {"physical": self.truth}

    @cached_property
    def settable(self) -> np.ndarray:
        return np.ones(len(self.factors), dtype=bool)

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        variables = self.factors.variables
        low = np.array([-np.inf if v.low is None else v.low for v in variables])
        high = np.array([np.inf if v.high is None else v.high for v in variables])
        return low, high

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {}

    def events(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {}

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state

    def context(self, state: np.ndarray) -> np.ndarray:
        return np.zeros((len(state), 0))

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        self.check_settable(variable)
        check_values(self.factors, self.bounds, variable, value)
        changed = state.copy()
        changed[:, variable] = value
        return changed

    def check_hidden(self, state: np.ndarray) -> None:
        """Refuse states (n, S) in which something that is not observed has a value that it cannot have."""

    def check_settable(self, variable: int) -> None:
        if 0 <= variable < len(self.factors) and not self.settable[variable]:
            raise DataError(f"variable {self.factors.names[variable]!r} follows from others and cannot be set")


def drawn(world: World, name: str = "this world") -> DrawnWorld:
    """The world itself, when it can draw itself."""
    if not callable(getattr(world, "render", None)):
        raise DataError(f"{name}: has no picture of itself to render")
    return cast(DrawnWorld, world)


def check_values(
    factors: Factors, bounds: tuple[np.ndarray, np.ndarray], variable: int, value: np.ndarray, what: str = "intervene"
) -> None:
    """Refuse values of a variable, as observed, that no state has, and variables that are none."""
    if not 0 <= variable < len(factors):
        raise DataError(f"{what}: there is no variable number {variable}; they are 0 to {len(factors) - 1}")
    values = np.atleast_1d(np.asarray(value, float))
    low, high = float(bounds[0][variable]), float(bounds[1][variable])
    slack = 1e-9 * max((abs(bound) for bound in (low, high) if np.isfinite(bound)), default=0.0)  # rounding
    bad = ~np.isfinite(values) | (values < low - slack) | (values > high + slack)
    limited = np.isfinite([low, high]).any()
    described = f"outside its range [{low:g}, {high:g}]" if limited else "not a finite number"
    if factors.kinds[variable] in ("binary", "categorical") and not bad.any():
        bad, described = values != np.round(values), "not a whole number"
    if bad.any():
        row = int(np.argmax(bad))
        where = f", row {row}" if len(values) > 1 else ""
        raise DataError(f"{what}: variable {factors.names[variable]!r}{where}: {values[row]:g} is {described}")


def whole_number(world: str, option: str, value: object, at_least: int) -> int:
    """An option that counts something; True and 2.5 are mistakes, not counts."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= at_least:
        return int(value)
    raise DataError(f"{world}: option {option!r} must be a whole number >= {at_least}, not {value!r}")


def real_number(world: str, option: str, value: object, above: float, at_most: float) -> float:
    """An option that measures something."""
    plain = value.item() if isinstance(value, np.integer | np.floating) else value
    size = float(plain) if is_number(plain) else np.nan
    if above < size <= at_most:
        return size
    raise DataError(f"{world}: option {option!r} must be a number > {above:g} and <= {at_most:g}, not {value!r}")


def yes_or_no(world: str, option: str, value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise DataError(f"{world}: option {option!r} must be True or False, not {value!r}")
    return bool(value)


def check_policy(world: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise DataError(f"{world}: unknown policy {name!r}; choose one of {', '.join(known)}")
