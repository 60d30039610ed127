"""`python -m cbm.cli.sweep_child LIMIT COMMAND ...`: one `cbm` command that ends when its parent process ends."""

from __future__ import annotations

import os
import sys
import threading


def main() -> int:
    limit, *arguments = sys.argv[1:]
    requests = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    threading.Thread(target=_end_with, args=(requests,), daemon=True).start()
    if limit:
        _limit_memory(int(limit))
    from cbm.cli.main import main as command

    os.environ["CBM_DEBUG"] = "1"  # errors are read in a log, so show the traceback
    return command(arguments)


def _end_with(requests: int) -> None:
    """Exit when the pipe closes: when the parent closes it or dies in any way."""
    os.read(requests, 1)
    os._exit(1)


def _limit_memory(limit: int) -> None:
    try:
        import resource
    except ImportError:  # this system has no such limits
        return
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
