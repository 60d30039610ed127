"""Faults that were found by breaking things on purpose, each mended and kept mended."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.agents.settings import SacSettings
from cbm.data import validate
from cbm.data.readers import common
from cbm.data.remarks import remarks
from cbm.data.transitions import Transitions
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.export import export
from cbm.learning.algorithm1 import learn
from cbm.learning.assess import policies
from cbm.learning.plan import plan_of
from cbm.runs.files import read_json
from logs import good  # type: ignore[import-not-found]
from small_runs import assert_same, rows_of, small_plan, small_settings  # type: ignore[import-not-found]

ONE_THREAD = os.environ | {"OMP_NUM_THREADS": "1"}
Result = tuple[int, str, str]


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("learned")
    learn(small_plan(steps=200), run)
    return run


def cbm(*arguments: Any, **options: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "cbm.cli", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ONE_THREAD}
    return subprocess.Popen(command, **pipes | options)  # type: ignore[call-overload]


def edited(run: Path, **changes: Any) -> Path:
    path = run / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return run


def copied(run: Path, place: Path) -> Path:
    for path in run.rglob("*"):
        if path.is_file():
            target = place / path.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return place


# Writing


def test_a_full_disk_keeps_the_run_and_is_no_bad_input(tmp_path: Path, run: Callable[..., Result]) -> None:
    """`ulimit -f` makes writes fail as a full disk does; with room again the same command goes on."""
    resource = pytest.importorskip("resource")
    log, place = tmp_path / "log.npz", tmp_path / "run"
    replace(collect(make_world("light"), 200), rewards={}, truth_rewards={}).save(log)
    command = ("discover", log, "--out", place, "--preset", "debug", "--workers", "1", "--quiet")

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    child = cbm(*command, preexec_fn=small_files)
    said = child.communicate(timeout=250)[1]
    assert child.returncode == 1 and "cannot write" in said and "internal error" not in said, said
    assert (place / "config.json").is_file() and not list(place.rglob(".*.tmp")) and not (place / ".lock").exists()
    code, _, said = run(*command)
    assert code == 0 and (place / "result.json").is_file(), said


@pytest.mark.slow
def test_the_same_learning_twice_at_once(tmp_path: Path) -> None:
    """One owner: the second is told who it is; the curve has every row once."""
    command = ("learn", "light", "--task", "cross", "--method", "full", "--steps", "2000", "--preset", "debug")
    both = [cbm(*command, "--out", tmp_path / "run", "--quiet") for _ in range(2)]
    said = [child.communicate(timeout=250)[1] for child in both]
    codes = [child.returncode for child in both]
    assert 0 in codes, said
    if codes != [0, 0]:  # else the first was done before the second began
        second = said[codes.index(2)]
        assert "is in use by `cbm learn`, process " in second and " since " in second and second.count("\n") == 1
    steps = [row["step"] for row in rows_of(tmp_path / "run")]
    assert len(steps) == len(set(steps))


def test_discover_on_a_directory_in_use(
    tmp_path: Path, run: Callable[..., Result], refused: Callable[..., None], saved: Callable[..., Path]
) -> None:
    from cbm.runs.lock import Lock

    rng = np.random.default_rng(0)
    sizes = {"obs": (60, 3), "action": (60, 2), "next_obs": (60, 3), "reward_go": (60,)}
    log = saved("log.npz", **{name: rng.normal(size=size) for name, size in sizes.items()})
    (tmp_path / "run").mkdir()
    lock = Lock(tmp_path / "run", "discover")
    lock.take()
    code, out, err = run("discover", log, "--out", tmp_path / "run", "--quiet")
    refused((code, out, err.splitlines(True)[-1]), f"in use by `cbm discover`, process {os.getpid()} on")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    lock.release()


def test_learning_saves_by_time_too(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(status: Any) -> None:
        if status.step >= 300:
            raise Stop

    plan = small_plan(steps=320, settings=small_settings(checkpoint_every=100_000, checkpoint_minutes=1e-6))
    with pytest.raises(Stop):
        learn(plan, tmp_path / "run", stop)
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoint").glob("0*"))][-1] == "00000296.safetensors"
    learn(plan, tmp_path / "run")
    learn(plan, tmp_path / "other")
    assert_same(tmp_path / "run", tmp_path / "other")
    with pytest.raises(DataError, match="checkpoint_minutes"):
        small_settings(checkpoint_minutes=0)


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_workers_of_collect_end_with_it(tmp_path: Path, ending: signal.Signals) -> None:
    pytest.importorskip("mujoco")
    child = cbm("collect", "block", "--steps", "500000", "--out", tmp_path / "log.npz", "--workers", "2", "--quiet")
    deadline = time.monotonic() + 100
    while len(workers := _children(child.pid)) < 3:  # two, and the one that keeps track of shared memory
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    child.send_signal(ending)
    child.communicate(timeout=60)
    while any(map(_is_running, workers)):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.05)
    assert not list(tmp_path.iterdir())


def _children(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    if not path.exists():
        pytest.skip("children of a process are not listed on this system")
    return [int(child) for child in path.read_text().split()]


def _is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Code and memory from data


def test_a_world_that_names_a_module_needs_a_flag(
    tmp_path: Path, learned: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result],
    refused: Callable[..., None],
) -> None:  # fmt: skip
    place = edited(copied(learned, tmp_path / "run"), world="gymnasium:bait_module:Bait-v0", tasks=["reward"])
    (tmp_path / "bait_module.py").write_text(f"open({str(tmp_path / 'sentinel')!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    refused(run("evaluate", place), "'bait_module'", "--trust-world")
    assert not (tmp_path / "sentinel").exists()
    with pytest.raises(DataError, match="bait_module"):
        policies(place, trust_world=True)
    assert (tmp_path / "sentinel").exists()  # so the flag does what it says


def test_memory_of_booleans_counts_as_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "available_memory", lambda: 100_000)
    wide = np.zeros((5000, 8), bool)
    with pytest.raises(DataError, match="free memory"):
        validate.table("obs", wide, wide.shape, [str(i) for i in range(8)])
    validate.table("obs", wide[:1000], (1000, 8), [str(i) for i in range(8)])


def test_ten_thousand_columns_are_refused_at_once(tmp_path: Path) -> None:
    columns = 10_000
    lines = [",".join([*(f"obs:x{i}" for i in range(columns)), "action"])]
    lines += [",".join(["1.5"] * columns + [str(k)]) for k in range(5)]
    (tmp_path / "wide.csv").write_text("\n".join(lines))
    start = time.process_time()
    with pytest.raises(DataError, match="is constant"):
        Transitions.load(tmp_path / "wide.csv")
    assert time.process_time() - start < 3


@pytest.mark.parametrize("hidden", [[60000, 60000], [10**9], [10**400], [8000] * 40])
def test_networks_that_no_machine_holds(hidden: list[int]) -> None:
    with pytest.raises(DataError, match="hidden"):
        SacSettings(hidden=tuple(hidden))


# Messages and not internal errors


WRONG: list[tuple[str, Any]] = [
    ("world", 3), ("world", None), ("options", []), ("options", None), ("seed", "one"), ("seed", -1), ("seed", 2**70),
    ("tasks", "cross"), ("tasks", []), ("tasks", [1]), ("tasks", {"cross": 1}), ("steps", 1.5), ("together", "no"),
    ("settings", []), ("settings", {"sac": {"hidden": [60000, 60000]}}), ("settings", {"sac": 3}), ("method", []),
    ("dynamics", 4), ("model", "other"), ("method_options", 1), ("options", {"distractors": "many"}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_wrong_types_in_config(
    key: str, value: Any, tmp_path: Path, learned: Path, run: Callable[..., Result], refused: Callable[..., None]
) -> None:
    refused(run("evaluate", edited(copied(learned, tmp_path / "run"), **{key: value})))


def test_other_tensors_than_the_config_says(
    tmp_path: Path, learned: Path, run: Callable[..., Result], refused: Callable[..., None]
) -> None:
    place = copied(learned, tmp_path / "run")
    settings = json.loads((place / "config.json").read_text())["settings"]
    settings["sac"]["hidden"] = [9, 8]
    refused(run("evaluate", edited(place, settings=settings)), "does not fit this run", "shape")


def test_a_byte_that_is_no_text_in_metrics(tmp_path: Path) -> None:
    from cbm.discovery.discover import discover
    from cbm.discovery.settings import preset

    data = replace(collect(make_world("light"), 100), rewards={}, truth_rewards={})
    settings = replace(preset("debug"), prediction_updates=60)
    discover(data, settings=settings, run=tmp_path, workers=0)
    (tmp_path / "result.json").unlink()
    (tmp_path / "metrics.jsonl").write_bytes(b'\xff\xfe{"phase": 1}\n{"phase": "prediction", "step": 1' + b"0" * 400)
    discover(data, settings=settings, run=tmp_path, workers=0)
    assert (tmp_path / "result.json").is_file()
    (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")


def test_numbers_that_no_float_holds(tmp_path: Path) -> None:
    huge = "1" + "0" * 400
    (tmp_path / "a.json").write_text(f'{{"cmi": {huge}}}')
    with pytest.raises(DataError, match="401 digits"):
        read_json(tmp_path / "a.json")
    with pytest.raises(DataError, match="gamma"):
        SacSettings(gamma=10**400)
    with pytest.raises(DataError, match="config.json: steps"):
        plan_of({"world": "light", "tasks": ["cross"], "method": "full", "steps": -(10**400)})


def test_huge_numbers_on_the_command_line(run: Callable[..., Result], refused: Callable[..., None]) -> None:
    huge = "1" + "0" * 400
    for flag in ("--steps", "--seed", "--workers"):
        refused(run("discover", "no.npz", "--out", "no", flag, huge), flag)


# Names, and words about data


def test_names_that_a_spreadsheet_would_run(graph_of: Callable[[Transitions], CausalGraph]) -> None:
    arrays = good(names=np.array(["=HYPERLINK(1)", "+1", "@x"]))
    text = export(graph_of(Transitions.from_arrays(arrays)), "csv")
    assert isinstance(text, str)
    rows = list(csv.reader(io.StringIO(text)))
    names = {row[k] for row in rows for k in (0, 1)}
    assert {"'=HYPERLINK(1)", "'+1", "'@x"} <= names
    assert not any(name.startswith(("=", "+", "-", "@")) for name in names)


def test_words_about_few_rows_copies_and_tiny_units() -> None:
    rng = np.random.default_rng(0)
    obs, next_obs = rng.normal(size=(2, 50, 3))
    obs[:, 1], next_obs[:, 1] = obs[:, 0], next_obs[:, 0]
    obs[:, 2] *= 1e-300
    next_obs[:, 2] *= 1e-300
    arrays = {"obs": obs, "next_obs": next_obs, "action": rng.normal(size=(50, 1)), "names": np.array(["a", "b", "c"])}
    said = remarks(Transitions.from_arrays(arrays))
    assert len(said) == 3
    assert "only 50 transitions" in said[0] and "'b' of 'a'" in said[1] and "'c' (" in said[2] and "e-300" in said[2]
    assert remarks(collect(make_world("light"), 600)) == []


def test_discover_says_them_once_and_goes_on(
    run: Callable[..., Result], engine: list[dict[str, Any]], saved: Callable[..., Path], tmp_path: Path
) -> None:
    arrays = {name: np.random.default_rng(0).normal(size=(50, 3)) for name in ("obs", "action", "next_obs")}
    log = saved("log.npz", **arrays, reward_go=np.arange(50.0))
    code, out, err = run("discover", log, "--out", tmp_path / "run", "--quiet")
    assert code == 0 and out.count("50 transitions are few for 6 variables and actions") == 1 and not err
    code, out, err = run("discover", log, "--out", tmp_path / "other", "--quiet", "--json")
    assert code == 0 and json.loads(out) and err.count("only 50 transitions") == 1 and err.count("\n") == 1
