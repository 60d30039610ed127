"""Progress of learning policies, with their latest results."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Self

from cbm.cli.console import LINE_EVERY, OnTerminal, learning_bars, so_far

if TYPE_CHECKING:
    from rich.progress import Progress as Bars

    from cbm.learning.algorithm1 import Status


class Watch(OnTerminal):
    """A bar on a terminal, one plain line a minute elsewhere. Call it with each `Status`."""

    def __init__(self, title: str, quiet: bool = False):
        super().__init__(quiet)
        self.title = title
        self.done_at_start = -1.0
        self.started = self.last_line = self.last_drawn = time.monotonic()

    def make_bars(self) -> Bars:
        bars = learning_bars()
        self.task = bars.add_task(f"learning {self.title}", total=1.0, remark="")
        return bars

    def __enter__(self) -> Self:
        self.started = self.last_line = time.monotonic()
        return super().__enter__()

    def __call__(self, status: Status) -> None:
        now = time.monotonic()
        if self.done_at_start < 0:
            self.done_at_start = status.done  # a resumed run does not begin at zero
        if self.bars is not None:
            if now - self.last_drawn > 0.2:
                self.last_drawn = now
                self.bars.update(self.task, completed=status.done, remark=status_line(status))
        elif not self.quiet and now - self.last_line >= LINE_EVERY:
            self.last_line = now
            spent = now - self.started
            times = so_far(spent, spent, status.done - self.done_at_start, 1 - status.done)
            line = f"learning {self.title}: {100 * status.done:.0f} % ({times}), {status_line(status)}"
            print(line, file=sys.stderr, flush=True)


def status_line(status: Status) -> str:
    """step 20,000; pick: return 51.2, success 40 %, 7 variables."""
    return "; ".join([f"step {status.step:,}", *(_one(task, latest) for task, latest in status.latest.items())])


def _one(task: str, latest: dict[str, float]) -> str:
    parts = []
    if "return" in latest:
        parts.append(f"return {latest['return']:.4g}")
    if not math.isnan(latest.get("success", math.nan)):
        parts.append(f"success {100 * latest['success']:.0f} %")
    parts.append(f"{latest['kept']:.0f} variables")
    return f"{task}: {', '.join(parts)}"
