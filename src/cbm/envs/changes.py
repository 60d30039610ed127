"""Other values for one variable of visited states, near what the data contains.

An edge that acts only in states that never occur cannot be seen in data and says nothing about it: a block
tilted into the table jumps, but no block ever lies so. A new value is therefore either

- a *swap*: the value that the variable had up to three steps earlier or later in the same episode, or
- a *nudge*: the old value plus or minus a part of one step's usual movement, no further than where the same
  object is found in similar states of other episodes.

Similar means that the other variables of the object (its group) are nearly the same, and so are the events
that mention it: a block on the table is compared with blocks on the table and a held one with held ones. From
each episode the most similar state counts, and of these the nearest eight say how far the variable may go.
So a block on the table is moved along it but neither lifted nor tilted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.envs.visits import Visits
from cbm.envs.world import Rng, World

NUDGE = (0.1, 1.5)
"""A nudge is so many times the usual movement in a step, evenly on a logarithmic scale."""
NUDGE_STILL = 0.05
"""For a variable that never moves, the usual movement is so much of its spread over episodes."""
NUDGE_ACTION = 0.5
"""An action changes by up to so much in each component, within [-1, 1]."""
SWAP_STEPS = 3
"""A swapped value comes from at most so many steps away."""
NEIGHBOURS = 8
"""So many similar states, from as many episodes, say how far a nudge may go; the extreme ones do not count."""
REFERENCES = 2000
"""How many visited states are searched for similar ones."""
TOO_SMALL = 0.01
"""A change of less than this share of the usual movement is none."""


@dataclass(frozen=True)
class Proposal:
    """New values for one variable in each state."""

    value: np.ndarray
    """(n,) as observed; the old value where `changed` is false."""
    changed: np.ndarray
    """(n,) booleans."""


class Changes:
    """Draws changes for the states `rows` of `visits`."""

    kinds = ("nudge", "swap")

    def __init__(self, world: World, visits: Visits, rows: np.ndarray, rng: Rng):
        self.world, self.visits, self.rows = world, visits, rows
        self.references = visits.some_of_each_episode(REFERENCES, rng)  # (episodes, r)
        self._similar: dict[str, np.ndarray] = {}  # of the group asked for last

    def propose(self, kind: str, j: int, rng: Rng) -> Proposal:
        old = self.visits.obs[self.rows, j]
        if kind == "swap":
            new = self._earlier_or_later(j, rng)
        elif self.world.factors.kinds[j] in ("binary", "categorical"):
            new = self._other_value(old, j, rng)
        else:
            new = self._nudged(old, j, rng)
        changed = np.abs(new - old) > TOO_SMALL * self._usual(j)
        return Proposal(np.where(changed, new, old), changed)

    def propose_action(self, kind: str, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        """(n, a) other actions, and (n,) booleans where they differ. A swapped one is that of any visited state."""
        old = self.visits.action[self.rows]
        count = self.world.factors.discrete_actions
        if kind == "swap":
            new = self.visits.action[rng.integers(len(self.visits), size=len(old))]
        elif count is not None:
            new = (old + rng.integers(1, max(2, count), size=old.shape)) % count
        else:
            new = np.clip(old + rng.uniform(-NUDGE_ACTION, NUDGE_ACTION, old.shape), -1, 1)
        return new, (new != old).any(axis=1)

    def _usual(self, j: int) -> float:
        return float(self.visits.movement[j] or NUDGE_STILL * self.visits.spread[j])

    def _nudged(self, old: np.ndarray, j: int, rng: Rng) -> np.ndarray:
        """To one side or, where that leads too far, to the other."""
        size = self._usual(j) * np.exp(rng.uniform(np.log(NUDGE[0]), np.log(NUDGE[1]), len(old)))
        size *= rng.choice([-1.0, 1.0], len(old))
        low, high = self._within(old, j)
        one, other = (np.clip(old + step, low, high) for step in (size, -size))
        return np.where(np.abs(one - old) >= np.abs(other - old), one, other)

    def _other_value(self, old: np.ndarray, j: int, rng: Rng) -> np.ndarray:
        """Any other one that occurs."""
        values = np.unique(self.visits.obs[:, j])
        if len(values) == 1:
            return old
        position = np.searchsorted(values, old)
        return values[(position + rng.integers(1, len(values), size=len(old))) % len(values)]

    def _earlier_or_later(self, j: int, rng: Rng) -> np.ndarray:
        away = rng.integers(1, SWAP_STEPS + 1, len(self.rows)) * rng.choice([-1, 1], len(self.rows))
        other = np.clip(self.rows + away, 0, len(self.visits) - 1)
        same = self.visits.episode[other] == self.visits.episode[self.rows]
        return self.visits.obs[np.where(same, other, self.rows), j]

    def _within(self, old: np.ndarray, j: int) -> tuple[np.ndarray, np.ndarray]:
        """(n,) lowest and highest value that variable j may take in each state; the old one is always allowed."""
        factors, seen = self.world.factors, self.visits.obs[:, j]
        group, members = next(item for item in factors.groups().items() if j in item[1])
        if len(members) == 1:
            low, high = np.full(len(old), seen.min()), np.full(len(old), seen.max())
        else:
            nearby = np.sort(seen[self._similar_states(group, members)], axis=1)
            inner = 1 if nearby.shape[1] > 3 else 0
            low, high = nearby[:, inner], nearby[:, -1 - inner]
        bottom, top = (bound[j] for bound in self.world.bounds)
        return np.minimum(np.maximum(low, bottom), old), np.maximum(np.minimum(high, top), old)

    def _similar_states(self, group: str, members: list[int]) -> np.ndarray:
        """(n, neighbours) rows of `visits` in which this object is most like it is in each state."""
        if group not in self._similar:
            here, there = self.rows, self.references.ravel()
            features = self.visits.features(group, members, self.world.factors.kinds)
            squared = (features[here] ** 2).sum(1)[:, None] + (features[there] ** 2).sum(1)
            squared -= 2 * features[here] @ features[there].T
            squared[self.visits.episode[here][:, None] == self.visits.episode[there]] = np.inf
            by_episode = squared.reshape(len(here), *self.references.shape)
            nearest = by_episode.argmin(axis=2)  # (n, episodes) the most similar state of each
            distance = np.take_along_axis(by_episode, nearest[..., None], 2)[..., 0]
            count = max(1, min(NEIGHBOURS, distance.shape[1] - 1))  # its own episode is none of them
            episodes = np.argpartition(distance, count - 1, axis=1)[:, :count]
            self._similar = {group: self.references[episodes, np.take_along_axis(nearest, episodes, 1)]}
        return self._similar[group]
