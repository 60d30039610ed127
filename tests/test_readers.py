"""Any log: one recording in every format is the same transitions, and a wrong kind names the right reader."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cbm
from cbm.data.log import as_transitions, read_log
from cbm.data.roles import Roles
from cbm.data.transitions import Transitions
from cbm.errors import DataError
from every_format import NAMES, ROLES, ROWS, RUNS, WRITERS, expected, recording, write_bag  # type: ignore[import-not-found]


def assert_equal(found: Transitions, wanted: Transitions, names: bool = True) -> None:
    for part in ("obs", "next_obs", "action", "episode"):
        np.testing.assert_array_equal(getattr(found, part), getattr(wanted, part), err_msg=part)
    assert found.rewards.keys() == wanted.rewards.keys()
    for name, values in wanted.rewards.items():
        np.testing.assert_array_equal(found.rewards[name], values)
    assert found.factors.kinds == wanted.factors.kinds
    if names:
        assert found.factors.names == wanted.factors.names


@pytest.mark.parametrize("kind", WRITERS)
def test_one_log_in_every_format(kind: str, tmp_path: Path) -> None:
    columns = recording()
    path, roles = WRITERS[kind](tmp_path, columns)
    log = read_log(path, Roles.of(**roles))
    assert_equal(log.data, expected(columns), names=kind != "d4rl")  # D4RL has no names
    assert log.understood.reader in (kind, kind.partition("_")[0], "csv")
    assert not log.understood.gaps and not log.understood.missing


@pytest.mark.parametrize("storage", ["sqlite3", "mcap"])
def test_ros_bags(storage: str, tmp_path: Path) -> None:
    columns = recording()
    bag = write_bag(tmp_path, columns, storage)
    first = {name: values[:ROWS] for name, values in columns.items()}
    log = read_log(bag, Roles.of(action="cmd", reward="reward"))
    assert_equal(log.data, expected(first), names=False)
    assert log.data.factors.names == tuple(f"joints.position.{name}" for name in NAMES)
    assert log.understood.step == pytest.approx(0.05) and log.understood.ignored["note"] == "no numbers"
    halved = read_log(bag, Roles.of(action="cmd", reward="reward", rate=10)).data
    np.testing.assert_array_equal(halved.obs, expected(first).obs[::2][: len(halved)])
    if storage == "mcap":
        (file,) = bag.glob("*.mcap")
        assert_equal(read_log(file, Roles.of(action="cmd", reward="reward")).data, log.data)


# In memory


def frames(columns: dict[str, np.ndarray]) -> dict[str, Any]:
    made: dict[str, Any] = {"dictionary": columns}
    for name, make in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "table")):
        try:
            made[name] = getattr(__import__(name), make)(columns)
        except ImportError:  # what is not installed is not tested
            continue
    return made


def test_data_frames(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    columns = recording()
    for table in frames(columns).values():
        assert_equal(as_transitions(table, Roles.of(**ROLES)), expected(columns))
        assert_equal(Transitions.from_table(table, action="cmd"), expected(columns))
    assert "cbm: guessed time: t, by its name" in capsys.readouterr().err
    monkeypatch.setattr("cbm.data.readers.frames.find_spec", lambda name: None)  # as without pyarrow
    for table in frames(columns).values():
        assert_equal(as_transitions(table, Roles.of(**ROLES)), expected(columns))


def test_frames_after_dropna_are_not_joined() -> None:
    pandas = pytest.importorskip("pandas")
    columns = recording()
    del columns["t"]
    frame = pandas.DataFrame(columns)
    frame.loc[[3, 30], "vel"] = np.nan
    log = read_log(frame.dropna(), Roles.of(action="cmd"))
    assert len(log.data) == len(expected(recording())) - 4
    assert log.understood.gaps == [2, 28] and "the row numbers" in " ".join(log.understood.sentences())


def test_dictionaries_of_frames_keep_names() -> None:
    pandas = pytest.importorskip("pandas")
    columns = recording()
    frame = pandas.DataFrame(columns)
    wanted = expected(columns)
    by_run = {f"run {run}": part.drop(columns="run") for run, part in frame.groupby("run")}
    assert_equal(as_transitions(by_run, Roles.of(action="cmd")), wanted)
    parts = {"obs": pandas.DataFrame(wanted.obs, columns=list(NAMES)), "next_obs": pandas.DataFrame(wanted.next_obs),
             "action": pandas.DataFrame({"cmd": wanted.action[:, 0]}), "episode": pandas.Series(wanted.episode),
             "reward": pandas.Series(wanted.rewards["reward"])}  # fmt: skip
    found = as_transitions(parts)
    assert_equal(found, wanted)
    assert found.factors.action_names == ("cmd",)


def test_what_is_no_log_is_a_type_error() -> None:
    for source in ([1, 2], 3, None, object(), {"a": 3}, {}):
        with pytest.raises(
            TypeError, match="expected Transitions, the name of a file, a table .pandas, polars, Arrow."
        ):
            cbm.discover(source)
    with pytest.raises(TypeError, match="obs must be a column name or a list of them, not int"):
        cbm.discover({"a": [1.0, 2.0]}, obs=[3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="have their columns already"):
        cbm.discover(expected(recording()), obs="cos")


def sb3_buffer(columns: dict[str, np.ndarray], size: int) -> Any:
    buffers, spaces = pytest.importorskip("stable_baselines3.common.buffers"), pytest.importorskip("gymnasium.spaces")
    wanted = expected(columns)
    box = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    buffer = buffers.ReplayBuffer(size, box, spaces.Box(-np.inf, np.inf, (1,), np.float64), device="cpu")
    last = np.append(wanted.episode[:-1] != wanted.episode[1:], True)
    infos = [[{"TimeLimit.truncated": bool(end)}] for end in last]
    for k in range(len(wanted)):
        buffer.add(wanted.obs[k][None], wanted.next_obs[k][None], wanted.action[k][None],
                   wanted.rewards["reward"][k : k + 1], last[k : k + 1], infos[k])  # fmt: skip
    return buffer


def test_replay_buffer_of_stable_baselines() -> None:
    columns = recording()
    wanted = expected(columns)
    found = as_transitions(sb3_buffer(columns, 500))
    np.testing.assert_array_equal(found.obs, wanted.obs)
    np.testing.assert_array_equal(found.next_obs, wanted.next_obs)
    np.testing.assert_array_equal(found.episode, wanted.episode)
    assert found.truncated is not None and found.truncated.sum() == RUNS
    round_robin = as_transitions(sb3_buffer(columns, 60))  # older rows were overwritten
    np.testing.assert_array_equal(round_robin.obs, wanted.obs[-60:])


def test_replay_buffer_of_tianshou() -> None:
    data = pytest.importorskip("tianshou.data")
    columns = recording()
    wanted = expected(columns)
    last = np.append(wanted.episode[:-1] != wanted.episode[1:], True)
    buffer = data.ReplayBuffer(500)
    for k in range(len(wanted)):
        buffer.add(data.Batch(obs=wanted.obs[k], act=wanted.action[k], rew=wanted.rewards["reward"][k],
                              terminated=False, truncated=bool(last[k]), obs_next=wanted.next_obs[k],
                              info={}))  # fmt: skip
    found = as_transitions(buffer)
    np.testing.assert_array_equal(found.obs, wanted.obs)
    np.testing.assert_array_equal(found.next_obs, wanted.next_obs)
    np.testing.assert_array_equal(found.episode, wanted.episode)


def test_rollout_buffers_are_paired() -> None:
    wanted = expected(recording())
    starts = np.insert(wanted.episode[1:] != wanted.episode[:-1], 0, True)
    buffer = types.SimpleNamespace(
        observations=wanted.obs[:, None], actions=wanted.action[:, None], rewards=wanted.rewards["reward"][:, None],
        episode_starts=starts[:, None].astype(float), pos=len(wanted), full=False,
    )  # fmt: skip
    found = as_transitions(buffer)
    np.testing.assert_array_equal(found.next_obs, wanted.next_obs[found_rows(wanted)])
    buffer.generator_ready = True
    with pytest.raises(DataError, match="shuffled for training"):
        as_transitions(buffer)


def found_rows(wanted: Transitions) -> np.ndarray:
    return np.flatnonzero(np.append(wanted.episode[:-1] == wanted.episode[1:], False))


# Kinds


def test_a_wrong_kind_names_the_right_reader(tmp_path: Path) -> None:
    columns = recording()
    parquet = WRITERS["parquet"](tmp_path, columns)[0]
    (tmp_path / "log.csv").write_bytes(parquet.read_bytes())
    (tmp_path / "log.dat").write_bytes(parquet.read_bytes())
    robomimic, _ = WRITERS["robomimic"](tmp_path, columns)
    for path, reader, right in (
        (tmp_path / "log.csv", None, "parquet"), (tmp_path / "log.dat", None, "parquet"),
        (robomimic, "d4rl", "robomimic"), (WRITERS["lerobot_v3"](tmp_path, columns)[0], "ros", "lerobot"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"--reader {right}"):
            Transitions.load(path, reader=reader)
    assert len(Transitions.load(tmp_path / "log.dat", reader="parquet", **ROLES)) == RUNS * (ROWS - 1)
    (tmp_path / "log.pkl").write_bytes(b"\x80\x04.")
    with pytest.raises(DataError, match="is a pickle, and reading one can run any code"):
        Transitions.load(tmp_path / "log.pkl")
    with pytest.raises(DataError, match="unknown reader 'parket'; did you mean 'parquet'"):
        Transitions.load(parquet, reader="parket")


def test_formats_give_the_same_graph(tmp_path: Path) -> None:
    """The graph of a CSV, of a LeRobot dataset and of a data frame, to the last digit."""
    columns = recording(rows=30)
    texts = set()
    for source, roles in (
        WRITERS["csv"](tmp_path, columns),
        WRITERS["lerobot_v3"](tmp_path, columns),
        (columns, ROLES),
    ):
        found = cbm.discover(source, workers=1, **roles).to_json()
        texts.add(json.dumps({key: value for key, value in found.items() if key != "seconds"}))
    assert len(texts) == 1
