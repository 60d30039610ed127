"""Checks of the values of a settings record; every message names the setting."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, TypeGuard, TypeVar

from cbm.errors import DataError

Record = TypeVar("Record")


def record_from_json(cls: type[Record], data: dict[str, Any]) -> Record:
    if not isinstance(data, dict):
        raise DataError(f"settings must be a JSON object, got {type(data).__name__}")
    unknown = sorted(set(data) - {f.name for f in fields(cls)})  # type: ignore[arg-type]
    if unknown:
        raise DataError(f"unknown settings: {', '.join(unknown)}")
    return cls(**data)


def is_finite(value: object) -> TypeGuard[float]:
    """A number that a float can hold; 10**400 is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(record: object, name: str, low: int, none: bool = False) -> None:
    value = getattr(record, name)
    if value is None and none:
        return
    if not is_whole(value) or value < low:
        raise DataError(f"setting {name} must be a whole number of at least {low}, got {value!r}")


def number(
    record: object,
    name: str,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    none: bool = False,
) -> None:
    value = getattr(record, name)
    if value is None and none:
        return
    if not is_finite(value) or not low <= value <= high or (open_low and value == low):
        least = f"above {low:g}" if open_low else f"at least {low:g}"
        limits = [least] if low > -math.inf else []
        limits += [f"at most {high:g}"] if high < math.inf else []
        raise DataError(f"setting {name} must be a number {' and '.join(limits)}".rstrip() + f", got {value!r}")


def one_of(record: object, name: str, choices: tuple[str, ...]) -> None:
    if getattr(record, name) not in choices:
        raise DataError(f"setting {name} must be one of {', '.join(choices)}, got {getattr(record, name)!r}")
