"""The seam between the manipulation worlds and a physics engine.

A backend simulates n independent copies of one scene. Its state is an (n, size) array, the whole truth
about the copies, and `columns` says in which columns the quantities that tasks, skills and observations
read are found. Nothing else of the engine is visible outside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Protocol

import numpy as np

Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Box:
    """One box of a body, its axes along those of the body."""

    half: Vector
    """Half of its lengths, in metres."""
    centre: Vector = (0.0, 0.0, 0.0)
    """In the frame of the body."""


@dataclass(frozen=True)
class Thing:
    """A rigid body on the table, made of boxes."""

    name: str
    boxes: tuple[Box, ...]
    density: float
    rgba: str
    movable: bool = True
    """Bodies that are not keep the pose they were given, whatever pushes them."""

    @property
    def rest(self) -> float:
        """Height of the body's origin above the table when it lies flat."""
        return max(box.half[2] - box.centre[2] for box in self.boxes)


@dataclass(frozen=True)
class SceneSpec:
    """What stands on the table, and where the hand may be sent."""

    things: tuple[Thing, ...]
    table: Vector
    """Half of the lengths of the table's top."""
    low: Vector
    """The hand's commanded position is clipped to [low, high]."""
    high: Vector

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(thing.name for thing in self.things)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All pairs of things, in the order of the `hits` quantity."""
        return tuple(combinations(range(len(self.things)), 2))


TABLE = 0.8
"""Height of the table's top, in metres."""
REACH = 0.05
"""A position command of 1 asks for a point so far from where the hand is."""
RATE = 20
"""Control steps in a second."""
FINGER_STEP = 0.25
"""The finger target, in [-1, 1], moves so far in one control step: 0.01 in 2 ms."""


@dataclass(frozen=True)
class Handling:
    """What plans have to know of a backend's hand."""

    lowest: float = 0.0
    """Plans do not send the hand lower than this, where its fingers would scrape over the table."""
    closing: int = 10
    """Steps in which fingers have closed on a thing."""
    firm: int = 1
    """Steps for which both pads touch a thing before it is held firmly."""
    patience: int = 3
    """Steps without that after which it is taken for lost; a pad may lose touch for a moment."""
    drifts: bool = False
    """The hand drifts for a while after it moved: plans hold it where it was sent, and wait until it stays there."""


class Backend(Protocol):
    """n copies of a scene, stepped at once.

    `columns` has, for a scene of k things: `eef_pos` (3), `eef_vel` (3), `finger_pos` (2: left >= 0,
    right <= 0 and mirrored), `finger_vel` (2), for each thing `<name>_pos` (3) and `<name>_quat` (4, in
    the order x, y, z, w), and the contacts of this very state as 0 or 1: `grasped` (k: both finger pads
    touch it), `touched` (k: any part of hand or fingers does), `hits` (one for each pair of things).
    """

    spec: SceneSpec
    size: int
    columns: dict[str, np.ndarray]
    half_open: float
    """The left finger's position half way between closed and open."""
    handling: Handling

    def start(self, hand: np.ndarray, poses: np.ndarray) -> np.ndarray:
        """States (n, size) at rest, with the hand at `hand` (n, 3), fingers open, and the things at `poses`
        (n, k, 7), position and then quaternion x, y, z, w."""
        ...

    def step(self, state: np.ndarray, action: np.ndarray) -> np.ndarray:
        """After one control step; `action` (n, 4) in [-1, 1]: where to, and the sign of closing (+) or opening (-)."""
        ...

    def write(self, state: np.ndarray, quantity: str, values: np.ndarray) -> np.ndarray:
        """A copy in which `quantity` is `values`, contacts as they then are, and all else as before."""
        ...

    def render(self, state: np.ndarray, spots: list[tuple[np.ndarray, str]], width: int, height: int) -> np.ndarray:
        """A picture (height, width, 3) of one copy's state (size,); `spots` are visual discs: centre, "marker" or
        "goal"."""
        ...
