"""The table, the floating hand and its contact sensors as MJCF, around the things of a `SceneSpec`.

The hand hangs on three slides whose position actuators obey the unit-mass law of an operational-space
controller, acceleration = 150 (target - position) - 2 sqrt(150) velocity, so it moves like the arm's hand
without an arm. The fingers follow their target, which itself moves slowly, with a lag of about one control
step, and are limited in force: they close over many steps, and what stands between them shows in their
position.
"""

from __future__ import annotations

from math import sqrt

from cbm.envs.manipulation.backend import TABLE, Box, SceneSpec, Thing

TIMESTEP = 0.01
HAND_MASS, FINGER_MASS = 4.8, 0.1
MASS = HAND_MASS + 2 * FINGER_MASS
GAIN = 150.0  # the controller's kp; its damping is critical
FINGER_CLOSED, FINGER_OPEN = -0.005, 0.03  # left finger joint; pads are 1 cm and 8 cm apart
PAD_AT = 0.01  # distance of a pad's inner face from the middle when its joint is at zero
FINGER_INERTIA, FINGER_GAIN, FINGER_FORCE = 3.0, 3000.0, 40.0
TOUCH = 0.001  # a pad that is so near touches; force it exerts only in contact. Without it, a grasp flickers
FRICTION = "1 0.005 0.0001"


def scene_xml(spec: SceneSpec) -> str:
    """The whole model. Slides measure the hand in world coordinates; so do the free joints of things."""
    things = "\n".join(_thing(thing) for thing in spec.things)
    x, y, z = spec.table
    return f"""
<mujoco model="table">
  <option timestep="{TIMESTEP}" integrator="implicitfast" cone="elliptic" impratio="10">
    <flag autoreset="disable"/>
  </option>
  <size memory="2M"/>
  <visual>
    <global offwidth="1280" offheight="960"/>
    <headlight ambient="0.4 0.4 0.4" diffuse="0.5 0.5 0.5" specular="0 0 0"/>
    <quality shadowsize="2048"/>
  </visual>
  <default>
    <geom condim="3" friction="{FRICTION}"/>
    <default class="pad">
      <geom priority="1" condim="4" margin="{TOUCH}" gap="{TOUCH}" friction="1.5 0.02 0.0001"
        solimp="0.95 0.99 0.001" rgba="0.15 0.15 0.17 1"/>
    </default>
    <default class="hand"><geom rgba="0.55 0.57 0.6 1"/></default>
  </default>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0.95 0.96 0.98" rgb2="0.8 0.84 0.9"
      width="64" height="64"/>
    <texture name="grid" type="2d" builtin="checker" rgb1="0.87 0.84 0.78" rgb2="0.83 0.8 0.73" width="64" height="64"/>
    <material name="wood" texture="grid" texrepeat="8 12" reflectance="0"/>
  </asset>
  <worldbody>
    <light pos="-0.4 -0.6 2.4" dir="0.2 0.3 -1" diffuse="0.4 0.4 0.4"/>
    <camera name="view" pos="-0.66 -0.8 1.42" xyaxes="0.68 -0.6 0 0.342 0.388 0.822" fovy="38"/>
    <geom name="floor" type="plane" size="3 3 0.1" rgba="0.7 0.72 0.75 1"/>
    <geom name="table" type="box" size="{x} {y} {z}" pos="0 0 {TABLE - z}" material="wood"/>
    {_hand()}
    {things}
  </worldbody>
  <actuator>{_actuators()}</actuator>
  <sensor>{_sensors(spec)}</sensor>
</mujoco>"""


def _hand() -> str:
    slides = "\n".join(
        f'<joint name="hand_{axis}" type="slide" axis="{a}"/>' for axis, a in zip("xyz", ("1 0 0", "0 1 0", "0 0 1"))
    )
    return f"""
    <body name="hand" gravcomp="1" childclass="hand">
      {slides}
      <geom name="palm" type="box" size="0.02 0.055 0.015" pos="0 0 0.085" mass="{HAND_MASS}"/>
      <geom type="cylinder" size="0.022 0.04" pos="0 0 0.14" mass="0" contype="0" conaffinity="0"/>
      {_finger("left", 1)}
      {_finger("right", -1)}
    </body>"""


def _finger(side: str, sign: int) -> str:
    """Both joints slide along +y, so the right one's position is the negative mirror image of the left one's."""
    ends = sorted((sign * FINGER_CLOSED, sign * FINGER_OPEN))
    pad, blade, mass = sign * (PAD_AT + 0.005), sign * (PAD_AT + 0.006), FINGER_MASS / 2
    return f"""
      <body name="{side}" gravcomp="1">
        <joint name="finger_{side}" type="slide" axis="0 1 0" range="{ends[0]} {ends[1]}" limited="true"
          armature="{FINGER_INERTIA - FINGER_MASS}" damping="{2 * sqrt(FINGER_GAIN * FINGER_INERTIA)}"/>
        <geom name="pad_{side}" class="pad" type="box" size="0.01 0.005 0.009" pos="0 {pad} 0" mass="{mass}"/>
        <geom name="blade_{side}" type="box" size="0.008 0.004 0.03" pos="0 {blade} 0.039" mass="{mass}"/>
      </body>"""


def _actuators() -> str:
    damping = 2 * sqrt(GAIN)
    hand = [f'<position joint="hand_{a}" kp="{GAIN * MASS}" kv="{damping * MASS}"/>' for a in "xyz"]
    limits = f'forcerange="-{FINGER_FORCE} {FINGER_FORCE}" forcelimited="true"'
    fingers = [f'<position joint="finger_{side}" kp="{FINGER_GAIN}" {limits}/>' for side in ("left", "right")]
    return "".join(hand + fingers)


def _thing(thing: Thing) -> str:
    kind = f'<freejoint name="{thing.name}"/>' if thing.movable else ""
    mocap = "" if thing.movable else ' mocap="true"'
    boxes = "".join(_box(box, thing) for box in thing.boxes)
    return f'<body name="{thing.name}"{mocap} pos="0 0 {TABLE + thing.rest}">{kind}{boxes}</body>'


def _box(box: Box, thing: Thing) -> str:
    half, centre = (" ".join(map(str, v)) for v in (box.half, box.centre))
    return f'<geom type="box" size="{half}" pos="{centre}" density="{thing.density}" rgba="{thing.rgba}"/>'


def _sensors(spec: SceneSpec) -> str:
    """In this order: left pad on each thing, right pad on each, any part of the hand on each, pairs of things."""
    found = 'data="found" num="1"'
    pads = [f'<contact geom1="pad_{s}" body2="{name}" {found}/>' for s in ("left", "right") for name in spec.names]
    hand = [f'<contact subtree1="hand" body2="{name}" {found}/>' for name in spec.names]
    pairs = [f'<contact body1="{spec.names[a]}" body2="{spec.names[b]}" {found}/>' for a, b in spec.pairs]
    return "".join(pads + hand + pairs)
