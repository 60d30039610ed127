"""How simulators draw on a machine without a screen."""

from __future__ import annotations

import os
import sys


def draw_without_display() -> None:
    """Without a screen, MuJoCo has to be told before it is imported how to draw."""
    no_screen = sys.platform.startswith("linux") and not os.environ.get("DISPLAY")
    if no_screen and not os.environ.get("MUJOCO_GL"):
        os.environ["MUJOCO_GL"] = "egl"
