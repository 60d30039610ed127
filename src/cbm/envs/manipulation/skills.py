"""Follows scripted skills, one after another, at random: how data is made. `repertoire.py` has the skills.

When a skill ends, the next one, the thing and its parameters are drawn afresh. Some executions are disturbed as
a whole (they aim beside the thing and behave as if they had grasped it), and every action is noisy, so that the
data shows what happens when things go wrong, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cbm.envs.manipulation.legs import Courier, Leg
from cbm.envs.manipulation.scripts import Script
from cbm.envs.world import Rng

DISTURBED = 0.3  # share of executions that are
DRAWS = 12  # random numbers in [0, 1) for a skill's parameters
SPELLS = {"random": (0.2, 30), "script": (0.14, 120), "skills": (0.66, 200)}  # of `mixed`: share, steps at most
SLIPS = 0.1  # share of random actions among those of a script in `mixed`
ENJOY = 5  # steps of success after which `mixed` leaves a script


@dataclass(frozen=True)
class Moment:
    """What a skill's parameters are computed from, for the m copies that begin it."""

    world: Any
    points: np.ndarray  # (m, r, 3)
    draws: np.ndarray  # (m, DRAWS)
    disturbed: np.ndarray  # (m,)

    def at(self, place: str) -> np.ndarray:
        return self.points[:, self.world.places.index(place)]

    def inside(self, position: np.ndarray) -> np.ndarray:
        return np.clip(position, self.world.spec.low, self.world.spec.high)

    def among(self, places: tuple[str, ...], draw: np.ndarray) -> np.ndarray:
        """(m, 3) one of the places for each copy, by numbers (m,) in [0, 1)."""
        which = np.minimum((draw * len(places)).astype(int), len(places) - 1)
        return np.stack([self.at(place) for place in places], axis=1)[np.arange(len(draw)), which]


Fill = Callable[[Moment, np.ndarray], None]
"""Writes where the legs lead into the shifts (m, legs, 3), which are zero."""


@dataclass(frozen=True)
class Skill:
    name: str
    legs: list[Leg]
    fill: Fill
    share: float
    most: int
    """It is broken off after so many steps."""
    then: str = ""
    """Name of the skill that must come next."""
    needs: str = ""
    """A place that must be within the hand's reach; where it is not, the skill `instead` is done."""
    instead: str = ""


class Skills:
    """Follows one skill after another in n copies."""

    def __init__(self, world: Any, skills: list[Skill], n: int):
        self.world, self.skills = world, skills
        self.courier = Courier(world, [skill.legs for skill in skills], n, steps_back=True)
        shares = np.array([skill.share for skill in skills])
        self._bounds = np.cumsum(shares / shares.sum())
        self._most = np.array([skill.most for skill in skills])
        names = [skill.name for skill in skills]
        self._then = np.array([names.index(skill.then) if skill.then else -1 for skill in skills])
        self._needs = np.array([world.places.index(skill.needs or "hand") for skill in skills])
        self._instead = np.array([names.index(skill.instead or skill.name) for skill in skills])
        self._fresh = np.ones(n, dtype=bool)

    def restart(self, who: np.ndarray) -> None:
        """The copies `who` (n,) begin another skill at their next step."""
        self._fresh |= who

    def __call__(self, state: np.ndarray, rng: Rng) -> np.ndarray:
        n = len(state)
        choice, draws, noise = rng.random((n, 2)), rng.random((n, DRAWS)), rng.random((n, 4))
        finished, _ = self.courier.look(state)
        ended = finished | (self.courier.taken >= self._most[self.courier.plan]) | self._fresh
        forced = np.where(self._fresh, -1, self._then[self.courier.plan])
        self._fresh[:] = False
        if ended.any():
            plan = np.minimum(np.searchsorted(self._bounds, choice[:, 0], side="right"), len(self.skills) - 1)
            plan = self._possible(np.where(forced >= 0, forced, plan))
            self._aim(ended, plan, draws, choice[:, 1] < DISTURBED)
            self.courier.begin(ended, plan)
        return noisy(self.courier.act(), noise)

    def _possible(self, plan: np.ndarray) -> np.ndarray:
        """(n,) the plans, or what is done instead where they need something that is out of reach."""
        place = self.courier.points[np.arange(len(plan)), self._needs[plan], :2]
        low, high = self.world.spec.low[:2], self.world.spec.high[:2]
        return np.where(((place > low) & (place < high)).all(axis=1), plan, self._instead[plan])

    def _aim(self, who: np.ndarray, plan: np.ndarray, draws: np.ndarray, disturbed: np.ndarray) -> None:
        points = self.courier.points
        for k in np.unique(plan[who]):
            rows = np.flatnonzero(who & (plan == k))
            shift = np.zeros((len(rows), *self.courier.shift.shape[1:]))
            self.skills[k].fill(Moment(self.world, points[rows], draws[rows], disturbed[rows]), shift)
            self.courier.shift[rows] = shift


def noisy(action: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Large movements are kept below 0.8 and then blurred by 0.2; the grip keeps its sign. `noise` is in [0, 1)."""
    move, grip = action[:, :3], action[:, 3:]
    blurred = np.clip(move, -0.8, 0.8) + 0.4 * noise[:, :3] - 0.2
    return np.concatenate([np.where(np.abs(move) >= 0.6, blurred, move), grip * (0.5 + 0.5 * noise[:, 3:])], axis=1)


class Mixed:
    """Each copy goes through spells: of skills, of chance, of a task's script with slips until it succeeds."""

    def __init__(self, world: Any, skills: Skills, scripts: list[Script], n: int):
        self.world = world
        self.policies: list[Skills | Script] = [skills, *scripts]
        spells = [SPELLS["skills"], *[(SPELLS["script"][0] / len(scripts), SPELLS["script"][1])] * len(scripts)]
        self._bounds = np.cumsum([share for share, _ in [*spells, SPELLS["random"]]])
        self._most = np.array([steps for _, steps in [*spells, SPELLS["random"]]])
        self.follows, self._left, self._happy = (np.zeros(n, dtype=int) for _ in range(3))

    def __call__(self, state: np.ndarray, rng: Rng) -> np.ndarray:
        n = len(state)
        choice, anything, slip = rng.random((n, 2)), rng.uniform(-1, 1, (n, 4)), rng.random(n) < SLIPS
        self._change(state, choice)
        proposals = np.stack([*(policy(state, rng) for policy in self.policies), anything])
        scripted = (self.follows > 0) & (self.follows < len(self.policies))
        action = proposals[self.follows, np.arange(n)]
        return np.where((slip & scripted)[:, None], anything, action)

    def _change(self, state: np.ndarray, choice: np.ndarray) -> None:
        """Where a spell is over, begin another, of a random length up to its most."""
        success = self.world.success(state)
        for k, policy in enumerate(self.policies):
            if isinstance(policy, Script):
                self._happy += (self.follows == k) & success[policy.task]
        over = (self._left <= 0) | (self._happy >= ENJOY)
        follows = np.minimum(np.searchsorted(self._bounds, choice[:, 0], side="right"), len(self.policies))
        length = self._most[follows] * (0.5 + 0.5 * choice[:, 1])
        self.follows = np.where(over, follows, self.follows)
        self._left = np.where(over, length.astype(int), self._left - 1)
        self._happy[over] = 0
        for k, policy in enumerate(self.policies):
            policy.restart(over & (self.follows == k))
