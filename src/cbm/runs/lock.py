"""One owner for each run directory: who may write, and how a second process learns who holds it.

The owner keeps the file `.lock` open under a kernel lock, which ends with the process in any case, so a dead owner's
lock can be taken over at once and by only one process. The file says who holds it. Every owner has its own token: a
process that finds another token in the file has lost the directory and stops before it writes. If machines share a disk
but not kernel locks, a lock that another machine has not touched for `ABANDONED` seconds is free.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import secrets
import socket
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cbm.errors import InUseError, WriteError
from cbm.runs.files import ABANDONED, is_alive, write_failed

fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None
"""None if the system has no such locks: then only the content of the file counts."""
NAME = ".lock"
REFRESH = 30.0
"""Seconds after which an owner touches the file again, since it may have nothing to write for hours."""


@dataclass(frozen=True)
class Owner:
    """The holder of a directory, according to the lock file."""

    token: str
    process: int
    host: str
    since: float
    command: str

    def __str__(self) -> str:
        began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"`cbm {self.command}`, process {self.process} on {self.host}, since {began}"


class Lock:
    """The lock of one directory, held from `take` to `release`."""

    def __init__(self, directory: Path, command: str):
        self.path = directory / NAME
        self.owner = Owner(secrets.token_hex(8), os.getpid(), socket.gethostname(), time.time(), command)
        self._handle: int | None = None
        self._released = threading.Event()

    def take(self) -> None:
        """Become the owner, or raise an InUseError that names the present one."""
        while self._handle is None:
            handle = self._open()
            locked = _lock_file(handle)
            if locked is False:
                os.close(handle)
                raise self._in_use(read_owner(self.path))
            if not _same_file(handle, self.path):  # its owner removed it between the two calls
                os.close(handle)
                continue
            other = read_owner(self.path)
            if other is not None and not self._is_free(other, locked is True):
                os.close(handle)
                raise self._in_use(other)
            try:
                self._write(handle)
            except BaseException:
                os.close(handle)
                raise
            self._handle = handle
            self._released.clear()
            threading.Thread(target=self._stay_fresh, daemon=True).start()

    def _stay_fresh(self) -> None:
        """Touch the file regularly until the directory is released or belongs to another process."""
        while not self._released.wait(REFRESH):
            if not self._is_ours():
                return
            with suppress(OSError):
                os.utime(self.path)

    def _is_ours(self) -> bool:
        other = read_owner(self.path)
        return other is not None and other.token == self.owner.token

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise write_failed(self.path, error) from error

    def _write(self, handle: int) -> None:
        text = json.dumps(asdict(self.owner)).encode()
        try:
            os.ftruncate(handle, 0)
            if os.pwrite(handle, text, 0) < len(text):
                raise WriteError(f"cannot write {self.path}: no room")
        except OSError as error:
            raise write_failed(self.path, error) from error

    def _is_free(self, other: Owner, locked: bool) -> bool:
        """Whether the owner in the file is gone: on this machine by its kernel lock or its process, on another one by
        age."""
        if other.host == self.owner.host:
            return locked or not is_alive(other.process)
        try:
            return time.time() - self.path.stat().st_mtime > ABANDONED
        except OSError:
            return True

    def _in_use(self, other: Owner | None) -> InUseError:
        holder = "another process that has just begun" if other is None else str(other)
        return InUseError(f"{self.path.parent}: is in use by {holder}; wait for it, or choose another directory")

    def check(self) -> None:
        """Called before a write: raise if the directory is no longer ours."""
        if self._handle is None:
            return
        other = read_owner(self.path)
        if other is None or other.token != self.owner.token:
            holder = "it is gone" if other is None else f"it is held by {other}"
            raise WriteError(f"{self.path.parent}: no longer belongs to this process ({holder}); nothing is written")

    def release(self) -> None:
        """Remove the file, if it is still ours, and release the lock."""
        if self._handle is None:
            return
        self._released.set()
        if self._is_ours():
            self.path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None


def read_owner(path: Path) -> Owner | None:
    """The owner named by a lock file; None if there is none, or if its writer died before writing it."""
    try:
        return _owner_of(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return None


def _owner_of(data: Any) -> Owner:
    if not isinstance(data, dict):
        raise ValueError("no JSON object")
    kinds: dict[str, Any] = {"token": str, "process": int, "host": str, "since": (int, float), "command": str}
    for name, kind in kinds.items():
        if not isinstance(data.get(name), kind) or isinstance(data[name], bool):
            raise ValueError(name)
    if not 0 < data["process"] < 2**31 or not 0 <= data["since"] < 1e11:
        raise ValueError("out of range")
    return Owner(**{name: data[name] for name in kinds})


def _lock_file(handle: int) -> bool | None:
    """Whether the kernel gave us the lock; None if the system or the disk has no such locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
