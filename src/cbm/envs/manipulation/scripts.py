"""Scripts that do a task: they grasp, look, and try again when something went wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cbm.envs.manipulation.legs import CLOSE, OPEN, Courier, Leg, grasp_legs, pause, rise
from cbm.envs.world import Rng

HOVER = 0.92
FOREVER = 10**6
CROWDED = (0.045, 0.085)  # a neighbour nearer than this in x and in y is in the way of the open fingers
NUDGE_FROM, NUDGE_TO = 0.06, 0.05  # where a nudge begins and ends, before and behind the block


class Script:
    """Follows one plan in every copy; what a subclass says about where to begin is asked again after each failure."""

    def __init__(self, world: Any, n: int, task: str, plan: list[Leg]):
        self.world, self.task = world, task
        self.courier = Courier(world, [plan], n)
        self._fresh = np.ones(n, dtype=bool)

    def first_leg(self, state: np.ndarray, who: np.ndarray) -> np.ndarray:
        """(n,) the leg at which a new attempt begins; only the rows `who` are used."""
        return np.zeros(len(state), dtype=int)

    def restart(self, who: np.ndarray) -> None:
        """The copies `who` (n,) begin anew at their next step."""
        self._fresh |= who

    def __call__(self, state: np.ndarray, rng: Rng) -> np.ndarray:
        finished, lost = self.courier.look(state)
        again = self._fresh | lost | (finished & ~self.world.success(state)[self.task])
        self._fresh[:] = False
        if again.any():
            self.courier.begin(again, np.zeros(len(state), dtype=int), self.first_leg(state, again))
        return self.courier.act()


class _FetchBlock(Script):
    """Grasps `mov0`; when a neighbour is in the way of the fingers, first nudges it clear along x."""

    def __init__(self, world: Any, n: int, task: str, rest: list[Leg]):
        closed = [
            rise(HOVER, CLOSE),
            Leg(("mov0", "mov0", "room"), CLOSE, (0.0, 0.0, HOVER)),
            Leg(("room", "room", "mov0"), CLOSE, limit=25),
            Leg(("room", "room", "mov0"), CLOSE, limit=25),
        ]
        self.nudge = len(closed)
        self.attempts = np.zeros(n, dtype=int)
        super().__init__(world, n, task, closed + grasp_legs("mov0", HOVER) + rest)

    def first_leg(self, state: np.ndarray, who: np.ndarray) -> np.ndarray:
        view = self.world.view(state)
        block = view.position("mov0")
        apart = view.positions()[:, 1:] - block[:, None]  # (n, others, 3)
        close = (np.abs(apart[..., 0]) < CROWDED[0]) & (np.abs(apart[..., 1]) < CROWDED[1])
        close &= np.abs(apart[..., 2]) < 0.03
        crowded = close.any(axis=1)
        nearest = np.argmin(np.where(close, np.abs(apart[..., 1]), np.inf), axis=1)
        side = -np.sign(apart[np.arange(len(state)), nearest, 0])  # away from the neighbour
        side = np.where(side == 0, 1.0, side)
        side = np.where(np.abs(block[:, 0] + side * 0.1) > 0.28, -side, side)
        side = np.where(self.attempts % 2 == 1, -side, side)  # what did not help is not tried twice in a row
        self._aim(who & crowded, block, side)
        self.attempts += who & crowded
        return np.where(crowded, 0, self.nudge)

    def _aim(self, who: np.ndarray, block: np.ndarray, side: np.ndarray) -> None:
        shift = np.zeros((len(block), 4, 3))
        shift[:, 1, 0] = shift[:, 2, 0] = -side * NUDGE_FROM
        shift[:, 3, 0] = side * NUDGE_TO
        shift[:, 2:4, 0] += block[:, :1]
        shift[:, 2:4, 1] = block[:, 1:2]
        self.courier.shift[who, :4] = shift[who]


def pick(world: Any, n: int) -> Script:
    """Carries `mov0` to the goal and keeps it there."""
    goal = ("goal", "goal", "goal")
    up = Leg(("hand", "hand", "room"), CLOSE, (0.0, 0.0, HOVER), tolerance=0.02, limit=20, holding="mov0")
    carry = Leg(goal, CLOSE, moved="mov0", tolerance=0.0, limit=FOREVER, holding="mov0")
    return _FetchBlock(world, n, "pick", [up, carry])


def stack(world: Any, n: int) -> Script:
    """Puts `mov0` on the fixed block and lets go."""
    top = ("unmov0", "unmov0", "unmov0")
    legs = [
        Leg(("hand", "hand", "room"), CLOSE, (0.0, 0.0, HOVER), tolerance=0.02, limit=20, holding="mov0"),
        Leg(top, CLOSE, (0.0, 0.0, 0.08), moved="mov0", holding="mov0"),
        Leg(top, CLOSE, (0.0, 0.0, 0.042), moved="mov0", tolerance=0.004, limit=20, holding="mov0"),
        pause(6, OPEN),
        rise(HOVER, OPEN),
        pause(3, OPEN),
    ]
    return _FetchBlock(world, n, "stack", legs)


BLOCK_SCRIPTS: dict[str, Callable[[Any, int], Script]] = {"pick": pick, "stack": stack}


class Series(Script):
    """Pulls the cube near with the tool, lays the tool aside, and puts the cube into the pot."""

    NEAR = 0.03  # a cube with a smaller x can be grasped

    def __init__(self, world: Any, n: int):
        behind = ("cube", "cube", "head")

        def hooked(to: tuple[str, str, str], offset: tuple[float, float, float], limit: int = 40) -> Leg:
            return Leg(to, CLOSE, offset, moved="head", tolerance=0.015, limit=limit, holding="tool")

        pull = [
            *grasp_legs("tool", HOVER, lift=-0.005),
            hooked(("head", "cube", "head"), (0.0, -0.09, 0.0)),
            hooked(behind, (0.07, -0.09, 0.0)),
            hooked(behind, (0.06, 0.01, 0.0)),
            hooked(("room", "head", "head"), (-0.02, 0.0, 0.0), limit=60),
            hooked(("cube", "head", "head"), (0.06, 0.0, 0.0), limit=10),
            hooked(behind, (0.06, -0.1, 0.0), limit=25),
            pause(6, OPEN),
        ]
        self.near = len(pull)
        place = [
            *grasp_legs("cube", HOVER),
            Leg(("hand", "hand", "room"), CLOSE, (0.0, 0.0, 0.97), tolerance=0.02, limit=20, holding="cube"),
            Leg(("pot", "pot", "room"), CLOSE, (0.0, 0.0, 0.96), moved="cube", holding="cube"),
            pause(10, OPEN),
        ]
        super().__init__(world, n, "series", pull + place)

    def first_leg(self, state: np.ndarray, who: np.ndarray) -> np.ndarray:
        return np.where(self.world.view(state).position("cube")[:, 0] < self.NEAR, self.near, 0)


def series(world: Any, n: int) -> Script:
    return Series(world, n)
