"""From the words of a sweep to its cells: every combination of what is given as a list, for every seed."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cbm
from cbm.errors import DataError
from cbm.jobs import Job
from cbm.sweep.tree import digest

MOST_CELLS = 100_000
_FUNCTION = "cbm.sweep.command:run_command"


@dataclass(frozen=True)
class Cell:
    """One call of the command."""

    command: str
    words: tuple[str, ...]
    """What follows the command, without --seed and --out."""
    choice: dict[str, str]
    """What makes it different from the others: option and value, without the seed."""
    seed: int | None
    name: str
    """Of its run directory."""


@dataclass
class Inputs:
    """Files and directories of this machine that commands read, each with the digest of its contents."""

    known: dict[str, dict[str, str]] = field(default_factory=dict)

    def entry(self, word: str) -> dict[str, str] | None:
        """For a word that is the path of something that exists; None for any other."""
        path = Path(word)
        if not path.exists() or word in (".", ".."):
            return None
        if word not in self.known:
            total, kind = digest(path), "directory" if path.is_dir() else "file"
            name = f"inputs/{total[:12]}/{path.name}"
            self.known[word] = {"name": name, "path": str(path.resolve()), "digest": total[:32], "kind": kind}
        return self.known[word]


def parse_seeds(text: str) -> list[int]:
    """`3`, `0-4`, `0,2,5-7`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())
        if not match:
            raise DataError(f"--seeds: {text!r} is not a list of numbers such as 0-4 or 0,2,5-7")
        low, high = int(match[1]), int(match[2] or match[1])
        if high < low or high - low >= MOST_CELLS:
            raise DataError(f"--seeds: {part!r} is not a range from a smaller to a larger number")
        seeds += range(low, high + 1)
    return list(dict.fromkeys(seeds))


def cells_of(command: str, words: list[str], seeds: list[int]) -> list[Cell]:
    r"""Every combination; a comma that belongs to a value is written as `\,`."""
    alternatives = [_alternatives(word) for word in words]
    titles = _titles(words)
    varied = [k for k, values in enumerate(alternatives) if len(values) > 1]
    total = len(seeds)
    for values in alternatives:
        total *= len(values)
    if total > MOST_CELLS:
        raise DataError(f"{total} combinations are too many; at most {MOST_CELLS} make a sweep")
    cells, names = [], set[str]()
    for chosen in itertools.product(*alternatives):
        choice = {titles[k]: chosen[k] for k in varied}
        for seed in seeds:
            name = _name([*choice.values(), f"seed{seed}"], names)
            cells.append(Cell(command, chosen, choice, seed, name))
    return cells


def job_of(cell: Cell, inputs: Inputs, own: list[str], out: str, memory: float | None) -> Job:
    """The job of a cell. Its key names the cell and everything that its result depends on."""
    words, entries = [], []
    for word in cell.words:
        entry = inputs.entry(word)
        words.append(word if entry is None else entry["name"])
        entries += [] if entry is None else [entry]
    seed = [] if cell.seed is None else ["--seed", str(cell.seed)]
    arguments = [cell.command, *words, *seed, *own]
    depends: Any = [arguments, [entry["digest"] for entry in entries], cbm.__version__]
    key = hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:12]
    options = {"arguments": arguments, "out": out, "inputs": entries, "memory": memory}
    return Job(f"{cell.name}.{key}", _FUNCTION, options)


def _alternatives(word: str) -> list[str]:
    parts = re.split(r"(?<!\\),", word)
    if len(parts) > 1 and Path(word).exists():
        parts = [word]
    return list(dict.fromkeys(part.replace("\\,", ",") for part in parts))


def _titles(words: list[str]) -> list[str]:
    """What each word is the value of: the option before it, or its place; a KEY=VALUE is told by its key."""
    titles, place, option = [], 0, ""
    for word in words:
        if word.startswith("--"):
            title, _, value = word.partition("=")
            option = "" if value else title[2:]
            titles.append(title[2:] if value else "")
            continue
        place += not option
        title = option or ("data" if place == 1 else f"argument {place}")
        key, equals, _ = word.partition("=")
        titles.append(key if option and equals else title)
        option = ""
    twice = {title for title in titles if title and titles.count(title) > 1}
    return [f"{title} {k}" if title in twice else title for k, title in enumerate(titles)]


def _name(parts: list[str], taken: set[str]) -> str:
    """A directory's name that says what is special about it."""
    text = "-".join(re.sub(r"[^A-Za-z0-9._=]+", "_", Path(part).stem if "/" in part else part) for part in parts)
    name, number = text[:120].strip("._") or "cell", 1
    while name in taken:
        number += 1
        name = f"{text[:120]}-{number}"
    taken.add(name)
    return name
