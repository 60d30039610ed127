"""What the block and the tool-use world share: their state, steps, interventions, events, pictures, policies.

A state row is the backend's state followed by three markers, the goal and the stage of the task that has
stages. The variables are columns of it in physical units; `observe` normalises them. Velocities of things, the
finger target, the goal, the contacts and the stage are in the state but not among the variables.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np

from cbm.envs.manipulation.backend import RATE, TABLE, Backend, SceneSpec, Vector
from cbm.envs.manipulation.graphs import graph, parents
from cbm.envs.manipulation.layout import MARKERS, View, factors_of, quantities, with_component
from cbm.envs.manipulation.tasks import STAGES
from cbm.envs.world import Policy, Rng, WorldBase, check_policy, check_values, whole_number
from cbm.errors import DataError, unknown_name

BACKENDS = {
    "mujoco": "cbm.envs.manipulation.simulator:MujocoBackend",
    "robosuite": "cbm.envs.manipulation.robosuite_backend:RobosuiteBackend",
}
Rules = Mapping[str, Iterable[str]]
HAND_START, HAND_SPREAD = np.array([-0.1, 0.0, 0.97]), 0.02
MARKER_LOW = np.array([-0.3, -0.3, TABLE + 0.03])
MARKER_HIGH = np.array([0.3, 0.3, TABLE + 0.05])
MARKER_STEP = 0.01


def make_backend(world: str, name: str, spec: SceneSpec, threads: int) -> Backend:
    if name not in BACKENDS:
        raise unknown_name(f"{world}: unknown backend", name, BACKENDS)
    module, constructor = BACKENDS[name].split(":")
    return cast(Backend, getattr(importlib.import_module(module), constructor)(spec, threads=threads))


class ManipulationWorld(WorldBase):
    """The part that does not depend on which things stand on the table and what is to be done with them."""

    name: str
    tasks: tuple[str, ...]
    policies: tuple[str, ...]
    horizon: int
    spec: SceneSpec
    centre: Vector
    """Physical position that is observed as (0, 0, 0)."""
    unit: Vector
    """Physical distance along each axis that is observed as 1."""
    goal_low: np.ndarray
    goal_high: np.ndarray
    action_size = 4
    context_names = ("goal_x", "goal_y", "goal_z")
    frames_per_second = RATE
    parallel = True
    more_places: tuple[str, ...] = ()
    """Names of points that `points` gives besides hand, origin, things and goal."""

    def __init__(self, backend: str, threads: int):
        threads = whole_number(self.name, "threads", threads, at_least=1)
        self.backend = make_backend(self.name, backend, self.spec, threads)
        self.parts = quantities(self.spec, self.centre, self.unit)
        self.factors = factors_of(self.parts)
        extra = ((f"marker{k}_pos", 3) for k in range(MARKERS))
        self.columns = dict(self.backend.columns)
        self.state_size = self.backend.size
        for name, size in (*extra, ("goal", 3), ("stage", 1)):
            self.columns[name] = self.state_size + np.arange(size)
            self.state_size += size
        self._variables = np.concatenate([self.columns[part.name] for part in self.parts])
        self._centre = np.concatenate([part.centre for part in self.parts])
        self._unit = np.concatenate([part.unit for part in self.parts])
        self._owner = [(part, k) for part in self.parts for k in range(len(part.variables))]
        self.places = ("hand", "room", *self.spec.names, "goal", *self.more_places)
        placed = [part.name.endswith("_pos") and part.name != "finger_pos" for part, _ in self._owner]
        self.metres = np.where(placed, self._unit, np.nan)
        self.bounds = self._limits()

    def _limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Components of a quaternion are at most 1; the rest has no limit."""
        turned = np.array([part.name.endswith("_quat") for part, _ in self._owner])
        return np.where(turned, -1.0, -np.inf), np.where(turned, 1.0, np.inf)

    # What a world of this kind adds

    def placements(self, n: int, rng: Rng) -> np.ndarray:
        """Starting poses (n, things, 7)."""
        raise NotImplementedError

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """Reward of each task (n,), computed on the state after the step."""
        raise NotImplementedError

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """(n,) booleans for each task: it is done in this state."""
        raise NotImplementedError

    def points(self, state: np.ndarray) -> np.ndarray:
        """(n, r, 3) the places that plans speak of: hand, origin of the room, things in order, goal, and more."""
        view = self.view(state)
        zero = np.zeros((len(state), 1, 3))
        return np.concatenate([view.hand[:, None], zero, view.positions(), view["goal"][:, None]], axis=1)

    def acting(self, name: str, n: int, rng: Rng) -> Policy:
        """The policy of that name, which is known and not `random`."""
        raise NotImplementedError

    # The world protocol

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        hand = HAND_START + HAND_SPREAD * rng.normal(size=(n, 3))
        hand = np.clip(hand, self.spec.low, self.spec.high)
        poses = self.placements(n, rng)
        markers = rng.uniform(MARKER_LOW, MARKER_HIGH, (n, MARKERS, 3)).reshape(n, -1)
        goal = rng.uniform(self.goal_low, self.goal_high, (n, 3))
        return np.concatenate([self.backend.start(hand, poses), markers, goal, np.zeros((n, 1))], axis=1)

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        after = state.copy()
        size = self.backend.size
        after[:, :size] = self.backend.step(state[:, :size], np.clip(action, -1, 1))
        walking = slice(size, size + 3 * MARKERS)
        moved = state[:, walking] + MARKER_STEP * rng.normal(size=(len(state), 3 * MARKERS))
        after[:, walking] = np.clip(moved, np.tile(MARKER_LOW, MARKERS), np.tile(MARKER_HIGH, MARKERS))
        return after

    def observe(self, state: np.ndarray) -> np.ndarray:
        return (state[:, self._variables] - self._centre) / self._unit

    def context(self, state: np.ndarray) -> np.ndarray:
        """(n, 3) the goal, normalised like every position."""
        return (self.view(state)["goal"] - np.array(self.centre)) / np.array(self.unit)

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        """A copy in which one observed variable is `value` (n,), in observed units.

        All else stays, the velocities of things and the finger target included; contacts are those of the new
        positions. A quaternion's other three components are rescaled, for its length must stay one.
        """
        check_values(self.factors, self.bounds, variable, value)
        part, component = self._owner[variable]
        quantity = part.name
        physical = np.asarray(value) * self._unit[variable] + self._centre[variable]
        values = state[:, self.columns[quantity]]
        if quantity.endswith("_quat"):
            values = with_component(values, component, physical)
        else:
            values[:, component] = physical
        after = state.copy()
        if quantity in self.backend.columns:
            size = self.backend.size
            after[:, :size] = self.backend.write(state[:, :size], quantity, values)
        else:
            after[:, self.columns[quantity]] = values
        return after

    def check_hidden(self, state: np.ndarray) -> None:
        """Also what one variable alone does not show: that a quaternion has length one."""
        view = self.view(state)
        for name in self.spec.names:
            length = np.linalg.norm(view[f"{name}_quat"], axis=1)
            if (np.abs(length - 1) > 1e-6).any():
                raise DataError(f"{self.name}: the quaternion of {name} has length {length.max():g}, not 1")
        stage = view["stage"]
        if not np.isin(stage, np.arange(STAGES)).all():
            raise DataError(f"{self.name}: the stage is not a whole number from 0 to {STAGES - 1}")

    def events(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """(n,) booleans for everything that may touch something."""
        view, names = self.view(state), self.spec.names
        grasps = {f"{name} grasped": view.grasped(name) for name in names}
        touches = {f"{name} touched": view.touched(name) for name in names}
        hits = {f"{names[a]} hit {names[b]}": view.hit(names[a], names[b]) for a, b in self.spec.pairs}
        return grasps | touches | hits

    def render(self, state: np.ndarray, width: int = 640, height: int = 480) -> np.ndarray:
        """A picture (height, width, 3) of one state (S,), with the markers as discs and the goal as a ball."""
        view = self.view(state[None])
        spots = [(view[f"marker{k}_pos"][0], "marker") for k in range(MARKERS)]
        return self.backend.render(state[: self.backend.size], [*spots, (view["goal"][0], "goal")], width, height)

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        check_policy(self.name, name, self.policies)
        if name == "random":
            return lambda state, rng: rng.uniform(-1, 1, (len(state), self.action_size))
        return self.acting(name, n, rng)

    # For those who read states

    def view(self, state: np.ndarray) -> View:
        return View(state, self.columns, self.spec)

    def declare(self, physical: Rules, paper: Rules, read: Rules, constant: tuple[str, ...] = ()) -> None:
        """Sets the true graphs from rules between groups, and each task's parents from the quantities it reads.

        `constant` variables have one value in all episodes: no data and no intervention within the data can show
        them to act on others, and the physical graph does not say so.
        """
        self.truths = {"physical": graph(self.factors, physical), "paper": graph(self.factors, paper)}
        self.truth = self.truths["physical"]
        for variable in (self.factors.index(name) for name in constant):
            self.truth[:, variable] = False
            self.truth[variable, variable] = True
        self.truth_rewards = {task: parents(self.parts, names) for task, names in read.items()}


def separate(
    draw: Callable[[int], np.ndarray], apart: Callable[[np.ndarray], np.ndarray], n: int, tries: int = 20_000
) -> np.ndarray:
    """Draws n starting layouts, and draws again those in which things are not `apart`."""
    poses = draw(n)
    for _ in range(tries):
        bad = np.flatnonzero(~apart(poses))
        if not len(bad):
            return poses
        poses[bad] = draw(len(bad))
    raise DataError(f"no room to start: {tries} drawn layouts have things that touch")


def upright(xy: np.ndarray, z: float, yaw: np.ndarray) -> np.ndarray:
    """Poses (n, 7) of things that stand at `xy` (n, 2), turned by `yaw` (n,) about the vertical."""
    n = len(xy)
    zero = np.zeros((n, 2))
    return np.concatenate([xy, np.full((n, 1), z), zero, np.sin(yaw / 2)[:, None], np.cos(yaw / 2)[:, None]], axis=1)


def as_choice(world: str, option: str, value: Any, known: tuple[str, ...]) -> str:
    if value not in known:
        raise unknown_name(f"{world}: unknown {option}", str(value), known)
    return str(value)
