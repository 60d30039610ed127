"""Independent jobs: pure functions from shared arrays to stored arrays, run wherever there is room.

A job names a function of this package and its options. It reads arrays that all jobs share, and it returns
arrays that are stored under its key. Because a job is pure and has one thread, its result is the same in this
process, in a worker process, or on another machine; and a run that was stopped goes on where it was.

`open_executor("local")` gives processes of this machine, `open_executor("ray")` and `"ray:HOST:PORT"` a cluster.
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
