"""Progress in a notebook: one line that changes in place and goes away, instead of a bar that fills the cell."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EVERY = 0.25
"""Seconds between two updates of the line; each is a message to the browser and is kept in the file."""


@contextmanager
def notebook_progress(given: Callable[[str, float], None] | None) -> Iterator[Callable[[str, float], None] | None]:
    """The given callback, or in a notebook a line of our own; elsewhere nothing, as scripts expect."""
    display = None if given is not None else notebook_display()
    if display is None:
        yield given
        return
    line = Line(display)
    try:
        yield line
    finally:
        line.close()


def notebook_display() -> Any:
    """IPython's display module if this process is the kernel of a notebook; nothing is imported to find out."""
    shell = sys.modules.get("IPython")
    if shell is None or "ipykernel" not in sys.modules or shell.get_ipython() is None:
        return None
    import IPython.display

    return IPython.display


class Line:
    """Call it with a stage and the share of it that is done."""

    def __init__(self, display: Any):
        self.display, self.last, self.started = display, 0.0, time.monotonic()
        self.handle: Any = None

    def __call__(self, stage: str, fraction: float) -> None:
        now = time.monotonic()
        if now - self.last < EVERY:
            return
        self.last = now
        text = {"text/plain": f"{stage}: {100 * fraction:.0f} % ({now - self.started:.0f} s so far)"}
        if self.handle is None:
            self.handle = self.display.display(text, raw=True, display_id=True)
        else:
            self.handle.update(text, raw=True)

    def close(self) -> None:
        if self.handle is not None:
            self.handle.update({"text/plain": f"done in {time.monotonic() - self.started:.0f} s"}, raw=True)
