"""Checks of the arrays of a log, each with a one-line message that names array, variable and row.

Every function takes an array from a file or a user and returns it in the type that `cbm.data.transitions.Transitions`
stores, or raises a `DataError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cbm.data.factors import ACTION, Factors, Variable, check_name, default_names, infer_kinds
from cbm.data.readers.common import check_memory
from cbm.errors import DataError

MIN_ROWS = 2
"""A single row can neither be split nor show any variation."""
LARGEST = 1e15
"""Larger values stand for "missing" or "unbounded" in the logs that contain them."""
BEYOND = f"is beyond {LARGEST:g}; does it stand for a missing value?"

_REQUIRED = ("obs", "action", "next_obs")
_NEAR_MISSES = {
    "observations": "obs", "observation": "obs", "states": "obs", "state": "obs",
    "next_observations": "next_obs", "next_observation": "next_obs", "next_states": "next_obs",
    "next_state": "next_obs", "obs_next": "next_obs", "actions": "action", "act": "action",
    "rewards": "reward", "terminals": "terminated", "done": "terminated", "dones": "terminated",
    "timeouts": "truncated", "episodes": "episode",
}  # fmt: skip


def with_names_of_frames(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Take the names of variables and actions from the columns of data frames, unless they are given otherwise."""
    if not isinstance(arrays, Mapping):
        raise TypeError(f"expected a dictionary of arrays by name, got {type(arrays).__name__}")
    named = dict(arrays)
    for part, names in (("obs", "names"), ("action", "action_names")):
        columns = getattr(arrays.get(part), "columns", None)
        if names not in named and columns is not None:
            named[names] = np.array([str(name) for name in columns])
    return named


def check_present(arrays: Mapping[str, Any]) -> None:
    """Check that the three required arrays exist; other common spellings are pointed out."""
    missing = [repr(name) for name in _REQUIRED if name not in arrays]
    if not missing:
        return
    found = [repr(name) for name in sorted(arrays)]
    listed = ", ".join(found[:20] + (["..."] if len(found) > 20 else [])) or "no arrays"
    hints = "".join(
        f"; found {name!r}: did you mean {meant!r}?"
        for name in sorted(arrays)
        if (meant := _meant(name)) and meant not in arrays
    )
    raise DataError(f"missing array{'s'[: len(missing) - 1]} {', '.join(missing)} (found: {listed}){hints}")


def _meant(name: str) -> str | None:
    contract = (*_REQUIRED, "reward", "terminated", "truncated", "episode")
    if name in contract or name.startswith(("reward_", "context_", "truth")):
        return None
    close = difflib.get_close_matches(name.lower(), contract, n=1, cutoff=0.75)
    return _NEAR_MISSES.get(name.lower()) or (close[0] if close else None)


def numbers(name: str, value: Any) -> np.ndarray:
    """An array of any real dtype; text, dates, objects, records and complex numbers are refused."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise DataError(f"array {name!r} is ragged: its rows differ in length") from None
    if array.dtype.kind == "O":
        raise DataError(f"array {name!r} is an object array; object arrays are not read")
    if array.dtype.kind not in "fiub":
        raise DataError(f"array {name!r} is not numeric: its dtype is {_dtype(array)}")
    return array


def row_count(obs: Any) -> int:
    array = numbers("obs", obs)
    if array.ndim != 2:
        raise DataError(f"array 'obs' has shape {array.shape}, expected two dimensions: (rows, variables)")
    if array.shape[1] == 0:
        raise DataError(f"array 'obs' has shape {array.shape}: it has no columns")
    if len(array) < MIN_ROWS:
        raise DataError(f"array 'obs' has shape {array.shape}: at least {MIN_ROWS} rows are needed")
    return len(array)


def table(name: str, value: Any, shape: tuple[int, int], columns: Sequence[str]) -> np.ndarray:
    """A matrix of finite numbers as float64."""
    array = numbers(name, value)
    check_shape(name, array, shape)
    if array.dtype != np.float64:  # a boolean takes eight times as much memory as a float
        check_memory([8 * array.size])
    with np.errstate(over="ignore"):  # a wider float that overflows becomes inf, which is reported below
        array = np.ascontiguousarray(array, dtype=np.float64)
    low, high = array.min(axis=0), array.max(axis=0)  # nan and inf propagate through both
    if np.isfinite(low).all() and np.isfinite(high).all() and max(-low.min(), high.max()) <= LARGEST:
        return array
    infinite = ~np.isfinite(array)
    bad = infinite if infinite.any() else np.abs(array) > LARGEST
    row, column = np.argwhere(bad)[0]
    problem = "is not finite" if infinite.any() else BEYOND
    first = (int(row), int(column), float(array[row, column]))
    raise DataError(bad_value(name, columns, first, problem, int(bad[:, column].sum()), int(bad.sum())))


def bad_value(
    name: str, columns: Sequence[str], first: tuple[int, int, float], problem: str, in_column: int, in_array: int
) -> str:
    """`first` is the row, the column and the value of the first bad cell."""
    row, column, value = first
    return (
        f"array {name!r}, variable {columns[column]!r}, row {row}: {value:g} {problem} "
        f"({in_column} such values in this variable, {in_array} in the array)"
    )


def action_table(value: Any, rows: int, factors: Factors) -> np.ndarray:
    """(T, a) float64, or (T, 1) int64 in 0..n-1 for a discrete action."""
    array = as_columns(numbers("action", value))
    shape, count = (rows, len(factors.action_names)), factors.discrete_actions
    if count is None:
        return table("action", array, shape, factors.action_names)
    check_shape("action", array, shape)
    if array.dtype.kind == "f":
        table("action", array, shape, factors.action_names)
        outside = (array < 0) | (array >= count) | (np.floor(array) != array)
    else:
        outside = (array < 0) | (array >= count)
    if outside.any():
        row = int(np.argmax(outside[:, 0]))
        raise DataError(no_choice(row, array[row, 0], count, int(outside.sum())))
    return np.ascontiguousarray(array, dtype=np.int64)


def no_choice(row: int, value: float, count: int, rows: int) -> str:
    return f"array 'action', row {row}: {value} is not one of the discrete actions 0 to {count - 1} ({rows} such rows)"


def reward_vector(name: str, value: Any, rows: int) -> np.ndarray:
    """A reward may have the name of a variable: wherever both appear, rewards are written with a prefix."""
    check_name(name, "reward")
    if name == ACTION:
        raise DataError(f"reward {name!r} has the name of the action")
    array = numbers(reward_array(name), value)
    check_shape(reward_array(name), array, (rows,))
    return table(reward_array(name), array[:, None], (rows, 1), (name,))[:, 0]


def context_vector(name: str, value: Any, rows: int, variables: Sequence[str]) -> np.ndarray:
    check_name(name, "context")
    if name == ACTION or name in variables:
        raise DataError(f"context {name!r} has the name of {'the action' if name == ACTION else 'a variable'}")
    array = numbers(f"context_{name}", value)
    check_shape(f"context_{name}", array, (rows,))
    return table(f"context_{name}", array[:, None], (rows, 1), (name,))[:, 0]


def reward_array(name: str) -> str:
    """Name of a reward's array in a file."""
    return "reward" if name == "reward" else f"reward_{name}"


def flags(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Booleans, or numbers that are all 0 or 1."""
    if value is None:
        return None
    array = numbers(name, value)
    check_shape(name, array, shape)
    odd = (array != 0) & (array != 1)
    if odd.any():
        where = tuple(int(i) for i in np.argwhere(odd)[0])
        raise DataError(odd_flag(name, where, array[where]))
    return array.astype(bool)


def odd_flag(name: str, where: tuple[int, ...], value: float) -> str:
    return f"array {name!r}, row {', column '.join(map(str, where))}: {value} is neither 0 nor 1"


def episode_numbers(value: Any, rows: int) -> np.ndarray:
    array = numbers("episode", value)
    check_shape("episode", array, (rows,))
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        odd = ~(np.abs(array) <= LARGEST) | (np.floor(array) != array)
        if odd.any():
            row = int(np.argmax(odd))
            raise DataError(f"array 'episode', row {row}: {array[row]} is not a whole number")
    return array.astype(np.int64)


def check_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise DataError(f"array {name!r} has shape {array.shape}, expected {shape}")


def as_columns(action: np.ndarray) -> np.ndarray:
    return action[:, None] if action.ndim == 1 else action


def texts(arrays: Mapping[str, Any], name: str, count: int, of: str) -> list[str] | None:
    """An array of strings, one for each column of the array `of`; None if there is none."""
    if arrays.get(name) is None:
        return None
    array = np.asarray(arrays[name])
    if array.dtype.kind not in "US":
        raise DataError(f"array {name!r} must hold strings, not {_dtype(array)}")
    if array.shape != (count,):
        raise DataError(f"array {name!r} has shape {array.shape}, expected {(count,)}: {of!r} has {count} columns")
    try:
        return [str(entry) for entry in (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array)]
    except UnicodeDecodeError:
        raise DataError(f"array {name!r} is not UTF-8 text") from None


def factors_of(arrays: Mapping[str, Any]) -> Factors:
    """Names, kinds and the action of a file; kinds that it does not declare are inferred from the values."""
    rows, d = row_count(arrays["obs"]), np.shape(arrays["obs"])[1]
    names = texts(arrays, "names", d, "obs") or default_names("obs", d)
    kinds: Sequence[Any] | None = texts(arrays, "kinds", d, "obs")
    obs, next_obs = (table(name, arrays[name], (rows, d), names) for name in ("obs", "next_obs"))
    kinds = kinds or infer_kinds(obs, next_obs)
    groups = texts(arrays, "groups", d, "obs") or [""] * d
    lows, highs = _bounds(arrays, "low", d), _bounds(arrays, "high", d)
    variables = tuple(map(Variable, names, kinds, groups, lows, highs))
    action = as_columns(numbers("action", arrays["action"]))
    if action.ndim != 2 or len(action) != rows or action.shape[1] == 0:
        raise DataError(f"array 'action' has shape {np.shape(arrays['action'])}, expected ({rows}, columns)")
    columns = action.shape[1]
    action_names = texts(arrays, "action_names", columns, "action") or default_names(ACTION, columns)
    return Factors(variables, tuple(action_names), _discrete_actions(action, arrays.get("discrete_actions")))


def _discrete_actions(action: np.ndarray, declared: Any) -> int | None:
    """A single column of integers is a discrete action with n values: as declared, or the largest value plus one."""
    if declared is not None:
        count = numbers("discrete_actions", declared)
        if count.size != 1 or count.dtype.kind not in "iu":
            raise DataError(f"array 'discrete_actions' must be one integer, not {_dtype(count)} of shape {count.shape}")
        return int(count.item())
    if action.dtype.kind not in "iub" or action.shape[1] != 1:
        return None
    return max(1, int(action.max()) + 1)


def _bounds(arrays: Mapping[str, Any], name: str, d: int) -> list[float | None]:
    if arrays.get(name) is None:
        return [None] * d
    array = numbers(name, arrays[name])
    check_shape(name, array, (d,))
    return [None if np.isnan(bound) else float(bound) for bound in array]


def rewards_of(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays `reward` and `reward_<name>` by the name of the reward."""
    if "reward" in arrays and "reward_reward" in arrays:
        raise DataError("arrays 'reward' and 'reward_reward' are both the reward 'reward'")
    if "reward_" in arrays:
        raise DataError("array 'reward_' has no name after 'reward_'")
    named = {name.removeprefix("reward_"): arrays[name] for name in arrays if name.startswith("reward_")}
    return ({"reward": arrays["reward"]} if "reward" in arrays else {}) | named


def _dtype(array: np.ndarray) -> str:
    return f"{' '.join(str(array.dtype).split()):.80}"
