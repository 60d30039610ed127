"""Printing: results to the output, progress to the error stream; names are printed literally, never as markup."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn, TaskID

LINE_EVERY = 60.0
"""Seconds between two lines of progress when there is no terminal for a progress bar."""


def stdout() -> Console:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = max(console.width, 120)  # a file has no width: do not limit tables to 80 columns
    return console


def show_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> None:
    """A table with a line under its titles; the columns named in `right` hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in titles:
        table.add_column(title, justify="right" if title in set(right) else "left")
    for row in rows:
        table.add_row(*(Text(_printable(cell)) for cell in row))
    stdout().print(table)


def print_json(data: Any) -> None:
    print(json.dumps(data, indent=1, allow_nan=False))


def show(text: str = "", style: str | None = None) -> None:
    stdout().print(_printable(text), style=style)


def warn(text: str) -> None:
    """One line on the error stream: not an error, but something that may explain the result."""
    print(f"cbm: {_printable(' '.join(text.split()))}", file=sys.stderr)


def heading(text: str) -> None:
    show(text, style="bold")


def width() -> int:
    """Number of columns to fill: the terminal's width up to a limit, or 110 in a file."""
    console = stdout()
    return min(console.width, 110) if console.is_terminal else 110


def listed(names: Iterable[str], indent: str = "  ") -> str:
    """Names separated by commas, wrapped between names."""
    return wrapped(", ".join(names), indent)


def wrapped(text: str, indent: str = "", hanging: str = "") -> str:
    """Wrapped at the width of the terminal; all lines but the first are indented by `hanging` more."""
    return textwrap.fill(
        text,
        max(40, width()),
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )


def duration(seconds: float) -> str:
    if seconds < 0.1:
        return "less than 0.1 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def so_far(elapsed: float, spent: float, done: float, rest: float) -> str:
    """2 min so far, about 3 min left of this: `rest` takes as long per part as what was `done` in `spent` seconds."""
    if done < 0.02:
        return f"{duration(elapsed)} so far"
    return f"{duration(elapsed)} so far, about {duration(spent * rest / done)} left of this"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _printable(text: str) -> str:
    """Replaces control characters, so that a name cannot move the cursor or change colours."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def on_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class OnTerminal:
    """Bars drawn while a `with` block runs, if there is a terminal and `quiet` is not set."""

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.bars: Bars | None = None

    def make_bars(self) -> Bars:
        return _bars()

    def __enter__(self) -> Self:
        if on_terminal() and not self.quiet:
            self.bars = self.make_bars()
            self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None:
            self.bars.stop()


class Stages(OnTerminal):
    """Progress through named stages: one bar for each on a terminal, one plain line a minute elsewhere.

    Call it with a stage and the fraction of it that is done, from 0 to 1.
    """

    def __init__(self, titles: dict[str, str], quiet: bool = False):
        super().__init__(quiet)
        self.titles = titles
        self.tasks: dict[str, TaskID] = {}
        self.started = self.last_line = time.monotonic()
        self.stage, self.stage_started, self.stage_from = "", self.started, 0.0

    def __enter__(self) -> Self:
        self.started = self.last_line = self.stage_started = time.monotonic()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bars is not None and kind is None:
            for task in self.tasks.values():
                self.bars.update(task, completed=1.0)
        super().__exit__(kind, error, trace)

    def __call__(self, stage: str, fraction: float) -> None:
        title = self.titles.get(stage, stage)
        if stage != self.stage:
            self.stage, self.stage_started, self.stage_from = stage, time.monotonic(), fraction
        if self.bars is not None:
            self._draw(self.bars, stage, title, fraction)
        elif not self.quiet and time.monotonic() - self.last_line >= LINE_EVERY:
            self.last_line = time.monotonic()
            times = so_far(
                self.last_line - self.started,
                self.last_line - self.stage_started,
                fraction - self.stage_from,
                1 - fraction,
            )
            print(f"{title}: {100 * fraction:.0f} % ({times})", file=sys.stderr, flush=True)

    def _draw(self, bars: Bars, stage: str, title: str, fraction: float) -> None:
        if stage not in self.tasks:
            for earlier in self.tasks.values():
                bars.update(earlier, completed=1.0)
            padded = f"{title:<{max(len(text) for text in self.titles.values())}}"
            self.tasks[stage] = bars.add_task(padded, total=1.0)
        bars.update(self.tasks[stage], completed=min(1.0, fraction))


def learning_bars() -> Bars:
    """Bars with a remark, such as how good the policies are: tasks have a field `remark`."""
    from rich.progress import TextColumn

    return _bars(TextColumn("{task.fields[remark]}", style="dim"))


def _bars(*more: ProgressColumn) -> Bars:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    return Bars(
        TextColumn("{task.description}"),
        BarColumn(bar_width=32),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
        *more,
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,  # the result contains everything worth keeping
    )
