"""Runs jobs in this process or in worker processes.

The processes come from `subprocess` instead of `multiprocessing`, which would import the user's script again and fail
if it lacks `if __name__ == "__main__"`.
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
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO

import numpy as np

from cbm.jobs.executor import Attempt, Executor, Outcome
from cbm.jobs.job import cause_of
from cbm.jobs.shared import Shared
from cbm.jobs.store import Store

ONE_THREAD = ("OMP", "OPENBLAS", "MKL", "NUMEXPR")
_PATIENCE = 1.0  # seconds between two checks of the clock while jobs run
_PACKAGE_ROOT = Path(__file__).parents[2]


def default_workers() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class InProcess(Executor):
    """One job after another in this process, for tests, for debugging, and where a job is already a process.

    Torch is limited to one thread; numpy's own threads are those that `OMP_NUM_THREADS` set at its import.
    """

    workers = 0

    def __init__(self) -> None:
        self._shared: Shared | None = None
        self._waiting: list[Attempt] = []
        self._results: dict[str, dict[str, np.ndarray]] = {}

    def close(self) -> None:
        pass

    def _slots(self) -> int:
        return 1

    def _prepare(self, shared: Shared, store: Store) -> None:
        self._shared = shared

    def _begin(self, attempt: Attempt) -> None:
        self._waiting.append(attempt)

    def _next(self, deadline: float | None) -> Outcome | None:
        attempt = self._waiting.pop()
        assert self._shared is not None
        try:
            self._results[attempt.token] = attempt.job.call(self._shared)
        except (Exception, SystemExit) as error:
            return Outcome(attempt.token, "raised", str(error), traceback.format_exc(), cause_of(error))
        return Outcome(attempt.token, "done")

    def _keep(self, attempt: Attempt, store: Store) -> None:
        store.put(attempt.job.key, self._results.pop(attempt.token))

    def _discard(self, token: str) -> None:
        self._results.pop(token, None)

    def _abandon(self, attempt: Attempt) -> None:
        self._waiting.clear()
        self._discard(attempt.token)


class Processes(Executor):
    """At most `workers` single-threaded processes.

    Workers start when there is work, and stay for the next `run` until the executor is closed. A worker writes its
    result to a file of its attempt, next to the results; only this process renames it to a result.
    """

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers must be 1 or more, not {workers}")
        self.workers = workers
        self._alive: dict[int, _Worker] = {}  # by a number that is never reused, unlike a process id
        self._numbers = itertools.count()
        self._messages: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._shared: Path | None = None
        self._landing: Store | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def close(self) -> None:
        for number in list(self._alive):
            self._stop(number)

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._alive.values()]

    def _slots(self) -> int:
        return self.workers

    def _prepare(self, shared: Shared, store: Store) -> None:
        self._shared, self._landing = shared.path, store
        if store.path is None:  # results that stay in memory still come from workers as files
            self._folder = tempfile.TemporaryDirectory(prefix="cbm-jobs-", ignore_cleanup_errors=True)
            self._landing = Store(self._folder.name)

    def _finish_run(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
        self._shared = self._landing = self._folder = None

    def _begin(self, attempt: Attempt) -> None:
        worker = self._worker(fresh=attempt.number > 1)
        assert self._landing is not None and worker.process.stdin is not None
        job = attempt.job
        request: dict[str, Any] = {"key": job.key, "function": job.function, "options": job.options}
        request |= {"shared": str(self._shared), "out": str(self._landing.attempt_file(job.key, attempt.token))}
        worker.attempt = attempt
        with suppress(BrokenPipeError):  # it has died; its listener thread reports that
            worker.process.stdin.write(json.dumps(request).encode() + b"\n")
            worker.process.stdin.flush()

    def _next(self, deadline: float | None) -> Outcome | None:
        while (message := self._next_message(deadline)) is not None:
            number, line = message
            worker = self._alive.get(number)
            if worker is None or worker.attempt is None:
                continue  # the last message of a worker that was stopped
            attempt, worker.attempt = worker.attempt, None
            if not line:
                return self._lost(number, attempt)
            reply = json.loads(line)
            assert reply["key"] == attempt.job.key
            if reply["ok"]:
                return Outcome(attempt.token, "done")
            return Outcome(attempt.token, "raised", reply["message"], reply["traceback"], reply["cause"])
        return None

    def _lost(self, number: int, attempt: Attempt) -> Outcome:
        """A worker that ended on its own."""
        process = self._alive[number].process
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)  # its pipe closes shortly before it ends
        self._stop(number)
        self._forget(attempt)
        return Outcome(attempt.token, "lost", ending_of(process.returncode))

    def _keep(self, attempt: Attempt, store: Store) -> None:
        assert self._landing is not None
        self._landing.adopt(attempt.job.key, attempt.token)
        if self._landing is not store:
            store.put(attempt.job.key, self._landing.get(attempt.job.key))
            self._landing.file(attempt.job.key).unlink()

    def _discard(self, token: str) -> None:
        pass  # a failed attempt wrote nothing; `_forget` cleans up after a stopped one

    def _abandon(self, attempt: Attempt) -> None:
        for number, worker in list(self._alive.items()):
            if worker.attempt is not None and worker.attempt.token == attempt.token:
                self._stop(number)
        self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        assert self._landing is not None
        self._landing.attempt_file(attempt.job.key, attempt.token).unlink(missing_ok=True)

    def _worker(self, fresh: bool) -> _Worker:
        """An idle worker; a new one if there is none or `fresh` is set."""
        for number, worker in list(self._alive.items()):
            if worker.attempt is None and worker.process.poll() is not None:
                self._stop(number)  # it was ended between two runs
            elif worker.attempt is None and not fresh:
                return worker
            elif worker.attempt is None and len(self._alive) >= self.workers:
                self._stop(number)  # make room for the new one
        number = next(self._numbers)
        self._alive[number] = _Worker.start(number, self._messages)
        return self._alive[number]

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
        with suppress(OSError):  # it may still contain bytes for a reader that is gone
            process.stdin.close()
        self._alive[number].listener.join(timeout=_PATIENCE)  # longer only if a job left a child that holds the pipe
        del self._alive[number]


def local_executor(workers: int) -> Executor:
    """At most `workers` single-threaded processes; 0 runs the jobs in this process."""
    if workers < 0:
        raise ValueError(f"workers must be 0 or more, not {workers}")
    return Processes(workers) if workers else InProcess()


@dataclass
class _Worker:
    """A worker process, the thread that forwards its replies, and its current attempt."""

    process: subprocess.Popen[bytes]
    listener: threading.Thread
    attempt: Attempt | None = None

    @classmethod
    def start(cls, number: int, messages: SimpleQueue[tuple[int, bytes]]) -> _Worker:
        # -P: a file in the current directory must not hide a module.
        # A session of its own: Ctrl-C in the terminal reaches only the parent, which stops its workers.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "cbm.jobs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | worker_environment(),
            start_new_session=True,
        )
        assert process.stdout is not None
        # The thread refers to the pipe and not to the pool, so that an unclosed pool can be garbage-collected.
        listener = threading.Thread(target=_listen, args=(process.stdout, number, messages), daemon=True)
        listener.start()
        return cls(process, listener)


def _listen(replies: BinaryIO, number: int, messages: SimpleQueue[tuple[int, bytes]]) -> None:
    with replies:
        for line in replies:
            if line.endswith(b"\n"):  # otherwise the worker died while writing
                messages.put((number, line))
    messages.put((number, b""))


def worker_environment() -> dict[str, str]:
    """One thread per worker, and the same `cbm` as here even if it is not the installed one."""
    environment = {f"{library}_NUM_THREADS": "1" for library in ONE_THREAD}
    if Path(sysconfig.get_paths()["purelib"]) != _PACKAGE_ROOT:
        others = os.environ.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(_PACKAGE_ROOT)] + ([others] if others else []))
    return environment


def ending_of(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return f"by signal {name}" + (" (killed, perhaps for want of memory)" if name == "SIGKILL" else "")
