"""The run directory: its configuration, one owner, complete files, and a result when it is finished.

Every longer command keeps its run in such a directory. By `config.json` the same command recognises its run and
continues it; another command is refused. Only the owner removes anything from a directory, and removes the directory
itself only if it has just created it and the input turned out to be unusable.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cbm
from cbm.errors import DataError, InUseError
from cbm.runs.files import append_line, atomic_write_text, read_json, sweep_temporary, write_failed
from cbm.runs.lock import Lock

SCHEMA = 1
"""Version of config.json and of the files beside it; increased when older runs cannot be continued."""
CONFIG, RESULT, CHECKPOINT = "config.json", "result.json", "checkpoint"
ABOUT_THE_PROGRAM = ("version",)
"""Entries of config.json that may differ between a run and its continuation."""


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path, command: str, config: Mapping[str, Any]):
        self.path = Path(path)
        self.command = command
        said = {"command": command, "schema": SCHEMA, "version": cbm.__version__}
        self.config: dict[str, Any] = json.loads(json.dumps(said | dict(config)))
        self.lock = Lock(self.path, command)

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    def is_finished(self) -> bool:
        """Whether the same command has written its result here; a directory of another one is refused."""
        if not (self.path / CONFIG).exists():
            return False
        stored = read_json(self.path / CONFIG)
        command = stored.get("command") if isinstance(stored, dict) else None
        if command != self.command:
            raise DataError(
                f"{self.path} holds a run of `cbm {command}`, not of `cbm {self.command}`; choose another directory"
            )
        if stored.get("schema") != SCHEMA:
            raise DataError(
                f"{self.path} holds a run of another version of cbm ({stored.get('version') or 'before 0.1'}); "
                "choose another directory"
            )
        differing = differences(_without(stored, ABOUT_THE_PROGRAM), _without(self.config, ABOUT_THE_PROGRAM))
        if differing:
            raise DataError(f"{self.path} holds another run ({'; '.join(differing[:6])}); choose another directory")
        return (self.path / RESULT).exists()

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Create the directory, be its only owner, and write config.json; released afterwards."""
        made = make_directories(self.path)
        self.lock.take()
        try:
            self.sweep()
            if not self.is_finished():
                self.write_json(CONFIG, self.config)
            yield
        except InUseError:
            raise
        except DataError:
            if self.path in made and not self.holds_work():
                shutil.rmtree(self.path, ignore_errors=True)
            raise
        finally:
            self.lock.release()
            remove_empty(made)

    def holds_work(self) -> bool:
        """Whether the directory contains anything that the next attempt could not recreate in a moment."""
        kept = (*self.checkpoint.glob("*.safetensors"), *self.checkpoint.glob("jobs/*"))
        return (self.path / RESULT).exists() or bool(kept)

    def sweep(self) -> None:
        """Remove what killed writers left behind."""
        sweep_temporary(self.path.rglob(".*.tmp"))

    # Writing, by the owner alone

    def write_json(self, name: str, content: Any) -> None:
        self.write_text(name, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def write_text(self, name: str, text: str) -> None:
        self.lock.check()
        atomic_write_text(self.path / name, text)

    def append(self, name: str, line: str) -> None:
        self.lock.check()
        append_line(self.path / name, line)


def make_directories(path: Path) -> list[Path]:
    """Create a directory and its parents; returns those that were created, innermost first."""
    made: list[Path] = []
    try:
        for place in (*reversed(path.parents), path):
            if place.is_dir():
                continue
            try:
                place.mkdir()
                made.insert(0, place)
            except FileExistsError:  # someone else made it just now
                if not place.is_dir():
                    raise
    except OSError as error:
        remove_empty(made)
        raise write_failed(path, error) from error
    return made


def remove_empty(directories: Iterable[Path]) -> None:
    """Remove those of the directories that are empty, innermost first."""
    for directory in directories:
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return


def _without(config: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


_TOO_LONG = {"factors.variables": "other variables", "data": "other data"}
"""How to name parts of a configuration that are too long to be shown."""


def differences(stored: Any, expected: Any, place: str = "") -> list[str]:
    """The differences of two configurations, each as `settings.sac.batch 256, not 128`."""
    if isinstance(stored, dict) and isinstance(expected, dict):
        found = []
        for key in dict.fromkeys([*expected, *stored]):
            found += differences(stored.get(key), expected.get(key), f"{place}.{key}" if place else key)
        return found
    if stored == expected:
        return []
    text = f"{place} {json.dumps(stored)}, not {json.dumps(expected)}"
    return [text if len(text) < 120 else _TOO_LONG.get(place, f"another {place}")]


def read_config(run: Path, command: str) -> dict[str, Any]:
    """The configuration of a run of that command."""
    if not (run / CONFIG).is_file():
        raise DataError(f"{run}: is no run (it has no config.json)")
    config = read_json(run / CONFIG)
    found = config.get("command") if isinstance(config, dict) else None
    if found != command:
        raise DataError(f"{run}: is a run of `cbm {found}`, not of `cbm {command}`")
    if type(config.get("schema", SCHEMA)) is not int or config.get("schema", SCHEMA) > SCHEMA:
        raise DataError(f"{run}: was made by a newer version of cbm (schema {config['schema']!r}, known: {SCHEMA})")
    result: dict[str, Any] = config
    return result
