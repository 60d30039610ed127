"""All jobs of a command in one view: on a terminal a bar and the running jobs, elsewhere a line for each job that
ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cbm.cli.console import OnTerminal, duration, learning_bars
from cbm.jobs import Event

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

NAMED = 4
"""Running jobs that are named, at most."""


class JobsView(OnTerminal):
    """Shows the progress of an executor: call it with each of its events."""

    def __init__(self, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.running: dict[str, float] = {}
        self.failed = 0

    def make_bars(self) -> Bars:
        bars = learning_bars()
        self.task = bars.add_task("runs", total=None, remark="")
        return bars

    def __call__(self, event: Event) -> None:
        name = event.key.rsplit(".", 1)[0]
        began = self.running.pop(event.key, time.monotonic())
        if event.kind == "started":
            self.running[event.key] = began
        self.failed += event.kind == "failed"
        if self.bars is not None:
            self._draw(event)
        elif not self.quiet and event.kind != "started":
            took = duration(time.monotonic() - began)
            detail = f": {event.detail}" if event.detail else ""
            count = f"{event.done + self.failed} of {event.total}"
            print(f"{count}  {event.kind} {name} after {took}{detail}", file=sys.stderr, flush=True)

    def _draw(self, event: Event) -> None:
        assert self.bars is not None
        names = [key.rsplit(".", 1)[0] for key in self.running]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        failed = f"{self.failed} failed; " if self.failed else ""
        remark = f"{failed}running: {', '.join(names[:NAMED])}{more}" if names else failed
        self.bars.update(self.task, total=event.total, completed=event.done + self.failed, remark=remark)
        if event.kind in ("retried", "failed"):
            self.bars.console.print(f"{event.kind} {event.key.rsplit('.', 1)[0]}: {event.detail}", markup=False)
