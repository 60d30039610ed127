"""Which row of a large log follows which: episodes and times of all rows, as files beside the map.

The rules are those of `cbm.data.series`, applied to blocks of rows. What must be known about all rows at once (the
length of a step, whether rows are in order) is found in passes over these files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.cells import as_moments, earliest, numbers_of, seconds_since
from cbm.data.clock import CREDIBLE, Steps, check_not_shuffled, no_times, not_alone, without_time
from cbm.data.mapped import block_rows, blocks_of, read_range
from cbm.data.npy import NpyWriter, median
from cbm.data.readers.source import Fraction, Source
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import Selection
from cbm.data.series import (
    NO_EPISODES,
    ended_rows,
    has_whole_episodes,
    named_columns,
    named_episodes,
    order_of,
    same_episode,
    whole_episodes,
)
from cbm.errors import DataError

SORTED_AT_ONCE = 1_000_000
"""Rows on which to see whether a guessed clock is only out of order."""
BYTES_TO_SORT = 64
"""Memory per row of a log whose episodes are mixed: these are sorted in memory, everything else is not."""


@dataclass(frozen=True)
class Keys:
    """Mapped arrays with one entry for each row of the source, in the order in which rows are paired."""

    rows: int
    episode: np.ndarray | None = None
    """(T,) int64; None: one episode."""
    complete: np.ndarray | None = None
    """(T,) whether a row has an episode."""
    time: np.ndarray | None = None
    clear: np.ndarray | None = None
    """(T,) whether no neighbouring row has the same time; None: none has."""
    order: np.ndarray | None = None
    """(T,) rows of the source; None: in their original order."""
    step: float | None = None

    def block(self, start: int, stop: int) -> KeyBlock:
        """The keys of some rows, in memory."""
        size = stop - start
        part = lambda array, fill: fill if array is None else read_range(array, start, stop)  # noqa: E731
        return KeyBlock(
            part(self.episode, np.zeros(size, np.int64)),
            part(self.complete, np.ones(size, bool)),
            None if self.time is None else part(self.time, None),
            part(self.clear, np.ones(size, bool)),
            part(self.order, np.arange(start, stop)),
        )

    def blocks(self) -> Iterator[KeyBlock]:
        """All rows, each block preceded by the last row of the previous one."""
        size = block_rows(1)
        for start in range(0, self.rows, size):
            yield self.block(max(0, start - 1), min(self.rows, start + size))


@dataclass(frozen=True)
class KeyBlock:
    episode: np.ndarray
    complete: np.ndarray
    time: np.ndarray | None
    clear: np.ndarray
    rows: np.ndarray

    def follows(self) -> np.ndarray:
        return same_episode(self.episode, self.complete)

    def steps(self, step: float) -> Steps:
        assert self.time is not None
        found = Steps.of(np.diff(self.time), self.follows(), step)
        return replace(found, even=found.even & self.clear[:-1] & self.clear[1:])


def read_keys(
    source: Source, selection: Selection, folder: Path, memory: int, understood: ReadingNotes, progress: Fraction
) -> tuple[Keys, Selection]:
    """The keys of all rows; a guessed time column that turns out to be none is dropped."""
    names = [*selection.episode]
    if not selection.next_obs:
        names += [*([] if selection.time is None else [selection.time])]
        names += [] if selection.episode else selection.flags.values()
    understood.episode = _where(selection)
    if not names:
        return Keys(source.rows), selection
    read = _Reader(source, selection, folder)
    for block, start in _numbered(source.read(list(dict.fromkeys(names)), block_rows(1))):
        read.add(block, start)
        progress(start / source.rows)
    keys, selection = read.finish()
    if selection.next_obs:
        return keys, selection
    arranged = _arranged(keys, selection, folder, memory, understood)
    timed, clocked = _timed(arranged, selection, folder, understood)
    if selection.time is not None and clocked.time is None:  # a guess that was wrong: the rows keep their order
        understood.sorted_by_time = False
        return replace(keys, time=None), clocked
    return timed, clocked


def _where(selection: Selection) -> str:
    if selection.episode:
        return named_columns(selection.episode)
    if selection.next_obs:
        return "flags" if selection.flags else "rows that continue each other"
    return "flags" if selection.flags else NO_EPISODES


def _numbered(blocks: Iterator[dict[str, np.ndarray]]) -> Iterator[tuple[dict[str, np.ndarray], int]]:
    start = 0
    for block in blocks:
        yield block, start
        start += len(next(iter(block.values())))


class _Reader:
    """Episodes and times, from consecutive blocks."""

    def __init__(self, source: Source, selection: Selection, folder: Path):
        self.rows, self.selection, self.folder = source.rows, selection, folder
        self.codes: dict[tuple[Any, ...], int] = {}
        self.whole = len(selection.episode) == 1
        self.ended = 0
        self.last_ended = False
        self.origin: Any = None
        self.times: NpyWriter | None = None
        self.episodes = NpyWriter(folder / "episode-of-rows.npy", np.int64)
        self.complete = NpyWriter(folder / "complete-rows.npy", np.bool_)
        if selection.time is not None and not selection.next_obs:
            self.times = NpyWriter(folder / "time-of-rows.npy", np.float64)

    def add(self, block: dict[str, np.ndarray], start: int) -> None:
        rows = len(next(iter(block.values())))
        if self.selection.episode:
            self._add_named(block)
        elif self.selection.flags:
            flags = {flag: numbers_of(c, block[c], start) for flag, c in self.selection.flags.items()}
            ended = ended_rows(flags, rows)
            before = np.concatenate([[self.last_ended], ended[:-1]])
            self.episodes.add(self.ended + np.cumsum(before))
            self.ended, self.last_ended = self.ended + int(before.sum()), bool(ended[-1])
        if self.times is not None:
            self._add_times(block[str(self.selection.time)], start)

    def _add_named(self, block: dict[str, np.ndarray]) -> None:
        names = self.selection.episode
        if self.whole and not has_whole_episodes(block, names):
            self._number_again()
        found = whole_episodes(block[names[0]]) if self.whole else named_episodes(block, names, self.codes)
        self.episodes.add(found[0])
        self.complete.add(found[1])

    def _number_again(self) -> None:
        """A column that seemed to hold only whole numbers holds other values: number all its values in order of
        occurrence."""
        self.whole = False
        if not self.episodes.rows:
            return
        with self.episodes, self.complete:
            pass
        earlier = [part.path.rename(part.path.with_suffix(".whole.npy")) for part in (self.episodes, self.complete)]
        self.episodes = NpyWriter(self.folder / "episode-of-rows.npy", np.int64)
        self.complete = NpyWriter(self.folder / "complete-rows.npy", np.bool_)
        episode, complete = (np.load(path, mmap_mode="r", allow_pickle=False) for path in earlier)
        for numbers, here in zip(blocks_of(episode), blocks_of(complete), strict=True):
            values = np.where(here, numbers.astype(float), np.nan)
            found = named_episodes({"": values}, ("",), self.codes)
            self.episodes.add(found[0])
            self.complete.add(here)
        for path in earlier:
            path.unlink()

    def _add_times(self, values: np.ndarray, start: int) -> None:
        assert self.times is not None
        if values.dtype.kind in "iufb":
            self.times.add(values.astype(float))
            return
        try:
            moments = as_moments(str(self.selection.time), values, start)
        except DataError as error:
            if not self.selection.time_is_guess:
                raise
            self._drop_times(error)
            return
        if self.origin is None:
            self.origin = earliest(moments)
        self.times.add(np.full(len(moments), np.nan) if self.origin is None else seconds_since(moments, self.origin))

    def _drop_times(self, error: DataError) -> None:
        assert self.times is not None
        self.times.file.close()
        why = no_times(str(self.selection.time), error)
        self.times, self.selection = None, without_time(self.selection, why)

    def finish(self) -> tuple[Keys, Selection]:
        parts = [self.episodes, self.complete, *([self.times] if self.times is not None else [])]
        for part in parts:
            with part:
                pass
        mapped = [part.mapped() if part.rows == self.rows else None for part in parts]
        return Keys(self.rows, mapped[0], mapped[1], mapped[2] if len(mapped) > 2 else None), self.selection


def _arranged(keys: Keys, selection: Selection, folder: Path, memory: int, understood: ReadingNotes) -> Keys:
    """Keys in the order of episodes and times; only a log that is not in order is sorted, in memory."""
    if keys.time is None or not selection.episode or _in_order(keys):
        return keys
    needed = BYTES_TO_SORT * keys.rows
    if needed > memory:
        raise DataError(
            f"its rows are not in the order of episode and time, and to sort {keys.rows:,} rows takes "
            f"{needed / 1e9:.1f} GB, more than --memory: sort the log, or allow as much"
        )
    assert keys.episode is not None and keys.complete is not None
    order = order_of(np.array(keys.episode), np.array(keys.time), selection, understood)
    sorted_files = []
    for array, name in ((keys.episode, "episode"), (keys.complete, "complete"), (keys.time, "time"), (None, "order")):
        values = order if array is None else np.array(array)[order]
        with NpyWriter(folder / f"sorted-{name}.npy", values.dtype) as writer:
            writer.add(values)
        sorted_files.append(writer.mapped())
    return replace(keys, episode=sorted_files[0], complete=sorted_files[1], time=sorted_files[2], order=sorted_files[3])


def _in_order(keys: Keys) -> bool:
    """Whether every episode is one run of rows in which time does not go back."""
    begun = []
    for number, block in enumerate(keys.blocks()):
        assert block.time is not None
        change = block.episode[1:] != block.episode[:-1]
        back = ~((np.diff(block.time) >= 0) | np.isnan(block.time[1:]))
        if (back & ~change).any():
            return False
        begun += [block.episode[:1]] if number == 0 else []
        begun.append(block.episode[1:][change])
    episodes = np.concatenate(begun)
    return len(np.unique(episodes)) == len(episodes)


def _timed(keys: Keys, selection: Selection, folder: Path, understood: ReadingNotes) -> tuple[Keys, Selection]:
    """The length of a step, and the rows after which time is irregular."""
    if keys.time is None:
        return keys, selection
    following = 0
    with NpyWriter(folder / "steps.npy", np.float64) as forward:
        for block in keys.blocks():
            assert block.time is not None
            follows, steps = block.follows(), np.diff(block.time)
            forward.add(steps[follows & (steps > 0)])
            following += int(follows.sum())
    if not forward.rows:
        if selection.time_is_guess:
            check_not_shuffled(selection, read_range(keys.time, 0, min(keys.rows, SORTED_AT_ONCE)))
            return replace(keys, time=None), without_time(selection, "it never increases")
        raise DataError(f"time column {selection.time!r} never increases from one row to the next")
    step = median(forward.mapped())
    even = sum(int(block.steps(step).even.sum()) for block in keys.blocks())
    if selection.time_is_guess and even < CREDIBLE * following:
        check_not_shuffled(selection, read_range(keys.time, 0, min(keys.rows, SORTED_AT_ONCE)))
        return replace(keys, time=None), without_time(selection, "no even steps")
    understood.time, understood.step = selection.time, step
    for block in keys.blocks():
        block.steps(step).report(block.rows[:-1], understood)
    if understood.restarts and not selection.episode and understood.episode == NO_EPISODES:
        understood.episode = "time that goes back"
    return _without_ambiguous(replace(keys, step=step), selection, folder, understood), selection


def _without_ambiguous(keys: Keys, selection: Selection, folder: Path, understood: ReadingNotes) -> Keys:
    """Mark rows that share their time with a neighbour, if there are any."""
    if not understood.repeated:
        return keys
    assert keys.step is not None
    clear = np.lib.format.open_memmap(folder / "clear-rows.npy", "w+", np.bool_, (keys.rows,))
    clear[:] = True
    first: tuple[int, int, float] | None = None
    passed = 0
    for block in keys.blocks():
        assert block.time is not None
        place = max(0, passed - 1)
        stands = np.flatnonzero(block.steps(keys.step).stands)
        clear[place + stands], clear[place + stands + 1] = False, False
        if first is None and len(stands):
            at = stands[0]
            first = int(block.rows[at]), int(block.rows[at + 1]), float(block.time[at])
        passed = place + len(block.rows)
    clear.flush()
    kept = sum(int(part.sum()) for part in blocks_of(clear))
    if first is not None and (not kept or kept < CREDIBLE * keys.rows):
        raise DataError(not_alone(selection, *first))
    return replace(keys, clear=clear)
