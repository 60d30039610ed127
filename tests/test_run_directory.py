"""Run directories: one owner, what its death leaves behind, what is removed and what never is."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cbm.discovery.checkpoint import Checkpoint
from cbm.errors import DataError, InUseError, WriteError
from cbm.runs import files, lock
from cbm.runs.checkpoint import Damaged, Generations, copy_tensor, read_tree, usable, write_tree
from cbm.runs.directory import SCHEMA, RunDirectory, read_config

HOLDER = """
import sys, time
from pathlib import Path
from cbm.runs.directory import RunDirectory
with RunDirectory(Path(sys.argv[1]), "learn", {"seed": 0}).owned():
    print("held", flush=True)
    time.sleep(60)
"""


def directory(path: Path, **config: Any) -> RunDirectory:
    return RunDirectory(path, "learn", {"seed": 0, **config})


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


# One owner


def test_a_second_owner_is_told_who_and_since_when(tmp_path: Path) -> None:
    other = holder(tmp_path / "run")
    try:
        with pytest.raises(InUseError) as caught, directory(tmp_path / "run").owned():
            pass
        assert f"`cbm learn`, process {other.pid} on " in str(caught.value)
        assert f"since {time.strftime('%Y-')}" in str(caught.value)
        assert (tmp_path / "run" / "config.json").is_file()
    finally:
        other.kill()
        other.communicate()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_a_dead_owner_is_taken_over(tmp_path: Path, ending: signal.Signals) -> None:
    other = holder(tmp_path)
    other.send_signal(ending)
    other.communicate()
    assert (tmp_path / ".lock").is_file()
    with directory(tmp_path).owned():
        assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"token": 1}', "\0" * 9])
def test_a_lock_that_says_nothing_is_nobodys(tmp_path: Path, content: str) -> None:
    (tmp_path / ".lock").write_text(content)
    with directory(tmp_path).owned():
        pass


def test_who_lost_the_directory_stops_before_it_writes(tmp_path: Path) -> None:
    run = directory(tmp_path)
    with run.owned():
        run.write_json("a.json", {})
        claimed = json.loads((tmp_path / ".lock").read_text()) | {"token": "another", "host": "elsewhere"}
        (tmp_path / ".lock").write_text(json.dumps(claimed))
        for write in (
            lambda: run.write_json("a.json", {"late": True}),
            lambda: run.append("log.jsonl", "late"),
            lambda: Generations(run.checkpoint, run.lock.check).write(1, {}),
        ):
            with pytest.raises(WriteError, match="no longer belongs to this process .*elsewhere"):
                write()
    assert json.loads((tmp_path / "a.json").read_text()) == {}
    assert not (tmp_path / "log.jsonl").exists() and not run.checkpoint.exists()
    assert json.loads((tmp_path / ".lock").read_text())["token"] == "another"  # which is not ours to remove


def test_a_lock_of_another_machine_counts_while_it_is_fresh(tmp_path: Path) -> None:
    owner = {"token": "t", "process": 1, "host": "elsewhere", "since": 1e9, "command": "learn"}
    (tmp_path / ".lock").write_text(json.dumps(owner))
    with pytest.raises(InUseError, match="process 1 on elsewhere, since 2001"), directory(tmp_path).owned():
        pass
    os.utime(tmp_path / ".lock", (0, time.time() - files.ABANDONED - 1))
    with directory(tmp_path).owned():
        pass


def test_an_owner_with_nothing_to_write_stays_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another machine would take the directory over in the middle of a long job."""
    monkeypatch.setattr(lock, "REFRESH", 0.01)
    file = tmp_path / ".lock"
    with directory(tmp_path).owned():
        os.utime(file, (0, 0))
        while file.stat().st_mtime == 0:
            time.sleep(0.01)
        file.write_text('{"token": "of another one"}')
        os.utime(file, (0, 0))
        time.sleep(0.1)
        assert file.stat().st_mtime == 0  # what is another's is not kept alive


def test_without_locks_of_the_kernel_a_living_process_keeps_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "fcntl", None)
    with directory(tmp_path).owned(), pytest.raises(InUseError), directory(tmp_path).owned():
        pass


# What is in it, and what is removed


def test_config_has_a_version_and_another_run_is_refused(tmp_path: Path) -> None:
    with directory(tmp_path).owned():
        pass
    config = read_config(tmp_path, "learn")
    assert config["schema"] == SCHEMA and config["version"] and config["seed"] == 0
    with pytest.raises(DataError, match="seed 0, not 1"):
        directory(tmp_path, seed=1).is_finished()
    (tmp_path / "config.json").write_text(json.dumps(config | {"version": "another"}))
    assert not directory(tmp_path).is_finished()
    (tmp_path / "config.json").write_text(json.dumps(config | {"schema": 99}))
    with pytest.raises(DataError, match="another version of cbm"):
        directory(tmp_path).is_finished()
    with pytest.raises(DataError, match="newer version"):
        read_config(tmp_path, "learn")


def test_bad_input_removes_only_what_was_just_made(tmp_path: Path) -> None:
    with pytest.raises(DataError), directory(tmp_path / "new" / "run").owned():
        raise DataError("no")
    assert not (tmp_path / "new").exists()
    run = directory(tmp_path / "run")
    with pytest.raises(DataError), run.owned():
        Generations(run.checkpoint).write(1, {})
        raise DataError("no")
    assert list(run.checkpoint.iterdir())
    (tmp_path / "old").mkdir()
    with pytest.raises(DataError), directory(tmp_path / "old").owned():
        raise DataError("no")
    assert (tmp_path / "old" / "config.json").is_file()


def test_temporary_files_of_the_dead_are_swept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / "checkpoint" / "jobs").mkdir(parents=True)
    left = [tmp_path / f".a.json.{dead.pid}.0f.tmp", tmp_path / "checkpoint" / "jobs" / f".k.npz.{dead.pid}.0f.tmp"]
    living = tmp_path / f".evaluation.json.{os.getppid()}.0f.tmp"
    for path in (*left, living, tmp_path / ".mine.tmp"):
        path.touch()
    with directory(tmp_path).owned():
        pass
    assert not any(path.exists() for path in left)
    assert living.exists() and (tmp_path / ".mine.tmp").exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO])
def test_a_failed_write_is_its_own_error(tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    files.atomic_write_text(tmp_path / "a", "before")

    def full(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match="cannot write"):
        files.atomic_write_text(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


# Checkpoints

TREE: dict[str, Any] = {
    "a": {"x": torch.arange(6.0).reshape(2, 3), "y": np.arange(4)},
    "n": 1.5,
    "text": "é",
    "none": None,
}


def test_a_tree_comes_back(tmp_path: Path) -> None:
    write_tree(tmp_path / "1.safetensors", TREE)
    tree = read_tree(tmp_path / "1.safetensors")
    assert torch.equal(tree["a"]["x"], TREE["a"]["x"]) and (tree["a"]["y"] == np.arange(4)).all()
    assert (tree["n"], tree["text"], tree["none"]) == (1.5, "é", None)


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "1.safetensors"
    write_tree(path, TREE)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in (0, 3, 7):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            try:
                tree = read_tree(path)
            except Damaged:
                continue
            assert torch.equal(tree["a"]["x"], TREE["a"]["x"]) and tree["n"] == 1.5  # spaces that pad the header


def test_flipped_bits_in_the_cmi_of_a_discovery_go_back_one_generation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Checkpoint(tmp_path)
    before.keep(**{"dynamics.cmi": np.full((3, 4), 0.5)})
    before.keep(**{"rewards.cmi": np.full((1, 4), 0.25)})
    newest = before.trees.paths()[0]  # type: ignore[union-attr]
    whole = newest.read_bytes()
    newest.write_bytes(whole[:-5] + bytes([whole[-5] ^ 64]) + whole[-4:])
    after = Checkpoint(tmp_path)
    assert after.has("dynamics.cmi") and not after.has("rewards.cmi") and after.problem_with_file is None
    assert "is damaged; going on from 00000001" in capsys.readouterr().err
    after.trees.paths()[1].write_bytes(b"")  # type: ignore[union-attr]
    assert "starting again" in str(Checkpoint(tmp_path).problem_with_file)


@pytest.mark.parametrize("notes", [{"elapsed": "soon"}, {"elapsed": None}, {"elapsed": -1}, {"updates": 3}, [], None])
def test_notes_of_another_kind(tmp_path: Path, notes: Any) -> None:
    write_tree(tmp_path / "00000001.safetensors", {"found": {}, "running": {}, "notes": notes})
    assert "does not fit this run" in str(Checkpoint(tmp_path).problem_with_file)


def test_a_tensor_that_is_missing_or_of_another_shape(tmp_path: Path) -> None:
    target = torch.zeros(3)
    for source in ({}, {"w": torch.zeros(1)}, {"w": torch.zeros(3, 1)}):
        with pytest.raises(DataError, match="does not fit this run .*w "), usable(tmp_path):
            copy_tensor(target, source, "w")
