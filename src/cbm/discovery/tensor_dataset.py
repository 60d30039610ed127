"""The data of a network as tensors: inputs that can be dropped one at a time, and targets.

Dynamics and rewards differ only in their columns: (s_t, a_t) -> s_{t+1}, and s_{t+1} -> rewards. Shadows are extra
inputs that cannot matter: real variables shifted in time by far more than an episode. They show what "no effect" looks
like for this model on these data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cbm.data.factors import Kind
from cbm.data.transitions import Transitions
from cbm.discovery.models.differences import related_pairs
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.settings import SELF_MEMORY
from cbm.discovery.targets import Coordinate, Target, action_columns, change, self_memory


@dataclass(frozen=True)
class Rows:
    """The rows of one split as tensors."""

    x: Tensor
    """(T, C) input columns, standardised."""
    u: Tensor
    """(T, K) targets as coordinates in [0, 1]."""
    width: Tensor
    """(T, K) width of the atom that the target falls into, 0 if it is continuous."""
    y: Tensor
    """(T, K) standardised targets, for models that predict a number."""
    level: Tensor
    """(T, K) index of the value of a discrete target."""
    cluster: np.ndarray
    """(T,) episode of each row: rows of one episode are not independent."""

    def __len__(self) -> int:
        return len(self.x)

    @property
    def device(self) -> torch.device:
        return self.x.device

    def to(self, device: torch.device) -> Rows:
        parts = {name: getattr(self, name).to(device) for name in ("x", "u", "width", "y", "level")}
        return replace(self, **parts)


@dataclass(frozen=True)
class Scale:
    """Offset and unit per column, fitted on the training rows."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def fit(cls, columns: np.ndarray) -> Scale:
        std = columns.std(0)
        return cls(columns.mean(0), np.where(std > 0, std, 1.0))

    def __call__(self, columns: np.ndarray) -> np.ndarray:
        return ((columns - self.mean) / self.std).astype(np.float32)


@dataclass(frozen=True)
class TensorDataset:
    """Everything a masked model needs to know about its data."""

    encoder: Encoder
    targets: tuple[Target, ...]
    variables: int
    """d: inputs 0 … d-1 are the state variables."""
    real_inputs: int
    """Inputs 0 … real_inputs-1 are variables and the action, the rest are shadows."""
    columns: Scale
    """Scale of the raw input columns, without shadows."""
    outputs: Scale
    """Scale of the raw targets."""
    shadow_columns: np.ndarray
    """The column that each shadow is a shifted copy of."""
    train: Rows
    held: Rows

    def to(self, device: torch.device) -> TensorDataset:
        """The rows on a device. The encoder stays on the CPU, where models are built; each model moves its own."""
        return replace(self, train=self.train.to(device), held=self.held.to(device))

    @property
    def inputs(self) -> int:
        return self.encoder.inputs

    @property
    def action_input(self) -> int | None:
        """Index of the action (in models of rewards, of action and context) among the inputs; None if it is no
        input."""
        has_action = len(self.columns.mean) > self.variables
        return self.variables if has_action else None

    @property
    def breadth(self) -> np.ndarray:
        """(real inputs,) number of columns of each; only the action has several."""
        columns = np.ones(self.real_inputs)
        columns[self.variables :] = len(self.columns.mean) - self.variables
        return columns

    @property
    def levels(self) -> tuple[int, ...]:
        return tuple(target.levels for target in self.targets)


@dataclass(frozen=True)
class Table:
    """Raw numbers of one split: inputs (T, C), targets (T, K), episodes (T,)."""

    inputs: np.ndarray
    targets: np.ndarray
    episode: np.ndarray


@dataclass(frozen=True)
class Dynamics:
    """The dataset of the dynamics, and what is known about each variable before any model is trained."""

    dataset: TensorDataset
    moving: np.ndarray
    """(d,) whether the variable ever changes; one that never does needs no model."""
    memory: np.ndarray
    """(d,) nats by which the variable's own past helps, if its change is predicted."""


def dynamics_dataset(
    train: Transitions, held: Transitions, shadows: int, seed: int, differences: bool = False
) -> Dynamics:
    """(s_t, a_t) -> s_{t+1} of every variable that ever changes."""
    kinds = train.factors.kinds
    moving = (train.obs != train.next_obs).any(0)
    memory = self_memory(train)
    plan = [(int(i), kinds[i], bool(memory[i] > SELF_MEMORY)) for i in np.flatnonzero(moving)]

    names = list(train.factors.names) if differences else []
    tables = _dynamics_table(train, plan), _dynamics_table(held, plan)
    dataset = _dataset(*tables, train, plan, shadows, seed, names)
    return Dynamics(dataset, moving, np.where(memory > SELF_MEMORY, memory, 0.0))


def dynamics_rows(dataset: TensorDataset, data: Transitions, rng: np.random.Generator) -> Rows:
    """New transitions in the coordinates that an existing dynamics dataset was fitted with."""
    return _new_rows(dataset, _dynamics_table(data, [(t.index, t.kind, t.changes) for t in dataset.targets]), rng)


def _dynamics_table(data: Transitions, plan: list[tuple[int, Kind, bool]]) -> Table:
    inputs = np.concatenate([data.obs, action_columns(data.action, data.factors.discrete_actions)], 1)
    targets = [change(data.obs[:, i], data.next_obs[:, i], k) if c else data.next_obs[:, i] for i, k, c in plan]
    return Table(inputs, np.stack(targets, 1) if targets else np.zeros((len(data), 0)), data.episode)


def reward_dataset(
    train: Transitions,
    held: Transitions,
    names: list[str],
    shadows: int,
    seed: int,
    state_action: bool = False,
    differences: bool = False,
    among_variables: bool = False,
) -> TensorDataset:
    """s_{t+1} -> rewards (or (s_t, a_t) -> rewards).

    The context is one more input beside the state, together with the action if that is an input; its own effect on a
    reward is not of interest. Differences are those from the context: a reward is often a sharp function of a few
    variables. Differences `among_variables` as well help where rows are few, but let variables that are no causes
    sharpen the picture of those that are.
    """
    rows = _reward_table(train, names, state_action)
    plan = [(k, reward_kind(rows.targets[:, k]), False) for k in range(len(names))]
    unnamed = [""] * (rows.inputs.shape[1] - len(train.factors) - len(train.context))  # the action
    named = [*train.factors.names, *unnamed, *train.context] if differences else []
    first = 0 if among_variables else rows.inputs.shape[1] - len(train.context)
    return _dataset(rows, _reward_table(held, names, state_action), train, plan, shadows, seed, named, first)


def reward_rows(
    dataset: TensorDataset, data: Transitions, names: list[str], rng: np.random.Generator, state_action: bool = False
) -> Rows:
    """New transitions in the coordinates that an existing reward dataset was fitted with."""
    return _new_rows(dataset, _reward_table(data, names, state_action), rng)


def _reward_table(data: Transitions, names: list[str], state_action: bool) -> Table:
    state = [data.obs, action_columns(data.action, data.factors.discrete_actions)]
    context = [values[:, None] for values in data.context.values()]
    inputs = np.concatenate([*(state if state_action else [data.next_obs]), *context], 1)
    return Table(inputs, np.stack([data.rewards[name] for name in names], 1), data.episode)


def reward_kind(reward: np.ndarray) -> Kind:
    """A reward with a handful of values (success or not) is categorical, not a number."""
    few = len(np.unique(reward[:1000])) <= 16 and len(np.unique(reward)) <= 16
    return "categorical" if few else "continuous"


def _dataset(
    train: Table, held: Table, data: Transitions, plan: list[tuple[int, Kind, bool]], shadows: int, seed: int,
    names: list[str], first: int = 0,
) -> TensorDataset:  # fmt: skip
    """`names` are those of the first columns; they are used to find useful differences (of column `first` or a later
    one). Empty: no differences."""
    rng = np.random.default_rng([seed, 77])
    d = len(data.factors)
    extra = train.inputs.shape[1] - d  # action columns, one node together
    kinds: list[Kind] = list(data.factors.kinds)
    kinds += ["continuous"] * extra
    groups = [*range(d), *[d] * extra]
    real_inputs = d + (extra > 0)
    columns = _input_scale(train.inputs, kinds)
    copied = np.resize(rng.permutation(d), shadows)
    blocks = [_with_shadows(columns(table.inputs), copied, rng) for table in (train, held)]
    encoder = Encoder.fit(
        blocks[0],
        [*kinds, *[kinds[c] for c in copied]],
        groups + [real_inputs + k for k in range(shadows)],
        related_pairs(train.inputs, names, kinds, np.random.default_rng([seed, 78]), first),
        columns.std,
    )
    targets = tuple(
        Target(i, kind, changes, Coordinate.fit(train.targets[:, k], kind in ("binary", "categorical")))
        for k, (i, kind, changes) in enumerate(plan)
    )
    outputs = Scale.fit(train.targets)
    rows = [_rows(block, table, targets, outputs) for block, table in zip(blocks, (train, held), strict=True)]
    return TensorDataset(encoder, targets, d, real_inputs, columns, outputs, copied, rows[0], rows[1])


def _input_scale(inputs: np.ndarray, kinds: list[Kind]) -> Scale:
    scale = Scale.fit(inputs)
    angle = np.array([kind == "angle" for kind in kinds])
    return Scale(np.where(angle, 0.0, scale.mean), np.where(angle, 1.0, scale.std))  # sine and cosine need radians


def _new_rows(dataset: TensorDataset, table: Table, rng: np.random.Generator) -> Rows:
    block = _with_shadows(dataset.columns(table.inputs), dataset.shadow_columns, rng)
    return _rows(block, table, dataset.targets, dataset.outputs)


def _with_shadows(block: np.ndarray, copied: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Append columns rolled in time, each by its own large offset: same distribution and memory, no influence."""
    n = len(block)
    offsets = rng.integers(n // 4, n - n // 4 + 1, len(copied))
    rolled = [np.roll(block[:, c], offset)[:, None] for c, offset in zip(copied, offsets, strict=True)]
    return np.concatenate([block, *rolled], 1)


def _rows(block: np.ndarray, table: Table, targets: tuple[Target, ...], outputs: Scale) -> Rows:
    n, k = table.targets.shape
    u, width = np.zeros((n, k), np.float32), np.zeros((n, k), np.float32)
    level = np.zeros((n, k), np.int64)
    for c, target in enumerate(targets):
        u[:, c], width[:, c] = target.coordinate.forward(table.targets[:, c])
        level[:, c] = target.level_of(table.targets[:, c])
    y = outputs(table.targets) if k else np.zeros((n, 0), np.float32)
    x, *rest = (torch.from_numpy(part) for part in (block, u, width, y, level))
    return Rows(x, rest[0], rest[1], rest[2], rest[3], table.episode)
