"""One owner for a directory of jobs: a lock file with a token, held under a lock of the kernel.

Kept small on purpose: run directories have such a lock of their own, with the same three calls.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from pathlib import Path

from cbm.errors import DataError

try:
    import fcntl
except ImportError:  # no such locks on this system: what the file says counts
    fcntl = None  # type: ignore[assignment]


class Lock:
    """The lock of one directory, held from `take` to `release`."""

    def __init__(self, directory: Path, command: str) -> None:
        self.path = directory / ".lock"
        self.token = secrets.token_hex(8)
        self.command = command
        self._handle: int | None = None

    def __enter__(self) -> Lock:
        self.take()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def take(self) -> None:
        """Become the owner, or raise a DataError that names the present one. A dead owner's lock is free."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while self._handle is None:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            if not _locked(handle, self.path):
                os.close(handle)
                raise DataError(f"{self.path.parent}: is in use by {_told(self.path)}")
            if not _same_file(handle, self.path):  # its owner removed it between the two calls
                os.close(handle)
                continue
            owner = {"token": self.token, "process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(owner | {"command": self.command}).encode(), 0)
            self._handle = handle

    def check(self) -> None:
        """Before a write: stop if the directory is no longer ours."""
        if self._handle is not None and _read(self.path).get("token") != self.token:
            raise DataError(f"{self.path.parent}: no longer belongs to this process; nothing is written")

    def release(self) -> None:
        if self._handle is None:
            return
        if _read(self.path).get("token") == self.token:
            self.path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None


def _locked(handle: int, path: Path) -> bool:
    """Whether the kernel gave us the lock; where it has no such locks, whether the owner's process is gone."""
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except BlockingIOError:
        return False
    except OSError:
        pass
    try:
        os.kill(int(_read(path).get("process", -1)), 0)
    except (OSError, ValueError, OverflowError):
        return True
    return False


def _read(path: Path) -> dict[str, object]:
    try:
        owner = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _told(path: Path) -> str:
    owner = _read(path)
    since = owner.get("since")
    if not isinstance(since, float):
        return "another process that has just begun"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
    return f"`cbm {owner.get('command')}`, process {owner.get('process')} on {owner.get('host')}, since {began}"


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
