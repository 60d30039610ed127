"""Runs jobs on Ray: on this machine or on a cluster. Imported only if `--on ray` is given.

Ray gets each attempt as a task that it must not retry by itself: retries, and whose result may be stored, are decided
by the attempt's token (`cbm.jobs.executor`). Shared arrays are put into the object store once and reach each node that
needs them; results return as the bytes of the file that they become. No shared disk is needed.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np
import ray
from ray import exceptions

import cbm
from cbm.errors import DataError
from cbm.jobs.executor import Attempt, Executor, Outcome, Retry
from cbm.jobs.job import Cause, Job, cause_of
from cbm.jobs.pool import worker_environment
from cbm.jobs.shared import Shared
from cbm.jobs.store import Store, packed

PATIENCE = 1.0  # seconds between two checks of the clock while jobs run
COUNT_EVERY = 5.0  # seconds between two counts of the cluster's cores
FETCH = 60.0  # seconds for a finished result to arrive, after which its node counts as lost
KEEP_ALIVE = {
    "health_check_initial_delay_ms": 5000,
    "health_check_period_ms": 2000,
    "health_check_timeout_ms": 5000,
    "health_check_failure_threshold": 3,
    "grpc_keepalive_time_ms": 3000,
    "grpc_keepalive_timeout_ms": 5000,
    "grpc_client_keepalive_time_ms": 3000,
    "grpc_client_keepalive_timeout_ms": 5000,
}
"""A cut link gives no sign. With Ray's own settings a driver waits for minutes; with these a node that does not answer
is given up within half a minute. A cluster that is started by hand gets them from its environment, as
RAY_health_check_period_ms=2000 and so on."""


class RayExecutor(Executor):
    """Tasks of one core each; as many at a time as the cluster has cores, or `workers`."""

    remote = True

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        self.workers = workers
        self._counted = (0.0, 1)
        self._refs: dict[ray.ObjectRef, str] = {}
        self._results: dict[str, bytes] = {}
        self._put: dict[str, tuple[tuple[int, int, int], ray.ObjectRef]] = {}
        self._started = not ray.is_initialized()
        if self._started:
            connect(address, workers)
        self._environment = {"env_vars": worker_environment()}

    def usual_retry(self) -> Retry:
        """Losing a node is not the job's fault."""
        return Retry(raised=0, lost=5)

    def close(self) -> None:
        for ref in list(self._refs):
            ray.cancel(ref, force=True)
        self._refs.clear()
        self._put.clear()
        if self._started and ray.is_initialized():
            ray.shutdown()

    def _slots(self) -> int:
        if self.workers is not None:
            return self.workers
        counted, cores = self._counted
        if time.monotonic() - counted > COUNT_EVERY:
            cores = max(1, int(ray.cluster_resources().get("CPU", 1)))
            self._counted = (time.monotonic(), cores)
        return cores

    def _prepare(self, shared: Shared, store: Store) -> None:
        """Put new arrays into the object store; a replaced array is another file under the same name."""
        names = shared.names()
        for name in names:
            state = shared.file(name).stat()
            version = (state.st_ino, state.st_mtime_ns, state.st_size)
            if name not in self._put or self._put[name][0] != version:
                self._put[name] = (version, ray.put(shared[name]))
        for name in set(self._put) - set(names):
            del self._put[name]

    def _begin(self, attempt: Attempt) -> None:
        job = attempt.job
        request = {"key": job.key, "function": job.function, "options": job.options, "version": cbm.__version__}
        arrays = {name: ref for name, (_, ref) in self._put.items()}
        ref = _task.options(name=job.key, runtime_env=self._environment).remote(request, arrays)
        self._refs[ref] = attempt.token

    def _next(self, deadline: float | None) -> Outcome | None:
        while True:
            left = PATIENCE if deadline is None else deadline - time.monotonic()
            ready, _ = ray.wait(list(self._refs), num_returns=1, timeout=min(max(left, 0.0), PATIENCE))
            if ready:
                return self._outcome(ready[0], self._refs.pop(ready[0]))
            if left <= 0:
                return None

    def _outcome(self, ref: ray.ObjectRef, token: str) -> Outcome:
        try:
            reply = ray.get(ref, timeout=FETCH)
        except exceptions.OutOfMemoryError:
            return Outcome(token, "lost", "by Ray, since its node ran out of memory")
        except (exceptions.RayError, TimeoutError) as error:
            # Ray adds identifiers and advice: these are in the log.
            reason = str(error).strip().partition("\n")[0].partition(". ")[0]
            return Outcome(token, "lost", f"on Ray: {type(error).__name__}: {reason}", trace=str(error))
        if isinstance(reply, bytes):
            self._results[token] = reply
            return Outcome(token, "done")
        cause, message, trace = reply
        return Outcome(token, "raised", message, trace, cause)

    def _keep(self, attempt: Attempt, store: Store) -> None:
        store.put_packed(attempt.job.key, self._results.pop(attempt.token))

    def _discard(self, token: str) -> None:
        self._results.pop(token, None)

    def _abandon(self, attempt: Attempt) -> None:
        for ref in [ref for ref, token in self._refs.items() if token == attempt.token]:
            del self._refs[ref]
            ray.cancel(ref, force=True)
        self._discard(attempt.token)


def connect(address: str | None, workers: int | None = None) -> None:
    """Join the cluster at `address`, or the one named by RAY_ADDRESS, or start one on this machine."""
    for name, value in KEEP_ALIVE.items():
        os.environ.setdefault(f"RAY_{name}", str(value))
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if address or os.environ.get("RAY_ADDRESS"):
            ray.init(address=address, **quiet)
        else:
            # Without "local", Ray looks for traces of a cluster that may be gone or have another number of cores.
            ray.init(address="local", include_dashboard=False, num_cpus=workers, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        place = f"ray:{address}" if address else "ray"
        token = "; if it asks for a token: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" if address else ""
        raise DataError(f"--on {place}: no Ray cluster could be reached: {reason}{token}") from None


@ray.remote(num_cpus=1, max_retries=0)
def _task(request: dict[str, Any], arrays: dict[str, ray.ObjectRef]) -> bytes | tuple[Cause, str, str]:
    """One attempt; returns the packed result or, after an error, its cause, message and traceback."""
    try:
        if request["version"] != cbm.__version__:
            raise DataError(f"this node has cbm {cbm.__version__}, the command runs cbm {request['version']}")
        job = Job(request["key"], request["function"], request["options"])
        return packed(job.call(ObjectStore(arrays)))
    except (Exception, SystemExit) as error:
        return cause_of(error), str(error), traceback.format_exc()


class ObjectStore(Shared):
    """Shared arrays in Ray's object store, read-only; each is fetched to this node when first used."""

    def __init__(self, refs: Mapping[str, ray.ObjectRef]) -> None:
        self._refs = refs
        self._open: dict[str, np.ndarray] = {}

    def names(self) -> list[str]:
        return sorted(self._refs)

    def __contains__(self, name: str) -> bool:
        return name in self._refs

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._refs:
            raise KeyError(f"no shared array {name!r}")
        if name not in self._open:
            self._open[name] = ray.get(self._refs[name])
        return self._open[name]
