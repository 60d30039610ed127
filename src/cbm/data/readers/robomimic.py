"""robomimic's HDF5 files: `data/demo_0/obs/<key>`, `actions`, `rewards`, and often `next_obs/<key>`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from cbm.data.readers.common import array_of
from cbm.data.readers.episodes import Columns, is_vector, joined, same_names
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.errors import DataError


def read_file(file: Any, roles: Roles) -> Reading:
    demos = sorted((key for key in file["data"] if key.startswith("demo")), key=_number)
    groups = [(key, file["data"][key]) for key in demos]
    for key, group in groups:
        for name in ("obs", "actions"):
            if name not in group:
                raise DataError(f"data/{key} has no {name!r}")
    columns = Columns("robomimic")
    observed = same_names([(key, group["obs"]) for key, group in groups])
    both = all("next_obs" in group and set(group["next_obs"]) >= set(observed) for _, group in groups)
    for name in observed:
        if not is_vector(groups[0][1]["obs"][name].shape):
            columns.left_out[name] = "pictures"
            continue
        labels = columns.add(name, _all(groups, f"obs/{name}"))
        columns.obs |= labels
        if both:
            columns.add_next(list(labels), _all(groups, f"next_obs/{name}"))
    columns.action = columns.add("action", _all(groups, "actions"))
    if all("rewards" in group for _, group in groups):
        columns.reward = columns.add("reward", _all(groups, "rewards"))
    lengths = [len(group["actions"]) for _, group in groups]
    columns.episode = tuple(columns.add("episode", np.repeat(np.arange(len(groups)), lengths)))
    return columns.read(roles)


def _all(groups: list[tuple[str, Any]], name: str) -> np.ndarray:
    return joined([array_of(group[name], f"data/{key}/{name}") for key, group in groups], name)


def _number(key: str) -> tuple[int, str]:
    digits = re.sub(r"\D", "", key)
    return (int(digits[:12]) if digits else -1, key)
