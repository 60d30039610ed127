"""Cheetah run and Walker walk: dm_control's own physics, tasks and rewards behind the interface of a world.

A state is what is observed, what the reward reads, and the integration state of MuJoCo (positions,
velocities, and the accelerations that the constraint solver starts from), so a step is a function of
state and action: a trajectory is the one of dm_control itself, also when copies take turns on the one
simulator. Nothing in it is random but the start.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.envs.registry import install_command
from cbm.envs.screen import check_picture, import_simulator
from cbm.envs.waves import Waves
from cbm.envs.world import Policy, Rng, WorldBase, check_policy, check_values
from cbm.errors import DataError

LARGEST = (1280, 960)  # width and height of pictures


class DmcWorld(WorldBase):
    """What the two tasks share. Sizes: d observed, r readings of the reward, and the simulator's own state."""

    policies: tuple[str, ...] = ("random", "waves", "mixed")
    horizon = 1000
    parallel = True
    name: str
    task: str
    readings: int
    """How many numbers beside the observation the reward reads."""
    truth_rewards: dict[str, np.ndarray]

    def __init__(self) -> None:
        install = install_command("mujoco", ("dm_control",))
        self._mujoco, suite = (import_simulator(name, self.name, install) for name in ("mujoco", "dm_control.suite"))
        self._random = np.random.RandomState(0)  # the kind of generator that dm_control takes; seeded at each reset
        self._env = suite.load(self.name, self.task, task_kwargs={"random": self._random})
        self._physics = self._env.physics
        self._model, self._data = self._physics.model.ptr, self._physics.data.ptr
        self._model.vis.global_.offwidth, self._model.vis.global_.offheight = LARGEST  # dm_control's are 640 x 480
        self._substeps = round(self._env.control_timestep() / self._physics.timestep())
        parts = self._mujoco.mjtState
        self._parts = int(parts.mjSTATE_QPOS | parts.mjSTATE_QVEL | parts.mjSTATE_ACT | parts.mjSTATE_WARMSTART)
        self._control, self._warnings = self._data.ctrl, self._data.warning.number  # views of its memory
        self._held = b""  # the simulator's state as `_load` and `_store` left it
        self.tasks = (self.task,)
        self.factors = self._factors()
        self._start = len(self.factors) + self.readings
        self.state_size = self._start + self._mujoco.mj_stateSize(self._model, self._parts)
        self.action_size = len(self.factors.action_names)
        self.frames_per_second = round(1 / self._env.control_timestep())
        d = len(self.factors)
        self.truth = np.ones((d, d + 1), dtype=bool)  # see docs/reference/world-dmc.md for why nothing is left out

    # What the two differ in

    def _factors(self) -> Factors:
        raise NotImplementedError

    def _read(self, row: np.ndarray) -> None:
        """Write the observation and the readings of the current physics into a state."""
        raise NotImplementedError

    def _measured(self, state: np.ndarray) -> _Measured:
        """The readings of states (n, S), or of one state (S,), for the task's reward."""
        raise NotImplementedError

    # Moving states in and out of the simulator

    def _load(self, row: np.ndarray) -> None:
        """Bring the simulator into the state of a row; nothing to do when it is the one just stored."""
        values = row[self._start :]
        key = values.tobytes()
        if key != self._held:
            self._set(values)
            self._held = key

    def _set(self, values: np.ndarray) -> None:
        self._mujoco.mj_setState(self._model, self._data, values, self._parts)
        self._mujoco.mj_step1(self._model, self._data)  # what follows from it, as dm_control keeps it between steps
        self._check()

    def _store(self, row: np.ndarray) -> None:
        self._read(row)
        values = row[self._start :]
        self._mujoco.mj_getState(self._model, self._data, values, self._parts)
        self._held = values.tobytes()

    # The world

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        state = np.empty((n, self.state_size))
        for row, seed in zip(state, rng.integers(2**32, size=n)):
            self._random.seed(int(seed))
            self._env.reset()
            self._store(row)
        return state

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        after = np.empty_like(state)
        for before, control, row in zip(state, action, after):
            self._load(before)
            self._control[:] = control  # the model clips it to [-1, 1]
            self._advance()
            self._store(row)
        return after

    def _advance(self) -> None:
        """What dm_control's `Physics.step` does, without its context manager: that costs a third of a cheetah step."""
        model, data = self._model, self._data
        self._mujoco.mj_step2(model, data)
        if self._substeps > 1:
            self._mujoco.mj_step(model, data, self._substeps - 1)
        self._mujoco.mj_step1(model, data)
        self._check()

    def _check(self) -> None:
        if self._warnings.any():  # the simulator has started again from its resting state
            kind = self._mujoco.mjtWarning(int(np.argmax(self._warnings))).name
            self._warnings[:] = 0
            self._held = b""
            raise DataError(f"{self.name}: the state or action is impossible for the simulator ({kind})")

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state[:, : len(self.factors)]

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        reward = self._env.task.get_reward
        if len(state) == 1:  # numbers take dm_control half the time of arrays of one
            return {self.task: np.array([reward(self._measured(state[0]))])}
        return {self.task: reward(self._measured(state))}

    def _changed(self, state: np.ndarray, column: int, value: np.ndarray | float) -> np.ndarray:
        """A copy with other values in one column of the simulator's state, and what follows from them."""
        changed = state.copy()
        changed[:, self._start + column] = value
        return self._followed(changed)

    def _followed(self, changed: np.ndarray) -> np.ndarray:
        """Recompute what is observed from the simulator's state, in place."""
        for row in changed:
            self._load(row)
            self._read(row)
        return changed

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        check_policy(self.name, name, self.policies)
        if name == "random":
            return lambda state, rng: rng.uniform(-1, 1, (len(state), self.action_size))
        return Waves(n, self.action_size, 1 / self.frames_per_second, rng, wander=name == "mixed")

    def render(self, state: np.ndarray, width: int, height: int) -> np.ndarray:
        check_picture(width, height, LARGEST)
        self._load(state)
        try:
            return np.array(self._physics.render(height, width, camera_id="side"))
        except (RuntimeError, ImportError, AttributeError, self._mujoco.FatalError) as problem:
            raise DataError(f"cannot draw ({problem})") from None

    def _joints(self) -> list[str]:
        model = self._physics.model
        return [model.id2name(k, "joint") for k in range(model.njnt)]

    def _actuators(self) -> tuple[str, ...]:
        model = self._physics.model
        return tuple(model.id2name(k, "actuator") for k in range(model.nu))


class CheetahWorld(DmcWorld):
    """17 variables: height, pitch and six joint angles, and the velocities of these and along the track.

    Task `run`: forward speed of the centre of mass, 1 from 10 m/s on. Every variable can be set.
    """

    name = "cheetah"
    task = "run"
    readings = 1  # speed

    def __init__(self) -> None:
        super().__init__()
        data = self._data  # these arrays are views of the simulator's memory
        self._qpos, self._qvel, self._sensors = data.qpos, data.qvel, data.sensordata
        parents = np.ones(len(self.factors), dtype=bool)  # the speed of the centre of mass depends on the posture
        parents[[self.factors.index("rootz_pos"), self.factors.index("rootz_vel")]] = False  # not on the height
        self.truth_rewards = {"run": parents}

    def _factors(self) -> Factors:
        joints = self._joints()
        variables = [Variable(f"{joint}_pos", group=_part(joint)) for joint in joints[1:]]  # where along the track
        variables += [Variable(f"{joint}_vel", group=_part(joint)) for joint in joints]  # it is, is not observed
        return Factors(tuple(variables), self._actuators())

    def _read(self, row: np.ndarray) -> None:
        row[:8] = self._qpos[1:]
        row[8:17] = self._qvel
        row[17] = self._sensors[0]

    def _measured(self, state: np.ndarray) -> _Measured:
        return _Measured(speed=state.T[17])

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        check_values(self.factors, self.bounds, variable, value)
        return self._changed(state, 1 + variable, value)  # positions without rootx, then velocities


class WalkerWorld(DmcWorld):
    """24 variables: the orientations of seven bodies (two numbers each), the torso's height, nine velocities.

    Task `walk`: upright, high, and at 1 m/s or more. An orientation is the cosine and the sine of one
    angle, so neither can be set alone; `turn` sets both. Height and velocities can be set.
    """

    name = "walker"
    task = "walk"
    readings = 2  # the torso's upright direction, the speed

    def __init__(self) -> None:
        super().__init__()
        data, d = self._data, len(self.factors)
        self._xmat, self._xpos = data.xmat.reshape(-1), data.xpos
        self._qvel, self._sensors = data.qvel, data.sensordata
        self._entries = np.array([9 * body + entry for body in range(1, 8) for entry in (0, 2)])  # xx, xz
        self.settable = np.arange(d) >= 14
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        low[:14], high[:14] = -1, 1
        self.bounds = low, high
        # Height, uprightness, and the speed of the centre of mass: that reads all velocities but the vertical
        # one, and how far each body reaches up or down from its joint. Feet reach along their x, others along z.
        parents = np.ones(d, dtype=bool)
        parents[self.factors.index("rootz_vel")] = False
        for body in dict.fromkeys(variable.group for variable in self.factors.variables[:14]):
            unread = "xx" if body.endswith("foot") else "xz"
            parents[self.factors.index(f"{body}_{unread}")] = False
        self.truth_rewards = {"walk": parents}

    def _factors(self) -> Factors:
        model = self._physics.model
        bodies = [model.id2name(k, "body") for k in range(1, model.nbody)]
        moved = ["torso", "torso", *bodies]  # the body that each joint moves: rootz, rootx, rooty, the hinges
        variables = [Variable(f"{body}_{entry}", group=body) for body in bodies for entry in ("xx", "xz")]
        variables.append(Variable("height", group="torso"))
        variables += [Variable(f"{joint}_vel", group=body) for joint, body in zip(self._joints(), moved)]
        return Factors(tuple(variables), self._actuators())

    def _read(self, row: np.ndarray) -> None:
        row[:14] = self._xmat[self._entries]
        row[14] = self._xpos[1, 2]
        row[15:24] = self._qvel
        row[24] = self._xmat[17]  # zz of the torso
        row[25] = self._sensors[0]

    def _measured(self, state: np.ndarray) -> _Measured:
        columns = state.T
        return _Measured(torso_height=columns[14], torso_upright=columns[24], horizontal_velocity=columns[25])

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        self.check_settable(variable)
        check_values(self.factors, self.bounds, variable, value)
        if variable == 14:
            return self._changed(state, 0, value - self._model.body_pos[1, 2])  # rootz counts from the start's height
        return self._changed(state, variable - 15 + 9, value)

    def turn(self, state: np.ndarray, body: str, angle: np.ndarray | float) -> np.ndarray:
        """A copy in which one body is turned by this angle; all other orientations stay as they are."""
        names = [variable.group for variable in self.factors.variables[:14:2]]
        if body not in names:
            raise DataError(f"walker: no body {body!r}; there are {', '.join(names)}")
        number = 1 + names.index(body)
        changed = state.copy()
        hinges = self._start + 1  # + body number: rootz, rootx, then one hinge a body
        changed[:, hinges + number] += angle if body == "torso" else -angle  # the hinges count the other way
        for child in np.flatnonzero(self._model.body_parentid == number):
            changed[:, hinges + child] += angle
        return self._followed(changed)


class _Measured:
    """Stands for dm_control's physics before a reward function: each method returns what was measured."""

    def __init__(self, **values: np.ndarray):
        self._values = values

    def __getattr__(self, name: str) -> Any:
        value = self._values[name]
        return lambda: value


def _part(joint: str) -> str:
    return "torso" if joint.startswith("root") else joint
