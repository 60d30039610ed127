"""`cbm sweep`: the grid, failures that do not stop the others, one owner, and the same command again."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cbm.cli.main import main
from cbm.errors import DataError, WriteError
from cbm.runs.lock import Lock
from cbm.sweep.grid import Inputs, cells_of, job_of, parse_seeds
from cbm.sweep.runs import runs_in
from cbm.sweep.tree import digest, to_arrays, to_directory


def test_seeds() -> None:
    assert parse_seeds("0-2,7, 1") == [0, 1, 2, 7]
    for bad in ("", "a", "3-1", "1--2", "-1", "1.5"):
        with pytest.raises(DataError, match="--seeds"):
            parse_seeds(bad)


def test_cells_are_all_combinations_with_names() -> None:
    cells = cells_of("learn", ["contact", "--method", "cbm,full", "--set", "gamma=0.9\\,1"], [0, 3])
    assert [cell.name for cell in cells] == ["cbm-seed0", "cbm-seed3", "full-seed0", "full-seed3"]
    assert cells[2].choice == {"method": "full"} and cells[2].words[-1] == "gamma=0.9,1"


def test_keys_follow_the_contents_of_inputs(tmp_path: Path) -> None:
    data = tmp_path / "log.npz"
    keys = []
    for content in (b"one", b"two", b"one"):
        data.write_bytes(content)
        [cell] = cells_of("discover", [str(data)], [0])
        job = job_of(cell, Inputs(), ["--json"], "", None)
        keys.append(job.key)
        assert str(tmp_path) not in str(job.options["arguments"])  # the same command wherever it runs
    assert keys[0] == keys[2] != keys[1]


def test_a_tree_travels_as_arrays(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c.txt").write_bytes(b"12")
    (tmp_path / "a" / "empty").touch()
    to_directory(to_arrays(tmp_path / "a"), tmp_path / "z")
    assert digest(tmp_path / "z") == digest(tmp_path / "a")
    arrays = to_arrays(tmp_path / "a")
    arrays["names"][0] = "../x"
    with pytest.raises(DataError, match="outside"):
        to_directory(arrays, tmp_path / "y")


def test_bad_input_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "s")
    for words in (["fly"], ["collect", "contact", "--stepz", "3"], ["collect", "contact", "--on", "moon"]):
        assert main(["sweep", *words, "--out", out]) == 2
    assert main(["sweep", "collect", "contact", "--seed", "1", "--out", out]) == 2
    assert not Path(out).exists() and capsys.readouterr().err.count("cbm: ") == 4


# -- one owner ------------------------------------------------------------------------------------------------------


def test_a_second_owner_is_told_who_holds_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s"
    out.mkdir()
    lock = Lock(out, "sweep a")
    lock.take()
    assert main(["sweep", "collect", "contact", "--steps", "3", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert re.search(f"in use by `cbm sweep a`, process {os.getpid()} on .*, since 20", said)
    lock.release()
    assert list(out.iterdir()) == []


def test_a_dead_owners_lock_is_taken_over_and_the_fenced_writer_stops(tmp_path: Path) -> None:
    code = "import os, sys, pathlib, cbm.runs.lock as o; o.Lock(pathlib.Path(sys.argv[1]), 'x').take(); os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / ".lock").exists()
    lock = Lock(tmp_path, "sweep c")
    lock.take()
    (tmp_path / ".lock").write_text('{"token": "of another one"}')  # as after a takeover from another machine
    with pytest.raises(WriteError, match="no longer belongs to this process"):
        lock.check()
    lock.release()
    assert (tmp_path / ".lock").exists()  # it is the other's


# -- failures -------------------------------------------------------------------------------------------------------


def test_a_failed_run_is_named_and_the_others_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "s"
    command = ["sweep", "collect", "contact,nowhere", "--steps", "20", "--seeds", "0", "--workers", "2"]
    assert main([*command, "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "1 of 2 runs done" in printed and "failed  nowhere-seed0" in printed
    assert [row["state"] for row in rows_in(out)] == ["done", "failed"]
    assert not (out / ".lock").exists()


@pytest.mark.slow
def test_failures_do_not_stop_the_rest_and_only_they_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One always fails (no such world), one needs too much memory, one is killed; the same command runs these again."""
    out = tmp_path / "s"
    words = ["sweep", "collect", "contact,nowhere", "--steps", "100", "--distractors", "1,30000000", "--seeds", "0"]
    command = [*words, "--memory", "1", "--retries", "0", "--workers", "2", "--out", str(out)]
    killer = threading.Thread(target=kill_when_started, args=("--distractors\0001\0",))
    killer.start()
    assert main(command) == 1
    killer.join()
    printed = capsys.readouterr().out
    assert "0 of 4 runs done" in printed and "nowhere" in printed and "MemoryError" in printed and "SIGKILL" in printed
    assert main(command) == 1
    again = capsys.readouterr()
    assert "1 of 4 runs done" in again.out and "SIGKILL" not in again.out
    assert main(command) == 1
    third = capsys.readouterr()
    assert "done contact-1-seed0" in again.err and "done contact-1-seed0" not in third.err
    assert [row["state"] for row in rows_in(out)] == ["done", "failed", "failed", "failed"]
    assert "MemoryError" in (out / "failed" / "contact-30000000-seed0.log").read_text()
    assert runs_in(out) == [] and runs_in(tmp_path) is None


def rows_in(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def kill_when_started(sign: str) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
            except OSError:
                continue
            if "cbm.cli.sweep_child" in words and sign in words and "contact\0" in words:
                os.kill(int(entry.name), signal.SIGKILL)
                return
        time.sleep(0.02)
