"""Runs jobs in this process or in worker processes.

The processes come from `subprocess` and not from `multiprocessing`, which would import the user's script again
and fail where it lacks `if __name__ == "__main__"`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

import numpy as np

from cbm.errors import DataError, WriteError
from cbm.jobs.job import Job, job_error
from cbm.jobs.shared import Shared
from cbm.jobs.store import Store

Results = dict[str, dict[str, np.ndarray]]
_ONE_THREAD = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
_PATIENCE = 1.0  # seconds between two looks at the clock while jobs run
_PACKAGE_ROOT = Path(__file__).parents[2]


def default_workers() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """At most `workers` processes of one thread each; 0 runs the jobs in this process, for tests and debugging.

    Workers start when there is work, and stay for the next `run` until the pool is closed. One `run` at a time.
    In this process torch is held to one thread; numpy's own threads are as `OMP_NUM_THREADS` was at its import.
    """

    def __init__(self, workers: int) -> None:
        if workers < 0:
            raise ValueError(f"workers must be 0 or more, not {workers}")
        self.workers = workers
        self._alive: dict[int, _Worker] = {}  # by a number that is never used twice, unlike a process id
        self._numbers = itertools.count()
        self._messages: SimpleQueue[tuple[int, bytes]] = SimpleQueue()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all workers. A later `run` would start new ones."""
        for number in list(self._alive):
            self._stop(number)

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._alive.values()]

    def run(
        self,
        jobs: Sequence[Job],
        shared: str | os.PathLike[str],
        store: Store,
        *,
        deadline: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Results:
        """Results by key, in the order of `jobs`; what the store already has is not run again.

        After `deadline` (a value of `time.monotonic()`) no job starts, running ones are stopped, and the results
        lack them. The first job that raises stops the others; what is finished by then stays in the store.
        """
        _check_keys(jobs)
        arrays = Shared(shared)
        found = {job.key: store.find(job.key) for job in jobs}
        results = {key: result for key, result in found.items() if result is not None}

        def finish(job: Job) -> None:
            results[job.key] = store.get(job.key)
            if progress is not None:
                progress(len(results), len(jobs))

        todo = deque(job for job in jobs if job.key not in results)
        if self.workers == 0:
            _run_here(todo, arrays, store, deadline, finish)
        elif todo and store.path is not None:
            self._run_there(todo, arrays.path, store, deadline, finish)
        elif todo:
            with tempfile.TemporaryDirectory(prefix="cbm-jobs-", ignore_cleanup_errors=True) as folder:
                landing = Store(folder)
                self._run_there(todo, arrays.path, landing, deadline, _after_moving(landing, store, finish))
        return {job.key: results[job.key] for job in jobs if job.key in results}

    def _run_there(
        self, todo: deque[Job], shared: Path, store: Store, deadline: float | None, finish: Callable[[Job], None]
    ) -> None:
        retried: set[str] = set()
        try:
            while True:
                while todo and len(self._busy()) < self.workers and not _passed(deadline):
                    job = todo.popleft()
                    self._send(self._worker(fresh=job.key in retried), job, shared, store)
                if not self._busy():
                    return
                message = self._next_message(deadline)
                if message is None:  # the deadline has passed
                    return
                number, line = message
                if number not in self._busy():
                    continue  # the last sign of a worker that was stopped
                if line:
                    finish(self._receive(number, line))
                else:
                    todo.appendleft(self._lost(number, store, retried))
        finally:
            # Still busy are only those that the deadline, an error or Ctrl-C leaves behind.
            for number in self._busy():
                self._abandon(number, store)

    def _busy(self) -> list[int]:
        return [number for number, worker in self._alive.items() if worker.job is not None]

    def _worker(self, fresh: bool) -> _Worker:
        """An idle worker or, if there is none or a fresh one is needed, a new one."""
        for number, worker in list(self._alive.items()):
            if worker.job is None and worker.process.poll() is not None:
                self._stop(number)  # somebody ended it between two runs
            elif worker.job is None and not fresh:
                return worker
        number = next(self._numbers)
        self._alive[number] = _Worker.start(number, self._messages)
        return self._alive[number]

    def _send(self, worker: _Worker, job: Job, shared: Path, store: Store) -> None:
        request: dict[str, Any] = {"key": job.key, "function": job.function, "options": job.options}
        request |= {"shared": str(shared), "out": str(store.file(job.key))}
        worker.job = job
        assert worker.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died; the thread that listens to it says so
            worker.process.stdin.write(json.dumps(request).encode() + b"\n")
            worker.process.stdin.flush()

    def _receive(self, number: int, line: bytes) -> Job:
        worker = self._alive[number]
        job, reply = worker.job, json.loads(line)
        assert job is not None and reply["key"] == job.key
        worker.job = None
        if "write_error" in reply:
            raise WriteError(f"job {job.key!r}: {reply['write_error']}")
        if not reply["ok"]:
            raise job_error(job.key, reply["data_error"], reply["traceback"])
        return job

    def _lost(self, number: int, store: Store, retried: set[str]) -> Job:
        """The job of a worker that ended by itself, to be tried once more."""
        process = self._alive[number].process
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)  # its pipe closes a moment before it has ended
        job = self._abandon(number, store)
        if job.key in retried:
            raise RuntimeError(f"job {job.key!r}: its worker ended twice, the second time {_ending(process)}")
        retried.add(job.key)
        return job

    def _abandon(self, number: int, store: Store) -> Job:
        """Stop a busy worker, and remove what it may have been writing."""
        worker = self._alive[number]
        assert worker.job is not None
        self._stop(number)
        store.forget_unfinished(worker.job.key, worker.process.pid)
        return worker.job

    def _next_message(self, deadline: float | None) -> tuple[int, bytes] | None:
        """Number and line of the next worker that replies; an empty line if it ended; None after the deadline."""
        while True:
            left = _PATIENCE if deadline is None else deadline - time.monotonic()
            try:
                return self._messages.get(timeout=min(max(left, 0.0), _PATIENCE))
            except Empty:
                if left <= 0:
                    return None

    def _stop(self, number: int) -> None:
        process = self._alive[number].process
        process.kill()
        process.wait()
        assert process.stdin is not None
        with suppress(OSError):  # it may still hold bytes for a reader that is gone
            process.stdin.close()
        self._alive[number].listener.join(timeout=_PATIENCE)  # longer only if a job left a child that holds the pipe
        del self._alive[number]


@dataclass
class _Worker:
    """A worker process, the thread that passes its replies on, and the job it is busy with."""

    process: subprocess.Popen[bytes]
    listener: threading.Thread
    job: Job | None = None

    @classmethod
    def start(cls, number: int, messages: SimpleQueue[tuple[int, bytes]]) -> _Worker:
        # -P: a file in the current directory must not hide a module.
        # A session of its own: Ctrl-C in the terminal reaches the parent alone, which stops its workers.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cbm.jobs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
        assert process.stdout is not None
        # The thread knows the pipe and not the pool, so that a pool nobody closed can be collected.
        listener = threading.Thread(target=_listen, args=(process.stdout, number, messages), daemon=True)
        listener.start()
        return cls(process, listener)


def _listen(replies: BinaryIO, number: int, messages: SimpleQueue[tuple[int, bytes]]) -> None:
    with replies:
        for line in replies:
            if line.endswith(b"\n"):  # else the worker died while it wrote
                messages.put((number, line))
    messages.put((number, b""))


def _environment() -> dict[str, str]:
    """One thread per worker, and the same `cbm` as here even if it is not the installed one."""
    environment = os.environ | {f"{library}_NUM_THREADS": "1" for library in _ONE_THREAD}
    if Path(sysconfig.get_paths()["purelib"]) != _PACKAGE_ROOT:
        others = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(_PACKAGE_ROOT)] + ([others] if others else []))
    return environment


def _run_here(
    todo: deque[Job], shared: Shared, store: Store, deadline: float | None, finish: Callable[[Job], None]
) -> None:
    while todo and not _passed(deadline):
        job = todo.popleft()
        try:
            result = job.call(shared)
        except DataError:
            raise
        except (Exception, SystemExit) as error:
            raise job_error(job.key, None, traceback.format_exc()) from error
        store.put(job.key, result)
        finish(job)


def _after_moving(landing: Store, store: Store, finish: Callable[[Job], None]) -> Callable[[Job], None]:
    """Take each result out of the directory where workers write it, as `store` keeps results in memory."""

    def move(job: Job) -> None:
        store.put(job.key, landing.get(job.key))
        landing.file(job.key).unlink()
        finish(job)

    return move


def _check_keys(jobs: Sequence[Job]) -> None:
    seen: set[str] = set()
    for job in jobs:
        if job.key in seen:
            raise ValueError(f"two jobs have the key {job.key!r}")
        seen.add(job.key)


def _passed(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _ending(process: subprocess.Popen[bytes]) -> str:
    """How a process ended, in words."""
    code = process.returncode
    if code >= 0:
        return f"with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"by signal {name}" + (" (killed, perhaps for want of memory)" if name == "SIGKILL" else "")
