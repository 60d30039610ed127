"""`kill -9` at random moments; the same command again and again must end with the result of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

LONGEST = 300.0
"""Seconds after which a command counts as hanging."""


@dataclass(frozen=True)
class Victim:
    """A command, the files that say what it found, and where it writes."""

    name: str
    arguments: tuple[str, ...]
    files: tuple[str, ...]


DEBUG = ("--preset", "debug", "--quiet")
VICTIMS = (
    Victim("discover", ("discover", "{work}/log.npz", "--out", "{out}", "--workers", "1", *DEBUG), ("graph.json",)),
    Victim(
        "paper",
        ("discover", "{work}/log.npz", "--out", "{out}", "--model", "demi", "--steps", "400", *DEBUG),
        ("graph.json",),
    ),
    Victim(
        "learn",
        ("learn", "light", "--task", "cross", "--method", "cbm", "--steps", "1600", "--out", "{out}", *DEBUG),
        ("eval.csv", "abstraction.jsonl"),
    ),
    Victim(
        "collect",
        ("collect", "block", "--steps", "3000", "--workers", "2", "--out", "{out}/log.npz", "--force", "--quiet"),
        ("log.npz",),
    ),
)


def campaign(work: Path, seed: int, done: int, wanted: int) -> Iterator[list[str]]:
    """Yields the faults of each kill; victims take turns, each until it is finished once."""
    if done >= wanted:
        return
    log = work / "log.npz"
    if not log.exists():
        _run(("collect", "light", "--steps", "600", "--out", str(log), "--quiet"))
    references = {victim.name: _reference(victim, work) for victim in VICTIMS}
    turn = 0
    while done < wanted:
        victim = VICTIMS[turn % len(VICTIMS)]
        turn += 1
        seconds, found = references[victim.name]
        out = work / f"killed-{victim.name}"
        shutil.rmtree(out, ignore_errors=True)
        for attempt in range(6):  # so many kills, then it may end
            faults = _kill(victim, work, out, random.Random(f"{seed} {done} {attempt}").uniform(0, seconds))
            done += 1
            yield faults
            if done >= wanted:
                break
        yield from _end(victim, work, out, found)


def _end(victim: Victim, work: Path, out: Path, reference: dict[str, Any]) -> Iterator[list[str]]:
    code, said = _run(_arguments(victim, work, out))
    faults = [] if code == 0 else [f"{victim.name}: exit code {code} after kills: {said[-300:]}"]
    if code == 0 and _result(victim, out) != reference:
        faults.append(f"{victim.name}: another result after kills, in {out}")
    left = [str(path) for path in out.rglob(".*") if path.is_file()]
    faults += [f"{victim.name}: left behind: {', '.join(left)}"] if left else []
    if faults:
        shutil.copytree(out, work / "faults" / f"{victim.name}-{time.time_ns()}", dirs_exist_ok=True)
        yield faults


def _reference(victim: Victim, work: Path) -> tuple[float, dict[str, Any]]:
    out = work / f"reference-{victim.name}"
    shutil.rmtree(out, ignore_errors=True)
    start = time.monotonic()
    code, said = _run(_arguments(victim, work, out))
    if code != 0:
        raise SystemExit(f"torture: {victim.name} fails by itself: {said}")
    return time.monotonic() - start, _result(victim, out)


def _kill(victim: Victim, work: Path, out: Path, after: float) -> list[str]:
    process = _start(_arguments(victim, work, out))
    time.sleep(after)
    children = _children(process.pid)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(map(_is_running, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return [f"{victim.name}: process {child} outlives its parent" for child in children if _is_running(child)]


def _arguments(victim: Victim, work: Path, out: Path) -> tuple[str, ...]:
    return tuple(argument.format(work=work, out=out) for argument in victim.arguments)


def _start(arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cbm.cli", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def _run(arguments: tuple[str, ...]) -> tuple[int, str]:
    process = _start(arguments)
    try:
        said = process.communicate(timeout=LONGEST)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return -1, f"hangs: more than {LONGEST:.0f} s" + process.communicate()[1]
    return process.returncode, said


def _result(victim: Victim, out: Path) -> dict[str, Any]:
    return {name: _content(out / name) for name in victim.files}


def _content(path: Path) -> Any:
    """What is in a file, times left out."""
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}
    if path.suffix == ".csv":
        rows = [line.split(",") for line in path.read_text().splitlines()]
        return [row[:1] + row[2:] for row in rows]  # the second column is seconds
    if path.suffix == ".json":
        return {key: value for key, value in json.loads(path.read_text()).items() if key != "seconds"}
    return path.read_text()


def _children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except OSError:
        return []


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
