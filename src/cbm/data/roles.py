"""Assigns roles to the columns of a log: named by the user, known from the format, or guessed if only one guess is
possible.

`Roles` holds the user's choices: names or globs for each role. `select` applies them to the names of the columns and
returns a `Selection`: one column for each variable, action and reward, what was guessed, and why other columns are
ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Literal

from cbm.errors import DataError, unknown_name

NUMBER, TEXT, TIME, EMPTY = "number", "text", "time", "empty"
"""Contents of the cells of a column."""
NAMED = ("obs", "action", "reward", "episode", "time")
"""Roles that a user can assign."""
FLAGS = ("terminated", "truncated")

_INDEX = re.compile(r"(unnamed: ?[\d.]+|index|idx|row(_?number)?|frame(_index)?|step(_index)?|__index_level_\d+__|)")
_GUESS = {
    "episode": re.compile(r"(episode|ep|run|trial|traj|trajectory|rollout|demo)([_ ]?(id|index|idx|no|nr|number))?"),
    "time": re.compile(
        r"(time|time[_ ]?stamp|stamp|datetime|date|t|clock|seconds)"
        r"(_?(s|ms|us|ns|sec|utc)| *[\[(][^\])]*[\])])?"
    ),
    "action": re.compile(r"(actions?|act|cmds?|commands?|controls?|ctrl|u)([_.:/\[ ].*|\d+)?"),
    "reward": re.compile(r"(rewards?|rew|r)(?:(?<=w|d|s)[_.:/ ].*|\d+)?"),
    "terminated": re.compile(r"(terminated|terminals?|dones?|is_terminal)"),
    "truncated": re.compile(r"(truncated|timeouts?)"),
    "obs": re.compile(r"(obs|observations?|states?)([_.:/\[ ].*|\d+)"),
}


@dataclass(frozen=True)
class Roles:
    """Names or globs of the columns for each role; empty roles are guessed or known from the format."""

    obs: tuple[str, ...] = ()
    action: tuple[str, ...] = ()
    reward: tuple[str, ...] = ()
    episode: tuple[str, ...] = ()
    """Several columns together can number the episodes, such as robot and run."""
    time: tuple[str, ...] = ()
    missing: Literal["drop", "refuse"] = "drop"
    """An empty cell drops the pairs of rows that it touches, or refuses the log."""
    rate: float | None = None
    """Rows per second, for recordings without rows (ROS); None: the rate of the slowest topic in use."""
    reader: str | None = None
    """Name of the reader, if the file does not show its format."""

    @classmethod
    def of(cls, reader: str | None = None, rate: float | None = None, missing: str = "drop", **roles: object) -> Roles:
        """From user input: one name, several, or None."""
        if missing not in ("drop", "refuse"):
            raise DataError(f"missing must be 'drop' or 'refuse', not {missing!r}")
        named = {role: _names(role, value) for role, value in roles.items()}
        return cls(**named, missing=missing, rate=rate, reader=reader)  # type: ignore[arg-type]

    @property
    def named(self) -> bool:
        return any(getattr(self, role) for role in NAMED)


def _names(role: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Iterable) else (value,)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{role} must be a column name or a list of them, not {type(name).__name__}")
    return names


@dataclass(frozen=True)
class Selection:
    """One column for each part of a log."""

    obs: dict[str, str] = field(default_factory=dict)
    """Column of each variable; the next four map names to columns in the same way."""
    next_obs: dict[str, str] = field(default_factory=dict)
    """Empty for a time series, whose rows are paired."""
    action: dict[str, str] = field(default_factory=dict)
    reward: dict[str, str] = field(default_factory=dict)
    context: dict[str, str] = field(default_factory=dict)
    episode: tuple[str, ...] = ()
    time: str | None = None
    time_is_guess: bool = False
    flags: dict[str, str] = field(default_factory=dict)
    """Columns of `terminated` and `truncated`."""
    guesses: tuple[str, ...] = ()
    """What was guessed, or could not be guessed, one sentence each."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Unused columns, each with the reason."""

    def values(self) -> list[str]:
        """Columns that must hold numbers."""
        parts = (self.obs, self.next_obs, self.action, self.reward, self.context, self.flags)
        return [column for part in parts for column in part.values()]

    def used(self) -> list[str]:
        return [*self.values(), *self.episode, *([self.time] if self.time is not None else [])]


def select(header: Mapping[str, str], roles: Roles, known: Selection | None = None) -> Selection:
    """The columns of each role; `header` gives the kind of each column, `known` the roles that the format defines."""
    _check_some_numbers(header)
    if known is None and not roles.obs and any(name.startswith("obs:") for name in header):
        return _finished(header, _with_clock(header, roles, _contract(header, roles)))
    chosen, guesses = _named(header, roles), []
    for role in ("episode", "time", "action", "reward", *FLAGS):
        if known is not None:
            chosen.setdefault(role, _known(known, role))
        elif role not in chosen:
            chosen[role], said = _guess(header, role, _claimed(chosen) | (set(roles.obs) & set(header)))
            guesses += said
    if not chosen["action"]:
        raise DataError(f"which columns are the action? say --action NAME; {_listing(header)}")
    obs = chosen.get("obs") or ([*known.obs.values()] if known is not None else [])
    if not obs:
        obs, said = _rest(header, _claimed(chosen))
        guesses += said
    claimed = _claimed(chosen)
    obs = [column for column in obs if column not in claimed]  # a glob may also match an action
    if not obs:
        raise DataError(f"which columns are the state? say --obs NAME ...; {_listing(header)}")
    selection = _assembled(header, chosen, obs, known, tuple(guesses))
    return _finished(header, _with_clock(header, roles, selection) if known is None else selection)


def _check_some_numbers(header: Mapping[str, str]) -> None:
    if not header:
        raise DataError("the table has no columns")
    if NUMBER not in header.values():
        name, kind = next(iter(header.items()))
        what = {TEXT: "text", TIME: "dates", EMPTY: "nothing"}[kind]
        raise DataError(f"no column holds numbers; {name!r} holds {what}")


def is_possible(name: str, role: str, roles: Roles) -> bool:
    """Whether a column may get a role: a reader of text keeps what such a column holds."""
    patterns = getattr(roles, role)
    if patterns:
        return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)
    return bool(_GUESS[role].fullmatch(name.lower())) or (role == "action" and name.startswith("action:"))


def _named(header: Mapping[str, str], roles: Roles) -> dict[str, list[str]]:
    chosen = {role: _matches(header, role, getattr(roles, role)) for role in NAMED if getattr(roles, role)}
    if len(chosen.get("time", [])) > 1:
        raise DataError(f"--time matches {len(chosen['time'])} columns: {', '.join(map(repr, chosen['time'][:4]))}")
    exact = {role: {name for name in getattr(roles, role) if name in header} for role in NAMED if getattr(roles, role)}
    for role, names in exact.items():
        for other, columns in exact.items():
            if other != role and (both := sorted(names & columns)):
                raise DataError(f"column {both[0]!r} is named as {role} and as {other}")
    return chosen


def _matches(header: Mapping[str, str], role: str, patterns: Sequence[str]) -> list[str]:
    columns: dict[str, None] = {}
    for pattern in patterns:
        hits = [pattern] if pattern in header else [name for name in header if fnmatchcase(name, pattern)]
        if not hits:
            raise unknown_name(f"--{role}: no column is called", pattern, header)
        columns |= dict.fromkeys(hits)
    return list(columns)


def _known(known: Selection, role: str) -> list[str]:
    if role in FLAGS:
        return [known.flags[role]] if role in known.flags else []
    value = getattr(known, role)
    return (
        [] if value is None else [value] if isinstance(value, str) else list(getattr(value, "values", lambda: value)())
    )


def _claimed(chosen: Mapping[str, list[str]]) -> set[str]:
    return {column for role, columns in chosen.items() if role != "obs" for column in columns}


def _guess(header: Mapping[str, str], role: str, claimed: set[str]) -> tuple[list[str], list[str]]:
    """Columns whose names imply the role, if that is unambiguous, and a sentence about it."""
    kinds = (NUMBER, TEXT, TIME) if role in ("episode", "time") else (NUMBER,)
    hits = {name: match[1] for name, kind in header.items()
            if kind in kinds and name not in claimed and (match := _GUESS[role].fullmatch(name.lower()))}  # fmt: skip
    if not hits:
        return [], []
    single = role in ("episode", "time", *FLAGS)
    if len(hits) > 1 and (single or len(set(hits.values())) > 1):
        quoted = ", ".join(map(repr, list(hits)[:4]))
        if role == "action":
            raise DataError(f"which of the columns {quoted} are the action? say --action NAME")
        how = f"say which with --{role}" if role in NAMED else "none is used"
        return [], [f"{role}: not clear, {quoted} could be it; {how}"]
    return list(hits), [f"{role}: {', '.join(list(hits)[:4])}{', ...' if len(hits) > 4 else ''}, by its name"]


def _rest(header: Mapping[str, str], claimed: set[str]) -> tuple[list[str], list[str]]:
    """The state where nobody names it: columns called obs_..., else every other column of numbers."""
    free = [name for name, kind in header.items() if kind == NUMBER and name not in claimed]
    free = [name for name in free if not _INDEX.fullmatch(name.lower())]
    stems = {match[1] for name in free if (match := _GUESS["obs"].fullmatch(name.lower()))}
    if len(stems) == 1:
        hits = [name for name in free if _GUESS["obs"].fullmatch(name.lower())]
        return hits, [f"obs: the {len(hits)} columns called {stems.pop()}..., by their names"]
    there = set(free)
    later = {name for name in free if name.startswith("next_") and name.removeprefix("next_") in there}
    free = [name for name in free if name not in later]
    if len(free) == 1:
        return free, [f"obs: {free[0]}, the only other column of numbers"]
    return free, [f"obs: the other {len(free):,} columns of numbers"] if free else []


def _assembled(
    header: Mapping[str, str],
    chosen: Mapping[str, list[str]],
    obs: list[str],
    known: Selection | None,
    guesses: tuple[str, ...],
) -> Selection:
    label = {column: name for part in ("obs", "action", "reward") for name, column in getattr(known, part, {}).items()}
    named = lambda columns: {label.get(column, column.strip()): column for column in columns}  # noqa: E731
    later = {} if known is None else {column: known.next_obs[name] for name, column in known.obs.items()
                                      if name in known.next_obs}  # fmt: skip
    if known is None:
        later = {column: f"next_{column}" for column in obs if f"next_{column}" in header}
    following = {name: later[column] for name, column in named(obs).items()} if set(obs) <= set(later) else {}
    time = chosen["time"][0] if chosen["time"] else None
    return Selection(
        obs=named(obs),
        next_obs=following,
        action=named(chosen["action"]),
        reward=named(chosen["reward"]),
        episode=tuple(chosen["episode"]),
        time=time,
        time_is_guess=any(guess.startswith("time: ") for guess in guesses),
        flags={role: chosen[role][0] for role in FLAGS if chosen[role]},
        guesses=guesses,
    )


def _contract(header: Mapping[str, str], roles: Roles) -> Selection:
    """A table in our own layout: `obs:<name>`, `next_obs:<name>`, `action`, `reward:<name>`, ...."""
    obs, later = _under("obs:", header), _under("next_obs:", header)
    if later and set(obs) != set(later):
        lone = sorted(set(obs) ^ set(later))[0]
        has, lacks = ("obs", "next_obs") if lone in obs else ("next_obs", "obs")
        raise DataError(f"variable {lone!r} has a column '{has}:{lone}' but no column '{lacks}:{lone}'")
    action = {name: name for name in header if name == "action"} | _under("action:", header)
    if roles.action:
        action = {name.removeprefix("action:"): name for name in _matches(header, "action", roles.action)}
    if not action:
        raise DataError("no column is called 'action' or 'action:<name>'")
    if "action" in action.values() and len(action) > 1:
        raise DataError("there is a column 'action' as well as columns 'action:<name>'")
    reward = {name: name for name in header if name == "reward"} | _under("reward:", header)
    if "reward" in header and "reward:reward" in header:
        raise DataError("columns 'reward' and 'reward:reward' are both the reward 'reward'")
    if roles.reward:
        reward = {name.removeprefix("reward:"): name for name in _matches(header, "reward", roles.reward)}
    if "" in reward:
        raise DataError("column 'reward:' has no name after 'reward:'")
    episode = _matches(header, "episode", roles.episode) if roles.episode else [n for n in header if n == "episode"]
    return Selection(
        obs, later, action, reward, _under("context:", header), tuple(episode),
        _matches(header, "time", roles.time)[0] if roles.time else None,
        flags={name: name for name in FLAGS if name in header},
    )  # fmt: skip


def _with_clock(header: Mapping[str, str], roles: Roles, selection: Selection) -> Selection:
    """A time column by its name, or the row numbers that a table was saved with: they show where rows are missing."""
    if roles.time or selection.time is not None or selection.next_obs:
        return selection
    claimed = set(selection.used())
    columns, said = _guess(header, "time", claimed)
    if not columns and not said:
        columns = [name for name, kind in header.items()
                   if kind == NUMBER and name not in claimed and _INDEX.fullmatch(name.lower())][:1]  # fmt: skip
        said = [f"time: the row numbers in column {columns[0]!r}"] if columns else []
        dates = [name for name, kind in header.items() if kind == TIME and name not in claimed]
        if len(dates) == 1:
            columns, said = dates, [f"time: {dates[0]}, the only column of dates"]
    said = [sentence for sentence in said if sentence not in selection.guesses]
    guesses = (*selection.guesses, *said)
    return replace(selection, time=columns[0] if columns else None, time_is_guess=bool(columns), guesses=guesses)


def _finished(header: Mapping[str, str], selection: Selection) -> Selection:
    """With the reason for every column that is not used."""
    used = set(selection.used())
    why = {TEXT: "text", TIME: "dates", EMPTY: "empty"}
    ignored = {
        name: "row numbers" if kind == NUMBER and _INDEX.fullmatch(name.lower()) else why.get(kind, "not named")
        for name, kind in header.items()
        if name not in used
    }
    return replace(selection, ignored=ignored)


def _under(prefix: str, header: Iterable[str]) -> dict[str, str]:
    return {name.removeprefix(prefix): name for name in header if name.startswith(prefix)}


def _listing(header: Mapping[str, str]) -> str:
    shown = ", ".join(map(repr, list(header)[:8])) + (", ..." if len(header) > 8 else "")
    return f"the columns are {shown}"
