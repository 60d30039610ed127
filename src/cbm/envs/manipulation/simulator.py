"""Many copies of a scene in MuJoCo, stepped together by `mujoco.rollout`.

The state of a copy is everything that decides its future: joint positions and velocities, the poses of
fixed things, the finger target; and the contacts at this state, which follow from the rest. MuJoCo's own
memory (time, the solver's warm start) is not part of it, so a step is a function of state and action.
Positions are read from the joints: body positions lag behind them by one physics step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.envs.manipulation.backend import FINGER_STEP, RATE, REACH, Handling, SceneSpec
from cbm.envs.manipulation.scene import FINGER_CLOSED, FINGER_OPEN, TIMESTEP, scene_xml
from cbm.envs.screen import import_simulator
from cbm.errors import DataError

INSTALL = "pip install 'cbm-rl[mujoco]'"
SUBSTEPS = round(1 / (RATE * TIMESTEP))


def import_mujoco() -> Any:
    found = [import_simulator(name, "this world needs MuJoCo", INSTALL) for name in ("mujoco", "mujoco.rollout")]
    return found[0]


def _path(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """(n, SUBSTEPS + 1) finger targets in the substeps of a control step, from those before and after it (n, 1)."""
    done = np.minimum(np.arange(1, SUBSTEPS + 2) / SUBSTEPS, 1.0)
    return before + (after - before) * done


class MujocoBackend:
    """The floating gripper among the things of `spec`; `threads` copies are stepped at the same time."""

    half_open = (FINGER_CLOSED + FINGER_OPEN) / 2
    handling = Handling()

    def __init__(self, spec: SceneSpec, threads: int = 1):
        self._mujoco = import_mujoco()
        self.spec = spec
        self.model: Any = self._mujoco.MjModel.from_xml_string(scene_xml(spec))
        state = self._mujoco.mjtState
        self._control = int(state.mjSTATE_CTRL | state.mjSTATE_MOCAP_POS | state.mjSTATE_MOCAP_QUAT)
        self._threads = threads
        self._pool: Any = None
        self._datas: list[Any] = []
        nq, nv, fixed = self.model.nq, self.model.nv, self.model.nmocap
        ends = np.cumsum([0, nq, nv, 3 * fixed, 4 * fixed, 1])
        self._qpos, self._qvel, self._mocap_pos, self._mocap_quat, self._target = map(slice, ends[:-1], ends[1:])
        self._physics = slice(0, nq + nv)
        self.columns = self._find_columns(int(ends[-1]))
        self.size = int(self.columns["hits"][-1]) + 1

    def _find_columns(self, contacts: int) -> dict[str, np.ndarray]:
        """Where each quantity is; contacts come last, from column `contacts` on."""
        qvel, k = self._qvel.start, len(self.spec.things)
        columns = {
            "eef_pos": np.arange(3),
            "eef_vel": qvel + np.arange(3),
            "finger_pos": 3 + np.arange(2),
            "finger_vel": qvel + 3 + np.arange(2),
            "grasped": contacts + np.arange(k),
            "touched": contacts + k + np.arange(k),
            "hits": contacts + 2 * k + np.arange(len(self.spec.pairs)),
        }
        xyzw = np.array([1, 2, 3, 0])  # MuJoCo puts w first
        free, fixed = 5, 0
        for thing in self.spec.things:
            if thing.movable:
                pos, quat, free = free, free + 3, free + 7
            else:
                pos, quat, fixed = self._mocap_pos.start + 3 * fixed, self._mocap_quat.start + 4 * fixed, fixed + 1
            columns[f"{thing.name}_pos"] = pos + np.arange(3)
            columns[f"{thing.name}_quat"] = quat + xyzw
        return columns

    def start(self, hand: np.ndarray, poses: np.ndarray) -> np.ndarray:
        state = np.zeros((len(hand), self.size))
        state[:, self.columns["eef_pos"]] = hand
        state[:, self.columns["finger_pos"]] = FINGER_OPEN, -FINGER_OPEN
        state[:, self._target] = -1.0
        for k, name in enumerate(self.spec.names):
            state[:, self.columns[f"{name}_pos"]] = poses[:, k, :3]
            state[:, self.columns[f"{name}_quat"]] = poses[:, k, 3:]
        return self._with_contacts(state)

    def step(self, state: np.ndarray, action: np.ndarray) -> np.ndarray:
        after = state.copy()
        after[:, self._target] = np.clip(state[:, self._target] + FINGER_STEP * np.sign(action[:, 3:]), -1, 1)
        goal = np.clip(state[:, self.columns["eef_pos"]] + REACH * action[:, :3], self.spec.low, self.spec.high)
        # One substep more than needed: what the sensors say at its start are the contacts of the new state.
        path = _path(state[:, self._target], after[:, self._target])
        physics, sensors = self._rollout(after, goal, path)
        after[:, self._physics] = physics[:, SUBSTEPS - 1]
        return self._put_contacts(after, sensors[:, SUBSTEPS])

    def write(self, state: np.ndarray, quantity: str, values: np.ndarray) -> np.ndarray:
        after = state.copy()
        after[:, self.columns[quantity]] = values
        return self._with_contacts(after)

    def _with_contacts(self, state: np.ndarray) -> np.ndarray:
        _, sensors = self._rollout(state, state[:, self.columns["eef_pos"]], state[:, self._target])
        return self._put_contacts(state, sensors[:, 0])

    def _put_contacts(self, state: np.ndarray, sensors: np.ndarray) -> np.ndarray:
        k = len(self.spec.things)
        found = (sensors > 0).astype(float)
        state[:, self.columns["grasped"]] = found[:, :k] * found[:, k : 2 * k]
        state[:, self.columns["touched"]] = found[:, 2 * k : 3 * k]
        state[:, self.columns["hits"]] = found[:, 3 * k :]
        return state

    def _rollout(self, state: np.ndarray, goal: np.ndarray, path: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n, steps, nq + nv) positions and velocities after each substep, and the sensors before it.

        `goal` (n, 3) is where the hand is sent, `path` (n, steps) the finger target in each substep.
        """
        if not self._datas:  # made at the first step, so that worlds that are only looked at have no threads
            self._pool = self._mujoco.rollout.Rollout(nthread=self._threads if self._threads > 1 else 0)
            self._datas = [self._mujoco.MjData(self.model) for _ in range(self._threads)]
        n, steps = path.shape
        begin = np.zeros((n, 1 + self._physics.stop))  # the first is time
        begin[:, 1:] = state[:, self._physics]
        control = np.empty((n, steps, 5 + 7 * self.model.nmocap))
        control[..., :3] = goal[:, None]
        control[..., 3] = FINGER_OPEN + (FINGER_CLOSED - FINGER_OPEN) * (path + 1) / 2
        control[..., 4] = -control[..., 3]
        control[..., 5:] = state[:, None, self._mocap_pos.start : self._mocap_quat.stop]
        physics, sensors = self._pool.rollout(self.model, self._datas, begin, control, control_spec=self._control)
        if not np.isfinite(physics).all():
            row = int(np.argmax(~np.isfinite(physics).all(axis=(1, 2))))
            raise DataError(f"row {row}: the state is impossible for the simulator")
        return physics[..., 1:], sensors

    def render(self, state: np.ndarray, spots: list[tuple[np.ndarray, str]], width: int, height: int) -> np.ndarray:
        from cbm.envs.manipulation.pictures import draw

        data = self._mujoco.MjData(self.model)
        data.qpos[:] = state[self._qpos]
        data.qvel[:] = state[self._qvel]
        data.mocap_pos[:] = state[self._mocap_pos].reshape(-1, 3)
        data.mocap_quat[:] = state[self._mocap_quat].reshape(-1, 4)
        self._mujoco.mj_forward(self.model, data)
        return draw(self._mujoco, self.model, data, spots, width, height)
