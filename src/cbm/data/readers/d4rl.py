"""D4RL's HDF5 files: arrays `observations`, `actions`, `rewards`, `terminals`, `timeouts` of all episodes in a row."""

from __future__ import annotations

from typing import Any

from cbm.data.readers.common import array_of
from cbm.data.readers.episodes import Columns, is_vector
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.errors import DataError

FLAGS = {"terminals": "terminated", "timeouts": "truncated"}


def read_file(file: Any, roles: Roles) -> Reading:
    columns = Columns("d4rl")
    if not is_vector(file["observations"].shape):
        raise DataError("array 'observations' holds pictures, not rows of numbers")
    columns.obs = columns.add("obs", array_of(file["observations"], "observations"))
    if "next_observations" in file:
        columns.add_next(list(columns.obs), array_of(file["next_observations"], "next_observations"))
    columns.action = columns.add("action", array_of(file["actions"], "actions"))
    if "rewards" in file:
        columns.reward = columns.add("reward", array_of(file["rewards"], "rewards"))
    for name, flag in FLAGS.items():
        if name in file:
            columns.flags |= {flag: next(iter(columns.add(flag, array_of(file[name], name))))}
    known = {"observations", "next_observations", "actions", "rewards", *FLAGS}
    columns.left_out = {str(name): "not part of the layout" for name in file if name not in known}
    return columns.read(roles)
