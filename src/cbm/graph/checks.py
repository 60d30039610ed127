"""Checks of names and arrays that come from outside.

Each check returns a clean, read-only copy or raises a DataError that begins with the field's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.errors import DataError

VERDICTS = ("edge", "none", "undecided")

# A lone surrogate has no UTF-8 form, and numpy drops zeros at the end of a string.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


def check_same_names(graph: Sequence[str], environment: Sequence[str]) -> None:
    """Refuse a graph whose variables are not those of the environment, in its order, and say which differ."""
    if list(graph) == list(environment):
        return
    only_graph = [name for name in graph if name not in environment]
    only_environment = [name for name in environment if name not in graph]
    if only_graph or only_environment:
        parts = [("only in the graph", only_graph), ("only in the environment", only_environment)]
        found = "; ".join(f"{where}: {_some(names)}" for where, names in parts if names)
    else:
        at = next(i for i, pair in enumerate(zip(graph, environment)) if pair[0] != pair[1])
        found = f"same names in another order: column {at} is {graph[at]!r} in the graph, "
        found += f"{environment[at]!r} in the environment"
    raise DataError(f"the graph is of another environment; {found}")


def _some(names: list[str], limit: int = 6) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def names_list(value: Any, field: str) -> tuple[str, ...]:
    """Distinct non-empty names that any file format can hold."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        raise DataError(f"{field}: expected a list of names")
    seen: set[str] = set()
    for name in value:
        if not isinstance(name, str) or not name or _UNUSABLE.search(name):
            raise DataError(f"{field}: {name!r} is not a usable name")
        if name in seen:
            raise DataError(f"{field}: {name!r} appears twice")
        seen.add(name)
    return tuple(str(name) for name in value)


def _array(value: Any, shape: tuple[int, ...], field: str, dtype_kinds: str, content: str) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise DataError(f"{field}: rows differ in length, expected shape {shape}") from None
    if array.shape != shape:
        raise DataError(f"{field}: shape {array.shape}, expected {shape}")
    if array.dtype.kind not in dtype_kinds:
        raise DataError(f"{field}: must hold {content} only")
    return array


def _fail_where(bad: NDArray[np.bool_], field: str, names: Sequence[str], problem: str) -> None:
    if not bad.any():
        return
    first = [int(k) for k in np.argwhere(bad)[0]]
    where = f"[{', '.join(map(str, first))}] (row {names[first[0]]!r})" if first else ""
    raise DataError(f"{field}{where}: {problem}")


def numbers(
    value: Any, shape: tuple[int, ...], field: str, names: Sequence[str], *, non_negative: bool = False
) -> NDArray[np.float64]:
    """Finite numbers of this shape; `names` label the first axis in messages."""
    array = _array(value, shape, field, "iuf", "numbers").astype(np.float64)
    _fail_where(~np.isfinite(array), field, names, "not a finite number")
    if non_negative:
        _fail_where(array < 0, field, names, "must not be negative")
    array.setflags(write=False)
    return array


def number(value: Any, field: str, *, non_negative: bool = False) -> float:
    return float(numbers(value, (), field, (), non_negative=non_negative))


def maybe_numbers(value: Any, shape: tuple[int, ...], field: str, names: Sequence[str]) -> NDArray[np.float64]:
    """Numbers that are not negative, or NaN (None, in a file null) where nothing is known."""
    if isinstance(value, list | tuple):
        value = [np.nan if item is None else item for item in value]
    array = _array(np.nan if value is None else value, shape, field, "iuf", "numbers or null").astype(np.float64)
    _fail_where(np.isinf(array), field, names, "not a finite number")
    _fail_where(array < 0, field, names, "must not be negative")
    array.setflags(write=False)
    return array


def maybe_number(value: Any, field: str, *, highest: float | None = None) -> float:
    result = float(maybe_numbers(value, (), field, ()))
    if highest is not None and result > highest:
        raise DataError(f"{field}: must not be above {highest:g}")
    return result


def zeros_and_ones(value: Any, shape: tuple[int, ...], field: str, names: Sequence[str]) -> NDArray[np.bool_]:
    """Booleans, or numbers that are 0 or 1."""
    array = _array(value, shape, field, "biuf", "zeros and ones")
    _fail_where(~np.isin(array, (0, 1)), field, names, "must be 0 or 1")
    result = array.astype(bool)
    result.setflags(write=False)
    return result


def verdicts(value: Any, shape: tuple[int, ...], field: str, names: Sequence[str]) -> NDArray[np.str_]:
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    array = _array(value, shape, field, "U", "strings")
    _fail_where(~np.isin(array, VERDICTS), field, names, f"must be one of {', '.join(VERDICTS)}")
    result = array.astype("<U9")
    result.setflags(write=False)
    return result


def reasons(value: Any, verdict: NDArray[np.str_], field: str, names: Sequence[str]) -> NDArray[np.str_]:
    """Texts, one for each cell; a decided cell needs none and loses the one it has."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    array = _array(value, verdict.shape, field, "U", "strings")
    array = np.where(verdict == "undecided", array, "")
    for text in np.unique(array):
        if _UNUSABLE.search(text):
            raise DataError(f"{field}: {str(text)!r} is not a usable text")
    array.setflags(write=False)
    return array


def agree(edges: NDArray[np.bool_], verdict: NDArray[np.str_], field: str, names: Sequence[str]) -> None:
    """A decided cell says the same in both arrays; an undecided one may go either way."""
    _fail_where(edges & (verdict == "none"), field, names, "an edge whose verdict is none")
    _fail_where(~edges & (verdict == "edge"), field, names, "no edge, but the verdict is edge")


def or_default(value: Any, default: Any) -> Any:
    """An empty array stands for a field that was left out; an empty list in a file is a mistake like any other."""
    return default if isinstance(value, np.ndarray) and value.size == 0 else value
