"""LeRobot datasets, versions 2 and 3: a directory with `meta/info.json` and Parquet files in `data/`.

Needs only pyarrow, not the lerobot package. Pictures and videos are left out. `observation.*` is the state, `action`
the action, `next.reward` the reward, if there is one; other numeric columns can be named.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.readers import arrow
from cbm.data.readers.common import check_memory, optional, reason
from cbm.data.readers.episodes import Columns
from cbm.data.roles import NUMBER, Roles
from cbm.data.series import Reading
from cbm.errors import DataError

STATE = "observation."
INFO = Path("meta/info.json")
_LARGEST_INFO = 50_000_000


def is_dataset(path: Path) -> bool:
    return (path / INFO).is_file()


def read(path: Path, roles: Roles) -> Reading:
    if not is_dataset(path):
        raise DataError(f"not a LeRobot dataset: it has no {INFO}")
    try:
        features = _features(path)
        table = _table(path, features)
        return _columns(table, features).read(roles)
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"not a readable LeRobot dataset: {reason(error)}") from None


def _features(path: Path) -> dict[str, Any]:
    if (path / INFO).stat().st_size > _LARGEST_INFO:
        raise DataError(f"{INFO} is too large to be one")
    try:
        info = json.loads((path / INFO).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{INFO} is not JSON: {reason(error)}") from None
    version = str(info.get("codebase_version", "")) if isinstance(info, dict) else ""
    if not version.startswith(("v2", "v3")):
        raise DataError(f"{INFO}: version {version!r:.20} is not read, only v2 and v3")
    features = info.get("features")
    if not isinstance(features, dict) or not all(isinstance(feature, dict) for feature in features.values()):
        raise DataError(f"{INFO}: 'features' is not a table of features")
    return features


def _table(path: Path, features: dict[str, Any]) -> Any:
    """All Parquet files concatenated, without pictures, in the order of episodes and frames."""
    parquet, pa = optional("pyarrow.parquet", "reading LeRobot"), optional("pyarrow", "reading LeRobot")
    files = sorted((path / "data").glob("**/*.parquet"))
    if not files:
        raise DataError("there is no Parquet file below data/")
    check_memory(file.stat().st_size for file in files)
    pictures = {name for name, feature in features.items() if feature.get("dtype") in ("image", "video", "string")}
    tables = []
    for file in files:
        with parquet.ParquetFile(file) as opened:
            tables.append(opened.read(columns=[name for name in opened.schema_arrow.names if name not in pictures]))
    table = pa.concat_tables(tables, promote_options="default")
    if "episode_index" not in table.column_names:
        raise DataError("there is no column 'episode_index'")
    order = ["episode_index", *(["frame_index"] if "frame_index" in table.column_names else [])]
    return table.sort_by([(name, "ascending") for name in order])


def _columns(table: Any, features: dict[str, Any]) -> Columns:
    columns = Columns("lerobot")
    states = [name for name in table.column_names if name.startswith(STATE)]
    labels = {name: _labels(name.removeprefix(STATE), features.get(name, {})) for name in states}
    flat = [label for names in labels.values() for label in names or ()]
    for name in table.column_names:
        values = _values(table.column(name), name)
        if values is None:
            columns.left_out[name] = "no numbers"
        elif name in labels:
            names = labels[name]
            clear = names is None or all(flat.count(label) == 1 for label in names)
            short = name.removeprefix(STATE)
            columns.obs |= columns.add(short, values, names if clear else [f"{short}.{label}" for label in names or ()])
        elif name == "action":
            _add_action(columns, values, _labels(name, features.get(name, {})))
        else:
            columns.add(name, values)
    columns.left_out |= {n: "pictures" for n, f in features.items() if f.get("dtype") in ("image", "video")}
    columns.reward = {"reward": "next.reward"} if "next.reward" in columns.columns else {}
    columns.episode = ("episode_index",)
    columns.time = "timestamp" if "timestamp" in columns.columns else None
    return columns


def _add_action(columns: Columns, values: np.ndarray, names: list[str] | None) -> None:
    """Actions often have the same names as the joints, so their columns are `action.<name>`."""
    width = values.reshape(len(values), -1).shape[1]
    names = names or (["action"] if width == 1 else [f"action_{k}" for k in range(width)])
    ids = [name if name.startswith("action") else f"action.{name}" for name in names]
    columns.add("action", values, ids)
    columns.action = dict(zip(names, ids, strict=True))


def _values(column: Any, name: str) -> np.ndarray | None:
    """(T,) or (T, k) numbers, or None."""
    types = optional("pyarrow.types", "reading LeRobot")
    if types.is_list(column.type) or types.is_large_list(column.type) or types.is_fixed_size_list(column.type):
        return arrow.vectors(column, name) if arrow.kind_of(column.type.value_type) == NUMBER else None
    return arrow.to_numpy(column) if arrow.kind_of(column.type) == NUMBER else None


def _labels(name: str, feature: dict[str, Any]) -> list[str] | None:
    """Names of the entries of a vector: a list, or a list under one key, as long as the vector."""
    names, shape = feature.get("names"), feature.get("shape")
    if isinstance(names, dict):
        lists = [value for value in names.values() if isinstance(value, list)]
        names = lists[0] if len(lists) == 1 else list(names) if not lists else None
    width = shape[0] if isinstance(shape, list) and len(shape) == 1 else None
    usable = isinstance(names, list) and len(names) == width and all(isinstance(n, str) and n.strip() for n in names)
    return [str(label).strip() for label in names] if usable and names is not None else None
