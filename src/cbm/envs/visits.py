"""States that a world's own policies visit, to try interventions in.

Contact is rare, so half of the states that are picked are picked for what happens in them; weights make
shares of the picked states estimates of shares of all visited ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cbm.envs.world import Rng, World

STILL = 0.01
"""A change counts as movement when it is above this share of the largest ones: simulators are never quite still."""


@dataclass(frozen=True)
class Visits:
    """m visited states, episode by episode in the order of time."""

    state: np.ndarray
    """(m, S)."""
    action: np.ndarray
    """(m, a): what the policy did there."""
    obs: np.ndarray
    """(m, d)."""
    next_obs: np.ndarray
    """(m, d)."""
    episode: np.ndarray
    """(m,)."""
    events: np.ndarray
    """(m, e) booleans: what happens in each state."""
    event_names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.state)

    @cached_property
    def spread(self) -> np.ndarray:
        """(d,) standard deviation of each variable over all states."""
        return self.obs.std(axis=0)

    @cached_property
    def change(self) -> np.ndarray:
        """(d,) standard deviation of each variable's change in one step."""
        return (self.next_obs - self.obs).std(axis=0)

    @cached_property
    def movement(self) -> np.ndarray:
        """(d,) root mean square of each variable's change in the steps in which it moves at all."""
        change = np.abs(self.next_obs - self.obs)
        moving = change > STILL * np.quantile(change, 0.999, axis=0)
        squares = np.where(moving, change**2, 0).sum(axis=0)
        return np.sqrt(squares / np.maximum(moving.sum(axis=0), 1))

    def some_of_each_episode(self, count: int, rng: Rng) -> np.ndarray:
        """(episodes, r) rows, about `count` in all and at least one of each episode."""
        episodes = int(self.episode[-1]) + 1
        length = len(self) // episodes
        each = min(length, max(1, count // episodes))
        return (
            np.arange(episodes)[:, None] * length
            + rng.permuted(np.tile(np.arange(length), (episodes, 1)), axis=1)[:, :each]
        )

    def features(self, group: str, members: Sequence[int], kinds: Sequence[str]) -> np.ndarray:
        """(m, f) an object in each state: its variables in units of their spread, and the events that mention it."""
        columns = [i for i in members if self.spread[i] > 0 and kinds[i] in ("continuous", "angle")]
        own = (self.obs[:, columns] - self.obs[:, columns].mean(axis=0)) / self.spread[columns]
        mentions = [k for k, name in enumerate(self.event_names) if group in name.split()]
        categories = [i for i in members if kinds[i] in ("binary", "categorical")]
        codes = [self.obs[:, [i]] == np.unique(self.obs[:, i]) for i in categories]
        return np.concatenate([own, self.events[:, mentions], *codes], axis=1)

    def pick(self, count: int, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
        """Rows of `count` states, or all, and their weights, which sum to 1.

        Each row has a chance of being picked that is an even share plus, for each of its events, an even
        share among the states that have this event; it weighs the inverse of that chance.
        """
        m = len(self)
        if count >= m:
            return np.arange(m), np.full(m, 1 / m)
        happen = self.events[:, self.events.any(axis=0)]
        chance = np.full(m, 1.0 / m)
        if happen.shape[1]:
            chance = 0.5 / m + 0.5 * (happen / happen.sum(axis=0)).mean(axis=1)
        chance = _inclusion(chance, count)
        ends = np.cumsum(chance)
        rows = np.unique(np.searchsorted(ends, np.arange(count) + rng.random()).clip(0, m - 1))
        weights = 1 / chance[rows]
        return rows, weights / weights.sum()


def _inclusion(chance: np.ndarray, count: int) -> np.ndarray:
    """Scaled to sum to `count`, with none above 1."""
    scaled = chance * count / chance.sum()
    for _ in range(50):
        full = scaled >= 1
        if not (scaled > 1).any():
            break
        scaled[full] = 1
        rest = scaled[~full]
        scaled[~full] = rest * (count - full.sum()) / rest.sum()
    return np.minimum(scaled, 1)


def visit(world: World, policies: Sequence[str], steps: int, rng: Rng) -> Visits:
    """About `steps` states along whole episodes, evenly divided among the policies."""
    copies = max(1, round(steps / (len(policies) * world.horizon)))
    parts: dict[str, list[np.ndarray]] = {key: [] for key in ("state", "action", "obs", "next_obs", "events")}
    for policy in policies:
        state = world.reset(copies, rng)
        act = world.policy(policy, copies, rng)
        steps_of: dict[str, list[np.ndarray]] = {key: [] for key in parts}
        for _ in range(world.horizon):
            action = act(state, rng)
            after = world.step(state, action, rng)
            happens = world.events(state)
            row = {"state": state, "action": action, "obs": world.observe(state), "next_obs": world.observe(after)}
            row["events"] = np.stack([*happens.values()], 1) if happens else np.zeros((copies, 0), bool)
            for key, values in row.items():
                steps_of[key].append(values)
            state = after
        for key, values_of in steps_of.items():
            parts[key].append(_copy_by_copy(np.stack(values_of)))
    episode = np.repeat(np.arange(copies * len(policies)), world.horizon)
    names = tuple(world.events(state))
    return Visits(**{key: np.concatenate(arrays) for key, arrays in parts.items()}, episode=episode, event_names=names)


def _copy_by_copy(array: np.ndarray) -> np.ndarray:
    """(time, copies, ...) to (copies * time, ...)."""
    return array.swapaxes(0, 1).reshape(array.shape[0] * array.shape[1], *array.shape[2:])
