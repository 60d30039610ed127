"""Transitions: the arrays of a log together with the meaning of their columns.

Divides rows into episodes, selects rows and splits off held-out data. Reading and writing files is in
`cbm.data.readers`, the meaning of columns in `cbm.data.factors`, checks of contents in `cbm.data.validate`. Rows count
from 0 in every message.
"""

from __future__ import annotations

import copy
import html
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data import readers, validate
from cbm.data.factors import Factors
from cbm.data.runs import Runs
from cbm.data.statistics import Statistics
from cbm.data.validate import MIN_ROWS, reward_array
from cbm.errors import DataError, WriteError

MIN_EPISODES = 10
"""With fewer episodes, whole episodes are too coarse a unit for held-out data."""
MIN_BLOCKS = 20
"""A log with few episodes is cut into at least this many blocks of consecutive rows."""
SHOWN = 20
"""Variables in the table shown in a notebook."""
SAME = 1e-6
"""Relative difference within which next_obs[t] and obs[t+1] count as the same state, stored twice."""


@dataclass(frozen=True, eq=False, repr=False)
class Transitions:
    """T transitions of d state variables, checked and converted to the types below on creation."""

    obs: np.ndarray
    """(T, d) float64: the state before each step."""
    action: np.ndarray
    """(T, a) float64, or (T, 1) int64 for a discrete action; (T,) is read as (T, 1)."""
    next_obs: np.ndarray
    """(T, d) float64: the state after each step."""
    factors: Factors
    """Names and kinds of the columns."""
    rewards: dict[str, np.ndarray] = field(default_factory=dict)
    """(T,) float64 for each reward, by its name."""
    context: dict[str, np.ndarray] = field(default_factory=dict)
    """(T,) float64 for each quantity on which rewards may depend and that is not part of the state, such as the goal of
    an episode: always visible to models of rewards, never modelled, never a cause."""
    terminated: np.ndarray | None = None
    """(T,) bool: the step reached an end state."""
    truncated: np.ndarray | None = None
    """(T,) bool: the episode was cut off after the step."""
    episode: np.ndarray = None  # type: ignore[assignment]
    """(T,) int64. If not given: rows up to a flag above or, without flags, rows that continue each other (a row
    continues another if its obs is the other's next_obs)."""
    truth: np.ndarray | None = None
    """(d, d+1) bool: the true graph, if the world that made the data knows it."""
    truth_rewards: dict[str, np.ndarray] = field(default_factory=dict)
    """(d,) bool for each reward: its true parents."""

    def __post_init__(self) -> None:
        names, rows, d = self.factors.names, validate.row_count(self.obs), len(self.factors)
        checked: dict[str, Any] = {
            "obs": validate.table("obs", self.obs, (rows, d), names),
            "next_obs": validate.table("next_obs", self.next_obs, (rows, d), names),
            "action": validate.action_table(self.action, rows, self.factors),
            "rewards": {k: validate.reward_vector(k, v, rows) for k, v in self.rewards.items()},
            "context": {k: validate.context_vector(k, v, rows, names) for k, v in self.context.items()},
            "terminated": validate.flags("terminated", self.terminated, (rows,)),
            "truncated": validate.flags("truncated", self.truncated, (rows,)),
            "truth": validate.flags("truth", self.truth, (d, d + 1)),
            "truth_rewards": {k: validate.flags(f"truth_reward_{k}", v, (d,)) for k, v in self.truth_rewards.items()},
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        given = self.episode is not None
        episode = validate.episode_numbers(self.episode, rows) if given else self._infer_episodes()
        object.__setattr__(self, "episode", episode)

    def _infer_episodes(self) -> np.ndarray:
        if self.terminated is not None or self.truncated is not None:
            ended = np.zeros(len(self) - 1, bool)
            for flag in (self.terminated, self.truncated):
                ended |= False if flag is None else flag[:-1]
        else:
            ended = ~continue_each_other(self.next_obs[:-1], self.obs[1:])
        return np.concatenate([[0], np.cumsum(ended)]).astype(np.int64)

    def __len__(self) -> int:
        return len(self.obs)

    def runs(self) -> Runs:
        """The episodes as runs of rows."""
        return Runs.of(self.episode)

    def statistics(self) -> Statistics:
        """Ranges of all columns."""
        rewards = {reward_array(name): values for name, values in self.rewards.items()}
        return Statistics.of({"obs": self.obs, "next_obs": self.next_obs, "action": self.action, **rewards})

    def __repr__(self) -> str:
        size = f"{len(self)} rows, {self.runs().episodes} episodes, {len(self.factors)} variables"
        return f"Transitions({size}, rewards: {', '.join(self.rewards) or 'none'})"

    def _repr_html_(self) -> str:
        """For notebooks: the size of the log, and the kinds and ranges of the first variables."""
        known = self.statistics()
        columns = list(zip(self.factors.variables, known.low["obs"], known.high["obs"], strict=True))[:SHOWN]
        rows = "".join(
            f"<tr><td>{html.escape(v.name)}</td><td>{v.kind}</td><td>{a:.4g}</td><td>{b:.4g}</td></tr>"
            for v, a, b in columns
        )
        rest = len(self.factors) - len(columns)
        more = f"<p>and {rest} more variables</p>" if rest else ""
        head = "<tr><th>variable</th><th>kind</th><th>lowest</th><th>highest</th></tr>"
        return f"<p>{html.escape(repr(self))}</p><table>{head}{rows}</table>{more}"

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        allow_constant: bool = False,
        memory: int | None = None,
        maps: str | os.PathLike[str] | None = None,
        **roles: Any,
    ) -> Transitions:
        """Read any file or directory that `cbm.data.readers` lists, or `minari:NAME`.

        `obs`, `action`, `reward`, `episode`, `time` name the columns of a table; `missing`, `rate`, `reader` are as in
        `cbm.data.roles.Roles`. Guesses and omissions are reported on the error stream. A variable, reward or action
        with a single value in the whole file is refused, since it can only be a mistake or a waste; `allow_constant`
        keeps it.

        A table that would take more than `memory` bytes (default: half of the free memory) is converted to a map on
        disk, in the directory `maps` (default: a temporary one), and its arrays are those of the map.
        """
        from cbm.data.log import Limit, read_log  # imported here because it imports this module
        from cbm.data.roles import Roles

        limit = Limit(memory, None if maps is None else Path(maps))
        log = read_log(path, Roles.of(**roles), allow_constant=allow_constant, limit=limit)
        for sentence in log.understood.sentences():
            print(f"cbm: {sentence}", file=sys.stderr)
        return log.data

    @classmethod
    def from_table(cls, table: Any, **roles: Any) -> Transitions:
        """From a data frame (pandas, polars, Arrow), a dictionary of them, or a replay buffer in memory.

        `obs`, `action`, `reward`, `episode` and `time` name columns; each is one name, a list of names or globs.
        """
        from cbm.data.log import as_transitions
        from cbm.data.roles import Roles

        return as_transitions(table, Roles.of(**roles))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write .npz or .parquet (everything, exactly) or .csv (the columns only, exactly)."""
        try:
            readers.write(path, self.to_arrays())
        except (DataError, WriteError) as error:
            raise type(error)(f"{shown_path(path)}: {error}") from None

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Transitions:
        """From the arrays of an npz file by name; unknown ones are ignored. Data frames keep the names of their
        columns."""
        arrays = validate.with_names_of_frames(arrays)
        validate.check_present(arrays)
        truths = {k.removeprefix("truth_reward_"): v for k, v in arrays.items() if k.startswith("truth_reward_")}
        return cls(
            obs=arrays["obs"],
            action=arrays["action"],
            next_obs=arrays["next_obs"],
            factors=validate.factors_of(arrays),
            rewards=validate.rewards_of(arrays),
            context={k.removeprefix("context_"): v for k, v in arrays.items() if k.startswith("context_")},
            truth_rewards=truths,
            terminated=arrays.get("terminated"),
            truncated=arrays.get("truncated"),
            episode=arrays.get("episode"),  # type: ignore[arg-type]
            truth=arrays.get("truth"),
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of an npz file; the inverse of `from_arrays`."""
        variables = self.factors.variables
        arrays = {
            "obs": self.obs,
            "action": self.action,
            "next_obs": self.next_obs,
            "episode": self.episode,
            "names": np.array(self.factors.names),
            "action_names": np.array(self.factors.action_names),
            "kinds": np.array(self.factors.kinds),
            "groups": np.array([variable.group for variable in variables]),
        }
        for side in ("low", "high"):
            bounds = [getattr(variable, side) for variable in variables]
            if any(bound is not None for bound in bounds):
                arrays[side] = np.array([np.nan if bound is None else bound for bound in bounds], float)
        if self.factors.discrete_actions is not None:
            arrays["discrete_actions"] = np.array(self.factors.discrete_actions)
        for name in ("terminated", "truncated", "truth"):
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        arrays |= {reward_array(name): values for name, values in self.rewards.items()}
        arrays |= {f"context_{name}": values for name, values in self.context.items()}
        return arrays | {f"truth_reward_{name}": values for name, values in self.truth_rewards.items()}

    def check_varies(self) -> None:
        """Raise a DataError for a variable, reward or action that never changes."""
        last, known = len(self) - 1, self.statistics()
        same = known.constant("obs")
        if same.any():
            first, *others = np.array(self.factors.names, object)[same]
            value = self.obs[0, self.factors.index(first)]
            also = f"; so are {', '.join(map(repr, others[:5]))}" if others else ""
            also += f" and {len(others) - 5} more" if len(others) > 5 else ""
            raise DataError(
                f"variable {first!r} is constant: {value:g} in obs and next_obs in rows 0 to {last}{also} "
                "(remove it, or set allow_constant)"
            )
        for name, values in self.rewards.items():
            if known.constant(reward_array(name)).all():
                raise DataError(
                    f"array {reward_array(name)!r}: reward {name!r} is constant: "
                    f"{values[0]:g} in rows 0 to {last} (remove it, or set allow_constant)"
                )
        if known.constant("action").all():
            raise DataError(
                f"array 'action' is constant: {self.action[0].tolist()} in rows 0 to {last} "
                "(no effect of it can be found; set allow_constant to read the file all the same)"
            )

    def select(self, rows: Any) -> Transitions:
        """Some of the rows, by indices, mask or slice; they keep their episode numbers."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            rows = rows if rows.size else slice(0)  # an empty list becomes floats, which do not index
        index = np.atleast_1d(np.arange(len(self))[rows])
        if not len(index):
            raise DataError("no rows are selected")
        part = copy.copy(self)  # checked data need no second check, and may have fewer rows than MIN_ROWS
        for name in ("obs", "action", "next_obs", "terminated", "truncated", "episode"):
            values = getattr(self, name)
            object.__setattr__(part, name, None if values is None else values[index])
        for name in ("rewards", "context"):
            object.__setattr__(part, name, {key: values[index] for key, values in getattr(self, name).items()})
        return part

    def head(self, n: int) -> Transitions:
        """The first n rows, or all if there are fewer."""
        return self.select(slice(0, max(0, n)))

    def split(self, held_out: float = 0.1, seed: int = 0) -> tuple[Transitions, Transitions]:
        """Training and held-out rows, divided by whole episodes, so that neighbouring rows are not on both sides.

        If whole episodes cannot give roughly the requested share (fewer than 10 episodes, or very unequal ones), rows
        are first cut into blocks of consecutive rows, at least 20 if there are that many rows.
        """
        if not 0 < held_out < 1:
            raise DataError(f"the share to hold out must lie between 0 and 1, not {held_out}")
        if len(self) < MIN_ROWS:
            raise DataError(f"a split needs at least {MIN_ROWS} rows, not {len(self)}")
        rng = np.random.default_rng(seed)
        _, unit = np.unique(self.episode, return_inverse=True)
        held = _held_out_units(unit, held_out, rng)
        if unit.max() + 1 < MIN_EPISODES or not 0.5 <= held.mean() / held_out <= 2:
            blocks = min(len(self), max(MIN_BLOCKS, int(np.ceil(2 / held_out))))
            position = np.argsort(np.argsort(unit, kind="stable"))  # rows of one episode become neighbours
            held = _held_out_units(position * blocks // len(self), held_out, rng)
        return self.select(~held), self.select(held)


def _held_out_units(unit: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Mask (T,) of rows in randomly chosen units, each taken if it brings the share closer to the target."""
    sizes = np.bincount(unit)
    target, total = share * len(unit), 0
    chosen = np.zeros(len(sizes), bool)
    order = rng.permutation(len(sizes))
    for i in order:
        if abs(total + sizes[i] - target) < abs(total - target):
            chosen[i] = True
            total += sizes[i]
    if not chosen.any():
        chosen[order[np.argmin(sizes[order])]] = True
    if chosen.all():
        chosen[order[0]] = False
    return chosen[unit]


def continue_each_other(next_obs: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """Booleans, row by row: whether two states are the same one, stored twice."""
    same = np.abs(next_obs - obs) <= SAME * np.maximum(np.abs(next_obs), np.abs(obs))
    return np.asarray(same.all(axis=1))


def shown_path(path: str | os.PathLike[str]) -> str:
    """A path as shown in a one-line message."""
    text = os.fspath(path)
    return text if text.isprintable() else repr(text)
