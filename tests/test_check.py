"""`cbm check`, and a log in the user's own shape: what is understood, what is guessed, what is left out and why."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.data.jumps import find_jumps
from cbm.data.log import read_log
from cbm.data.roles import Roles
from cbm.errors import DataError
from every_format import ROLES, expected, recording, write_text  # type: ignore[import-not-found]

Run = Callable[..., tuple[int, str, str]]
Columns = dict[str, Any]


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Columns], Path]:
    return lambda columns: write_text(".csv", ",")(tmp_path, columns)[0]


def engineers_log(**changes: Any) -> Columns:
    """As it comes out of a test bench: a time stamp, sensors, a command, a reward in another spelling, a remark."""
    columns: Columns = recording(rows=40, runs=5)
    log = {"timestamp": columns["t"], "cos": columns["cos"], "sin": columns["sin"], "vel": columns["vel"],
           "torque": columns["cmd"], "rewards": columns["reward"], "run": columns["run"]}  # fmt: skip
    arrays = {name: np.array(values, object) for name, values in log.items()}
    return {name: values for name, values in (arrays | changes).items() if values is not None}


def empty(values: np.ndarray, *rows: int) -> np.ndarray:
    holed = values.copy()
    for row in rows:
        holed[row] = Blank()
    return holed


class Blank:
    def __repr__(self) -> str:
        return ""


# Each thing that a new user tried


def test_a_raw_csv_asks_for_what_it_cannot_guess(written: Callable[[Columns], Path], run: Run, refused: Any) -> None:
    path = written(engineers_log())
    refused(run("check", path), "which columns are the action? say --action NAME", "'timestamp', 'cos', 'sin', 'vel'")
    code, out, _ = run("check", path, "--action", "torque")
    assert code == 0 and "195 transitions from 200 rows, 5 episodes (column 'run'), step 0.05, 3 variables" in out
    for guess in ("episode: run", "time: timestamp", "reward: rewards", "obs: the other 3 columns of numbers"):
        assert f"guessed {guess}" in out
    named = ("--obs", "c*", "sin", "vel", "--action", "torque", "--reward", "rewards", "--episode", "run")
    assert "guessed" not in run("check", path, *named, "--time", "timestamp")[1]


def test_empty_cells_drop_the_pairs_that_they_touch(written: Callable[[Columns], Path], run: Run, refused: Any) -> None:
    log = engineers_log()
    path = written(log | {"vel": empty(log["vel"], 5, 100, 120)})
    code, out, _ = run("check", path, "--action", "torque")
    assert code == 0 and "3 empty cells in 'vel' (3), rows 5, 100, 120: 5 pairs of rows left out" in out
    refused(run("check", path, "--action", "torque", "--missing", "refuse"), "column 'vel', row 5: the cell is empty")


def test_after_dropna_rows_are_not_joined(written: Callable[[Columns], Path], run: Run) -> None:
    kept = np.delete(np.arange(200), [5, 100])
    path = written({name: values[kept] for name, values in engineers_log().items()})
    out = run("check", path, "--action", "torque")[1]
    assert "191 transitions from 198 rows" in out and "time 'timestamp' skips 2 times, after rows 4, 98" in out


def test_without_episodes_jumps_are_named(written: Callable[[Columns], Path], run: Run) -> None:
    out = run("check", written(engineers_log(run=None, timestamp=None)), "--action", "torque")[1]
    assert "(no episode column)" in out and "the state jumps 4 times as it does nowhere else" in " ".join(out.split())
    assert "after rows 39, 79, 119, 159 (every 40 rows)" in " ".join(out.split())
    reset = run("check", written(engineers_log(run=None)), "--action", "torque")[1]
    assert "5 episodes (time that goes back)" in reset and "new episodes begin there" in " ".join(reset.split())


def test_ignored_columns_are_named(written: Callable[[Columns], Path], run: Run) -> None:
    log = {"": np.arange(200), **engineers_log(), "note": np.full(200, "ok", object)}
    log["note"] = np.array([Text("ok")] * 200, object)
    out = run("check", written(log), "--action", "torque")[1]
    assert "ignored: '' (row numbers), 'note' (text)" in out


class Text(str):
    def __repr__(self) -> str:
        return str(self)


# Time


def test_steps_are_paired_by_their_time() -> None:
    columns = recording()
    late = columns | {"t": columns["t"] + np.random.default_rng(0).uniform(-0.2, 0.2, 100) * 0.05}
    np.testing.assert_array_equal(read_log(late, Roles.of(**ROLES)).data.obs, expected(columns).obs)
    mixed = np.random.default_rng(1).permutation(100)
    log = read_log({name: values[mixed] for name, values in columns.items()}, Roles.of(**ROLES))
    assert log.understood.sorted_by_time and len(log.data) == 96
    assert {tuple(row) for row in log.data.next_obs} == {tuple(row) for row in expected(columns).next_obs}


def test_dates_and_named_episodes() -> None:
    columns: Columns = recording()
    start = np.datetime64("2024-03-01T12:00:00.000")
    moments = start + (columns["t"] * 1000).astype("timedelta64[ms]")
    runs = np.array([f"trial {int(run)}" for run in columns["run"]], object)
    for times in (moments, np.array([str(moment) for moment in moments], object),
                  np.array([f"{moment}Z" for moment in moments], object)):  # fmt: skip
        log = read_log(columns | {"t": times, "run": runs}, Roles.of(**ROLES))
        assert log.understood.step == pytest.approx(0.05) and len(log.data) == 96
        np.testing.assert_array_equal(log.data.episode, expected(columns).episode)


def test_a_time_that_is_none() -> None:
    columns: Columns = recording()
    noise = columns | {"t": np.random.default_rng(0).normal(size=100)}
    guessed = read_log(
        {n: v for n, v in noise.items() if n != "run"} | {"episode": columns["run"]}, Roles.of(action="cmd")
    )
    assert guessed.understood.time is None and "t" in guessed.understood.ignored and len(guessed.data) == 96
    words = columns | {"t": np.array(["soon"] * 100, object)}
    with pytest.raises(DataError, match="column 't', row 0: 'soon' is neither a number nor a date"):
        read_log(words, Roles.of(**ROLES))
    with pytest.raises(DataError, match="time column 't' never increases"):
        read_log(columns | {"t": np.zeros(100)}, Roles.of(**ROLES))


def test_jumps_of_a_walk_are_none() -> None:
    rng = np.random.default_rng(0)
    walk = rng.normal(size=(2000, 4)).cumsum(0)
    assert not len(find_jumps(walk[:-1], walk[1:], rng.normal(size=(1999, 1))))


# Roles


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        ({"obs": "kos", "action": "cmd"}, "--obs: no column is called 'kos'; did you mean 'cos'"),
        ({"obs": "cos", "action": "cos"}, "column 'cos' is named as obs and as action"),
        ({"time": "*", "action": "cmd"}, "--time matches 7 columns"),
        ({"obs": "cmd", "action": "cm*"}, "which columns are the state"),
    ],
)
def test_roles_that_cannot_be(roles: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_log(recording(), Roles.of(**roles))
    assert message in str(caught.value)


def test_ambiguous_names_are_not_guessed() -> None:
    columns: Columns = recording()
    log = read_log(columns | {"trial": columns["run"]}, Roles.of(action="cmd", obs="cos"))
    assert "episode: not clear, 'run', 'trial' could be it; say which with --episode" in log.understood.sentences()
    with pytest.raises(DataError, match="which of the columns 'cmd', 'action' are the action"):
        read_log(columns | {"action": columns["cmd"]}, Roles())


def test_few_whole_numbers_are_choices() -> None:
    columns: Columns = recording()
    for values, choices in ((np.arange(100) % 4, 4), (np.arange(100) % 90, None), (np.arange(100) % 4 - 2, None)):
        data = read_log(columns | {"cmd": values}, Roles.of(**ROLES)).data
        assert data.factors.discrete_actions == choices


# What looks wrong


def faults() -> Columns:
    columns: Columns = recording(rows=60)
    return columns | {
        "still": np.full(240, 2.0), "copy": columns["vel"].copy(), "scaled": 3 - 2 * columns["sin"],
    }  # fmt: skip


def test_faults_are_named(written: Callable[[Columns], Path], run: Run) -> None:
    path = written(faults())
    code, out, _ = run("check", path, "--action", "cmd", "--json")
    found = json.loads(out)
    assert code == 0 and found["constants"] == ["still"]
    assert found["duplicates"] == [["vel", "copy"]] and found["near_duplicates"] == [["sin", "scaled"]]
    assert [variable["kind"] for variable in found["variables"]][3] == "binary"
    assert found["rows"] == 240 and found["transitions"] == 236 and found["step"] == pytest.approx(0.05)
    text = " ".join(run("check", path, "--action", "cmd")[1].split())
    for part in ("look constant: still", "look the same: vel and copy", "look nearly the same: sin and scaled"):
        assert part in text


def test_faults_of_values_are_named(written: Callable[[Columns], Path], run: Run) -> None:
    columns: Columns = recording(rows=60)
    missing = np.where(np.arange(240) % 50 == 3, -9999.0, columns["sin"])
    path = written(columns | {"cos": columns["cos"] * 1e-300, "sin": missing, "felt": columns["cmd"]})
    code, out, _ = run("check", path, "--action", "cmd", "--json")
    found = json.loads(out)
    assert code == 0 and found["duplicates"] == [["felt", "action cmd"]] and found["sentinels"] == [["sin", -9999, 5]]
    text = " ".join(run("check", path, "--action", "cmd")[1].split())
    assert "'sin' is -9999 in 5 rows, far from all else: does it stand for a missing value?" in text
    assert "variation too small to compute with: 'cos'" in text


def test_rows_far_from_zero_are_not_taken_for_repeated(written: Callable[[Columns], Path], run: Run) -> None:
    columns: Columns = recording(rows=60)
    path = written(columns | {"vel": columns["vel"] + 1e14})
    assert json.loads(run("check", path, "--action", "cmd", "--json")[1])["repeated_rows"] == 0


def test_a_clean_log(written: Callable[[Columns], Path], run: Run) -> None:
    named = [
        part for role, names in ROLES.items() for part in (f"--{role}", *([names] if isinstance(names, str) else names))
    ]
    assert "Nothing looks wrong." in run("check", written(recording(rows=60)), *named)[1]
    few = run("check", written(recording(rows=8)), *named)[1]
    assert "28 transitions are too few: cbm discover needs 50" in few


def test_ten_thousand_columns(tmp_path: Path, run: Run) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(100, 10_000)).round(3)
    values[:, 77] = values[:, 9_000]
    header = ",".join(["t", "action", *(f"s{i}" for i in range(10_000))])
    lines = [f"{row},{row % 7}.5," + ",".join(map(str, cells)) for row, cells in enumerate(values.tolist())]
    (tmp_path / "wide.csv").write_text("\n".join([header, *lines]))
    start = time.process_time()
    code, out, _ = run("check", tmp_path / "wide.csv", "--json")
    assert time.process_time() - start < 4  # about 1.5 s; the margin is for busy machines
    assert code == 0 and json.loads(out)["duplicates"] == [["s77", "s9000"]]


def test_discover_begins_with_what_was_understood(
    written: Callable[[Columns], Path], run: Run, engine: list[dict[str, Any]], tmp_path: Path
) -> None:
    path = written(engineers_log())
    code, out, _ = run("discover", path, "--action", "torque", "--out", tmp_path / "run", "--quiet")
    assert code == 0 and "195 transitions from 200 rows" in out.splitlines()[0]
    assert engine[0]["data"].factors.names == ("cos", "sin", "vel") and "guessed time: timestamp" in out
    code, out, _ = run("discover", path, "--action", "torque", "--out", tmp_path / "other", "--json", "--quiet")
    assert code == 0 and json.loads(out)["finished"] is True
