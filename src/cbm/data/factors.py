"""The meaning of a log's columns: named variables with a kind, and the action.

`Variable` is one state variable; `Factors` is the ordered list of them together with the action. Both come from a
Gymnasium space, from JSON, or from the names in a file. The data itself is in `cbm.data.transitions`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np

from cbm.checks import is_number
from cbm.errors import DataError

Kind = Literal["continuous", "angle", "binary", "categorical"]
KINDS: tuple[Kind, ...] = get_args(Kind)

ACTION = "action"
"""Name of the last column of every graph; no state variable may have it."""

MAX_CATEGORIES = 16
"""A variable with more distinct values is never inferred to be categorical."""
MIN_ROWS_CATEGORICAL = 200
"""Rows needed to infer a categorical variable: in a short log, few values of a continuous one may repeat by chance."""
MIN_COUNT_CATEGORICAL = 5
"""Every category must occur at least this often; otherwise the variable counts as continuous."""
MAX_DISCRETE_ACTIONS = 10_000
"""More distinct integer actions than this are a quantity, not a discrete action."""

_UNBOUNDED = 1e15
"""Spaces represent "no bound" by infinity or by the largest float; both are larger than this."""


@dataclass(frozen=True)
class Variable:
    """One state variable."""

    name: str
    """Unique in its `Factors`; printable, without outer spaces."""
    kind: Kind = "continuous"
    """How its values are modelled."""
    group: str = ""
    """The object it belongs to, such as `gripper`; empty if it belongs to none."""
    low: float | None = None
    """Smallest possible value, where known."""
    high: float | None = None
    """Largest possible value, where known."""

    def __post_init__(self) -> None:
        check_name(self.name, "variable")
        if self.name == ACTION:
            raise DataError(f"variable name {ACTION!r} is reserved for the action")
        if self.kind not in KINDS:
            raise DataError(f"variable {self.name!r}: unknown kind {self.kind!r} (one of {', '.join(KINDS)})")
        if self.group:
            check_name(self.group, f"group of variable {self.name!r}:")
        for bound in (self.low, self.high):
            if bound is not None and not _is_finite_number(bound):
                raise DataError(f"variable {self.name!r}: bound {bound!r} is not a finite number")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise DataError(f"variable {self.name!r}: low {self.low} is above high {self.high}")


@dataclass(frozen=True)
class Factors:
    """The state variables in the order of the columns of `obs`, and the action."""

    variables: tuple[Variable, ...]
    """State variables, one for each column of `obs`."""
    action_names: tuple[str, ...]
    """One name for each column of `action`."""
    discrete_actions: int | None = None
    """n when the action is one integer in 0..n-1, None when it is a vector of floats."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "variables", tuple(self.variables))
        object.__setattr__(self, "action_names", tuple(self.action_names))
        if not self.variables:
            raise DataError("there is no state variable")
        if not self.action_names:
            raise DataError("there is no action column")
        for name in self.action_names:
            check_name(name, ACTION)
        _check_unique(self.names, "variable")
        _check_unique(self.action_names, ACTION)
        if self.discrete_actions is not None:
            self._check_discrete(self.discrete_actions)

    def _check_discrete(self, count: int) -> None:
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise DataError(f"discrete_actions must be a whole number of at least 1, not {count!r}")
        if count > MAX_DISCRETE_ACTIONS:
            raise DataError(
                f"{count} discrete actions are more than {MAX_DISCRETE_ACTIONS}: "
                "store the action as floats if it is a quantity"
            )
        if len(self.action_names) != 1:
            raise DataError(f"a discrete action has one column, not {len(self.action_names)}")
        object.__setattr__(self, "discrete_actions", int(count))

    def __len__(self) -> int:
        return len(self.variables)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variable.name for variable in self.variables)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(variable.kind for variable in self.variables)

    def index(self, name: str) -> int:
        """Column of a variable; an unknown name is an error that lists the closest ones."""
        names = self.names
        if name in names:
            return names.index(name)
        close = difflib.get_close_matches(str(name), names, n=3)
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else f"there are {len(names)} variables"
        raise DataError(f"no variable is called {name!r}: {hint}")

    def groups(self) -> dict[str, list[int]]:
        """Columns by group, in order; a variable without a group forms its own, under its name."""
        columns: dict[str, list[int]] = {}
        for column, variable in enumerate(self.variables):
            columns.setdefault(variable.group or variable.name, []).append(column)
        return columns

    @classmethod
    def from_spaces(cls, observation_space: Any, action_space: Any, names: Sequence[str] | None = None) -> Factors:
        """Factors of a Gymnasium environment, in the order of `gymnasium.spaces.utils.flatten`.

        A Dict gives `key_0`, `key_1`, ... (just `key` for one value) with the key as group; a bare Box gives `obs_0`,
        `obs_1`, .... A Discrete part is one-hot, as in `flatten`: one binary variable per value. `names` replaces all
        of these names.
        """
        from gymnasium import spaces

        variables: list[Variable] = []
        if isinstance(observation_space, spaces.Dict):
            for key, part in observation_space.spaces.items():
                variables += _variables_of(str(key), str(key), part)
        else:
            variables += _variables_of("obs", "", observation_space)
        if names is not None:
            if len(names) != len(variables):
                raise DataError(f"{len(names)} names for {len(variables)} variables of the observation space")
            variables = [
                Variable(name, v.kind, v.group, v.low, v.high) for name, v in zip(names, variables, strict=True)
            ]
        if isinstance(action_space, spaces.Box):
            return cls(tuple(variables), default_names(ACTION, math.prod(action_space.shape)))
        if isinstance(action_space, spaces.Discrete) and action_space.start == 0:
            return cls(tuple(variables), (ACTION,), int(action_space.n))
        raise DataError(f"action space {_one_line(action_space)} is not supported (Box, or Discrete that starts at 0)")

    def to_json(self) -> dict[str, Any]:
        return {
            "variables": [asdict(variable) for variable in self.variables],
            "action_names": list(self.action_names),
            "discrete_actions": self.discrete_actions,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Factors:
        """The inverse of `to_json`; missing, unknown or ill-typed entries raise a DataError."""
        try:
            unknown = set(data) - {"variables", "action_names", "discrete_actions"}
            if unknown:
                raise DataError(f"unknown keys in factors: {', '.join(sorted(map(repr, unknown)))}")
            variables = tuple(Variable(**entry) for entry in data["variables"])
            actions = data["action_names"]
            if isinstance(actions, str):
                raise DataError("action_names must be a list of names")
            return cls(variables, tuple(actions), data.get("discrete_actions"))
        except KeyError as error:
            raise DataError(f"factors have no key {error}") from None
        except (TypeError, AttributeError) as error:
            raise DataError(f"factors cannot be read: {error}") from None


def default_names(prefix: str, count: int) -> tuple[str, ...]:
    """`prefix` alone for one column, otherwise `prefix_0`, `prefix_1`, ...."""
    return (prefix,) if count == 1 else tuple(f"{prefix}_{i}" for i in range(count))


def check_name(name: object, what: str) -> None:
    """Names appear in file headers, graph formats and terminals, so they must be plain text."""
    if not isinstance(name, str):
        raise DataError(f"{what} name {name!r} is not text")
    if not name.strip():
        raise DataError(f"{what} name {name!r} is empty")
    if not name.isprintable():
        raise DataError(f"{what} name {name!r} has a newline, control or other unprintable character")
    if name != name.strip():
        raise DataError(f"{what} name {name!r} starts or ends with a space")


def infer_kinds(obs: np.ndarray, next_obs: np.ndarray) -> tuple[Kind, ...]:
    """Kind of each column from its distinct values in both arrays; the values need not be integers.

    Up to 2 distinct values are binary; up to 16, in a log of at least 200 rows and each at least 5 times,
    are categorical; everything else is continuous. Counting makes this independent of scale and offset.
    Angles are never inferred: an angle has to be declared.
    """
    return tuple(_infer_kind(np.concatenate([obs[:, i], next_obs[:, i]])) for i in range(obs.shape[1]))


def _infer_kind(values: np.ndarray) -> Kind:
    # Most columns are continuous, and a small sample shows that without sorting the whole column.
    sample = values[:: max(1, len(values) // 256)]
    if len(np.unique(sample)) > MAX_CATEGORIES:
        return "continuous"
    counts: list[int] = []
    rest = values
    while len(rest):
        if len(counts) == MAX_CATEGORIES:
            return "continuous"
        others = rest[rest != rest[0]]
        counts.append(len(rest) - len(others))
        rest = others
    return kind_of_counts(counts, len(values))


def kind_of_counts(counts: Sequence[int], values: int) -> Kind:
    """Kind of a variable with at most 16 distinct values; `counts` says how often each occurs in obs and next_obs."""
    if len(counts) <= 2:
        return "binary"
    enough_rows = values >= 2 * MIN_ROWS_CATEGORICAL  # every row counts twice: in obs and in next_obs
    return "categorical" if enough_rows and min(counts) >= MIN_COUNT_CATEGORICAL else "continuous"


def _variables_of(key: str, group: str, space: Any) -> list[Variable]:
    """Variables of one part of an observation space, in the order in which it is flattened."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        lows, highs = space.low.ravel().tolist(), space.high.ravel().tolist()
        whole = bool(np.issubdtype(space.dtype, np.integer))
        names = default_names(key, len(lows))
        return [
            Variable(name, _kind_of_range(low, high, whole), group, _bound(low), _bound(high))
            for name, low, high in zip(names, lows, highs, strict=True)
        ]
    if isinstance(space, spaces.Discrete | spaces.MultiBinary):
        count = int(space.n) if isinstance(space, spaces.Discrete) else math.prod(space.shape)
        return [Variable(name, "binary", group, 0.0, 1.0) for name in default_names(key, count)]
    raise DataError(
        f"observation {key!r}: space {_one_line(space)} is not supported "
        "(Box, Discrete, MultiBinary, or a Dict of these)"
    )


def _kind_of_range(low: float, high: float, whole: bool) -> Kind:
    if not whole or high - low >= MAX_CATEGORIES:
        return "continuous"
    return "binary" if high - low <= 1 else "categorical"


def _bound(value: float) -> float | None:
    return float(value) if abs(value) < _UNBOUNDED else None


def _is_finite_number(value: object) -> bool:
    return is_number(value.item() if isinstance(value, np.integer | np.floating) else value)


def _check_unique(names: Sequence[str], what: str) -> None:
    first: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in first:
            raise DataError(f"{what} name {name!r} is used twice: columns {first[name]} and {position}")
        first[name] = position


def _one_line(space: object) -> str:
    return " ".join(str(space).split())
