"""The variables of a manipulation world: their order, names and units, and how to read quantities from a state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.envs.manipulation.backend import SceneSpec, Vector

MARKERS = 3
ACTIONS = ("move_x", "move_y", "move_z", "grip")
VELOCITY_UNIT, FINGER_UNIT, FINGER_VELOCITY_UNIT = 2.0, 0.03, 0.5


@dataclass(frozen=True)
class Quantity:
    """A group of variables that a backend reads and writes together."""

    name: str
    group: str
    variables: tuple[str, ...]
    centre: tuple[float, ...]
    """The physical value that is observed as 0."""
    unit: tuple[float, ...]
    """The physical difference that is observed as 1."""


def quantities(spec: SceneSpec, centre: Vector, unit: Vector) -> tuple[Quantity, ...]:
    """In the order of the paper: hand, fingers, things, markers. Positions are normalised by `centre` and `unit`."""

    def position(name: str, group: str) -> Quantity:
        return Quantity(name, group, tuple(f"{group}_{axis}" for axis in "xyz"), centre, unit)

    sides = ("gripper_left", "gripper_right")
    zero2, zero3, zero4 = (0.0,) * 2, (0.0,) * 3, (0.0,) * 4
    found = [
        position("eef_pos", "eef"),
        Quantity("eef_vel", "eef", tuple(f"eef_v{axis}" for axis in "xyz"), zero3, (VELOCITY_UNIT,) * 3),
        Quantity("finger_pos", "gripper", sides, zero2, (FINGER_UNIT,) * 2),
        Quantity("finger_vel", "gripper", tuple(f"{s}_v" for s in sides), zero2, (FINGER_VELOCITY_UNIT,) * 2),
    ]
    for name in spec.names:
        found.append(position(f"{name}_pos", name))
        found.append(Quantity(f"{name}_quat", name, tuple(f"{name}_q{axis}" for axis in "xyzw"), zero4, (1.0,) * 4))
    found += [position(f"marker{k}_pos", f"marker{k}") for k in range(MARKERS)]
    return tuple(found)


def factors_of(parts: tuple[Quantity, ...]) -> Factors:
    """Without ranges: nothing that moves has a hard limit."""
    variables = tuple(Variable(name, group=part.group) for part in parts for name in part.variables)
    return Factors(variables, ACTIONS)


class View:
    """Reads named quantities of a batch of states; the rows of everything it returns are the copies."""

    def __init__(self, state: np.ndarray, columns: dict[str, np.ndarray], spec: SceneSpec):
        self.state, self._columns, self._spec = state, columns, spec

    def __getitem__(self, quantity: str) -> np.ndarray:
        """(n, size of the quantity), in metres, metres per second, or as a quaternion x, y, z, w."""
        return self.state[:, self._columns[quantity]]

    @property
    def hand(self) -> np.ndarray:
        return self["eef_pos"]

    def position(self, thing: str) -> np.ndarray:
        return self[f"{thing}_pos"]

    def positions(self) -> np.ndarray:
        """(n, k, 3) of all things."""
        return np.stack([self.position(name) for name in self._spec.names], axis=1)

    def point(self, thing: str, offset: Vector) -> np.ndarray:
        """(n, 3) where a point that is fixed in the frame of a thing is now."""
        return self.position(thing) + rotated(np.array(offset), self[f"{thing}_quat"])

    def grasped(self, thing: str) -> np.ndarray:
        """(n,) booleans: both finger pads touch it."""
        return self["grasped"][:, self._spec.names.index(thing)] > 0.5

    def touched(self, thing: str) -> np.ndarray:
        """(n,) booleans: some part of the hand or the fingers touches it."""
        return self["touched"][:, self._spec.names.index(thing)] > 0.5

    def hit(self, one: str, other: str) -> np.ndarray:
        """(n,) booleans: the two things touch each other."""
        a, b = sorted((self._spec.names.index(one), self._spec.names.index(other)))
        return self["hits"][:, self._spec.pairs.index((a, b))] > 0.5


def rotated(vector: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    """A vector (3,) turned by each of the unit quaternions (n, 4) in the order x, y, z, w."""
    x, y, z, w = quaternion.T
    a, b, c = vector
    tx, ty, tz = 2 * (y * c - z * b), 2 * (z * a - x * c), 2 * (x * b - y * a)  # written out: np.cross is slow
    turned = (w * tx + y * tz - z * ty, w * ty + z * tx - x * tz, w * tz + x * ty - y * tx)
    return vector + np.stack(turned, axis=1)


def with_component(quaternion: np.ndarray, component: int, value: np.ndarray) -> np.ndarray:
    """Unit quaternions (n, 4) whose given component is `value`, clipped to [-1, 1].

    The other three are stretched or shrunk together until the length is one again: a quaternion has three
    degrees of freedom, so none of its components can be changed alone.
    """
    value = np.clip(value, -1, 1)
    others = quaternion.copy()
    others[:, component] = 0
    nothing = np.linalg.norm(others, axis=1) < 1e-9
    others[nothing, 3 if component != 3 else 2] = 1  # no direction to stretch: the turn is about the vertical
    others *= (np.sqrt(1 - value**2) / np.linalg.norm(others, axis=1))[:, None]
    others[:, component] = value
    return others
