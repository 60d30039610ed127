"""Transitions of a large table, block by block, by the rules of `cbm.data.series`; one row is carried over between
blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cbm.data.cells import as_numbers, not_finite
from cbm.data.jumps import find_jumps
from cbm.data.keys import KeyBlock, Keys
from cbm.data.mapped import block_rows, read_rows
from cbm.data.npy import NpyWriter
from cbm.data.readers.source import Fraction, Source
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import Roles, Selection
from cbm.data.series import Arrays, all_present, arrays_of, check_missing, complete_pairs, nothing_left, presence
from cbm.data.transitions import continue_each_other
from cbm.errors import DataError


@dataclass
class Cells:
    """Numbers of the columns in use, block by block; problems with them are reported after the last block.

    The consumer of a block must record its empty cells in `understood` before taking the next one.
    """

    source: Source
    selection: Selection
    roles: Roles
    understood: ReadingNotes
    progress: Fraction
    infinite: dict[str, tuple[int, float, int]] = field(default_factory=dict)
    """For each column with cells that are not finite: the first such row, its value, and their number."""

    def blocks(self) -> Iterator[Arrays]:
        names = list(dict.fromkeys(self.selection.values()))
        start = 0
        for block in self.source.read(names, block_rows(len(names))):
            numbers = {name: as_numbers(name, block[name], start) for name in names}
            for name, values in numbers.items():
                self._count_infinite(name, values, start)
            if not self.infinite:  # otherwise the log will be refused, and the rest is only counted
                yield numbers
            start += len(numbers[names[0]])
            self.progress(start / max(self.source.rows, 1))
        self._check(names)

    def _count_infinite(self, name: str, values: np.ndarray, start: int) -> None:
        if values.dtype.kind != "f":
            return
        places = np.flatnonzero(np.isinf(values))
        if len(places):
            row, value, count = self.infinite.get(name, (start + int(places[0]), float(values[places[0]]), 0))
            self.infinite[name] = (row, value, count + len(places))

    def _check(self, names: list[str]) -> None:
        """Refuse what the reader in memory refuses, with the same messages."""
        for name in names:
            if name in self.infinite:
                raise DataError(not_finite(name, *self.infinite[name]))
        check_missing(names, self.source.rows, self.roles, self.understood)


def transitions(cells: Cells, keys: Keys, folder: Path) -> Iterator[Arrays]:
    """Blocks of the arrays of the npz contract, with `episode`; checks that need all rows are made at the end."""
    selection, understood = cells.selection, cells.understood
    if selection.next_obs:
        yield from _given_pairs(cells, keys)
    elif keys.order is None:
        yield from _paired(_noted(cells.blocks(), understood), keys, selection, understood)
    else:
        spooled = _spooled(_noted(cells.blocks(), understood), folder)
        yield from _paired(_sorted(spooled, keys), keys, selection, understood)


def _noted(blocks: Iterator[Arrays], understood: ReadingNotes) -> Iterator[Arrays]:
    """The same blocks; their empty cells are counted."""
    start = 0
    for numbers in blocks:
        presence(numbers, start, understood)
        yield numbers
        start += len(next(iter(numbers.values())))


def _given_pairs(cells: Cells, keys: Keys) -> Iterator[Arrays]:
    """Rows that contain both states; those with an empty cell are left out."""
    selection, understood = cells.selection, cells.understood
    start, ends = 0, _Ends()
    for numbers in cells.blocks():
        rows = len(next(iter(numbers.values())))
        kept = all_present(presence(numbers, start, understood), rows)
        understood.dropped += int((~kept).sum())
        arrays = {name: values[kept] for name, values in arrays_of(numbers, selection).items()}
        if keys.episode is not None:
            arrays["episode"] = keys.block(start, start + rows).episode[kept]
        else:
            arrays["episode"] = ends.episodes(arrays, list(selection.flags))
        start += rows
        if kept.any():
            yield arrays


class _Ends:
    """Numbers episodes by their ends: by flags, or where rows do not continue each other."""

    def __init__(self) -> None:
        self.number = 0
        self.ended = False
        self.last: np.ndarray | None = None

    def episodes(self, arrays: Mapping[str, np.ndarray], flags: list[str]) -> np.ndarray:
        obs, next_obs = arrays["obs"].astype(float), arrays["next_obs"].astype(float)
        if not len(obs):
            return np.empty(0, np.int64)
        if flags:
            ended = np.any([arrays[flag].astype(bool) for flag in flags], 0)
            before = np.concatenate([[self.ended], ended[:-1]])
            self.ended = bool(ended[-1])
        else:
            last = obs[:1] if self.last is None else self.last
            before = ~continue_each_other(np.concatenate([last, next_obs[:-1]]), obs)
            self.last = next_obs[-1:]
        numbers = self.number + np.cumsum(before)
        self.number = int(numbers[-1])
        return numbers


def _paired(blocks: Iterator[Arrays], keys: Keys, selection: Selection, understood: ReadingNotes) -> Iterator[Arrays]:
    """Each row with its successor; `blocks` come in the order of the keys."""
    if keys.rows < 2:
        raise DataError("a time series of one row has no row to pair it with")
    has_episodes = bool(selection.episode or selection.flags or understood.restarts)
    start, restarts, found = 0, 0, 0
    carried: Arrays = {}
    for block in blocks:
        rows = len(next(iter(block.values())))
        numbers = {n: np.concatenate([carried[n], v]) for n, v in block.items()} if carried else block
        key = keys.block(start - len(carried and next(iter(carried.values()))), start + rows)
        arrays, restarts = _pairs(numbers, key, keys.step, selection, understood, restarts, has_episodes)
        carried = {name: values[-1:] for name, values in block.items()}
        start += rows
        found += len(arrays["episode"])
        if len(arrays["episode"]):
            yield arrays
    if not found:
        raise DataError(nothing_left(understood))


def _pairs(
    numbers: Arrays, key: KeyBlock, step: float | None, selection: Selection, understood: ReadingNotes, restarts: int,
    has_episodes: bool,
) -> tuple[Arrays, int]:  # fmt: skip
    """Transitions of consecutive rows, and how often time has gone back so far."""
    follows, episode = key.follows(), key.episode
    if step is not None:
        steps = key.steps(step)
        follows = steps.even
        if not selection.episode:
            passed = restarts + np.concatenate([[0], np.cumsum(steps.back)])
            episode, restarts = episode + passed, int(passed[-1])
    present = {n: ~np.isnan(v) for n, v in numbers.items() if v.dtype.kind == "f" and np.isnan(v).any()}
    whole = follows & complete_pairs(present, selection, np.arange(len(episode)))
    understood.dropped += int((follows & ~whole).sum())
    first = np.flatnonzero(whole)
    arrays = arrays_of(numbers, selection)
    paired = {name: values[first] for name, values in arrays.items()}
    paired |= {"next_obs": arrays["obs"][first + 1], "episode": episode[first]}
    if not has_episodes:
        jumps = find_jumps(*(paired[name].astype(float) for name in ("obs", "next_obs", "action")))
        understood.note("jumps", key.rows[first][jumps])
    return paired, restarts


def _spooled(blocks: Iterator[Arrays], folder: Path) -> tuple[list[str], np.ndarray]:
    """All rows in source order in one file, since they will be read in another order."""
    names: list[str] = []
    writer: NpyWriter | None = None
    for block in blocks:
        names = names or list(block)
        writer = writer or NpyWriter(folder / "rows.npy", np.float64, len(names))
        writer.add(np.column_stack([block[name] for name in names]))
    if writer is None:
        raise DataError("the table has no rows")
    with writer:
        pass
    return names, writer.mapped()


def _sorted(spooled: tuple[list[str], np.ndarray], keys: Keys) -> Iterator[Arrays]:
    names, array = spooled
    size = block_rows(len(names))
    for start in range(0, keys.rows, size):
        rows = keys.block(start, min(keys.rows, start + size)).rows
        values = read_rows(array, rows)
        yield {name: values[:, i] for i, name in enumerate(names)}
