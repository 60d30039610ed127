"""From a table in blocks to a map: one pass that pairs rows, checks them, and gathers statistics.

A map is created under a temporary name and renamed when it is complete. It is reused as long as the source files have
the same sizes and times, and the roles are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data import validate
from cbm.data.keys import read_keys
from cbm.data.mapped import ABOUT, SCHEMA, Opened, blocks_of, earlier_ends, open_map, read_rows
from cbm.data.npy import NpyWriter
from cbm.data.readers.source import Fraction, Source
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import FLAGS, Roles, Selection
from cbm.data.runs import Runs, starts_of
from cbm.data.series import Arrays, described, is_choice, is_contract
from cbm.data.statistics import Gathering, Levels
from cbm.data.stream import Cells, transitions
from cbm.data.transitions import Transitions, continue_each_other
from cbm.errors import DataError
from cbm.runs.directory import make_directories
from cbm.runs.files import atomic_write_text, is_alive, write_failed

_MAP = re.compile(r"(.+-[0-9a-f]{12})-[0-9a-f]{8}", re.DOTALL)
"""Names of `map_folder`: a source with its roles, and the state of its files."""
_TEMPORARY = re.compile(r"\..*\.(\d+)\.[0-9a-f]+\.tmp")
_TYPES = {"episode": np.dtype(np.int64)} | dict.fromkeys(("continues", *FLAGS), np.dtype(bool))
"""Types of arrays that are not floats."""


def map_folder(maps: Path, source: Path, roles: Roles, state: list[list[Any]]) -> Path:
    """Folder of the map of a source; maps for other roles, and of a source that has changed, are stored beside it."""
    said = [
        hashlib.sha256(json.dumps(part).encode()).hexdigest()
        for part in ([str(source.absolute()), asdict(roles)], state)
    ]
    return maps / f"{source.stem}-{said[0][:12]}-{said[1][:8]}"


def source_state(path: Path, files: list[Path]) -> list[list[Any]]:
    """Name, size and time of every file; if these change, the map is created again."""
    state = [(file, file.stat()) for file in files]
    return [[os.path.relpath(file, path), at.st_size, at.st_mtime_ns] for file, at in state]


def stored_map(folder: Path, state: list[list[Any]]) -> Opened | None:
    """An existing map that is still valid."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        if about["schema"] != SCHEMA or about["source"] != state:
            return None
        return open_map(folder)
    except (OSError, ValueError, KeyError, TypeError, DataError):
        return None


def make_map(
    source: Source, roles: Roles, folder: Path, state: list[list[Any]], memory: int, progress: Fraction
) -> Opened:
    """Convert a table; remains of interrupted conversions are removed, and only a complete map gets its name."""
    make_directories(folder.parent)
    sweep(folder.parent)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir()
        about = _convert(source, roles, temporary, memory, progress)
        atomic_write_text(temporary / ABOUT, json.dumps(about | {"schema": SCHEMA, "source": state}, indent=1) + "\n")
        _take_place(temporary, folder)
        _remove_outdated(folder)
    except OSError as error:
        raise write_failed(folder, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return open_map(folder)


def sweep(maps: Path) -> None:
    """Remove conversions whose process no longer exists."""
    for entry in maps.glob(".*.tmp"):
        name = _TEMPORARY.fullmatch(entry.name)
        if name is not None and entry.is_dir() and not is_alive(int(name[1])):
            shutil.rmtree(entry, ignore_errors=True)


def _remove_outdated(folder: Path) -> None:
    """Maps of the same source, for the same roles, from before it changed. Who still reads one is told so."""
    mine = _MAP.fullmatch(folder.name)
    for entry in folder.parent.iterdir():
        other = _MAP.fullmatch(entry.name)
        if mine and other and other[1] == mine[1] and entry != folder and entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)


def _take_place(temporary: Path, folder: Path) -> None:
    """Rename; an earlier map is moved away first, since a directory cannot replace a non-empty one."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    with suppress(FileNotFoundError):
        folder.rename(old)
    try:
        temporary.rename(folder)
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _convert(source: Source, roles: Roles, folder: Path, memory: int, progress: Fraction) -> dict[str, Any]:
    if not source.rows:
        raise DataError("the table has no rows")
    selection = source.select(roles)
    _check_room(source, selection, folder)
    work = folder / "work"
    work.mkdir()
    understood = ReadingNotes(source.reader, source.rows, not selection.next_obs)
    keys, selection = read_keys(source, selection, work, memory, understood, lambda done: progress(0.2 * done))
    understood.guesses, understood.ignored = list(selection.guesses), dict(selection.ignored)
    cells = Cells(source, selection, roles, understood, lambda done: progress(0.2 + 0.8 * done))
    written = _write(transitions(cells, keys, work), source, selection, folder)
    shutil.rmtree(work)
    return written.about(source, selection, understood)


def _check_room(source: Source, selection: Selection, folder: Path) -> None:
    columns = len(selection.values()) + len(selection.obs)
    needed, free = 8 * source.rows * (columns + 4), shutil.disk_usage(folder).free
    needed = needed // 2 if set(selection.obs.values()) <= source.narrow else needed
    if needed > free:
        raise DataError(f"its map takes up to {needed / 1e9:.1f} GB, and {folder.parent} has {free / 1e9:.1f} GB free")


@dataclass
class _Written:
    """What has been written to disk, with statistics gathered on the way."""

    folder: Path
    files: dict[str, str] = field(default_factory=dict)
    """File name of each array."""
    seen: Gathering = field(default_factory=Gathering)
    levels: Levels = field(default_factory=lambda: Levels.of(0))
    runs: list[Runs] = field(default_factory=list)
    continued: list[np.ndarray] = field(default_factory=list)

    def array(self, name: str) -> np.ndarray:
        mapped: np.ndarray = np.load(self.folder / self.files[name], mmap_mode="r", allow_pickle=False)
        return mapped

    def about(self, source: Source, selection: Selection, understood: ReadingNotes) -> dict[str, Any]:
        """The contents of map.json, once everything has passed the checks of `Transitions`."""
        rows, known = self.seen.rows, self.seen.statistics()
        self._check_size(selection)
        checked = self._witness(source, selection)
        self._check_range("obs", list(selection.obs))
        self._check_range("next_obs", list(selection.obs))
        self._check_range("action", list(selection.action))
        for name in (name for name in known.low if name.startswith(("reward", "context_"))):
            self._check_range(name, [_column_of(name)])
        self._finish_runs()
        data = checked(self.levels.kinds(rows))
        self._check_choices(data)
        return {
            "rows": rows,
            "arrays": self.files,
            "factors": data.factors.to_json(),
            "rewards": list(data.rewards),
            "context": list(data.context),
            "truth": None if data.truth is None else data.truth.tolist(),
            "truth_rewards": {name: parents.tolist() for name, parents in data.truth_rewards.items()},
            "statistics": known.to_json(),
            "understood": understood.to_json(),
        }

    def _check_size(self, selection: Selection) -> None:
        if self.seen.rows < validate.MIN_ROWS:
            validate.row_count(np.zeros((self.seen.rows, len(selection.obs))))

    def _witness(self, source: Source, selection: Selection) -> Any:
        """A function from kinds to a log of two rows with the lowest and highest values.

        It has the same names, kinds and column descriptions as the whole log, so that `Transitions` finds and reports
        what is wrong with these.
        """
        known = self.seen.statistics()
        pair = {name: np.stack([known.low[name], known.high[name]]) for name in known.low}
        arrays: Arrays = {name: v if name in ("obs", "action") else v[:, 0] for name, v in pair.items()}
        arrays |= {"next_obs": arrays["obs"], "episode": np.zeros(2, np.int64)}
        columns, action = list(selection.action.values()), arrays["action"]
        if set(columns) <= source.whole:
            choice = is_choice(columns, int(action.min()), int(action.max()), is_contract(selection))
            arrays["action"] = action.astype(np.int64) if choice else action
        arrays |= {"names": np.array(list(selection.obs)), "action_names": np.array(list(selection.action))}
        for name in ("obs", "next_obs", "action", *known.low):
            if name != "action" or arrays["action"].dtype.kind == "f":
                arrays[name] = np.clip(arrays[name], -validate.LARGEST, validate.LARGEST)

        def checked(kinds: tuple[str, ...]) -> Transitions:
            told = {"kinds": np.array(kinds)} | arrays | described(source.about, selection)
            limit = told.get("discrete_actions")
            if limit is not None and np.size(limit) == 1:  # values outside are searched for in all rows
                told["action"] = np.clip(told["action"], 0, max(0, int(np.max(limit)) - 1))
            return Transitions.from_arrays(told)

        return checked

    def _check_range(self, name: str, columns: list[str]) -> None:
        """Report values that stand for "missing" as `Transitions` does."""
        known = self.seen.statistics()
        key = "obs" if name == "next_obs" else name
        if max(-known.low[key].min(), known.high[key].max()) <= validate.LARGEST:
            return
        total, first, passed = np.zeros(len(columns), int), None, 0
        for block in blocks_of(self.array(name)):
            values = block if block.ndim == 2 else block[:, None]
            bad = np.abs(values) > validate.LARGEST
            if first is None and bad.any():
                row, column = np.argwhere(bad)[0]
                first = (passed + int(row), int(column), float(values[row, column]))
            total, passed = total + bad.sum(0), passed + len(block)
        if first is not None:
            in_column, in_array = int(total[first[1]]), int(total.sum())
            raise DataError(validate.bad_value(name, columns, first, validate.BEYOND, in_column, in_array))

    def _check_choices(self, data: Transitions) -> None:
        """Store a discrete action as whole numbers; report values that are not valid choices."""
        count = data.factors.discrete_actions
        if count is None:
            return
        old = self.array("action")
        outside, first, passed = 0, None, 0
        with NpyWriter(self.folder / "choice.npy", np.int64, 1) as writer:
            for block in blocks_of(old):
                bad = (block[:, 0] < 0) | (block[:, 0] >= count) | (np.floor(block[:, 0]) != block[:, 0])
                if first is None and bad.any():
                    place = int(np.argmax(bad))
                    first = (passed + place, block[place, 0])
                writer.add(block)
                outside, passed = outside + int(bad.sum()), passed + len(block)
        if first is not None:
            value = int(first[1]) if first[1] == np.floor(first[1]) else first[1]
            raise DataError(validate.no_choice(first[0], value, count, outside))
        (self.folder / self.files["action"]).unlink()
        self.files["action"] = "choice.npy"

    def _finish_runs(self) -> None:
        """Episodes as runs, with the rows that continue another; a run may continue an earlier one of its episode."""
        parts = Runs(np.concatenate([r.episode for r in self.runs]), np.concatenate([r.length for r in self.runs]))
        start = starts_of(parts.episode)
        runs, continued = Runs.joined([parts]), np.add.reduceat(np.concatenate(self.continued), start)
        ends = earlier_ends(runs)
        again = np.flatnonzero(ends >= 0)
        if len(again):
            rows = runs.start[again]
            joined = continue_each_other(
                read_rows(self.array("next_obs"), ends[again]).astype(float),
                read_rows(self.array("obs"), rows).astype(float),
            )
            continues = np.load(self.folder / self.files["continues"], mmap_mode="r+", allow_pickle=False)
            continues[rows[joined]] = True
            continues.flush()
            continued[again[joined]] += 1
        with NpyWriter(self.folder / "runs.npy", np.int64, len(continued)) as writer:
            writer.add(np.stack([runs.episode, runs.length, continued]))


def _column_of(array: str) -> str:
    return "reward" if array == "reward" else array.split("_", 1)[1]


def _write(blocks: Iterator[Arrays], source: Source, selection: Selection, folder: Path) -> _Written:
    """Append every block to the files of its arrays."""
    written = _Written(folder, levels=Levels.of(len(selection.obs)))
    state = {*selection.obs.values(), *selection.next_obs.values()}
    float_type = np.dtype(np.float32 if state <= source.narrow else np.float64)
    border = _Border()
    with ExitStack() as stack:
        writers: dict[str, NpyWriter] = {}
        for block in blocks:
            for flag in FLAGS:
                if flag in block:
                    block[flag] = _flags(flag, block[flag], written.seen.rows)
            block["continues"] = border.continues(block)
            for name, values in block.items():
                if name not in writers:
                    written.files[name] = f"{len(writers)}-{_file_stem(name)}.npy"
                    kind = float_type if name in ("obs", "next_obs") else _TYPES.get(name, np.dtype(np.float64))
                    columns = values.shape[1] if values.ndim == 2 else None
                    writers[name] = stack.enter_context(NpyWriter(folder / written.files[name], kind, columns))
                writers[name].add(values)
            _look(written, block)
    return written


def _file_stem(name: str) -> str:
    """File name for an array: rewards may have names that no file can have."""
    return name if name in ("obs", "next_obs", "action", "episode", "continues", *FLAGS) else name.split("_", 1)[0]


def _look(written: _Written, block: Arrays) -> None:
    counted = [name for name in block if name not in ("episode", "continues", *FLAGS)]
    written.seen.add({name: block[name].astype(np.float64, copy=False) for name in counted})
    written.levels.add(block["obs"], block["next_obs"])
    runs = Runs.of(block["episode"])
    written.runs.append(runs)
    written.continued.append(np.add.reduceat(block["continues"].astype(np.int64), runs.start))


class _Border:
    """The last row of the previous block, which the first row of this block may continue."""

    def __init__(self) -> None:
        self.last: tuple[np.ndarray, int] | None = None

    def continues(self, block: Arrays) -> np.ndarray:
        obs, next_obs, episode = block["obs"].astype(float), block["next_obs"].astype(float), block["episode"]
        before, of_before = np.roll(next_obs, 1, 0), np.roll(episode, 1)
        if self.last is not None:
            before[0], of_before[0] = self.last
        found = continue_each_other(before, obs) & (episode == of_before)
        found[0] = found[0] and self.last is not None
        self.last = next_obs[-1], int(episode[-1])
        return found


def _flags(name: str, values: np.ndarray, first_row: int) -> np.ndarray:
    odd = (values != 0) & (values != 1)
    if odd.any():
        row = int(np.argmax(odd))
        raise DataError(validate.odd_flag(name, (first_row + row,), values[row]))
    return values.astype(bool)
