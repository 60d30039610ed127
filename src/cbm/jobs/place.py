"""Where jobs run: `local`, `ray` or `ray:HOST:PORT`, the values of the option `--on`."""

from __future__ import annotations

import re
from importlib.util import find_spec

from cbm.errors import DataError
from cbm.jobs.executor import Executor
from cbm.jobs.pool import default_workers, local_executor

INSTALL = 'pip install "cbm-rl[ray]"'
_PLACE = re.compile(r"local|ray(:(?P<address>[\w.\-\[\]:]+:\d+))?")


def check_place(on: str) -> None:
    """Refuse a place that does not exist, or whose package is not installed; nothing is imported."""
    if not _PLACE.fullmatch(on):
        raise DataError(f"--on: must be local, ray or ray:HOST:PORT, not {on!r}")
    if on != "local" and find_spec("ray") is None:
        raise DataError(f"--on {on}: Ray is not installed; install it with: {INSTALL}")


def open_executor(on: str = "local", workers: int | None = None) -> Executor:
    """The executor for a place. `workers` None: one per core of this machine, or all cores of the cluster."""
    check_place(on)
    if on == "local":
        return local_executor(default_workers() if workers is None else workers)
    from cbm.jobs.ray_executor import RayExecutor

    match = _PLACE.fullmatch(on)
    assert match is not None
    return RayExecutor(match["address"], workers)
