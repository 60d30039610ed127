"""Malformed inputs: every reader and every file of a run, damaged as bytes, as text and as JSON.

Each is refused with one line or read as sound. A traceback, an internal error, more than ten seconds, a file left
behind or code that ran is a fault.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import resource
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cbm.cli import main as cli
from cbm.data.transitions import Transitions
from cbm.discovery.checkpoint import Checkpoint
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.errors import DataError
from cbm.graph.knowledge import Knowledge
from cbm.jobs.store import Store
from cbm.runs.lock import read_owner

LONGEST = 10.0
"""Seconds of processor time for one input."""
MEMORY = 12 * 2**30
WEIRD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2.5, 1e308, -1e-300, 10**400, 2**63, 10**7, float("nan"), float("inf"), "", "x",
    "cross", "=HYPERLINK(1)", "\u0000", "gymnasium:torture_bait:Bait-v0", "../../etc/passwd", "é" * 50, [], [[]], {},
    [None], [1, 2, 3], {"a": 1}, ["x"] * 100, [60000, 60000],
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A sound file, and who reads it."""

    file: Path
    """Within the directory that is damaged."""
    use: Callable[[Path], object]
    """Called with that directory."""


def campaign(work: Path, seed: int, done: int, wanted: int) -> Iterator[list[str]]:
    """Yields the faults of each input."""
    if done >= wanted:
        return
    sound, place = work / "sound", work / "damaged"
    if not (sound / "ready").exists():
        _make(sound)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    bait = work / "executed"
    (work / "torture_bait.py").write_text(f"open({str(bait)!r}, 'w').close()\n")
    sys.path.insert(0, str(work))
    warnings.simplefilter("ignore")
    targets = _targets(sound)
    for number in range(done, wanted):
        rng = random.Random(f"{seed} {number}")
        target = rng.choice(targets)
        shutil.rmtree(place, ignore_errors=True)
        part = target.file.parts[0]
        (shutil.copytree if (sound / part).is_dir() else _copy)(sound / part, place / part)
        path = place / target.file
        path.write_bytes(damaged(path.read_bytes(), path.suffix, rng))
        before = {file for file in place.rglob("*")}
        faults = _faults(target, place)
        left = [file for file in place.rglob("*") if file not in before and file.name.endswith((".tmp", ".lock"))]
        faults += [f"left behind: {file.name}" for file in left]
        faults += ["code from the input was run"] if bait.exists() else []
        if faults:
            shutil.copytree(place, work / "faults" / f"input-{number}", dirs_exist_ok=True)
        yield [f"input {number}, {target.file}: {fault}" for fault in faults]


def _faults(target: Target, place: Path) -> list[str]:
    """What is wrong with how an input was taken."""

    def late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            target.use(place)
    except DataError as error:
        return [] if str(error).isprintable() else [f"a message with control characters: {error!r:.200}"]
    except TimeoutError:
        return [f"more than {LONGEST:.0f} s"]
    except Exception as error:  # this is what is looked for
        return [f"{type(error).__name__}: {error!s:.200}"]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return [said.getvalue()[-300:]] if "internal error" in said.getvalue() or "Traceback" in said.getvalue() else []


# Damage


def damaged(data: bytes, suffix: str, rng: random.Random) -> bytes:
    """One to three changes: in the JSON where it is such a file, else in text or bytes."""
    for _ in range(rng.randint(1, 3)):
        if suffix == ".json" and rng.random() < 0.7:
            data = _other_value(data, rng)
        elif suffix in (".jsonl", ".csv") and rng.random() < 0.6:
            data = _other_cell(data, rng)
        else:
            data = _other_bytes(data, rng)
    return data


def _other_bytes(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return rng.randbytes(rng.randint(0, 50))
    place = rng.choice(
        [rng.randrange(len(data)), rng.randrange(min(len(data), 300)), max(0, len(data) - rng.randint(1, 300))]
    )
    kind = rng.randrange(6)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + rng.randbytes(rng.randint(1, 20)) + data[place:]
    if kind == 2:
        return data[:place] + data[place + rng.randint(1, 40) :]
    if kind == 3:
        return data[:place] + b"\xff" + data[place + 1 :]
    if kind == 4:
        return data[:place] + data[place : place + 200] + data[place:]
    return data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :]


def _other_cell(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    cells = lines[at].split(b",")
    weird = rng.choice(
        [b"", b"nan", b"1e400", b"9" * 400, b"x", b"-1", b"\xff", b"=HYPERLINK(1)", b'"', b"1e-300", b"null"]
    )
    cells[rng.randrange(len(cells))] = weird
    lines[at] = b",".join(cells)
    return b"\n".join(lines)


def _other_value(data: bytes, rng: random.Random) -> bytes:
    try:
        tree = json.loads(data)
    except ValueError:
        return _other_bytes(data, rng)
    places = list(_places(tree))
    if not places:
        return json.dumps(rng.choice(WEIRD)).encode()
    node, key = rng.choice(places)
    kind = rng.randrange(4)
    if kind == 0 and isinstance(node, dict):
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[str(rng.choice(WEIRD))[:40]] = node[key]
    else:
        node[key] = rng.choice(WEIRD)
    return json.dumps(tree).encode()


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield node, key
        yield from _places(value)


# Sound files, and who reads them


def _make(sound: Path) -> None:
    shutil.rmtree(sound, ignore_errors=True)
    sound.mkdir(parents=True)
    data = collect(make_world("light"), 200)
    for suffix in (".npz", ".csv", ".parquet"):
        data.save(sound / f"log{suffix}")
    np.savez_compressed(sound / "arrays.npz", **data.to_arrays())  # type: ignore[arg-type]
    names = list(data.factors.names)
    (sound / "knowledge.json").write_text(json.dumps({"required": [names[:2]], "forbidden": [["action", names[0]]]}))
    for arguments in (
        ("discover", sound / "log.npz", "--out", sound / "found", "--preset", "debug", "--workers", "1", "--quiet"),
        ("learn", "light", "--task", "cross", "--method", "full", "--steps", "300", "--preset", "debug",
         "--out", sound / "learned", "--quiet"),
        ("evaluate", sound / "learned", "--episodes", "2"),
    ):  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):
            if cli.main([str(argument) for argument in arguments]) != 0:
                raise SystemExit(f"torture: {arguments[0]} fails by itself")
    Store(sound / "jobs").put("key", {"a": np.arange(20.0)})
    (sound / "lock").mkdir()
    owner = {"token": "t", "process": 1, "host": "h", "since": 1e9, "command": "learn"}
    (sound / "lock" / "lock.json").write_text(json.dumps(owner))
    (sound / "ready").touch()


def _command(*arguments: str) -> Callable[[Path], None]:
    def use(place: Path) -> None:
        code = cli.main([argument.format(place=place) for argument in arguments])
        if code not in (0, 2):
            said = sys.stderr.getvalue() if isinstance(sys.stderr, io.StringIO) else ""
            raise RuntimeError(f"exit code {code} of cbm {arguments[0]}: {said[-300:]}")

    return use


def _targets(sound: Path) -> list[Target]:
    logs = [Path(name) for name in ("log.npz", "log.csv", "log.parquet", "arrays.npz")]
    loads = [Target(name, partial(_load, name)) for name in logs]
    found = [
        Target(Path("found/graph.json"), _command("abstract", "{place}/found", "--reward", "cross")),
        Target(Path("found/graph.json"), _command("export", "{place}/found", "--format", "csv")),
        *(
            Target(path.relative_to(sound), _command("report", "{place}/found", "--out", "{place}/found/r.html"))
            for path in sorted((sound / "found").glob("*.json*"))
        ),
        *(
            Target(path.relative_to(sound), lambda p: _state(p / "found" / "checkpoint"))
            for path in sorted((sound / "found" / "checkpoint").glob("*.safetensors"))
        ),
    ]
    learned = [
        Target(path.relative_to(sound), _command("report", "{place}/learned", "--out", "{place}/learned/r.html"))
        for path in sorted((sound / "learned").iterdir())
        if path.suffix in (".json", ".jsonl", ".csv")
    ]
    evaluate = _command("evaluate", "{place}/learned", "--episodes", "1")
    learned += [Target(Path("learned/config.json"), evaluate)] * 3
    learned += [
        Target(p.relative_to(sound), evaluate) for p in (sound / "learned" / "checkpoint").glob("*.safetensors")
    ]
    rest = [
        Target(Path("knowledge.json"), lambda p: Knowledge.load(p / "knowledge.json")),
        Target(Path("jobs/key.npz"), lambda p: Store(p / "jobs").find("key")),
        Target(Path("lock/lock.json"), lambda p: read_owner(p / "lock" / "lock.json")),
    ]
    return [*loads, *found, *learned, *rest]


def _load(name: Path, place: Path) -> None:
    data = Transitions.load(place / name, allow_constant=True)
    if not np.isfinite(data.obs).all() or len(data.obs) != len(data.next_obs):
        raise RuntimeError("unsound data were accepted")
    data.split()


def _state(directory: Path) -> None:
    Checkpoint(directory)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
