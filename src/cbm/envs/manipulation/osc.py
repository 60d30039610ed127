"""Operational-space control of robosuite's UR5e arm, compiled, on a plain MuJoCo model and data.

At every physics step the hand is given the acceleration of a critically damped spring towards its goal, in
position and in orientation, each with the inertia that the hand has for it:

    torque = Jp' Lp (kp (goal - position) - kd velocity) + Jo' Lo (kp turn - kd spin) + bias
    Lp = (Jp M^-1 Jp')^-1, Lo = (Jo M^-1 Jo')^-1

with J the Jacobian of the grip point, M the arm's inertia and `bias` its gravity and Coriolis torques: the law
of robosuite's OSC_POSITION. (That also pulls the joints to their first positions where it does not move the hand;
with six joints there is no such direction.) The tests step both side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

STIFFNESS = 150.0
DAMPING = 2 * np.sqrt(STIFFNESS)
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3")
GRIP_SITE = "gripper0_right_grip_site"
AXES = len(JOINTS)


@njit(cache=True, nogil=True)
def _factor(matrix: np.ndarray, size: int) -> None:
    """Overwrites the lower half of a symmetric positive matrix by its Cholesky factor."""
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i, j]
            for k in range(j):
                rest -= matrix[i, k] * matrix[j, k]
            if i == j:
                matrix[i, i] = np.sqrt(rest) if rest > 0.0 else 1e-12
            else:
                matrix[i, j] = rest / matrix[j, j]


@njit(cache=True, nogil=True)
def _solve(factor: np.ndarray, vector: np.ndarray, size: int) -> None:
    """Overwrites `vector` by the solution of the system whose matrix has this Cholesky factor."""
    for i in range(size):
        for k in range(i):
            vector[i] -= factor[i, k] * vector[k]
        vector[i] /= factor[i, i]
    for i in range(size - 1, -1, -1):
        for k in range(i + 1, size):
            vector[i] -= factor[k, i] * vector[k]
        vector[i] /= factor[i, i]


@njit(cache=True, nogil=True)
def jacobian(point: np.ndarray, axis: np.ndarray, anchor: np.ndarray) -> np.ndarray:
    """(6, joints): velocity of `point` and spin, by the speed of each hinge."""
    found = np.empty((6, len(axis)))
    for j in range(len(axis)):
        for k in range(3):
            u, v = (k + 1) % 3, (k + 2) % 3
            found[k, j] = axis[j, u] * (point[v] - anchor[j, v]) - axis[j, v] * (point[u] - anchor[j, u])
            found[3 + k, j] = axis[j, k]
    return found


@njit(cache=True, nogil=True)
def turn(goal: np.ndarray, now: np.ndarray) -> np.ndarray:
    """(3,) half of the summed cross products of the axes (columns, in a flat 3 x 3 matrix) with those wanted."""
    found = np.zeros(3)
    for k in range(3):
        u, v = (k + 1) % 3, (k + 2) % 3
        for c in range(3):
            found[k] += 0.5 * (now[3 * u + c] * goal[3 * v + c] - now[3 * v + c] * goal[3 * u + c])
    return found


@njit(cache=True, nogil=True)
def _hand_force(
    jac: np.ndarray, inertia: np.ndarray, first: int, error: np.ndarray, speed: np.ndarray, torque: np.ndarray
) -> None:
    """Adds the torques of one half of the task (rows `first` to `first + 3` of the Jacobian) to `torque`."""
    joints = len(torque)
    eased = np.empty((3, joints))  # rows of J M^-1
    for r in range(3):
        eased[r] = jac[first + r]
        _solve(inertia, eased[r], joints)
    mobility = np.zeros((3, 3))
    force = np.empty(3)
    for r in range(3):
        moving = 0.0
        for j in range(joints):
            moving += jac[first + r, j] * speed[j]
        force[r] = STIFFNESS * error[r] - DAMPING * moving
        for c in range(r + 1):
            for j in range(joints):
                mobility[r, c] += eased[r, j] * jac[first + c, j]
    _factor(mobility, 3)
    _solve(mobility, force, 3)
    for j in range(joints):
        for r in range(3):
            torque[j] += jac[first + r, j] * force[r]


@njit(cache=True, nogil=True)
def _command(
    goal: np.ndarray, pose: np.ndarray, position: np.ndarray, orientation: np.ndarray, axis: np.ndarray,
    anchor: np.ndarray, packed: np.ndarray, starts: np.ndarray, speed: np.ndarray, bias: np.ndarray,
    limit: np.ndarray, control: np.ndarray,
) -> None:  # fmt: skip
    """Writes the torques of the arm into `control`. `packed` holds the inertia, as MuJoCo stores it: for each joint,
    from `starts` on, its row from the diagonal towards the base."""
    joints = len(speed)
    inertia = np.empty((joints, joints))
    for i in range(joints):
        for j in range(i + 1):
            inertia[i, j] = packed[starts[i] + i - j]
    _factor(inertia, joints)
    jac = jacobian(position, axis, anchor)
    torque = bias.copy()
    _hand_force(jac, inertia, 0, goal - position, speed, torque)
    _hand_force(jac, inertia, 3, turn(pose, orientation), speed, torque)
    for j in range(joints):
        control[j] = min(max(torque[j], -limit[j]), limit[j])


@dataclass
class Arm:
    """The arm and gripper of a model that was made by robosuite, with one data of it to compute in."""

    mujoco: Any
    model: Any
    data: Any

    def __post_init__(self) -> None:
        model, data = self.model, self.data
        names = [f"robot0_{name}_joint" for name in JOINTS]
        self.first = int(model.joint(names[0]).dofadr[0])  # in qpos, too: nothing but hinges comes before
        motors = [int(np.flatnonzero(model.actuator_trnid[:, 0] == model.joint(name).id)[0]) for name in names]
        sides = [model.joint(f"gripper0_right_{side}_finger_joint") for side in "lr"]
        site = model.site(GRIP_SITE).id
        fingers = [int(np.flatnonzero(model.actuator_trnid[:, 0] == side.id)[0]) for side in sides]
        self._fingers = np.array(fingers)
        self._range = model.actuator_ctrlrange[self._fingers]  # (left and right, low and high)
        arm = slice(self.first, self.first + AXES)
        joints = slice(model.joint(names[0]).id, model.joint(names[0]).id + AXES)
        self.position, self.orientation = data.site_xpos[site], data.site_xmat[site]
        self.axis, self.anchor, self.speed = data.xaxis[joints], data.xanchor[joints], data.qvel[arm]
        starts = model.dof_Madr[arm].astype(np.int64)
        limit = model.actuator_ctrlrange[motors, 1].copy()
        self._inputs = (self.position, self.orientation, self.axis, self.anchor, data.qM, starts, self.speed,
                        data.qfrc_bias[arm], limit, data.ctrl[motors[0] : motors[-1] + 1])  # fmt: skip

    def run(self, steps: int, goal: np.ndarray, pose: np.ndarray | None, target: float) -> None:
        """So many physics steps towards the hand's `goal` and `pose`, with the fingers' `target` in [-1, 1].

        A pose is the flat rotation matrix to hold; without one, the hand keeps the one that it has at the first
        step, as robosuite's controller does.
        """
        step1, step2, model, data = self.mujoco.mj_step1, self.mujoco.mj_step2, self.model, self.data
        low, high = self._range.T
        data.ctrl[self._fingers] = (low + high) / 2 + (high - low) / 2 * np.array((-target, target))
        held = np.empty(9) if pose is None else pose
        for k in range(steps):
            step1(model, data)
            if k == 0 and pose is None:
                held[:] = self.orientation
            _command(goal, held, *self._inputs)
            step2(model, data)

    def jacobian(self) -> np.ndarray:
        """(6, joints) at the pose of which the kinematics were computed last."""
        return np.asarray(jacobian(self.position, self.axis, self.anchor))

    def reach(self, goal: np.ndarray, pose: np.ndarray, tries: int = 200) -> None:
        """Moves the arm in `data` from where it is until the hand is at `goal` with `pose`, or as near as it gets."""
        joints = slice(self.first, self.first + AXES)
        for _ in range(tries):
            self.mujoco.mj_kinematics(self.model, self.data)
            error = np.concatenate([goal - self.position, turn(pose, self.orientation)])
            size = float(np.linalg.norm(error))
            if size < 1e-12:
                return
            jac = self.jacobian()
            ease = min(1e-4, size**2)  # damped far away, where a full step could lead anywhere
            change = jac.T @ np.linalg.solve(jac @ jac.T + ease * np.eye(6), error)
            self.data.qpos[joints] += change / max(1.0, float(np.abs(change).max()) / 0.3)
        self.mujoco.mj_kinematics(self.model, self.data)
