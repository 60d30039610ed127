"""Plans for the hand: legs that bring a point to a place, executed for many copies at once.

A plan is a list of legs. Skills and task scripts are tables of plans; which one a copy follows, how far it has
come, and how its places are shifted are arrays over the copies, so nothing here loops over them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

import numpy as np

from cbm.envs.manipulation.backend import REACH, Vector

CLOSE, OPEN = 1.0, -1.0
STILL = 0.001  # a hand that moves less than this in a step is not getting anywhere
SETTLED = 0.007  # a hand that drifts and is so near to where it was sent stays there
NEAR = 0.03  # a point that is so near to where it was sent is kept there
PATIENCE = 3  # steps of that before it goes back


class Places(Protocol):
    """What plans need to know of a world."""

    places: tuple[str, ...]
    """Names of the points that `points` gives, among them "hand" and "room", which is the origin."""
    spec: Any
    backend: Any

    def points(self, state: np.ndarray) -> np.ndarray: ...

    def view(self, state: np.ndarray) -> Any: ...


@dataclass(frozen=True)
class Leg:
    """Move until the point `moved` is at the place, then go on to the next leg."""

    to: tuple[str, str, str]
    """The place, for each axis: a named point, plus the offset. The hand itself stands for no movement."""
    grip: float
    offset: Vector = (0.0, 0.0, 0.0)
    moved: str = "hand"
    tolerance: float = 0.01
    """Arrived when closer than this."""
    stay: int = 1
    """Steps to be there."""
    limit: int = 60
    """Go on after so many steps in any case."""
    until: str = ""
    """Arrived only when this thing is grasped."""
    holding: str = ""
    """The plan is lost when this thing is not grasped for a few steps during this leg."""


HERE = ("hand", "hand", "hand")


def rise(height: float, grip: float) -> Leg:
    return Leg(("hand", "hand", "room"), grip, (0.0, 0.0, height), tolerance=0.02, limit=25)


def pause(steps: int, grip: float, holding: str = "") -> Leg:
    return Leg(HERE, grip, tolerance=inf, stay=steps, holding=holding)


def grasp_legs(
    thing: str, height: float, at: str = "", lift: float = 0.0, near: float = 0.01, wait: int = 2, limit: int = 10
) -> list[Leg]:
    """Above the thing (or its point `at`), down to `lift` over it, close until it is grasped."""
    at = at or thing
    return [
        rise(height, OPEN),
        Leg((at, at, "room"), OPEN, (0.0, 0.0, height), tolerance=near),
        Leg((at, at, at), OPEN, (0.0, 0.0, lift), tolerance=near, limit=25),
        pause(wait, OPEN),
        Leg(HERE, CLOSE, tolerance=inf, until=thing, limit=limit),
    ]


@dataclass
class Courier:
    """Follows one plan of `plans` in each of n copies."""

    world: Places
    plans: list[list[Leg]]
    n: int
    steps_back: bool = False
    """Go back one leg when the hand is stuck."""
    plan: np.ndarray = field(init=False)  # (n,) index of the plan
    at: np.ndarray = field(init=False)  # (n,) index of the leg
    taken: np.ndarray = field(init=False)  # (n,) steps since the plan began
    shift: np.ndarray = field(init=False)  # (n, legs, 3) added to the offsets

    def __post_init__(self) -> None:
        self._length = np.array([len(plan) for plan in self.plans])
        self._most = int(self._length.max())
        places, things = self.world.places, ("", *self.world.spec.names)
        self._handling = self.world.backend.handling

        def table(read: Any) -> np.ndarray:
            rows = [[read(leg) for leg in (*plan, *[plan[-1]] * (self._most - len(plan)))] for plan in self.plans]
            return np.array(rows)

        self._to = table(lambda leg: [places.index(name) for name in leg.to])
        self._moved = table(lambda leg: places.index(leg.moved))
        self._offset = table(lambda leg: leg.offset)
        self._grip = table(lambda leg: leg.grip)
        handling = self._handling
        pause = SETTLED if handling.drifts else inf  # counts the steps in which the hand stays where it was sent
        self._tolerance = table(lambda leg: leg.tolerance if leg.until or leg.to != HERE else min(leg.tolerance, pause))
        self._stay = table(lambda leg: max(leg.stay, handling.firm) if leg.until else leg.stay)
        self._limit = table(lambda leg: max(leg.limit, handling.closing) if leg.until else leg.limit)
        self._until = table(lambda leg: things.index(leg.until))
        self._holding = table(lambda leg: things.index(leg.holding))
        self._rows = np.arange(self.n)
        self.plan, self.at, self.taken = (np.zeros(self.n, dtype=int) for _ in range(3))
        self._count, self._there, self._still, self._empty = (np.zeros(self.n, dtype=int) for _ in range(4))
        self.shift = np.zeros((self.n, self._most, 3))
        self._hand_before = np.full((self.n, 3), inf)
        self._points = np.zeros((self.n, len(places), 3))
        self._kept, self._sent = np.zeros((self.n, 3)), np.zeros((self.n, 3))
        self._sent_what = np.full(self.n, -1)

    def begin(self, who: np.ndarray, plan: np.ndarray, at: np.ndarray | int = 0) -> None:
        """The copies `who` (n,) start their `plan` (n,) at leg `at`; others go on with what they are doing."""
        self.plan = np.where(who, plan, self.plan)
        self.at = np.where(who, at, self.at)
        for counter in (self.taken, self._count, self._there, self._still, self._empty):
            counter[who] = 0
        self._sent_what[who] = -1

    @property
    def points(self) -> np.ndarray:
        """(n, r, 3) the world's points in the state last looked at."""
        return self._points

    def look(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Goes on to the next leg where one is done. Returns (n,) booleans: plan finished, plan lost."""
        self._points, grasped = self.world.points(state), self._grasped(state)
        key = self.plan, self.at
        distance = np.linalg.norm(self._gap(), axis=1)
        there = (distance < self._tolerance[key]) & grasped[self._rows, self._until[key]]
        self._there = np.where(there, self._there + 1, 0)
        done = (self._there >= self._stay[key]) | (self._count >= self._limit[key])
        self._count += 1
        self._move(np.where(done, 1, 0))
        if self.steps_back:
            self._move(-self._stuck(self._points[:, 0], there))
        finished = self.at >= self._length[self.plan]
        self.at = np.minimum(self.at, self._length[self.plan] - 1)
        holds = grasped[self._rows, self._holding[self.plan, self.at]]
        self._empty = np.where(holds, 0, self._empty + 1)
        return finished, self._empty >= self._handling.patience

    def act(self) -> np.ndarray:
        """The action (n, 4) that each copy's leg asks for in the state last looked at."""
        self.taken += 1
        self._keep()
        gap = self._gap()
        self._sent_what = self._moved[self.plan, self.at]
        self._sent = self._points[self._rows, self._sent_what] + gap
        grip = self._grip[self.plan, self.at]
        return np.concatenate([np.clip(gap / REACH, -1, 1), grip[:, None]], axis=1)

    def _grasped(self, state: np.ndarray) -> np.ndarray:
        """(n, 1 + things) whose first column, for "no thing", is true."""
        held = self.world.view(state)["grasped"] > 0.5
        return np.concatenate([np.ones((self.n, 1), dtype=bool), held], axis=1)

    def _gap(self) -> np.ndarray:
        """(n, 3) from the moved point to the place where it should be."""
        key, points = (self.plan, self.at), self._points
        to, moved = self._to[key], self._moved[key]
        place = points[self._rows[:, None], to, np.arange(3)]
        if self._handling.drifts:
            place = np.where(to == moved[:, None], self._kept, place)
        place = place + self._offset[key] + self.shift[self._rows, self.at]
        place[moved == 0, 2] = np.maximum(place[moved == 0, 2], self._handling.lowest)
        return place - points[self._rows, moved]

    def _keep(self) -> None:
        """Where a leg begins, decides where its point is kept along axes on which it is not to move: where the leg
        before sent it, if it came near, else where it is."""
        moved = self._moved[self.plan, self.at]
        now = self._points[self._rows, moved]
        near = (np.linalg.norm(self._sent - now, axis=1) < NEAR) & (self._sent_what == moved)
        kept = np.where(near[:, None], self._sent, now)
        self._kept = np.where((self._count == 0)[:, None], kept, self._kept)

    def _move(self, by: np.ndarray) -> None:
        changed = by != 0
        self.at = np.maximum(self.at + by, 0)
        for counter in (self._count, self._there, self._still):
            counter[changed] = 0

    def _stuck(self, hand: np.ndarray, there: np.ndarray) -> np.ndarray:
        """(n,) 1 where a hand that should be moving has not been for some steps."""
        key = self.plan, np.minimum(self.at, self._length[self.plan] - 1)
        still = (np.linalg.norm(hand - self._hand_before, axis=1) < STILL) & ~there & np.isfinite(self._tolerance[key])
        self._still = np.where(still, self._still + 1, 0)
        self._hand_before = hand.copy()
        return (self._still >= PATIENCE).astype(int)
