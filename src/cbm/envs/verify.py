"""Finds the graph of a world by intervention, and how often and how strongly each of its edges acts.

In many visited states, one variable (or the action) is given another value, and both states are stepped with
the same action and the same random numbers: whatever then differs is an effect of that variable. New values
stay near what the data contains, see `changes.py`; which states, see `visits.py`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cbm.data.factors import ACTION
from cbm.envs.changes import Changes
from cbm.envs.visits import Visits, visit
from cbm.envs.world import World, check_policy
from cbm.errors import DataError

CHUNK = 1000
"""States stepped at once."""
VISITED = 30
"""So many states are visited for each one that is picked."""
NOISE_STATES = 128
"""States in which a variable is set to the value it has, to see what that alone does."""
NOISE_FACTOR = 10.0
"""An effect has to be so many times larger than that."""

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Verification:
    """What interventions showed. Arrays of cells are (d, d+1): [i, j] is about j's effect on i, the action last."""

    variables: tuple[str, ...]
    declared: np.ndarray
    """The graph that the world declares."""
    found: np.ndarray
    """Edges that acted often enough."""
    share: np.ndarray
    """Estimated share of all visited states in which the edge acts."""
    count: np.ndarray
    """Number of states in which it was seen acting."""
    median: np.ndarray
    """Effect where it acts, in units of the standard deviation of the effect variable's change in one step."""
    strong: np.ndarray
    """The 95 % quantile of the same."""
    changed: np.ndarray
    """(d+1,) share of states in which each column could be changed without leaving the data; 0: not tested."""
    moves_others: dict[str, tuple[str, ...]]
    """Variables that cannot be set alone, and what changes with them."""
    states: int
    policies: tuple[str, ...]
    seconds: float

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.variables, ACTION)

    @property
    def tested(self) -> np.ndarray:
        """(d, d+1) booleans."""
        return np.broadcast_to(self.changed > 0, self.found.shape)

    @property
    def undeclared(self) -> np.ndarray:
        """Edges that were found and are not declared."""
        return self.found & ~self.declared

    @property
    def unseen(self) -> np.ndarray:
        """Edges that are declared, were tested, and did not act."""
        return self.declared & self.tested & ~self.found

    @property
    def agrees(self) -> bool:
        return not (self.undeclared | self.unseen).any()


def verify(
    world: World,
    states: int = 2000,
    policies: Sequence[str] | None = None,
    declared: np.ndarray | None = None,
    seed: int = 0,
    tolerance: float = 0.01,
    min_share: float = 0.001,
    min_states: int = 2,
    progress: Progress | None = None,
) -> Verification:
    """The graph of a world, from about `states` states along its `policies` (all of them when not given).

    An edge acts in a state when the next value differs by more than `tolerance` times the standard deviation
    of that variable's change in one step, and by more than numerical noise. It is found when it acts in more
    than `min_share` of the states, and in at least `min_states`.
    """
    started = time.monotonic()
    policies = tuple(world.policies if policies is None else policies)
    for policy in policies:
        check_policy("verify", policy, world.policies)
    if states < 1 or tolerance < 0 or min_states < 1 or not 0 <= min_share < 1 or not policies:
        raise DataError("verify: needs states, min_states >= 1, tolerance >= 0, min_share in [0, 1), a policy")
    rng = np.random.default_rng([seed, 40])
    visits = visit(world, policies, VISITED * states, rng)
    rows, weights = visits.pick(states, rng)
    scale = effect_scale(world, visits)
    threshold = tolerance * scale[:, None] + np.zeros(len(scale) + 1)
    threshold = np.maximum(threshold, NOISE_FACTOR * _noise(world, visits, rows[:NOISE_STATES], seed))
    tally = _Tally(len(scale), len(rows))
    for start in range(0, len(rows), CHUNK):
        chunk = slice(start, start + CHUNK)
        for j, (effect, changed) in enumerate(_effects(world, visits, rows[chunk], [seed, 41, start], rng)):
            tally.add(j, start, effect / scale, effect > threshold[:, j], changed)
            if progress:
                done = start + (j + 1) / (len(scale) + 1) * min(CHUNK, len(rows) - start)
                progress(done / len(rows))
    share, count, median, strong = tally.summary(weights)
    return Verification(
        variables=world.factors.names,
        declared=np.array(world.truth if declared is None else declared, dtype=bool),
        found=(share > min_share) & (count >= min_states),
        share=share, count=count, median=median, strong=strong,
        changed=(tally.changed * weights[:, None]).sum(axis=0),
        moves_others=_moves_others(world, visits, rows[:NOISE_STATES], rng),
        states=len(rows), policies=policies, seconds=time.monotonic() - started,
    )  # fmt: skip


def effect_scale(world: World, visits: Visits) -> np.ndarray:
    """(d,) what counts as an effect of 1 on each variable: its usual change in a step, or what stands in for it."""
    scale = np.where(visits.change > 0, visits.change, 0.05 * visits.spread)
    scale[[kind in ("binary", "categorical") for kind in world.factors.kinds]] = 1
    return np.where(scale > 0, scale, 1)


def _effects(
    world: World, visits: Visits, rows: np.ndarray, stream: list[int], rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each column: (n, d) the largest effect of its changes in each state, and (n,) where it was changed."""
    state, action = visits.state[rows], visits.action[rows]
    before = _next(world, state, action, stream)
    changes = Changes(world, visits, rows, rng)
    for j in range(before.shape[1]):
        effect, tested = np.zeros(before.shape), np.zeros(len(rows), dtype=bool)
        for kind in changes.kinds if world.settable[j] else ():
            new = changes.propose(kind, j, rng)
            if not new.changed.any():
                continue
            other = world.intervene(state, j, new.value)
            after = _next(world, other, action, stream)
            at_once = difference(world, visits.obs[rows], world.observe(other))
            at_once[:, j] = 0  # what else was set with it counts only where it then moves differently
            moved = np.abs(difference(world, before, after) - at_once) * new.changed[:, None]
            effect, tested = np.maximum(effect, moved), tested | new.changed
        yield effect, tested
    effect, tested = np.zeros(before.shape), np.zeros(len(rows), dtype=bool)
    for kind in changes.kinds:
        other, changed = changes.propose_action(kind, rng)
        moved = np.abs(difference(world, before, _next(world, state, other, stream))) * changed[:, None]
        effect, tested = np.maximum(effect, moved), tested | changed
    yield effect, tested


def _next(world: World, state: np.ndarray, action: np.ndarray, stream: list[int]) -> np.ndarray:
    """What is observed one step later; equal streams give equal random numbers."""
    return world.observe(world.step(state, action, np.random.default_rng(stream)))


def difference(world: World, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n, d) `other` less `one`: 0 or 1 for categories, the shorter way round for angles, and the same for q and
    -q, which are one rotation."""
    other = other.copy()
    for columns in quaternions(world.factors.names):
        opposite = np.flatnonzero((one[:, columns] * other[:, columns]).sum(axis=1) < 0)
        other[opposite[:, None], columns] *= -1
    apart = other - one
    for i, kind in enumerate(world.factors.kinds):
        if kind == "angle":
            apart[:, i] = (apart[:, i] + np.pi) % (2 * np.pi) - np.pi
        elif kind in ("binary", "categorical"):
            apart[:, i] = np.abs(apart[:, i]) > 0.5
    return apart


def quaternions(names: Sequence[str]) -> list[list[int]]:
    """Columns that are one quaternion, by their names: a_qx, a_qy, a_qz, a_qw in any order."""
    found: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if part := re.fullmatch(r"(.*_q)[wxyz]", name):
            found.setdefault(part[1], []).append(i)
    return [columns for columns in found.values() if len(columns) == 4]


def _noise(world: World, visits: Visits, rows: np.ndarray, seed: int) -> np.ndarray:
    """(d, d+1) largest difference when each variable is set to the value that it has."""
    state, action, obs = visits.state[rows], visits.action[rows], visits.obs[rows]
    before = _next(world, state, action, [seed, 42])
    noise = np.zeros((obs.shape[1], obs.shape[1] + 1))
    for j in np.flatnonzero(world.settable).tolist():
        after = _next(world, world.intervene(state, j, obs[:, j]), action, [seed, 42])
        noise[:, j] = np.abs(difference(world, before, after)).max(axis=0)
    noise[[kind in ("binary", "categorical") for kind in world.factors.kinds]] = 0
    return noise


def _moves_others(
    world: World, visits: Visits, rows: np.ndarray, rng: np.random.Generator
) -> dict[str, tuple[str, ...]]:
    """Which other observed variables change, at the same time, when one is set: the parts of a quaternion do."""
    changes = Changes(world, visits, rows, rng)
    state, obs, names = visits.state[rows], visits.obs[rows], world.factors.names
    unit = np.where(visits.spread > 0, visits.spread, 1)
    found = {}
    for j in np.flatnonzero(world.settable).tolist():
        new = changes.propose("nudge", j, rng)
        apart = difference(world, obs, world.observe(world.intervene(state, j, new.value)))
        moved = [i for i in np.flatnonzero(np.abs(apart / unit).max(axis=0) > 1e-6) if i != j]
        if moved:
            found[names[j]] = tuple(names[i] for i in moved)
    return found


class _Tally:
    """Where each cell acted, and how strongly."""

    def __init__(self, d: int, states: int):
        self.d = d
        self.changed = np.zeros((states, d + 1), dtype=bool)
        self.rows: list[list[np.ndarray]] = [[] for _ in range(d + 1)]  # for each column: states, effect variables
        self.effects: list[list[np.ndarray]] = [[] for _ in range(d + 1)]

    def add(self, j: int, start: int, effect: np.ndarray, acts: np.ndarray, changed: np.ndarray) -> None:
        self.changed[start : start + len(changed), j] = changed
        where = np.argwhere(acts)
        self.effects[j].append(effect[acts])
        self.rows[j].append(where + [start, 0])

    def summary(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """share, count, median and 95 % quantile, each (d, d+1)."""
        share, median, strong = (np.zeros((self.d, self.d + 1)) for _ in range(3))
        count = np.zeros((self.d, self.d + 1), dtype=np.int64)
        for j in range(self.d + 1):
            where, effects = np.concatenate(self.rows[j]), np.concatenate(self.effects[j])
            for i in np.unique(where[:, 1]):
                here = where[:, 1] == i
                weight = weights[where[here, 0]]
                share[i, j], count[i, j] = weight.sum(), here.sum()
                median[i, j], strong[i, j] = _quantiles(effects[here], weight, (0.5, 0.95))
        return share, count, median, strong


def _quantiles(values: np.ndarray, weights: np.ndarray, at: Sequence[float]) -> np.ndarray:
    order = np.argsort(values)
    below = np.cumsum(weights[order]) / weights.sum()
    return values[order][np.searchsorted(below, at).clip(0, len(values) - 1)]
