"""HDF5 files: recognises which of the known layouts a file has, and reads its arrays without running anything.

| layout | recognised by |
|---|---|
| robomimic | a group `data` of groups `demo_0`, `demo_1`, ... |
| d4rl | arrays `observations` and `actions` at the top |
| minari | groups `episode_0`, `episode_1`, ... at the top |
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.readers import d4rl, minari, robomimic
from cbm.data.readers.common import check_memory, optional, reason
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.errors import DataError

LAYOUTS = {"robomimic": robomimic.read_file, "d4rl": d4rl.read_file, "minari": minari.read_file}


def read(path: Path, roles: Roles) -> Reading:
    """Read the layout that the file has, which must be the requested one."""
    with opened(path) as file:
        layout = layout_of(file)
        if layout is None:
            names = ", ".join(map(repr, list(file)[:8])) or "nothing"
            raise DataError(f"an HDF5 file in none of the layouts {', '.join(LAYOUTS)} (it holds {names})")
        if roles.reader in LAYOUTS and roles.reader != layout:
            raise DataError(f"the file has the layout of {layout}, not of {roles.reader}: --reader {layout}")
        return LAYOUTS[layout](file, roles)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    h5py = optional("h5py", "reading HDF5")
    try:
        with h5py.File(path, "r") as file:
            check_memory(_sizes(file, h5py))
            yield file
    except DataError:
        raise
    except Exception as error:  # damaged files make h5py raise almost anything
        raise DataError(f"not a readable HDF5 file: {reason(error)}") from None


def layout_of(file: Any) -> str | None:
    if "data" in file and hasattr(file["data"], "keys") and any(key.startswith("demo") for key in file["data"]):
        return "robomimic"
    if "observations" in file and "actions" in file:
        return "d4rl"
    return "minari" if any(key.startswith("episode_") for key in file) else None


def _sizes(file: Any, h5py: Any) -> list[int]:
    sizes: list[int] = []

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.dtype.kind in "fiub" and item.ndim <= 2:
            sizes.append(int(np.prod(item.shape)) * item.dtype.itemsize)

    file.visititems(visit)
    return sizes
