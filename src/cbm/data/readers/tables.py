"""Our own layout of a table of transitions, in which logs are written; plain logs can be read as well.

A table has one row per transition and the columns `obs:<name>`, `next_obs:<name>`, `action` or `action:<name>`, and
optionally `reward` or `reward:<name>`, `context:<name>`, `episode`, `terminated`, `truncated`. Other columns are
ignored. Rows count from 0, without the header.

A table without any `next_obs:` column is read as a time series (`cbm.data.series`). Without an `episode` column a row
with `terminated` or `truncated` set is the last of its episode; with neither, the whole table is one episode.

A CSV file contains only the columns above. Kinds and the number of discrete actions are inferred again when it is read;
groups, ranges and a known true graph need npz or Parquet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from cbm.errors import DataError

Arrays = dict[str, np.ndarray]

FLAGS = ("episode", "terminated", "truncated")
"""Optional arrays with one entry per row."""
PREFIXES = ("obs", "next_obs", "action", "reward", "context")
"""Prefixes of columns, before the colon."""
ABOUT_COLUMNS = ("names", "action_names", "kinds", "groups", "low", "high", "discrete_actions", "truth")
"""Optional arrays that describe the columns."""


def column_name(cell: str) -> str:
    """A name without the spaces around it, and around the colon of our own layout."""
    prefix, colon, name = cell.strip().partition(":")
    return f"{prefix.strip()}{colon}{name.strip()}" if prefix.strip() in PREFIXES else cell.strip()


def check_header(header: list[str]) -> None:
    """Check that column names are unique."""
    seen: set[str] = set()
    for name in header:
        if name in seen and name.partition(":")[0] in (*PREFIXES, *FLAGS):
            raise DataError(f"column {name!r} occurs more than once")
        seen.add(name)


def check_unique(header: list[str], used: Iterable[str]) -> None:
    """The names of columns in use must be unique; others may repeat."""
    counts, needed = Counter(header), set(used)
    for name in header:
        if counts[name] > 1 and name in needed:
            raise DataError(f"column {name!r} occurs more than once")


def to_columns(arrays: Mapping[str, np.ndarray]) -> Arrays:
    columns: Arrays = {}
    actions = [str(name) for name in arrays["action_names"]]
    for prefix in ("obs", "next_obs"):
        for i, name in enumerate(arrays["names"]):
            columns[f"{prefix}:{name}"] = arrays[prefix][:, i]
    for i, name in enumerate(actions):
        columns["action" if actions == ["action"] else f"action:{name}"] = arrays["action"][:, i]
    for name, values in arrays.items():
        if name in ("reward", *FLAGS):
            columns[name] = values
        elif name.startswith(("reward_", "context_")):
            columns[name.replace("_", ":", 1)] = values
    return columns


def is_known_array(name: str) -> bool:
    exact = ("obs", "action", "next_obs", "reward", *FLAGS, *ABOUT_COLUMNS)
    return name in exact or name.startswith(("reward_", "context_", "truth_reward_"))


def is_metadata(name: str) -> bool:
    """Arrays that a table has no columns for; names are in its header."""
    described = name in ABOUT_COLUMNS and name not in ("names", "action_names")
    return described or name.startswith("truth_reward_")
