"""How simulators draw on a machine without a screen."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any

from cbm.errors import DataError


def import_simulator(name: str, world: str, install: str) -> Any:
    """The module, which may have to draw without a screen; `install` is the command that brings it."""
    draw_without_display()
    try:
        return importlib.import_module(name)  # these have no type information
    except ImportError as error:
        raise DataError(f"{world}: {name.split('.')[0]} cannot be imported ({error}); {install}") from None
    except (AttributeError, RuntimeError) as error:  # what it is told to draw with is not there
        drawn_with = os.environ.get("MUJOCO_GL", "")
        raise DataError(
            f"{world}: {name.split('.')[0]} fails with MUJOCO_GL={drawn_with} ({error}); unset it"
        ) from None


def draw_without_display() -> None:
    """Without a screen, MuJoCo has to be told before it is imported how to draw, if there is a way at all."""
    no_screen = sys.platform.startswith("linux") and not os.environ.get("DISPLAY")
    if no_screen and not os.environ.get("MUJOCO_GL"):
        try:
            ctypes.CDLL("libEGL.so.1")
        except OSError:
            return  # worlds work, and only pictures of them cannot be made
        os.environ["MUJOCO_GL"] = "egl"


def check_picture(width: int, height: int, largest: tuple[int, int]) -> None:
    if width > largest[0] or height > largest[1]:
        raise DataError(f"a picture of {width}x{height} is too large: at most {largest[0]}x{largest[1]}")
