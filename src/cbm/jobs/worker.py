"""A worker process: one JSON request per line on stdin, one JSON reply per line on stdout.

Started by `cbm.jobs.pool` as `python -m cbm.jobs.worker`. It has no state between jobs and may be killed at any time.
It ends when its stdin closes, which also happens when the parent is killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

from cbm.jobs.job import Job, cause_of
from cbm.jobs.shared import Shared
from cbm.jobs.store import write_attempt

_PR_SET_PDEATHSIG = 1  # from <sys/prctl.h>


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which stops its workers
    _die_with_parent()
    requests, replies = _private_pipes()
    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(requests, lines), daemon=True).start()
    while True:
        reply = answer(json.loads(lines.get()))
        sys.stdout.flush()
        with suppress(BrokenPipeError):  # no parent any more; `_listen` is about to end this process
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run one job and write its result to `request["out"]`; errors of the job are reported, not raised."""
    try:
        job = Job(request["key"], request["function"], request["options"])
        # Reopened for every job: the arrays may have been replaced since the last one.
        write_attempt(Path(request["out"]), job.call(Shared(request["shared"])))
    except (Exception, SystemExit) as error:
        with suppress(OSError):
            Path(request["out"]).unlink(missing_ok=True)
        about = {"cause": cause_of(error), "message": str(error), "traceback": traceback.format_exc()}
        return {"key": request["key"], "ok": False, **about}
    return {"key": request["key"], "ok": True}


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the parent. Jobs get an empty stdin, and what they print goes to stderr."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _listen(requests: BinaryIO, lines: SimpleQueue[bytes]) -> None:
    """Runs in a thread, so that a busy worker also notices when the parent closes the pipe or dies."""
    for line in requests:
        lines.put(line)
    os._exit(0)


def _die_with_parent() -> None:
    """Linux kills this process with its parent, even if a job never lets `_listen` run."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
