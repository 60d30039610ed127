"""The layout of a table of transitions: columns of a CSV or Parquet file to arrays and back.

A table has one row a transition and the columns `obs:<name>`, `next_obs:<name>`, `action` or
`action:<name>`, and optionally `reward` or `reward:<name>`, `context:<name>`, `episode`, `terminated`,
`truncated`. Other columns are ignored. Rows count from 0, the header not included.

A table without any `next_obs:` column is read as a time series: each row is paired with the next row of the
same episode, and the last row of each episode, which has no successor, is dropped. The action of row t leads
from row t to row t+1; reward and flags of row t belong to the transition that starts there. Without an
`episode` column a row with `terminated` or `truncated` set is the last of its episode; with neither, the
whole table is one episode.

A CSV holds only the columns above. Kinds and the number of discrete actions are inferred again when it is
read; groups, ranges and a known true graph need npz or Parquet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from cbm.errors import DataError

Arrays = dict[str, np.ndarray]

FLAGS = ("episode", "terminated", "truncated")
"""Optional arrays with one entry a row."""
ABOUT_COLUMNS = ("names", "action_names", "kinds", "groups", "low", "high", "discrete_actions", "truth")
"""Optional arrays that describe the columns."""

_WORDS = {"true": 1.0, "false": 0.0} | dict.fromkeys(("", "na", "n/a", "null", "none"), np.nan)
_BLOCK = 4096


def parse_cells(header: Sequence[str], rows: Iterator[list[str]]) -> Arrays:
    """Known columns of a table of text, block by block: the numbers take far less room than their text."""
    used = [i for i, name in enumerate(header) if is_known_column(name)]
    parts: dict[int, list[np.ndarray]] = {i: [] for i in used}
    whole = {i: header[i].startswith("action") for i in used}  # only an action differs as an integer
    start = 0
    while block := list(islice(rows, _BLOCK)):
        for row, cells in enumerate(block, start):
            if len(cells) != len(header):
                raise DataError(f"row {row} has {len(cells)} cells, but the header has {len(header)}")
        columns = list(zip(*block, strict=True))
        for i in used:
            parts[i].append(_parse_column(header[i], columns[i], start))
            whole[i] = whole[i] and all(map(_is_whole, columns[i]))
        start += len(block)
    if not start:
        raise DataError("the table has no rows")
    numbers = {i: np.concatenate(parts[i]) for i in used}
    return {header[i]: numbers[i].astype(np.int64) if whole[i] else numbers[i] for i in used}


def _parse_column(name: str, cells: Sequence[str], start: int) -> np.ndarray:
    try:
        return np.array(list(map(float, cells)))
    except ValueError:  # a word, an empty cell, or no number at all: look at each
        return np.array([_parse_cell(name, cell.strip(), row) for row, cell in enumerate(cells, start)])


def _parse_cell(name: str, cell: str, row: int) -> float:
    try:
        return _WORDS[cell.lower()] if cell.lower() in _WORDS else float(cell)
    except ValueError:
        raise DataError(f"column {name!r}, row {row}: {cell!r:.60} is not a number") from None


def _is_whole(cell: str) -> bool:
    digits = cell.strip().removeprefix("-")
    return (digits.isdecimal() and len(digits) < 16) or digits.lower() in ("true", "false")


def from_columns(columns: Mapping[str, np.ndarray]) -> Arrays:
    """Arrays of the contract from the columns of a table."""
    if not len(next(iter(columns.values()))):
        raise DataError("the table has no rows")
    columns = {name: _numbers(name, values) for name, values in columns.items()}
    names = _under("obs:", columns)
    next_names = _under("next_obs:", columns)
    if next_names and set(names) != set(next_names):
        lone = sorted(set(names) ^ set(next_names))[0]
        has, lacks = ("obs", "next_obs") if lone in names else ("next_obs", "obs")
        raise DataError(f"variable {lone!r} has a column '{has}:{lone}' but no column '{lacks}:{lone}'")
    actions = [name for name in columns if name == "action" or name.startswith("action:")]
    if not actions:
        raise DataError("no column is called 'action' or 'action:<name>'")
    if "action" in actions and len(actions) > 1:
        raise DataError("there is a column 'action' as well as columns 'action:<name>'")
    arrays = {
        "obs": np.column_stack([columns[f"obs:{name}"] for name in names]),
        "action": np.column_stack([columns[name] for name in actions]),
        "names": np.array(names),
        "action_names": np.array([name.removeprefix("action:") for name in actions]),
    }
    for name in columns:
        if name in ("reward", *FLAGS):
            arrays[name] = columns[name]
        elif name.startswith(("reward:", "context:")):
            arrays[name.replace(":", "_", 1)] = columns[name]
    if not next_names:
        return _pair_rows(arrays)
    return arrays | {"next_obs": np.column_stack([columns[f"next_obs:{name}"] for name in names])}


def _pair_rows(series: Arrays) -> Arrays:
    """Transitions of a time series: each row with the next one of its episode."""
    rows = len(series["obs"])
    if "episode" in series:
        episode = series["episode"]
    else:
        no = np.zeros(rows, bool)
        ended = series.get("terminated", no).astype(bool) | series.get("truncated", no).astype(bool)
        episode = np.cumsum(np.concatenate([[False], ended[:-1]]))
    first = np.flatnonzero(episode[:-1] == episode[1:])
    if rows < 2 or not len(first):
        raise DataError(f"a time series of {rows} rows without two consecutive rows of one episode")
    paired = {name: values if name in ABOUT_COLUMNS else values[first] for name, values in series.items()}
    return paired | {"next_obs": series["obs"][first + 1], "episode": episode[first]}


def _numbers(name: str, values: np.ndarray) -> np.ndarray:
    """A column of finite numbers; checked here so that the row is the one in the file."""
    if values.dtype.kind not in "fiub":
        raise DataError(f"column {name!r} is not numeric: row 0 is {values[0]!r:.60}")
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"column {name!r}, row {bad[0]}: {values[bad[0]]} is missing or not finite ({len(bad)} such rows)"
        )
    return values


def column_name(cell: str) -> str:
    prefix, colon, name = cell.strip().partition(":")
    return f"{prefix.strip()}{colon}{name.strip()}"


def is_known_column(name: str) -> bool:
    prefix, colon, _ = name.partition(":")
    return prefix in (("obs", "next_obs", "action", "reward", "context") if colon else ("action", "reward", *FLAGS))


def check_header(header: list[str]) -> None:
    if len(header) == 1 and any(separator in header[0] for separator in ";\t|"):
        raise DataError(f"its columns are not separated by commas (header: {header[0]!r:.200})")
    twice = sorted(name for name, count in Counter(header).items() if count > 1 and is_known_column(name))
    if twice:
        raise DataError(f"column {twice[0]!r} occurs more than once")
    if not any(name.startswith("obs:") for name in header):
        found = ", ".join(map(repr, header[:8])) + (", ..." if len(header) > 8 else "")
        raise DataError(f"no column is called 'obs:<name>', such as 'obs:speed' (found: {found})")


def _under(prefix: str, columns: Iterable[str]) -> list[str]:
    return [name.removeprefix(prefix) for name in columns if name.startswith(prefix)]


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
