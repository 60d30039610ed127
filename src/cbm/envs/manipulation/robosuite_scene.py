"""The things of a `SceneSpec` on robosuite's table, with its UR5e arm and Rethink gripper, as a MuJoCo model."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import numpy as np

from cbm.envs.manipulation.backend import TABLE, SceneSpec, Thing
from cbm.errors import DataError

ARM, MOUNT = "UR5e", "RethinkMount"
FRICTION = (1.0, 0.005, 0.0001)
CAMERA = {"name": "view", "pos": "0.62 -0.78 1.42", "xyaxes": "0.725 0.688 -0.000 -0.318 0.335 0.887", "fovy": "45"}


@contextmanager
def quiet() -> Iterator[None]:
    """robosuite logs warnings about optional parts of it when it is imported and when an arm is made."""
    log = logging.getLogger("robosuite_logs")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def import_robosuite() -> None:
    try:
        with quiet():
            importlib.import_module("numba")
            importlib.import_module("robosuite")
    except ImportError:
        raise DataError("the robosuite backend needs robosuite: pip install 'cbm-rl[robosuite]'") from None


def scene_model(mujoco: Any, spec: SceneSpec, timestep: float, looks: bool = False) -> Any:
    """The model. Things that cannot be moved are mocap bodies, so that each copy can have them elsewhere.

    Without `looks` everything that is only seen is left out: the model loads faster and moves the same.
    """
    with quiet():
        root = ElementTree.fromstring(_task(spec).get_xml())
    _child(root, "option").set("timestep", str(timestep))
    world = _child(root, "worldbody")
    for body in world.findall("body"):
        if body.get("mocap"):  # robosuite's own, for showing targets
            world.remove(body)
    for thing in spec.things:
        if not thing.movable:
            _child(world, f"body[@name='{body_name(thing)}']").set("mocap", "true")
    if looks:
        ElementTree.SubElement(world, "camera", CAMERA)
        visual = ElementTree.SubElement(root, "visual")
        ElementTree.SubElement(visual, "global", {"offwidth": "1280", "offheight": "960"})
    else:
        _strip(root)
    model = mujoco.MjModel.from_xml_string(ElementTree.tostring(root, encoding="unicode"))
    model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_SENSOR)  # of force at the wrist; nobody reads it
    if looks:
        model.geom_group[model.geom_group == 0] = 3  # the shapes for collisions, which are not drawn
        model.site_rgba[:, 3] = 0
    return model


def body_name(thing: Thing) -> str:
    return f"{thing.name}_root"


def joint_name(thing: Thing) -> str:
    return f"{thing.name}_joint0"


def start_joints() -> np.ndarray:
    """(6,) robosuite's own starting position of the arm."""
    return np.asarray(_robot().init_qpos)


def _robot() -> Any:
    robots = importlib.import_module("robosuite.models.robots")
    bases = importlib.import_module("robosuite.models.bases")
    robot = getattr(robots, ARM)(idn=0)
    robot.add_base(bases.robot_base_factory(MOUNT, idn=0))
    return robot


def _task(spec: SceneSpec) -> Any:
    grippers = importlib.import_module("robosuite.models.grippers")
    arenas = importlib.import_module("robosuite.models.arenas")
    tasks = importlib.import_module("robosuite.models.tasks")
    robot = _robot()
    robot.add_gripper(grippers.RethinkGripper(idn="0_right"), robot.eef_name["right"])
    size = tuple(2 * half for half in spec.table)
    robot.set_base_xpos(robot.base_xpos_offset["table"](size[0]))
    arena = arenas.TableArena(table_full_size=size, table_friction=FRICTION, table_offset=(0, 0, TABLE))
    arena.set_origin([0, 0, 0])
    return tasks.ManipulationTask(arena, [robot], [_object(thing) for thing in spec.things])


def _object(thing: Thing) -> Any:
    objects = importlib.import_module("robosuite.models.objects")
    corners = [np.abs(box.centre) + box.half for box in thing.boxes]
    return objects.CompositeObject(
        name=thing.name,
        total_size=np.max(corners, axis=0),
        geom_types=["box"] * len(thing.boxes),
        geom_sizes=[box.half for box in thing.boxes],
        geom_locations=[box.centre for box in thing.boxes],
        geom_frictions=[FRICTION] * len(thing.boxes),
        rgba=[float(part) for part in thing.rgba.split()],
        density=thing.density,
        locations_relative_to_center=True,
        joints="default" if thing.movable else None,
    )


def _strip(root: ElementTree.Element) -> None:
    """Removes shapes that nothing can touch, and the meshes, materials and textures that only they use."""
    parts = [*root.iter("body"), _child(root, "worldbody")]
    for part in parts:
        for geom in part.findall("geom"):
            if geom.get("class") == "visual" or geom.get("contype") == geom.get("conaffinity") == "0":
                part.remove(geom)
            else:
                geom.attrib.pop("material", None)
    used = {geom.get("mesh") for geom in root.iter("geom")}
    assets = _child(root, "asset")
    for asset in list(assets):
        if asset.get("name") not in used:
            assets.remove(asset)


def _child(element: ElementTree.Element, path: str) -> ElementTree.Element:
    found = element.find(path)
    assert found is not None, path
    return found
