"""Checks of names and arrays that come from outside, and JSON files in and out.

Each check returns a clean, read-only copy or raises a DataError that begins with the field's name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.errors import DataError

VERDICTS = ("edge", "none", "undecided")

# A lone surrogate has no UTF-8 form, and numpy drops zeros at the end of a string.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")


def unknown_name(what: str, name: object, known: Iterable[str]) -> DataError:
    """The error for a name that is not there, with the nearest ones that are."""
    names = list(known)
    folded = {n.lower(): n for n in names}
    close = [folded[n] for n in difflib.get_close_matches(str(name).lower(), folded, n=3, cutoff=0.5)]
    if close:
        hint = f"did you mean {' or '.join(repr(n) for n in close)}?"
    elif names:
        hint = f"there are: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
    else:
        hint = "there are none"
    return DataError(f"{what} {name!r}; {hint}" if name is not None else f"{what}: none given; {hint}")


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


def take(data: dict[str, Any], key: str, where: str = "") -> Any:
    if key not in data:
        raise DataError(f"{where}{key}: missing")
    return data[key]


def rounded(values: Any) -> Any:
    """Plain floats with 6 significant digits, nested as the array was; NaN becomes None."""
    if np.ndim(values) == 0:
        return None if np.isnan(values) else float(f"{float(values):.6g}")
    return [rounded(v) for v in values]


def layout(value: Any, indent: str = "") -> str:
    """JSON text that a person can read and a diff can follow: one key a line, one matrix row or list entry a line."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = [f"{inner}{layout(k)}: {layout(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + indent + "}"
    if isinstance(value, list) and any(isinstance(v, list | dict) for v in value):
        return "[\n" + ",\n".join(inner + _line(v) for v in value) + "\n" + indent + "]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a JSON file ({error})") from error
