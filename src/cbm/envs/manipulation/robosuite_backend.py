"""Copies of a scene with robosuite's UR5e arm and Rethink gripper, without robosuite's controllers in the loop.

The state of a copy is everything that decides its future: joint positions and velocities, the poses of fixed
things, the finger target; and what follows from these: position and velocity of the hand, the contacts. MuJoCo's
own memory (time, the solver's warm start) is not part of it, so a step is a function of state and action. The hand
is asked to point straight down at all times, which robosuite's controller does not do: with its law, the hand
tilts further with every push.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from cbm.envs.manipulation.backend import RATE, REACH, TABLE, Handling, SceneSpec
from cbm.envs.manipulation.robosuite_scene import body_name, import_robosuite, joint_name, scene_model, start_joints
from cbm.envs.manipulation.simulator import import_mujoco
from cbm.errors import DataError

FINGER_CLOSED, FINGER_OPEN = -0.0115, 0.0115  # left finger joint; pads are 1.4 cm and 6 cm apart
FINGER_STEP = 0.2  # the finger target, in [-1, 1], moves so far in one control step
DOWN = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, -1.0])  # the hand's axes, fingers along y
HAND = "gripper0_right_"
LEFT_PAD, RIGHT_PAD, ANY_PART = 1, 2, 4


class RobosuiteBackend:
    """The arm among the things of `spec`; `threads` copies are stepped at the same time.

    `timestep` is that of the physics, in seconds: 0.002 as in robosuite, or 0.005, which is more than twice as fast.
    """

    half_open = (FINGER_CLOSED + FINGER_OPEN) / 2
    # The fingers end 1.4 cm below the grip point.
    handling = Handling(lowest=TABLE + 0.02, closing=20, firm=5, patience=8, drifts=True)

    def __init__(self, spec: SceneSpec, threads: int = 1, timestep: float = 0.002):
        self._mujoco = import_mujoco()
        import_robosuite()
        from cbm.envs.manipulation.osc import Arm

        self._substeps = round(1 / (RATE * timestep)) if timestep > 0 else 0
        if not 0.0005 <= timestep <= 0.01 or abs(self._substeps * timestep * RATE - 1) > 1e-9:
            raise DataError(f"robosuite: a timestep of {timestep} s does not fit into a control step of {1 / RATE} s")
        self.spec = spec
        self._timestep = timestep
        self.model: Any = scene_model(self._mujoco, spec, timestep)
        self._arms = [Arm(self._mujoco, self.model, self._mujoco.MjData(self.model)) for _ in range(threads)]
        self._pool: ThreadPoolExecutor | None = None
        self._looks: Any = None
        nq, nv, fixed = self.model.nq, self.model.nv, self.model.nmocap
        ends = np.cumsum([0, nq, nv, 3 * fixed, 4 * fixed, 1])
        self._qpos, self._qvel, self._mocap_pos, self._mocap_quat, self._target = map(slice, ends[:-1], ends[1:])
        self.columns = self._find_columns(int(ends[-1]))
        self.size = int(self.columns["hits"][-1]) + 1
        self._thing_of, self._part_of = self._find_geoms()
        pairs = np.zeros((len(spec.things),) * 2, dtype=int)
        for k, pair in enumerate(spec.pairs):
            pairs[pair] = pairs[pair[::-1]] = self.columns["hits"][k]
        self._pair_column = pairs
        self._ready = self._start_joints()

    def _find_columns(self, derived: int) -> dict[str, np.ndarray]:
        """Where each quantity is; what follows from the rest comes last, from column `derived` on."""
        model, k = self.model, len(self.spec.things)
        sides = [model.joint(f"{HAND}{side}_finger_joint") for side in "lr"]
        columns = {
            "eef_pos": derived + np.arange(3),
            "eef_vel": derived + 3 + np.arange(3),
            "finger_pos": np.array([int(joint.qposadr[0]) for joint in sides]),
            "finger_vel": self._qvel.start + np.array([int(joint.dofadr[0]) for joint in sides]),
            "grasped": derived + 6 + np.arange(k),
            "touched": derived + 6 + k + np.arange(k),
            "hits": derived + 6 + 2 * k + np.arange(len(self.spec.pairs)),
        }
        xyzw = np.array([1, 2, 3, 0])  # MuJoCo puts w first
        for thing in self.spec.things:
            if thing.movable:
                pos = int(model.joint(joint_name(thing)).qposadr[0])
                quat = pos + 3
            else:
                mocap = int(model.body(body_name(thing)).mocapid[0])
                pos, quat = self._mocap_pos.start + 3 * mocap, self._mocap_quat.start + 4 * mocap
            columns[f"{thing.name}_pos"] = pos + np.arange(3)
            columns[f"{thing.name}_quat"] = quat + xyzw
        return columns

    def _find_geoms(self) -> tuple[np.ndarray, np.ndarray]:
        """For each geom the index of the thing that it belongs to, or -1, and which parts of the hand it is."""
        model = self.model
        bodies = {model.body(body_name(thing)).id: k for k, thing in enumerate(self.spec.things)}
        thing_of = np.array([bodies.get(int(body), -1) for body in model.geom_bodyid])
        names = [model.geom(k).name for k in range(model.ngeom)]
        part_of = np.array([ANY_PART if name.startswith(HAND) else 0 for name in names])
        part_of[names.index(f"{HAND}l_fingerpad_g0")] |= LEFT_PAD
        part_of[names.index(f"{HAND}r_fingerpad_g0")] |= RIGHT_PAD
        return thing_of, part_of

    def _start_joints(self) -> np.ndarray:
        """(6,) robosuite's starting position of the arm, with the hand turned to point straight down."""
        arm = self._arms[0]
        self._joints = slice(arm.first, arm.first + len(arm.speed))
        arm.data.qpos[self._joints] = start_joints()
        self._mujoco.mj_kinematics(self.model, arm.data)
        arm.reach(arm.position.copy(), DOWN)
        return np.array(arm.data.qpos[self._joints])

    # The seam

    def start(self, hand: np.ndarray, poses: np.ndarray) -> np.ndarray:
        state = np.zeros((len(hand), self.size))
        state[:, self.columns["finger_pos"]] = FINGER_OPEN, -FINGER_OPEN
        state[:, self._target] = -1.0
        state[:, self._joints] = self._ready
        for k, name in enumerate(self.spec.names):
            state[:, self.columns[f"{name}_pos"]] = poses[:, k, :3]
            state[:, self.columns[f"{name}_quat"]] = poses[:, k, 3:]
        arm = self._arms[0]
        for row, goal in zip(state, hand):
            self._load(arm, row)
            arm.reach(goal, DOWN)
            self._read(arm, row)
        return state

    def step(self, state: np.ndarray, action: np.ndarray) -> np.ndarray:
        after = state.copy()
        after[:, self._target] = np.clip(state[:, self._target] + FINGER_STEP * np.sign(action[:, 3:]), -1, 1)
        goal = np.clip(state[:, self.columns["eef_pos"]] + REACH * action[:, :3], self.spec.low, self.spec.high)
        if len(self._arms) == 1 or len(state) == 1:
            self._advance(self._arms[0], after, goal)
            return after
        if self._pool is None:  # made at the first step, so that worlds that are only looked at have no threads
            self._pool = ThreadPoolExecutor(len(self._arms))
        shares = np.array_split(np.arange(len(state)), len(self._arms))
        parts = [(arm, after[rows[0] : rows[-1] + 1], goal[rows]) for arm, rows in zip(self._arms, shares) if len(rows)]
        list(self._pool.map(lambda part: self._advance(*part), parts))
        return after

    def write(self, state: np.ndarray, quantity: str, values: np.ndarray) -> np.ndarray:
        """As the seam says. The arm takes the joint angles and speeds that give its hand the position or velocity,
        with the orientation, spin and (for a position) velocity that it has; where it cannot reach the position, it
        goes as near as it gets."""
        after = state.copy()
        arm = self._arms[0]
        for row, value in zip(after, values):
            if quantity not in ("eef_pos", "eef_vel"):
                row[self.columns[quantity]] = value
            self._load(arm, row)
            self._mujoco.mj_kinematics(self.model, arm.data)
            if quantity in ("eef_pos", "eef_vel"):
                speed = arm.jacobian() @ arm.speed
                if quantity == "eef_pos":
                    arm.reach(value, arm.orientation.copy())
                else:
                    speed[:3] = value
                arm.speed[:] = np.linalg.lstsq(arm.jacobian(), speed, rcond=1e-6)[0]
            self._read(arm, row)
        return after

    def render(self, state: np.ndarray, spots: list[tuple[np.ndarray, str]], width: int, height: int) -> np.ndarray:
        from cbm.envs.manipulation.pictures import draw

        if self._looks is None:
            self._looks = scene_model(self._mujoco, self.spec, self._timestep, looks=True)
        data = self._mujoco.MjData(self._looks)
        self._put(data, state)
        self._mujoco.mj_forward(self._looks, data)
        return draw(self._mujoco, self._looks, data, spots, width, height)

    # One copy at a time

    def _put(self, data: Any, row: np.ndarray) -> None:
        data.qpos[:] = row[self._qpos]
        data.qvel[:] = row[self._qvel]
        data.mocap_pos[:] = row[self._mocap_pos].reshape(-1, 3)
        data.mocap_quat[:] = row[self._mocap_quat].reshape(-1, 4)

    def _load(self, arm: Any, row: np.ndarray) -> None:
        self._put(arm.data, row)
        arm.data.qacc_warmstart[:] = 0

    def _advance(self, arm: Any, rows: np.ndarray, goals: np.ndarray) -> None:
        """One control step of each row, in place."""
        for row, goal in zip(rows, goals):
            self._load(arm, row)
            arm.run(self._substeps, goal, DOWN, row[self._target][0])
            self._read(arm, row)

    def _read(self, arm: Any, row: np.ndarray) -> None:
        """Writes the arm's data and what follows from it into a row."""
        self._mujoco.mj_kinematics(self.model, arm.data)
        self._mujoco.mj_collision(self.model, arm.data)
        row[self._qpos] = arm.data.qpos
        row[self._qvel] = arm.data.qvel
        row[self.columns["eef_pos"]] = arm.position
        row[self.columns["eef_vel"]] = arm.jacobian()[:3] @ arm.speed
        row[self.columns["grasped"][0] :] = 0
        parts = [0] * len(self.spec.things)
        for one, other in arm.data.contact.geom.tolist():
            a, b = self._thing_of[one], self._thing_of[other]
            if a >= 0 and b >= 0:
                row[self._pair_column[a, b]] = 1
            elif a >= 0:
                parts[a] |= self._part_of[other]
            elif b >= 0:
                parts[b] |= self._part_of[one]
        for k, found in enumerate(parts):
            if found:
                row[self.columns["grasped"][k]] = found & LEFT_PAD and found & RIGHT_PAD and 1
                row[self.columns["touched"][k]] = 1
