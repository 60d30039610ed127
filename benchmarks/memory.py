"""Memory of a command and all its child processes, from /proc."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

EVERY = 0.2  # seconds


@dataclass(frozen=True)
class Usage:
    """Time and memory of one run of a command."""

    seconds: float
    resident: int
    """Bytes, peak: the resident sets of all processes added up. Pages that several of them share count several times,
    and so do those of mapped files, which the system can drop at any time."""
    proportional: int
    """Bytes, peak: the same with every shared page counted once."""
    output: str


def measured(words: Sequence[str], environment: dict[str, str] | None = None) -> Usage:
    """Run a command to its end; a failure raises an error with its output."""
    started, resident, proportional = time.monotonic(), 0, 0
    told = subprocess.PIPE
    with subprocess.Popen(words, stdout=told, stderr=subprocess.STDOUT, text=True, env=environment) as child:
        while child.poll() is None:
            family = descendants(child.pid)
            resident = max(resident, sum(_size(one, "status", "VmRSS:") for one in family))
            proportional = max(proportional, sum(_size(one, "smaps_rollup", "Pss:") for one in family))
            time.sleep(EVERY)
        output = child.stdout.read() if child.stdout is not None else ""
    if child.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {child.returncode}:\n{output}")
    return Usage(time.monotonic() - started, resident, proportional, output)


def descendants(process: int) -> list[int]:
    """A process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [process]
    for one in family:
        family += parents.get(one, [])
    return family


def _size(process: int, file: str, entry: str) -> int:
    """Bytes of a process; 0 if it has just ended."""
    try:
        for line in Path(f"/proc/{process}/{file}").read_text().splitlines():
            if line.startswith(entry):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0


def environment(root: Path) -> dict[str, str]:
    """This environment, with the sources of a clone first in the path."""
    return os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "PYTHONUNBUFFERED": "1"}
