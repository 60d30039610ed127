"""A log as a table to learn from: input columns, targets, and rows divided into folds by episode.

Dynamics and rewards are the same problem with different columns: (s_t, a_t) -> s_{t+1}, and (s_{t+1}, a_t) -> rewards.
Shadows are extra inputs that cannot matter: real columns shifted in time by far more than an episode. They show what
"no effect" looks like for this model on this log.

A target that often has one value (a block at rest, a reward of zero) has two parts: whether it has another value, and
which one, in the rows where it has. log p(y | x) = log p(other | x) + other * log p(y | x, other), so that the effect
of an input on the target is its effect on the first part, plus its effect on the second part times that part's share of
the rows. Targets that move together, like the coordinates of one block, share their first part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cbm.data.factors import Kind
from cbm.data.transitions import Transitions
from cbm.discovery.last_action import action_numbers
from cbm.discovery.settings import (
    AT_REST,
    FEWEST_APART,
    FEWEST_UNITS,
    LONGEST_CLUSTER,
    ROUNDING,
    SAME_EVENT,
    SELF_MEMORY,
    USUAL_SHARE,
    Settings,
)
from cbm.discovery.targets import change, self_memory


@dataclass(frozen=True)
class Dataset:
    """One problem in plain arrays, which can be sent to other processes as files."""

    columns: np.ndarray
    """(T, C) standardised inputs; shadows come last."""
    owner: np.ndarray
    """(C,) the input that each column belongs to; shadows are numbered from `inputs` on."""
    inputs: int
    """Number of real inputs: the d variables, the action as one (in models of rewards together with the context), then
    the previous action, if it is known."""
    action: int
    """d, the index of the action; this input and those after it are not variables."""
    exogenous: int
    """First of the exogenous inputs: a variable that merely shows one of them carries no information of its own. In
    models of rewards this is the action, in models of the dynamics the previous action. (A variable related to the
    present action may be what the action depends on.)"""
    angles: np.ndarray
    """(T, A) the inputs that are angles, in radians; the angle between two of them depends on both."""
    angle_owner: np.ndarray
    """(A,) the indices of these inputs."""
    y: np.ndarray
    """(T, Q) targets: standardised columns, or one indicator column for each level of a discrete target."""
    part: np.ndarray
    """(Q,) the part that each column of `y` belongs to."""
    discrete: np.ndarray
    """(P,) whether a part is discrete."""
    within: np.ndarray
    """(P,) the column of `y` that is 1 in the rows that a part covers; -1: it covers all rows."""
    share: np.ndarray
    """(K, P) weight of each part in each target: its share of the rows, 0 for parts of other targets."""
    unit: np.ndarray
    """(P,) standard deviation of the variable whose change a part is, in units of the part's own; 0: it is not a
    change."""
    cluster: np.ndarray
    """(T,) rows that are not independent share a cluster: an episode, or a piece of a long one."""
    fold: np.ndarray
    """(T,) fold in which a row is tested."""
    kept: np.ndarray
    """(T,) booleans: validation rows, which are never fitted to and choose between models."""
    rank: np.ndarray
    """(T,) position of a row's episode in a random order; of more rows than a model is fitted to, the first ones are
    taken."""

    @property
    def targets(self) -> int:
        return len(self.share)

    @property
    def parts(self) -> int:
        return len(self.discrete)

    def columns_of(self, part: int) -> np.ndarray:
        """The columns of `y` that belong to a part."""
        return np.flatnonzero(self.part == part)

    def rows_of(self, part: int) -> np.ndarray:
        """(T,) booleans: the rows that a part covers."""
        within = int(self.within[part])
        return np.ones(len(self.y), bool) if within < 0 else self.y[:, within] == 1

    def before(self, part: int, own: int) -> np.ndarray | None:
        """(T,) the variable whose change a part is, in units of the change; None: the part is not a change."""
        if own < 0 or not self.unit[part]:
            return None
        return np.asarray(self.columns[:, int(np.flatnonzero(self.owner == own)[0])] * self.unit[part])

    def without_last_action(self) -> Dataset:
        """The same without the previous action; shadows move up by one."""
        last = self.action + 1
        keep = self.owner != last
        owner = self.owner[keep]
        owner = np.where(owner > last, owner - 1, owner)
        return replace(self, columns=np.asfortranarray(self.columns[:, keep]), owner=owner, inputs=self.inputs - 1)

    def variation(self) -> tuple[np.ndarray, np.ndarray]:
        """(K,) and (inputs,): number of rows in which a target, or an input, differs from its most common value."""
        of_parts = np.array([max(_unusual(self.y[:, q]) for q in self.columns_of(p)) for p in range(self.parts)], int)
        of_targets = [of_parts[share > 0].max() for share in self.share]
        of_inputs = [
            max(_unusual(self.columns[:, c]) for c in np.flatnonzero(self.owner == j)) for j in range(self.inputs)
        ]
        return np.array(of_targets, int), np.array(of_inputs, int)

    def arrays(self, prefix: str) -> dict[str, np.ndarray]:
        return {f"{prefix}.{f.name}": np.asarray(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def load(cls, shared: Mapping[str, np.ndarray], prefix: str) -> Dataset:
        parts: dict[str, Any] = {f.name: shared[f"{prefix}.{f.name}"] for f in fields(cls)}
        numbers: dict[str, Any] = {name: int(part) for name, part in parts.items() if np.ndim(part) == 0}
        return cls(**{**parts, **numbers})


@dataclass(frozen=True)
class Plan:
    """What is known about each variable before any model is fitted."""

    index: np.ndarray
    """(K,) the variable of each target; only variables that ever change are targets."""
    changes: np.ndarray
    """(K,) whether the change of the variable is predicted, instead of its next value."""
    memory: np.ndarray
    """(d,) nats by which the variable's own past helps, if its change is predicted."""
    moving: np.ndarray
    """(d,) whether the variable ever changes; one that never does needs no model."""


def dynamics_dataset(
    data: Transitions, settings: Settings, seed: int, last: np.ndarray | None = None
) -> tuple[Dataset, Plan]:
    """(s_t, a_t) -> s_{t+1} of every variable that ever changes; `last` (T, a) is the previous action of each row."""
    kinds = data.factors.kinds
    moving = (data.obs != data.next_obs).any(0)
    memory = self_memory(data)
    index = np.flatnonzero(moving)
    changes = memory[index] > SELF_MEMORY
    blocks = [_input(data.obs[:, j], kinds[j]) for j in range(len(kinds))]
    blocks.append(action_numbers(data.action, data.factors))
    if last is not None:
        blocks.append(last)
    mixed = settings.model != "explicit"
    targets = [_outcome(data, int(i), kinds[i], bool(c), mixed) for i, c in zip(index, changes)]
    found = _dataset(blocks, targets, data, settings, seed, data.obs, dynamics=True)
    return found, Plan(index, changes, np.where(memory > SELF_MEMORY, memory, 0.0), moving)


def reward_dataset(data: Transitions, settings: Settings, seed: int) -> Dataset:
    """(s_{t+1}, a_t) -> rewards, or (s_t, a_t) -> rewards; the action and the context are one input together.

    The action is always in view, so a variable that merely shows it is no cause.
    """
    kinds = data.factors.kinds
    state = data.obs if settings.reward_inputs == "state-action" else data.next_obs
    blocks = [_input(state[:, j], kinds[j]) for j in range(len(kinds))]
    if settings.reward_inputs == "both":
        blocks = [np.concatenate([b, _input(data.obs[:, j], kinds[j])], 1) for j, b in enumerate(blocks)]
    context = [values[:, None] for values in data.context.values()]
    blocks.append(np.concatenate([action_numbers(data.action, data.factors), *context], 1))
    targets = [_reward(values, settings.model != "explicit") for values in data.rewards.values()]
    return _dataset(blocks, targets, data, settings, seed + 1, state, dynamics=False)


def _input(values: np.ndarray, kind: Kind) -> np.ndarray:
    """(T, columns) of one variable: an angle as sine and cosine, categories as indicators."""
    if kind == "angle":
        return np.stack([np.sin(values), np.cos(values)], 1)
    if kind == "categorical":
        levels = np.unique(values)
        return (values[:, None] == levels[None, : max(1, len(levels) - 1)]).astype(float)
    return values[:, None]


@dataclass(frozen=True)
class _Part:
    """What is predicted by one series of models."""

    y: np.ndarray
    """(T, q)."""
    discrete: bool = False
    within: np.ndarray | None = None
    """(T,) the rows it covers; None: all."""
    before: np.ndarray | None = None
    """(T,) the value whose change `y` is; None: `y` is not a change, or is the change of an angle, which has no
    limits."""


def _outcome(data: Transitions, i: int, kind: Kind, changes: bool, mixed: bool) -> list[_Part]:
    if changes:
        parts = _split(change(data.obs[:, i], data.next_obs[:, i], kind), mixed)
        return parts if kind == "angle" else [*parts[:-1], replace(parts[-1], before=data.obs[:, i])]
    after = data.next_obs[:, i]
    if kind in ("binary", "categorical"):
        return [_Part(_indicators(after), discrete=True)]
    return [_Part(_input(after, kind))] if kind == "angle" else _split(after, mixed)


def _reward(values: np.ndarray, mixed: bool) -> list[_Part]:
    few = len(np.unique(values[:1000])) <= 16 and len(np.unique(values)) <= 16
    return [_Part(_indicators(values), discrete=True)] if few else _split(values, mixed)


def _split(values: np.ndarray, mixed: bool) -> list[_Part]:
    """Two parts, whether the value is unusual and which value it is; or one part if no value is usual.

    A single Gaussian (not `mixed`), as in explicit models, has no usual value. Of a variable with few levels, such as a
    count, only a value that most rows have is usual: otherwise its other values are usual, too.
    """
    other = _unusual_rows(values) if mixed else None
    if other is not None and 2 * other.sum() >= len(other) and len(np.unique(values)) <= 16:
        other = None
    if other is None or min(other.sum(), (~other).sum()) < FEWEST_APART:
        return [_Part(values[:, None])]
    return [_Part(other[:, None].astype(float), discrete=True), _Part(values[:, None], within=other)]


def _unusual_rows(values: np.ndarray) -> np.ndarray | None:
    """(T,) booleans: rows whose value is not the usual one; None if no value is usual.

    In a simulator, resting objects tremble, and objects that come to rest move less and less. So the usual value is one
    that many rows share up to rounding, and all values close to it count as equal to it.
    """
    ordered, many = np.sort(values), max(2, int(USUAL_SHARE * len(values)))
    width = ordered[many - 1 :] - ordered[: len(values) - many + 1]
    start, unit = int(width.argmin()), float(values.std())
    if width[start] > ROUNDING * unit:
        return None
    return np.asarray(np.abs(values - ordered[start + many // 2]) > AT_REST * unit)


def _indicators(values: np.ndarray) -> np.ndarray:
    levels = np.unique(values)
    levels = levels[1:] if len(levels) == 2 else levels
    return (values[:, None] == levels).astype(float)


def _dataset(
    blocks: list[np.ndarray], targets: list[list[_Part]], data: Transitions, settings: Settings, seed: int,
    state: np.ndarray, dynamics: bool,
) -> Dataset:  # fmt: skip
    rng = np.random.default_rng([seed, 77])
    owner = np.repeat(np.arange(len(blocks)), [b.shape[1] for b in blocks])
    columns = _standardised(np.concatenate(blocks, 1))
    shifted = _shifted(columns, settings.shadows, rng)
    shadow = len(blocks) + np.arange(settings.shadows)
    unit = _units(data.episode)
    order = rng.permutation(int(unit.max()) + 1)[unit]
    angle_owner = np.array([j for j, kind in enumerate(data.factors.kinds) if kind == "angle"], int)
    return Dataset(
        columns=np.asfortranarray(np.concatenate([columns, shifted], 1)),
        owner=np.concatenate([owner, shadow]),
        inputs=len(blocks),
        action=len(data.factors),
        exogenous=len(data.factors) + dynamics,
        angles=np.asfortranarray(state[:, angle_owner]),
        angle_owner=angle_owner,
        cluster=_clusters(data.episode),
        fold=order % settings.folds,
        kept=order // settings.folds % settings.kept_one_in == 0,
        rank=order,
        **_tabulated(_with_shared_events(targets), len(data)),
    )


def _with_shared_events(targets: list[list[_Part]]) -> list[list[_Part]]:
    """Targets that move in nearly the same rows share one event: that any of them moves.

    In the few rows in which only some of them move, the second part of the others contains their usual value.
    """
    groups: list[list[int]] = []
    for k, parts in enumerate(targets):
        if len(parts) == 2:
            mates = next((g for g in groups if _same_event(targets[g[0]][0].y, parts[0].y)), None)
            groups.append([k]) if mates is None else mates.append(k)
    result = list(targets)
    for group in groups:
        event = np.any([targets[k][0].y for k in group], 0)
        for k in group:
            first, second = targets[k]
            result[k] = [replace(first, y=event.astype(float)), replace(second, within=event[:, 0])]
    return result


def _same_event(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a != b).sum() <= SAME_EVENT * min(a.sum(), b.sum()))


def _tabulated(targets: list[list[_Part]], rows: int) -> dict[str, np.ndarray]:
    """The parts of all targets as columns; a part that several targets share is stored once."""
    places: dict[bytes, int] = {}
    columns: list[np.ndarray] = []
    part: list[int] = []
    discrete: list[bool] = []
    within: list[int] = []
    unit: list[float] = []
    share = np.zeros((len(targets), sum(len(parts) for parts in targets)))
    for k, parts in enumerate(targets):
        for piece in parts:
            key = piece.y.tobytes() if piece.discrete else f"{k}, not shared".encode()
            if key not in places:
                place = places[key] = len(discrete)
                within.append(-1 if piece.within is None else part.index(places[piece.within.astype(float).tobytes()]))
                columns += list(piece.y.T if piece.discrete else _standardised(piece.y, piece.within).T)
                part += [place] * piece.y.shape[1]
                discrete.append(piece.discrete)
                some = slice(None) if piece.within is None else piece.within
                scale = piece.y[some].std()  # zero for a clock: what always changes alike is no question
                unit.append(0.0 if piece.before is None or not scale else piece.before.std() / scale)
            share[k, places[key]] = 1.0 if piece.within is None else piece.within.mean()
    return {
        "y": np.stack(columns, 1) if columns else np.zeros((rows, 0)), "part": np.array(part, int),
        "discrete": np.array(discrete, bool), "within": np.array(within, int),
        "unit": np.array(unit), "share": share[:, : len(discrete)],
    }  # fmt: skip


def _standardised(columns: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """Columns standardised by their mean and deviation in `rows` (None: in all)."""
    some = columns if rows is None else columns[rows]
    mean, std = some.mean(0), some.std(0)
    return np.asarray((columns - mean) / np.where(std > 0, std, 1.0))


def _shifted(columns: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Columns rolled in time, each by its own large offset: same distribution and memory, no influence."""
    n = len(columns)
    chosen = np.resize(rng.permutation(columns.shape[1]), count)
    offsets = rng.integers(n // 4, n - n // 4 + 1, count)
    return np.stack([np.roll(columns[:, c], o) for c, o in zip(chosen, offsets)], 1) if count else columns[:, :0]


def _unusual(values: np.ndarray) -> int:
    """Number of rows that do not have the most common value."""
    return len(values) - int(np.unique(values, return_counts=True)[1].max())


def _units(episode: np.ndarray) -> np.ndarray:
    """(T,) the unit of each row when rows are divided: its episode, or a block of rows if episodes are few."""
    _, unit = np.unique(episode, return_inverse=True)
    sizes = np.bincount(unit)
    if len(sizes) >= FEWEST_UNITS and sizes.max() <= len(unit) / 8:
        return unit
    position = np.argsort(np.argsort(unit, kind="stable"), kind="stable")
    return position * min(2 * FEWEST_UNITS, len(unit)) // len(unit)


def _clusters(episode: np.ndarray) -> np.ndarray:
    place = np.arange(len(episode))
    start = np.flatnonzero(np.concatenate([[True], np.diff(episode) != 0]))
    within = place - np.repeat(start, np.diff(np.append(start, len(episode))))
    return np.cumsum(within % LONGEST_CLUSTER == 0) - 1
