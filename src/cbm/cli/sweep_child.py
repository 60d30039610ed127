"""`python -m cbm.cli.sweep_child LIMIT COMMAND ...`: one command of `cbm` that ends with whoever started it."""

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

    os.environ["CBM_DEBUG"] = "1"  # what goes wrong here is read in a log: show where
    return command(arguments)


def _end_with(requests: int) -> None:
    """The pipe closes when the parent closes it or dies, however it dies."""
    os.read(requests, 1)
    os._exit(1)


def _limit_memory(limit: int) -> None:
    try:
        import resource
    except ImportError:  # no such limits on this system
        return
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    sys.exit(main())
