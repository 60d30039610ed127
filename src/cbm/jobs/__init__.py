"""Independent jobs: pure functions from shared arrays to stored arrays, which can run anywhere.

A job names a function of this package and its options. It reads arrays that all jobs share and returns arrays, which
are stored under its key. Because a job is pure and single-threaded, its result is the same in this process, in a worker
process, or on another machine; and an interrupted run can be resumed.

`open_executor("local")` uses processes of this machine, `open_executor("ray")` and `"ray:HOST:PORT"` a cluster.
"""

from cbm.jobs.executor import Event, Executor, Failure, Retry
from cbm.jobs.job import Job
from cbm.jobs.place import check_place, open_executor
from cbm.jobs.pool import InProcess, Processes, default_workers, local_executor
from cbm.jobs.shared import Shared
from cbm.jobs.store import Store

__all__ = [
    "Event",
    "Executor",
    "Failure",
    "InProcess",
    "Job",
    "Processes",
    "Retry",
    "Shared",
    "Store",
    "check_place",
    "default_workers",
    "local_executor",
    "open_executor",
]
