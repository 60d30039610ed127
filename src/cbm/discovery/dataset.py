"""A log as a table to learn from: input columns, targets, and rows divided into folds by episode.

Dynamics and rewards are the same problem with other columns: (s_t, a_t) -> s_{t+1}, and (s_{t+1}, a_t) -> rewards.
Shadows are extra inputs that cannot matter: real columns shifted in time by far more than an episode. They show what
"no effect" looks like for this model on this log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from cbm.discovery.differences import related_pairs
from cbm.discovery.settings import Settings
from cbm.discovery.targets import MEMORY, action_columns, change, self_memory
from cbm.factors import Kind
from cbm.transitions import Transitions

LONGEST_CLUSTER = 200  # rows; a longer episode counts as several
FEWEST_UNITS = 24  # episodes; with fewer, episodes are cut into blocks before they are divided into folds


@dataclass(frozen=True)
class Dataset:
    """One problem in plain arrays, so that it can travel to other processes as files."""

    columns: np.ndarray
    """(T, C) inputs in units of their deviation; differences of two inputs and shadows stand last."""
    owner: np.ndarray
    """(C, 2) input that a column belongs to; a difference belongs to two. Shadows count on from `inputs`."""
    inputs: int
    """Real inputs: the d variables, the action (with the context, in models of rewards) as one, then the action
    before it, where that is known."""
    action: int
    """d, the action's input; this one and those after it are not variables."""
    exogenous: int
    """From this input on, what a variable merely shows of an input tells nothing: in models of rewards the action,
    in those of dynamics the action before. (What goes with the present action may be what the action follows.)"""
    y: np.ndarray
    """(T, Q) targets in units of their deviation; a discrete target has one indicator column for each level."""
    target: np.ndarray
    """(Q,) which target a column of `y` belongs to."""
    discrete: np.ndarray
    """(K,) whether a target is discrete."""
    cluster: np.ndarray
    """(T,) rows that are not independent share a cluster: an episode, or a part of a long one."""
    fold: np.ndarray
    """(T,) fold in which a row is tested."""
    kept: np.ndarray
    """(T,) rows that are never fitted to: they choose between models."""

    @property
    def targets(self) -> int:
        return len(self.discrete)

    def without_last_action(self) -> Dataset:
        """The same without the action before; shadows move up by one."""
        last = self.action + 1
        keep = ~(self.owner == last).any(1)
        owner = self.owner[keep]
        owner = np.where(owner > last, owner - 1, owner)
        return replace(self, columns=np.asfortranarray(self.columns[:, keep]), owner=owner, inputs=self.inputs - 1)

    def variation(self) -> tuple[np.ndarray, np.ndarray]:
        """(K,) and (inputs,): rows in which a target, or an input, is not what it mostly is."""
        of_targets = [
            max(_unusual(self.y[:, q]) for q in np.flatnonzero(self.target == k)) for k in range(self.targets)
        ]
        owner = np.where(self.owner[:, 0] == self.owner[:, 1], self.owner[:, 0], -1)
        of_inputs = [max(_unusual(self.columns[:, c]) for c in np.flatnonzero(owner == j)) for j in range(self.inputs)]
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
    """What is known of each variable before any model is fitted."""

    index: np.ndarray
    """(K,) the variable of each target: those that ever change."""
    changes: np.ndarray
    """(K,) whether the change of the variable is predicted, or its next value."""
    memory: np.ndarray
    """(d,) nats by which the variable's own past helps, where its change is what is predicted."""
    moving: np.ndarray
    """(d,) whether the variable ever changes; one that never does needs no model."""


def dynamics_dataset(
    data: Transitions, settings: Settings, seed: int, last: np.ndarray | None = None
) -> tuple[Dataset, Plan]:
    """(s_t, a_t) -> s_{t+1} of every variable that ever changes; `last` (T, a) is the action before each."""
    kinds = data.factors.kinds
    moving = (data.obs != data.next_obs).any(0)
    memory = self_memory(data)
    index = np.flatnonzero(moving)
    changes = memory[index] > MEMORY
    blocks = [_input(data.obs[:, j], kinds[j]) for j in range(len(kinds))]
    blocks.append(_action(data))
    if last is not None:
        blocks.append(last)
    targets = [_outcome(data, int(i), kinds[i], bool(c)) for i, c in zip(index, changes)]
    found = _dataset(blocks, data.obs, list(data.factors.names), list(kinds), targets, data, settings, seed, True)
    return found, Plan(index, changes, np.where(memory > MEMORY, memory, 0.0), moving)


def reward_dataset(data: Transitions, settings: Settings, seed: int) -> Dataset:
    """(s_{t+1}, a_t) -> rewards, or (s_t, a_t) -> rewards; the context stands beside the action, as one input.

    The action is always in view, so that a variable that merely shows it is no cause.
    """
    kinds = data.factors.kinds
    state = data.obs if settings.reward_inputs == "state-action" else data.next_obs
    blocks = [_input(state[:, j], kinds[j]) for j in range(len(kinds))]
    if settings.reward_inputs == "both":
        blocks = [np.concatenate([b, _input(data.obs[:, j], kinds[j])], 1) for j, b in enumerate(blocks)]
    context = [values[:, None] for values in data.context.values()]
    blocks.append(np.concatenate([_action(data), *context], 1))
    targets = [_reward(values) for values in data.rewards.values()]
    return _dataset(blocks, state, list(data.factors.names), list(kinds), targets, data, settings, seed + 1, False)


def _input(values: np.ndarray, kind: Kind) -> np.ndarray:
    """(T, columns) of one variable: an angle as sine and cosine, categories as indicators."""
    if kind == "angle":
        return np.stack([np.sin(values), np.cos(values)], 1)
    if kind == "categorical":
        levels = np.unique(values)
        return (values[:, None] == levels[None, : max(1, len(levels) - 1)]).astype(float)
    return values[:, None]


def _action(data: Transitions) -> np.ndarray:
    """The action as numbers; a choice as one indicator for each alternative but the last, which follows."""
    columns = action_columns(data.action, data.factors.discrete_actions)
    return columns if data.factors.discrete_actions is None else columns[:, : max(1, columns.shape[1] - 1)]


def _outcome(data: Transitions, i: int, kind: Kind, changes: bool) -> tuple[np.ndarray, bool]:
    if changes:
        return change(data.obs[:, i], data.next_obs[:, i], kind)[:, None], False
    after = data.next_obs[:, i]
    if kind in ("binary", "categorical"):
        return _indicators(after), True
    return _input(after, kind), False


def _reward(values: np.ndarray) -> tuple[np.ndarray, bool]:
    few = len(np.unique(values[:1000])) <= 16 and len(np.unique(values)) <= 16
    return (_indicators(values), True) if few else (values[:, None], False)


def _indicators(values: np.ndarray) -> np.ndarray:
    levels = np.unique(values)
    levels = levels[1:] if len(levels) == 2 else levels
    return (values[:, None] == levels).astype(float)


def _dataset(
    blocks: list[np.ndarray], state: np.ndarray, names: list[str], kinds: list[Kind],
    targets: list[tuple[np.ndarray, bool]], data: Transitions, settings: Settings, seed: int, dynamics: bool,
) -> Dataset:  # fmt: skip
    rng = np.random.default_rng([seed, 77])
    owner = np.repeat(np.arange(len(blocks)), [b.shape[1] for b in blocks])
    owners = np.stack([owner, owner], 1)
    columns = _standardised(np.concatenate(blocks, 1))
    pairs = related_pairs(state, names, kinds, rng) if settings.differences else np.zeros((0, 2), int)
    differences = _standardised(state[:, pairs[:, 0]] - state[:, pairs[:, 1]]) if len(pairs) else columns[:, :0]
    shifted = _shifted(columns, settings.shadows, rng)
    shadow = len(blocks) + np.arange(settings.shadows)
    unit = _units(data.episode)
    order = rng.permutation(int(unit.max()) + 1)[unit]
    return Dataset(
        columns=np.asfortranarray(np.concatenate([columns, differences, shifted], 1)),
        owner=np.concatenate([owners, pairs.reshape(-1, 2), np.stack([shadow, shadow], 1)]),
        inputs=len(blocks),
        action=len(names),
        exogenous=len(names) + dynamics,
        y=_standardised(np.concatenate([y for y, _ in targets], 1), [d for y, d in targets for _ in range(y.shape[1])])
        if targets
        else np.zeros((len(data), 0)),
        target=np.repeat(np.arange(len(targets)), [y.shape[1] for y, _ in targets]),
        discrete=np.array([d for _, d in targets], bool),
        cluster=_clusters(data.episode),
        fold=order % settings.folds,
        kept=order // settings.folds % settings.kept_one_in == 0,
    )


def _standardised(columns: np.ndarray, as_is: list[bool] | None = None) -> np.ndarray:
    mean, std = columns.mean(0), columns.std(0)
    std = np.where(std > 0, std, 1.0)
    if as_is is not None:
        mean, std = np.where(as_is, 0.0, mean), np.where(as_is, 1.0, std)
    return np.asarray((columns - mean) / std)


def _shifted(columns: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Columns rolled in time, each by its own large offset: same distribution and memory, no influence."""
    n = len(columns)
    chosen = np.resize(rng.permutation(columns.shape[1]), count)
    offsets = rng.integers(n // 4, n - n // 4 + 1, count)
    return np.stack([np.roll(columns[:, c], o) for c, o in zip(chosen, offsets)], 1) if count else columns[:, :0]


def _unusual(values: np.ndarray) -> int:
    """Rows that do not have the commonest value."""
    return len(values) - int(np.unique(values, return_counts=True)[1].max())


def some_rows(episode: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Indices of at most `most` rows: whole episodes (or blocks, where these are long), drawn at random."""
    if len(episode) <= most:
        return np.arange(len(episode))
    unit = _units(episode)
    order = np.random.default_rng([seed, 76]).permutation(int(unit.max()) + 1)
    sizes = np.bincount(unit)[order]
    chosen = order[: max(1, int(np.searchsorted(np.cumsum(sizes), most, "right")))]
    return np.flatnonzero(np.isin(unit, chosen))


def _units(episode: np.ndarray) -> np.ndarray:
    """(T,) what stays together when rows are divided: episodes, or blocks of rows where episodes are few."""
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
