"""The job of a sweep: one command as a process of its own, in a directory of its own, returned as arrays."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from cbm.errors import DataError
from cbm.jobs.pool import ending_of, worker_environment
from cbm.jobs.shared import Shared
from cbm.sweep.tree import to_arrays, to_directory

BAD_INPUT = 2  # exit code of a command that was asked for something impossible
SHOWN = 4000  # characters of a failed command's output that are kept


def run_command(
    shared: Shared, arguments: list[str], out: str, inputs: list[dict[str, str]], memory: float | None
) -> dict[str, np.ndarray]:
    """Run `cbm arguments --out OUT`; what it wrote, what it printed, and how long it took.

    The process is started in an empty directory with the inputs at fixed names, so that nothing in its result
    depends on where it ran.
    """
    with tempfile.TemporaryDirectory(prefix="cbm-sweep-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        (work / "out").mkdir()
        for entry in inputs:
            _provide(shared, entry, work / entry["name"])
        started = time.monotonic()
        printed = _call([*arguments, "--out", f"out/{out}" if out else "out"], work, memory)
        seconds = time.monotonic() - started
        result = to_arrays(work / "out")
    return result | {"printed": np.array(printed), "seconds": np.array(seconds)}


def _provide(shared: Shared, entry: dict[str, str], place: Path) -> None:
    """An input where the command looks for it: unpacked if it was sent, else a link to it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    name = f"input-{entry['digest']}"
    if f"{name}.bytes" not in shared:
        place.symlink_to(entry["path"])
        return
    arrays: dict[str, Any] = {part: shared[f"{name}.{part}"] for part in ("names", "sizes", "bytes")}
    if entry["kind"] == "directory":
        to_directory(arrays, place)
    else:
        to_directory(arrays, place.with_name(f"{place.name}.d"))
        shutil.move(place.with_name(f"{place.name}.d") / str(arrays["names"][0]), place)


def _call(arguments: list[str], work: Path, memory: float | None) -> str:
    limit = "" if memory is None else str(int(memory * 2**30))
    done = subprocess.Popen(
        [sys.executable, "-P", "-m", "cbm.cli.sweep_child", limit, *arguments],
        cwd=work,
        env=os.environ | worker_environment(),
        stdin=subprocess.PIPE,  # it closes with this process, and ends the child
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    stdin, done.stdin = done.stdin, None  # `communicate` would close it at once
    try:
        out, err = done.communicate()
    finally:
        done.kill()
        if stdin is not None:
            stdin.close()
    if done.returncode == 0:
        return out
    last = (err.strip().splitlines() or ["it said nothing"])[-1].removeprefix("cbm: ")
    if done.returncode == BAD_INPUT:
        raise DataError(last)
    how = ending_of(done.returncode)
    raise RuntimeError(f"the command ended {how}: {last}\n{err[-SHOWN:]}" if err else f"the command ended {how}")
