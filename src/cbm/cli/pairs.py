"""KEY=VALUE on the command line: one grammar for all options that take it.

Keys are names, possibly with dots; `world-seed` and `world_seed` are the same. Values are read as JSON if possible
(numbers, true, false, null, lists, quoted text), else as a Python number, else as text.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from cbm.errors import DataError

Pairs = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="KEY=VALUE", help_behavior_hint="")]
"""An option that may be repeated."""
KEY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def read_pairs(flag: str, texts: tuple[str, ...], prefix: str = "") -> dict[str, Any]:
    """Values by key. A key may be given only once; with and without the prefix it counts as the same."""
    result: dict[str, Any] = {}
    seen: set[str] = set()
    for text in texts:
        key, value = _pair(flag, text)
        plain = key.removeprefix(prefix)
        if plain in seen:
            raise DataError(f"{flag} {plain}: given twice")
        seen.add(plain)
        result[key] = value
    return result


def _pair(flag: str, text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not KEY.fullmatch(key):
        raise DataError(f"{flag} {text!r}: must be KEY=VALUE")
    return key, read_value(value.strip())


def read_value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for read in (json.loads, int, float):
        try:
            return read(text)
        except (ValueError, RecursionError):
            continue
    return text
