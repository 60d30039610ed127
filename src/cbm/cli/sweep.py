"""`cbm sweep`: a command over seeds, options and data, as jobs that can be interrupted and resumed."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from cbm.cli.arguments import Flag, MaybeFloat, MaybeInt, at_least, check_seed, parse
from cbm.cli.console import duration, heading, plural, print_json, show, show_table
from cbm.cli.jobs_view import JobsView
from cbm.cli.paths import check_run
from cbm.errors import DataError, unknown_name
from cbm.jobs import Failure, Job, Retry, Shared, check_place, open_executor
from cbm.runs.directory import make_directories, remove_empty
from cbm.runs.files import atomic_write_text, read_json
from cbm.runs.lock import Lock
from cbm.sweep.grid import Cell, Inputs, cells_of, job_of, parse_seeds
from cbm.sweep.runs import FAILED, RunStore, names_by_key
from cbm.sweep.table import Row, columns_of, interesting, rows_of, write_csv
from cbm.sweep.tree import to_arrays

OUTPUT = {"learn": "", "discover": "", "collect": "data.npz"}
"""The commands, and the file that each writes; empty if it writes a run directory."""
SHOWN = 6
"""Numbers in the printed table, at most; table.csv has all of them."""
LOST_NODES = 5
"""How often a job may lose its node before it fails: losing one is not the job's fault."""


@dataclass(frozen=True)
class Options:
    """Run a command over seeds and options. Give several values separated by commas to get all combinations.

    Example: cbm sweep learn contact --task pick --method cbm,oracle,full --seeds 0-4 --out runs/methods

    All options that are not listed here are passed to the command. Repeating the sweep runs only what is missing or
    failed. The directory gets runs/ with one run for each combination, table.csv, times.csv and the logs of failed
    runs; `cbm report DIR` makes one page of it.
    """

    command: Positional[str]
    """learn, discover or collect, followed by its own arguments."""
    out: Path
    """Directory of the sweep, created if it does not exist."""
    seeds: str = "0"
    """Seeds, such as 0-4 or 0,2,5-7."""
    on: str = "local"
    """Where the runs are executed. local: processes on this machine. ray: Ray on this machine, or the cluster named by
    RAY_ADDRESS. ray:HOST:PORT: that cluster. The results are the same."""
    workers: MaybeInt = None
    """Number of runs at the same time, one thread each. Default: one per core."""
    retries: int = 1
    """How often a failed run is tried again."""
    memory: MaybeFloat = None
    """Gigabytes that one run may use. Default: no limit."""
    json: Flag = False
    """Print the result as one JSON object."""
    quiet: Flag = False
    """Show no progress, only the result."""


def main(arguments: list[str]) -> None:
    own, words = _split(arguments)
    options = parse(Options, own, "sweep")
    if options.command not in OUTPUT:
        raise unknown_name("cannot sweep", options.command, OUTPUT)
    at_least("--workers", options.workers, 1)
    at_least("--retries", options.retries, 0)
    at_least("--memory", options.memory, 0, above=True)
    check_place(options.on)
    check_run(options.out)
    cells = cells_of(options.command, words, parse_seeds(options.seeds))
    always = _check_cells(options.command, cells)
    inputs = Inputs()
    jobs = [job_of(cell, inputs, always, OUTPUT[options.command], options.memory) for cell in cells]
    with _owned(options.out, f"sweep {shlex.join(arguments)}") as lock:
        _check_owner(options.out, options.command)
        store = RunStore(options.out, lock, names_by_key(jobs, [cell.name for cell in cells]))
        store.check_directories()
        _write_config(options.out, options.command, words, options.seeds)
        failures = _run(options, jobs, inputs, store)
        rows = _finish(options.out, cells, jobs, store, failures)
    _tell(options, cells, rows, failures)
    if failures:
        raise SystemExit(1)


@contextmanager
def _owned(out: Path, command: str) -> Iterator[Lock]:
    """The directory, created if need be, locked for this sweep."""
    made, lock = make_directories(out), Lock(out, command)
    lock.take()
    try:
        yield lock
    finally:
        lock.release()
        remove_empty(made)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The sweep's own options with the name of the command, and the words that are passed to the command."""
    flags = {f"--{field.name}": field.type == "Flag" for field in fields(Options) if field.name != "command"}
    own: list[str] = []
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, _ = word.partition("=")
        if word in ("-h", "--help") and not words:
            own.append(word)
        elif name in flags:
            own.append(word)
            if not equals and not flags[name] and rest:
                own.append(rest.pop(0))
        else:
            words.append(word)
    command = [words.pop(0)] if words and not words[0].startswith("-") else []
    return own + command, words


def _check_cells(command: str, cells: list[Cell]) -> list[str]:
    """Refuse what a command would refuse at once; returns the options that are added to every call."""
    module = importlib.import_module(f"cbm.cli.{command}")
    known = {field.name for field in fields(module.Options)}
    always = ["--json", "--quiet", *(["--workers", "1"] if "workers" in known else [])]
    out = OUTPUT[command] or "run"
    for cell in cells:
        if "--seed" in cell.words:
            raise DataError("--seed: a sweep takes --seeds")
        check_seed(cell.seed, "--seeds")
        parse(module.Options, [*cell.words, "--seed", str(cell.seed), *always, "--out", out], command)
    return always


def _check_owner(out: Path, command: str) -> None:
    """Check that the directory belongs to the same command; more seeds or values may be added to it later."""
    file = out / "config.json"
    if file.is_file():
        config = read_json(file)
        if not isinstance(config, dict) or config.get("command") != "sweep" or config.get("of") != command:
            raise DataError(f"{out} holds something else than a sweep of `cbm {command}`; choose another directory")


def _write_config(out: Path, command: str, words: list[str], seeds: str) -> None:
    content = {"command": "sweep", "of": command, "arguments": words, "seeds": seeds}
    atomic_write_text(out / "config.json", json.dumps(content, indent=1) + "\n")


def _run(options: Options, jobs: list[Job], inputs: Inputs, store: RunStore) -> list[Failure]:
    failures: list[Failure] = []
    shared = options.out / ".shared"
    with open_executor(options.on, options.workers) as executor, JobsView(options.quiet) as view:
        sent: dict[str, Any] = {}
        for entry in inputs.known.values() if executor.remote else ():
            arrays = to_arrays(Path(entry["path"]))
            sent |= {f"input-{entry['digest']}.{name}": array for name, array in arrays.items()}
        Shared.write(shared, sent)
        lost = LOST_NODES if executor.remote else options.retries
        try:
            executor.run(
                jobs, shared, store, watch=view, retry=Retry(options.retries, max(lost, options.retries)),
                failures=failures,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"what is finished is in {options.out}, the same command goes on") from None
    return failures


def _finish(out: Path, cells: list[Cell], jobs: list[Job], store: RunStore, failures: list[Failure]) -> list[Row]:
    """Write the tables, and a log for each failure."""
    store.lock.check()
    (out / FAILED).mkdir(exist_ok=True)
    for file in (out / FAILED).glob("*.log"):
        file.unlink()
    names = {job.key: cell.name for job, cell in zip(jobs, cells, strict=True)}
    for failure in failures:
        text = f"{failure.error}\n\nafter {plural(failure.attempts, 'attempt')}:\n{failure.log}\n"
        atomic_write_text(out / FAILED / f"{names[failure.key]}.log", text)
    found = {cell.name: store.find(job.key) for job, cell in zip(jobs, cells, strict=True)}
    printed = {name: None if arrays is None else str(arrays["printed"]) for name, arrays in found.items()}
    rows = rows_of(cells, printed)
    write_csv(out / "table.csv", rows)
    times = [{"cell": name, "seconds": round(float(a["seconds"]), 3)} for name, a in found.items() if a is not None]
    write_csv(out / "times.csv", times, ["cell", "seconds"])
    result = {"done": sum(row["state"] == "done" for row in rows), "failed": [names[f.key] for f in failures]}
    atomic_write_text(out / "result.json", json.dumps(result, indent=1) + "\n")
    return rows


def _tell(options: Options, cells: list[Cell], rows: list[Row], failures: list[Failure]) -> None:
    failed = {cell.name: cell for cell in cells}
    reasons = {failure.key.rsplit(".", 1)[0]: _reason(failure) for failure in failures}
    if options.json:
        print_json({"sweep": str(options.out), "rows": rows, "failed": reasons})
        return
    choices = [column for column in columns_of(rows) if column in cells[0].choice] + ["seed"]
    numbers = interesting(rows, SHOWN)
    shown = [[_text(row.get(column)) for column in (*choices, "state", *numbers)] for row in rows]
    show_table((*choices, "state", *numbers), shown, right=numbers)
    show()
    done = sum(row["state"] == "done" for row in rows)
    seconds = sum(float(line.rsplit(",", 1)[1]) for line in _times(options.out))
    heading(f"{done} of {plural(len(rows), 'run')} done, {duration(seconds)} of work")
    for name, reason in reasons.items():
        show(f"failed  {failed[name].name}: {reason}")
        show(f"        log: {options.out / FAILED / name}.log")
    show(f"table   {options.out / 'table.csv'}")
    if failures:
        show("again   the same command runs only what failed")
    elif options.command != "collect":
        show(f"report  cbm report {options.out}")


def _reason(failure: Failure) -> str:
    """The last meaningful line of the error, or of what the command printed."""
    lines = [line for line in str(failure.error).strip().splitlines() if line.strip()]
    errors = [line for line in lines if "Error: " in line]
    return (errors or lines or ["no reason is known"])[-1].strip()


def _times(out: Path) -> list[str]:
    return (out / "times.csv").read_text(encoding="utf-8").splitlines()[1:]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
