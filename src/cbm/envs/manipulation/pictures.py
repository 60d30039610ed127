"""Draws one state of a MuJoCo model, with discs for things that have no body (markers, the goal)."""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.envs.screen import check_picture
from cbm.errors import DataError

COLOURS = {"marker": (0.35, 0.3, 0.75, 0.8), "goal": (0.1, 0.7, 0.2, 0.45)}
SIZES = {"marker": (0.02, 0.001, 0.0), "goal": (0.012, 0.0, 0.0)}


def draw(
    mujoco: Any, model: Any, data: Any, spots: list[tuple[np.ndarray, str]], width: int, height: int
) -> np.ndarray:
    """A picture (height, width, 3) from the camera `view`. The renderer's memory is freed before returning."""
    check_picture(width, height, (model.vis.global_.offwidth, model.vis.global_.offheight))
    shapes = {"marker": mujoco.mjtGeom.mjGEOM_CYLINDER, "goal": mujoco.mjtGeom.mjGEOM_SPHERE}
    try:
        renderer = mujoco.Renderer(model, height, width)
    except (mujoco.FatalError, RuntimeError, ValueError, ImportError, AttributeError) as problem:
        raise DataError(f"cannot draw ({problem})") from None
    try:
        renderer.update_scene(data, camera="view")
        scene = renderer.scene
        for centre, kind in spots:
            geom = scene.geoms[scene.ngeom]
            colour = np.array(COLOURS[kind], np.float32)
            mujoco.mjv_initGeom(geom, shapes[kind], np.array(SIZES[kind]), centre, np.eye(3).ravel(), colour)
            scene.ngeom += 1
        return np.array(renderer.render())
    finally:
        renderer.close()
