"""Tiny jobs with known outcomes, with which the tests check the executors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from cbm.errors import DataError, WriteError
from cbm.jobs.shared import Shared


def scale(shared: Shared, name: str, by: float) -> dict[str, np.ndarray]:
    """A shared array multiplied by a number, and the number."""
    return {"scaled": shared[name] * by, "by": np.array(by)}


def fail(shared: Shared, message: str, data: bool = False) -> dict[str, np.ndarray]:
    """Raise a DataError if `data`, otherwise an error that is not the user's fault."""
    raise DataError(message) if data else ZeroDivisionError(message)


def fail_to_write(shared: Shared) -> dict[str, np.ndarray]:
    """Raise the error of a full disk."""
    raise WriteError("cannot write x: no room")


def die(shared: Shared, once: str = "") -> dict[str, np.ndarray]:
    """Kill this process; with a file name, only if the file does not exist yet."""
    marker = Path(once)
    if not once or not marker.exists():
        if once:
            marker.touch()
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
    return {"alive": np.array(True)}


def sleep(shared: Shared, seconds: float) -> dict[str, np.ndarray]:
    """Do nothing for that many seconds."""
    time.sleep(seconds)
    return {"seconds": np.array(seconds)}


def stamp(shared: Shared, folder: str, seconds: float = 0.0) -> dict[str, np.ndarray]:
    """Create a file that shows that this ran, so that tests can count runs."""
    time.sleep(seconds)
    (Path(folder) / f"{os.getpid()}-{time.monotonic_ns()}").touch()
    return {"ran": np.array(True)}


def noise(shared: Shared) -> dict[str, np.ndarray]:
    """Print to stdout in the three ways a library might, and try to read stdin."""
    print('{"key": "noise from print"}')
    os.write(1, b'{"key": "noise from the file descriptor"}\n')
    subprocess.run([sys.executable, "-c", "print('noise from a child')"], check=True)
    return {"read": np.array(sys.stdin.read())}


def surroundings(shared: Shared) -> dict[str, np.ndarray]:
    """The process, its thread limits, and whether it had to load torch."""
    limits = [os.environ.get(f"{name}_NUM_THREADS", "") for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")]
    return {"process": np.array(os.getpid()), "limits": np.array(limits), "torch": np.array("torch" in sys.modules)}
