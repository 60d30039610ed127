"""One way to check a record of settings: types by the annotations of its fields, numbers by ranges.

    def __post_init__(self) -> None:
        check_record(self, batch=at_least(1), learning_rate=above(0), gamma=at_least(0, 1))

Every message names the setting and shows the value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import lru_cache
from types import NoneType
from typing import Any, Literal, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

from cbm.errors import DataError

Record = TypeVar("Record")


@dataclass(frozen=True)
class Range:
    """From `low` (included unless `is_open`) to `high`."""

    low: float = -math.inf
    high: float = math.inf
    is_open: bool = False

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.is_open and value == self.low)

    def text(self, whole: bool) -> str:
        """A whole number of at least 1; a number above 0 and at most 1."""
        kind = "a whole number" if whole else "a number"
        limits = [f"{'above' if self.is_open else 'of at least' if whole else 'at least'} {self.low:g}"]
        limits = limits if self.low > -math.inf else []
        limits += [f"at most {self.high:g}"] if self.high < math.inf else []
        return f"{kind} {' and '.join(limits)}".rstrip()


def at_least(low: float, high: float = math.inf) -> Range:
    return Range(low, high)


def above(low: float, high: float = math.inf) -> Range:
    return Range(low, high, is_open=True)


def check_record(record: object, **ranges: Range) -> None:
    """Refuse values of another type than their field's, and numbers outside their range.

    Lists become tuples where a tuple is meant: JSON has no tuples.
    """
    kind: Any = type(record)
    hints = _hints(kind)
    assert ranges.keys() <= hints.keys(), "a range for a field that is not there"
    for field in fields(record):  # type: ignore[arg-type]
        value, hint = getattr(record, field.name), hints[field.name]
        if get_origin(hint) is tuple and isinstance(value, list):
            value = tuple(value)
            object.__setattr__(record, field.name, value)
        expected = _expected(value, hint, ranges.get(field.name, Range()))
        if expected:
            raise DataError(f"setting {field.name} must {expected}, got {_shown(value)}")


def record_from_json(cls: type[Record], data: dict[str, Any]) -> Record:
    if not isinstance(data, dict):
        raise DataError(f"settings must be a JSON object, got {type(data).__name__}")
    unknown = sorted(set(data) - {f.name for f in fields(cls)})  # type: ignore[arg-type]
    if unknown:
        raise DataError(f"unknown settings: {', '.join(unknown)}")
    return cls(**data)


@lru_cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _expected(value: object, hint: Any, limits: Range) -> str:
    """What the value must be; nothing where it is."""
    if NoneType in get_args(hint) and get_origin(hint) is not Literal:
        if value is None:
            return ""
        (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return "" if value in choices else f"be one of {', '.join(choices)}"
    if get_origin(hint) is tuple:
        good = isinstance(value, tuple) and value and all(is_whole(n) and n >= 1 for n in value)
        return "" if good else "be a list of positive whole numbers"
    if hint is bool:
        return "" if isinstance(value, bool) else "be true or false"
    if hint in (int, float):
        usable = is_whole(value) if hint is int else is_number(value)
        return "" if usable and value in limits else f"be {limits.text(hint is int)}"  # type: ignore[operator]
    return "" if isinstance(value, hint) else f"be a {hint.__name__}"


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """A finite one; whole numbers that no float can hold are none."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: object) -> str:
    """A number may have hundreds of digits."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print whole numbers of thousands of digits
        text = "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."
