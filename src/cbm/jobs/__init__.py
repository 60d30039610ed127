"""Independent jobs: pure functions from shared arrays to stored arrays, in as many processes as wanted.

A job names a function of this package and its options. It reads arrays that all jobs share, and it returns
arrays that are stored under its key. Because a job is pure and has one thread, its result is the same in this
process, in a worker process, or on another machine; and a run that was stopped goes on where it was.
"""

from cbm.jobs.job import Job
from cbm.jobs.pool import Pool, default_workers
from cbm.jobs.shared import Shared
from cbm.jobs.store import Store

__all__ = ["Job", "Pool", "Shared", "Store", "default_workers"]
