"""The world that a command was asked for: its name, its backend, and its other options as text."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import UseAppendAction, arg

from cbm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cbm.envs.world import World

WorldOptions = Annotated[tuple[str, ...], UseAppendAction, arg(metavar="KEY=VALUE", help_behavior_hint="")]


def recipe(
    name: str, backend: str | None, distractors: int | None, options: tuple[str, ...], **more: Any
) -> Callable[[], World]:
    """Makes the world each time it is called; what is wrong shows at the first call."""
    from cbm.envs.registry import make_world

    return partial(make_world, name, **options_of(backend, distractors, options, **more))


def options_of(
    backend: str | None, distractors: int | None, options: tuple[str, ...], **more: Any
) -> dict[str, Any]:  # fmt: skip
    """Options of a world by name, however they were given."""
    given = {"backend": backend, "distractors": distractors, **more}
    chosen = {key: value for key, value in given.items() if value is not None}
    for key, value in (_pair(option) for option in options):
        if key in chosen:
            raise DataError(f"--option {key}: given twice")
        chosen[key] = value
    return chosen


def _pair(option: str) -> tuple[str, Any]:
    key, equals, text = option.partition("=")
    key = key.strip().replace("-", "_")
    if not equals or not key.isidentifier():
        raise DataError(f"--option {option!r}: must be KEY=VALUE, such as rescale=true")
    return key, _value(text.strip())


def _value(text: str) -> bool | int | float | str:
    """true, false, a number, or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
