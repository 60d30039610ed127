"""`cbm sweep`: the grid, failures that do not stop the others, one owner, and the same command again."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from cbm.cli.main import main
from cbm.errors import DataError, WriteError
from cbm.jobs.store import packed
from cbm.runs.lock import Lock
from cbm.sweep.grid import Inputs, cells_of, job_of, parse_seeds
from cbm.sweep.runs import RunStore, runs_in
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


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_of_two_sweeps_at_once_the_second_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "s"
    first = started("sweep", "collect", "contact", "--steps", "20", "--seeds", "0-3", "--workers", "1", "--out", out)
    while not (out / "config.json").exists():  # then it owns the directory
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGSTOP)  # it stays in the middle of its work, however fast the machine is
    second = started("sweep", "collect", "contact", "--steps", "20", "--seeds", "7", "--out", out)
    said = second.communicate()[1]
    first.send_signal(signal.SIGCONT)
    first.communicate()
    assert second.returncode == 2 and re.search(f"in use by `cbm sweep .*`, process {first.pid} on .*, since 20", said)
    assert first.returncode == 0 and not (out / "runs" / "seed7").exists()
    assert [row["state"] for row in rows_in(out)] == ["done"] * 4


def test_a_sweep_that_lost_its_directory_writes_no_result(tmp_path: Path) -> None:
    lock = Lock(tmp_path, "sweep d")
    lock.take()
    store = RunStore(tmp_path, lock, {"a.1": "a", "b.1": "b"})
    arrays = to_arrays(tmp_path / "nothing") | {"printed": np.array("{}"), "seconds": np.array(1.0)}
    store.put("a.1", arrays)
    other = {"token": "another", "process": 1, "host": "elsewhere", "since": 1e9, "command": "sweep d"}
    (tmp_path / ".lock").write_text(json.dumps(other))
    for write in (lambda: store.put("b.1", arrays), lambda: store.put_packed("b.1", packed(arrays))):
        with pytest.raises(WriteError, match="held by `cbm sweep d`, process 1 on elsewhere"):
            write()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["a"]
    assert store.find("b.1") is None and store.find("a.1") is not None
    lock.release()


def started(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cbm.cli", *map(str, words), "--quiet"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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
    words = ["sweep", "collect", "contact,nowhere", "--steps", "100", "--distractors", "1,2,5000000", "--seeds", "0"]
    command = [*words, "--memory", "0.4", "--retries", "0", "--workers", "2", "--out", str(out)]
    killer = threading.Thread(target=kill_when_started, args=("--distractors\0001\0",))
    killer.start()
    assert main(command) == 1
    killer.join()
    first = capsys.readouterr()
    assert "1 of 6 runs done" in first.out and "done contact-2-seed0" in first.err
    reasons = dict(re.findall(r"failed  (\S+): (.*)", first.out))
    assert len(reasons) == 5 and "unknown world 'nowhere'" in reasons["nowhere-2-seed0"]
    assert "SIGKILL" in reasons["contact-1-seed0"] and "MemoryError" in reasons["contact-5000000-seed0"]
    assert main(command) == 1
    again = capsys.readouterr()
    assert "2 of 6 runs done" in again.out and "SIGKILL" not in again.out
    assert "done contact-1-seed0" in again.err and "contact-2-seed0" not in again.err
    assert main(command) == 1
    third = capsys.readouterr()
    assert " done " not in third.err and third.err.count(" failed ") == 4
    assert [row["state"] for row in rows_in(out)] == ["done", "done", *["failed"] * 4]
    assert "MemoryError" in (out / "failed" / "contact-5000000-seed0.log").read_text()
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
