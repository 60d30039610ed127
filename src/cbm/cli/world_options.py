"""The world requested by a command: its name, its backend, and its other options as text."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from cbm.cli.pairs import read_pairs
from cbm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cbm.envs.world import World


def recipe(
    name: str, backend: str | None, distractors: int | None, options: tuple[str, ...], **more: Any
) -> Callable[[], World]:
    """A function that makes the world at each call; errors in the options appear at the first call."""
    from cbm.envs.registry import make_world

    return partial(make_world, name, **options_of(backend, distractors, options, **more))


def options_of(
    backend: str | None, distractors: int | None, options: tuple[str, ...], **more: Any
) -> dict[str, Any]:  # fmt: skip
    """Options of a world by name, from all the ways to give them."""
    given = {"backend": backend, "distractors": distractors, **more}
    chosen = {key: value for key, value in given.items() if value is not None}
    for key, value in read_pairs("--option", options).items():
        if key in chosen:
            raise DataError(f"--option {key}: given twice")
        chosen[key] = value
    return chosen
