"""What all executors share: order, retries, fencing, deadlines and progress.

An executor starts attempts and reports how they end; this module decides what follows. Each attempt has its own token.
A result is stored only if it carries the token of its job's current attempt, so an attempt that was given up for lost
(a cut link, a node that did not answer) can end at any time without effect.
"""

from __future__ import annotations

import os
import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np

from cbm.jobs.job import Cause, Job, job_error
from cbm.jobs.shared import Shared
from cbm.jobs.store import Store

Results = dict[str, dict[str, np.ndarray]]
Ending = Literal["done", "raised", "lost"]


@dataclass(frozen=True)
class Attempt:
    """One attempt at a job."""

    job: Job
    number: int
    """1 for the first attempt."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended."""

    token: str
    ending: Ending
    """done: its result is available. raised: the job raised an error. lost: its worker is gone."""
    message: str | None = None
    """The text of the error, or how a lost attempt ended."""
    trace: str = ""
    cause: Cause = "other"
    """Cause of the job's own error; after "data" and "write" another attempt would fail in the same way."""


@dataclass(frozen=True)
class Failure:
    """A job that failed for good."""

    key: str
    error: Exception
    log: str
    attempts: int


@dataclass(frozen=True)
class Retry:
    """How often a job is tried again: after an error of its own, and after its worker was lost."""

    raised: int = 0
    """Jobs are pure, so an error recurs, unless memory or disk was short."""
    lost: int = 1


@dataclass(frozen=True)
class Event:
    """A change in the state of a job, for progress displays."""

    kind: Literal["started", "done", "retried", "failed"]
    key: str
    done: int
    total: int
    detail: str = ""


Watch = Callable[[Event], None]


class Executor(ABC):
    """Runs jobs. One `run` at a time; close it, or use it in a `with` block."""

    remote = False
    """Whether jobs may run where this machine's files are not available."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self,
        jobs: Sequence[Job],
        shared: str | os.PathLike[str],
        store: Store,
        *,
        deadline: float | None = None,
        progress: Callable[[int, int], None] | None = None,
        watch: Watch | None = None,
        retry: Retry | None = None,
        failures: list[Failure] | None = None,
    ) -> Results:
        """Results by key, in the order of `jobs`; jobs whose results are in the store are not run again.

        After `deadline` (a value of `time.monotonic()`) no job starts, running ones are stopped, and their results are
        missing. Without `failures` the first job that fails for good stops the others, and finished results stay in the
        store; with it, failed jobs are appended to it and the others continue.
        """
        _check_keys(jobs)
        batch = _Batch(jobs, Shared(shared), store, deadline, progress, watch, retry or self.usual_retry(), failures)
        try:
            if batch.todo:
                self._prepare(batch.shared, store)
                self._work(batch)
        finally:
            # Attempts still run here only after the deadline, an error or Ctrl-C.
            for attempt in batch.running.values():
                self._abandon(attempt)
            self._finish_run()
        return {job.key: batch.results[job.key] for job in jobs if job.key in batch.results}

    def _work(self, batch: _Batch) -> None:
        while True:
            while batch.todo and len(batch.running) < self._slots() and not batch.late():
                self._begin(batch.start())
            if not batch.running:
                return
            outcome = self._next(batch.deadline)
            if outcome is None:  # the deadline has passed
                return
            attempt = batch.running.pop(outcome.token, None)
            if attempt is None:
                self._discard(outcome.token)  # of an abandoned attempt: its job has another one now
            elif outcome.ending == "done":
                self._keep(attempt, batch.store)
                batch.finish(attempt)
            else:
                self._discard(outcome.token)
                batch.retry_or_fail(attempt, outcome)

    def usual_retry(self) -> Retry:
        return Retry()

    @property
    def processes(self) -> list[int]:
        """Process ids of the workers on this machine, if there are any."""
        return []

    # What an executor adds

    @abstractmethod
    def close(self) -> None:
        """Stop all workers. A later `run` would start new ones."""

    @abstractmethod
    def _slots(self) -> int:
        """Number of attempts that may run at a time."""

    def _prepare(self, shared: Shared, store: Store) -> None:  # noqa: B027
        """Called before the first attempt of a `run`."""

    @abstractmethod
    def _begin(self, attempt: Attempt) -> None: ...

    @abstractmethod
    def _next(self, deadline: float | None) -> Outcome | None:
        """The next attempt that ends, or None after the deadline."""

    @abstractmethod
    def _keep(self, attempt: Attempt, store: Store) -> None:
        """Put the result of an attempt into the store."""

    @abstractmethod
    def _discard(self, token: str) -> None:
        """Delete whatever an attempt has left behind."""

    @abstractmethod
    def _abandon(self, attempt: Attempt) -> None:
        """Stop a running attempt and discard its result."""

    def _finish_run(self) -> None:  # noqa: B027
        """Called after the last attempt of a `run`, however it ended."""


class _Batch:
    """The jobs of one `run`: which are waiting, running (by token), finished and failed."""

    def __init__(
        self,
        jobs: Sequence[Job],
        shared: Shared,
        store: Store,
        deadline: float | None,
        progress: Callable[[int, int], None] | None,
        watch: Watch | None,
        retry: Retry,
        failures: list[Failure] | None,
    ) -> None:
        self.shared, self.store, self.deadline, self.total = shared, store, deadline, len(jobs)
        self.progress, self.watch, self.retry, self.failures = progress, watch, retry, failures
        found = {job.key: store.find(job.key) for job in jobs}
        self.results: Results = {key: result for key, result in found.items() if result is not None}
        self.todo = deque(job for job in jobs if job.key not in self.results)
        self.running: dict[str, Attempt] = {}
        self.tries: dict[str, int] = {}
        self.mishaps: dict[tuple[str, Ending], int] = {}

    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def start(self) -> Attempt:
        job = self.todo.popleft()
        self.tries[job.key] = self.tries.get(job.key, 0) + 1
        attempt = Attempt(job, self.tries[job.key])
        self.running[attempt.token] = attempt
        self._tell("started", job.key)
        return attempt

    def finish(self, attempt: Attempt) -> None:
        key = attempt.job.key
        self.results[key] = self.store.get(key)
        self._tell("done", key)
        if self.progress is not None:
            self.progress(len(self.results), self.total)

    def retry_or_fail(self, attempt: Attempt, outcome: Outcome) -> None:
        """Try the job again, or record its failure."""
        key, kind = attempt.job.key, outcome.ending
        self.mishaps[key, kind] = times = self.mishaps.get((key, kind), 0) + 1
        allowed = self.retry.lost if kind == "lost" else self.retry.raised
        if times <= allowed and outcome.cause == "other":
            self.todo.appendleft(attempt.job)
            self._tell("retried", key, (outcome.message or "") if kind == "lost" else _last_line(outcome.trace))
            return
        error = _error(attempt, outcome, times)
        if self.failures is None:
            raise error
        self.failures.append(Failure(key, error, outcome.trace or str(error), attempt.number))
        self._tell("failed", key, _last_line(str(error)))

    def _tell(self, kind: Literal["started", "done", "retried", "failed"], key: str, detail: str = "") -> None:
        if self.watch is not None:
            self.watch(Event(kind, key, len(self.results), self.total, detail))


def _error(attempt: Attempt, outcome: Outcome, times: int) -> Exception:
    key = attempt.job.key
    if outcome.ending == "lost":
        often = {1: "once", 2: "twice"}.get(times, f"{times} times")
        last = f", the last time {outcome.message}" if times > 1 else f", {outcome.message}"
        return RuntimeError(f"job {key!r}: its worker ended {often}{last}")
    return job_error(key, outcome.cause, outcome.message or "", outcome.trace)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _check_keys(jobs: Sequence[Job]) -> None:
    seen: set[str] = set()
    for job in jobs:
        if job.key in seen:
            raise ValueError(f"two jobs have the key {job.key!r}")
        seen.add(job.key)
