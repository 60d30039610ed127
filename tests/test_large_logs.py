"""Logs larger than memory: a map gives the same transitions, messages and graphs as the same log in memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cbm.data import mapped
from cbm.data.log import Limit, Log, read_log
from cbm.data.mapped import MappedTransitions
from cbm.data.roles import Roles
from cbm.data.transitions import Transitions
from cbm.errors import DataError

ARRAYS = ("obs", "action", "next_obs", "episode", "terminated", "truncated")
LITTLE = 6000
"""Bytes that no log here fits into, but the order of its rows does."""
NEVER = 10**15
"""Bytes that every log fits into."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of seven rows, so that short logs have many borders."""
    monkeypatch.setattr(mapped, "MOST_ROWS", 7)
    monkeypatch.setattr(mapped, "FEWEST_ROWS", 1)


def frame(rows: int = 60, seed: int = 0) -> pd.DataFrame:
    """A time series of three episodes, in order."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "run": np.repeat(np.arange(3), rows // 3),
            "t": np.tile(np.arange(rows // 3), 3) * 0.1,
            "x": rng.normal(size=rows),
            "mode": rng.integers(3, size=rows),
            "on": rng.integers(2, size=rows) == 1,
            "u": rng.normal(size=rows),
            "reward": rng.normal(size=rows),
        }
    )


def written(table: pd.DataFrame, folder: Path, kind: str) -> Path:
    """The table as a file, or as a directory of Parquet files of unequal length."""
    if kind == "directory":
        (folder / "log").mkdir()
        edges = [0, 5, 6, len(table) // 2, len(table)]
        for number, (a, b) in enumerate(pairwise(edges)):
            table.iloc[a:b].to_parquet(folder / "log" / f"part-{number + 8}.parquet", index=False)
        return folder / "log"
    path = folder / f"log.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "feather":
        table.to_feather(path, chunksize=11)
    else:
        table.to_parquet(path, index=False)
    return path


def both(path: Path, tmp_path: Path, **roles: Any) -> tuple[Log, Log]:
    """The log in memory, and through a map."""
    chosen = Roles.of(**roles)
    whole = read_log(path, chosen, allow_constant=True, limit=Limit(NEVER))
    parts = read_log(path, chosen, allow_constant=True, limit=Limit(LITTLE, tmp_path / "maps"))
    assert isinstance(parts.data, MappedTransitions) and not isinstance(whole.data, MappedTransitions)
    return whole, parts


def assert_same(whole: Log, parts: Log) -> None:
    a, b = whole.data, parts.data.select(slice(None))
    for name in ARRAYS:
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_array_equal(left, right, err_msg=name)
            assert left.dtype == right.dtype, name
    for name in ("rewards", "context"):
        assert list(getattr(a, name)) == list(getattr(b, name))
        for key, values in getattr(a, name).items():
            np.testing.assert_array_equal(values, getattr(b, name)[key])
    assert a.factors == b.factors
    said, told = dict(whole.understood.to_json()), dict(parts.understood.to_json())
    assert told.pop("step") == pytest.approx(said.pop("step"))
    assert told == said
    known, stored = a.statistics(), parts.data.statistics()
    for name, low in known.low.items():
        np.testing.assert_array_equal(low, stored.low[name])
        np.testing.assert_array_equal(known.high[name], stored.high[name])
    np.testing.assert_array_equal(known.changed, stored.changed)


KINDS = ("parquet", "directory", "feather", "csv")


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_holds_what_memory_holds(kind: str, tmp_path: Path) -> None:
    whole, parts = both(written(frame(), tmp_path, kind), tmp_path)
    assert len(whole.data) == 57  # one row less for each of three episodes
    assert_same(whole, parts)
    assert parts.data.factors.kinds == ("continuous", "continuous", "binary")


@pytest.mark.parametrize("kind", KINDS)
def test_gaps_empty_cells_and_restarts_at_the_borders_of_blocks(kind: str, tmp_path: Path) -> None:
    table = frame()
    table.loc[[6, 7, 13, 14, 20, 34], "x"] = np.nan
    table.loc[[27, 41], "reward"] = np.nan
    table = table.drop(index=[48, 49, 55]).reset_index(drop=True)
    whole, parts = both(written(table, tmp_path, kind), tmp_path)
    assert whole.understood.gaps and whole.understood.missing == {"x": 6, "reward": 2}
    assert_same(whole, parts)


def test_time_that_goes_back_begins_an_episode(tmp_path: Path) -> None:
    table = frame().drop(columns="run")
    whole, parts = both(written(table, tmp_path, "parquet"), tmp_path)
    assert whole.understood.restarts == [19, 39] and whole.understood.episode == "time that goes back"
    assert_same(whole, parts)


def test_rows_of_mixed_episodes_are_sorted(tmp_path: Path) -> None:
    table = frame().sort_values("t", kind="stable").reset_index(drop=True)
    table.loc[[3, 30], "x"] = np.nan
    whole, parts = both(written(table, tmp_path, "parquet"), tmp_path)
    assert whole.understood.sorted_by_time and whole.understood.missing_rows == [3, 30]
    assert_same(whole, parts)


def test_sorting_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = written(frame().sort_values("t", kind="stable"), tmp_path, "parquet")
    with pytest.raises(DataError, match="not in the order of episode and time"):
        read_log(path, limit=Limit(1000, tmp_path / "maps"))
    assert not [*(tmp_path / "maps").iterdir()]


def test_named_episodes_and_dates(tmp_path: Path) -> None:
    table = frame()
    table["run"] = [f"run {k}" if k else "" for k in table["run"]]  # the first episode has no name
    table["t"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(table["t"], unit="s")
    for kind in ("parquet", "csv"):
        (tmp_path / kind).mkdir()
        whole, parts = both(written(table, tmp_path / kind, kind), tmp_path / kind)
        assert len(whole.data) == 38
        assert_same(whole, parts)


def test_episodes_that_turn_out_to_be_no_whole_numbers(tmp_path: Path) -> None:
    table = frame().astype({"run": float})
    table.loc[table["run"] == 2, "run"] = 2.5
    table.loc[4, "run"] = np.nan
    whole, parts = both(written(table, tmp_path, "parquet"), tmp_path)
    assert_same(whole, parts)


@pytest.mark.parametrize("keys", ["episode", "flags", "none"])
def test_our_own_layout_with_both_states(keys: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    state = rng.normal(size=(3, 21, 2))
    obs, after = state[:, :-1].reshape(60, 2), state[:, 1:].reshape(60, 2)
    ended = np.arange(60) % 20 == 19
    arrays = {"obs": obs, "next_obs": after, "action": rng.integers(4, size=60), "reward": obs[:, 0]}
    arrays |= {"episode": np.arange(60) // 20} if keys == "episode" else {}
    arrays |= {"terminated": ended} if keys == "flags" else {}
    data = Transitions.from_arrays(arrays | {"truth": np.ones((2, 3), bool), "groups": np.array(["a", "b"])})
    data.save(tmp_path / "full.parquet")
    table = pd.read_parquet(tmp_path / "full.parquet")
    if keys != "episode":
        table = table.drop(columns="episode")
    table.loc[[7, 8, 33], "obs:obs_0"] = np.nan
    path = written(table, tmp_path, "parquet")
    whole, parts = both(path, tmp_path)
    assert len(whole.data) == 57 and whole.data.factors.discrete_actions == 4
    assert_same(whole, parts)
    whole, parts = both(tmp_path / "full.parquet", tmp_path)
    assert_same(whole, parts)
    assert parts.data.truth is not None and parts.data.truth.all()


def test_narrow_numbers_are_kept_narrow_and_lists_become_columns(tmp_path: Path) -> None:
    table = frame()
    state = np.random.default_rng(1).normal(size=(60, 3)).astype(np.float32)
    nested = pd.DataFrame({"episode": table["run"], "state": list(state), "action": list(state[:, :2])})
    path = written(nested, tmp_path, "directory")
    whole, parts = both(path, tmp_path)
    assert whole.data.factors.names == ("state_0", "state_1", "state_2")
    assert_same(whole, parts)
    flat = pd.DataFrame({"episode": table["run"], "a": state[:, 0], "b": state[:, 1], "u": state[:, 2]})
    whole, parts = both(written(flat, tmp_path, "parquet"), tmp_path)
    assert parts.data.obs.dtype == np.float32
    assert_same(whole, parts)


def changed(column: str, row: int, value: Any) -> pd.DataFrame:
    table = frame().astype({"mode": float})
    table.loc[[row, row + 1], column] = value
    return table


@pytest.mark.parametrize(
    ("table", "roles", "said"),
    [
        (changed("x", 33, np.inf), {}, "column 'x', row 33: inf is not finite (2 such rows)"),
        (changed("x", 33, np.nan), {"missing": "refuse"}, "column 'x', row 33: the cell is empty (2 such rows)"),
        (changed("x", 33, 1e20), {}, "array 'obs', variable 'x', row 32: 1e+20 is beyond 1e+15"),
        (frame().assign(x=np.nan), {}, "column 'x' is empty: no row has a value"),
        (frame().assign(t=1.0), {"time": "t"}, "time column 't' never increases from one row to the next"),
        (frame(3), {}, "a time series of 3 rows without two consecutive rows of one episode"),
        (frame().drop(columns="u"), {}, "which columns are the action?"),
        (frame().assign(x=5.0), {}, "variable 'x' is constant: 5 in obs and next_obs in rows 0 to 56"),
        (frame().assign(done=2), {}, "array 'terminated', row 0: 2 is neither 0 nor 1"),
    ],
)
def test_the_messages_are_those_of_the_reader_in_memory(
    table: pd.DataFrame, roles: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = written(table, tmp_path, "parquet")
    texts = []
    for memory in (NEVER, 1):
        with pytest.raises(DataError) as error:
            read_log(path, Roles.of(**roles), limit=Limit(memory, tmp_path / "maps"))
        texts.append(str(error.value))
    assert texts[0] == texts[1]
    assert said in texts[1]


def test_a_cell_that_is_no_number_is_named_with_its_row(tmp_path: Path) -> None:
    text = frame().astype(str)
    text.loc[41, "x"] = "broken"
    path = written(text, tmp_path, "csv")
    for memory in (NEVER, 1):
        with pytest.raises(DataError, match="column 'x', row 41: 'broken' is not a number"):
            read_log(path, Roles.of(obs=["x", "mode"]), limit=Limit(memory, tmp_path / "maps"))


def test_files_of_a_directory_follow_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = written(frame(), tmp_path, "directory")  # part-8 to part-11
    log = read_log(path, limit=Limit(NEVER))
    single = read_log(written(frame(), tmp_path, "parquet"), limit=Limit(NEVER))
    np.testing.assert_array_equal(log.data.obs, single.data.obs)
    frame().drop(columns="x").to_parquet(path / "part-12.parquet")
    for memory in (NEVER, 1):
        with pytest.raises(DataError, match="column 'x' is in the first file, but not in part-12.parquet"):
            read_log(path, limit=Limit(memory, tmp_path / "maps"))


def test_a_map_is_used_again_until_its_source_changes(tmp_path: Path) -> None:
    path = written(frame(), tmp_path, "parquet")
    begun: list[int] = []
    limit = Limit(1, tmp_path / "maps", begin=lambda rows, size, place: begun.append(rows))
    first = read_log(path, limit=limit).data.obs[:]
    assert np.array_equal(read_log(path, limit=limit).data.obs, first) and begun == [60]
    read_log(path, Roles.of(obs="x"), limit=limit)
    assert len(begun) == 2  # other roles, another map
    frame(seed=5).to_parquet(path, index=False)
    os.utime(path, ns=(1, 1))
    again = read_log(path, limit=limit)
    assert len(begun) == 3 and not np.array_equal(again.data.obs, first)
    assert_same(read_log(path, limit=Limit(NEVER)), again)


@pytest.mark.parametrize("damage", ["map.json", "runs.npy", "schema"])
def test_a_damaged_map_is_made_again(damage: str, tmp_path: Path) -> None:
    path = written(frame(), tmp_path, "parquet")
    limit = Limit(1, tmp_path / "maps")
    read_log(path, limit=limit)
    (folder,) = (tmp_path / "maps").iterdir()
    if damage == "schema":
        about = json.loads((folder / "map.json").read_text())
        (folder / "map.json").write_text(json.dumps(about | {"schema": -1}))
    else:
        (folder / damage).write_bytes(b"no")
    assert_same(read_log(path, limit=Limit(NEVER)), read_log(path, limit=limit))


def test_a_killed_conversion_leaves_no_map_and_is_swept(tmp_path: Path) -> None:
    path = written(frame(), tmp_path, "parquet")
    program = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from cbm.data.log import Limit, read_log
        def stop(done):
            if done > 0.5:
                print("half", flush=True)
                time.sleep(100)
        from cbm.data import mapped
        mapped.MOST_ROWS = 7
        mapped.FEWEST_ROWS = 1
        read_log({str(path)!r}, limit=Limit(1, Path({str(tmp_path / "maps")!r}), write=stop))
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdout.readline() == "half\n"
        child.send_signal(signal.SIGKILL)
    (left,) = (tmp_path / "maps").iterdir()
    assert left.name.startswith(".") and left.name.endswith(".tmp")
    log = read_log(path, limit=Limit(1, tmp_path / "maps"))
    (folder,) = (tmp_path / "maps").iterdir()
    assert not folder.name.startswith(".")
    assert_same(read_log(path, limit=Limit(NEVER)), log)


def test_an_interrupted_conversion_leaves_nothing(tmp_path: Path) -> None:
    def stop(done: float) -> None:
        if done > 0.5:
            raise KeyboardInterrupt

    path = written(frame(), tmp_path, "parquet")
    with pytest.raises(KeyboardInterrupt):
        read_log(path, limit=Limit(1, tmp_path / "maps", write=stop))
    assert not [*(tmp_path / "maps").iterdir()]


def test_a_map_without_a_place_is_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    data = Transitions.load(written(frame(), tmp_path, "parquet"), memory=1)
    assert isinstance(data, MappedTransitions) and len([*(tmp_path / "temporary").iterdir()]) == 1
    assert "57 rows, 3 episodes" in repr(data)
    del data
    time.sleep(0)
    assert not [*(tmp_path / "temporary").iterdir()]
