"""Transitions written to files and read again, time series, and Minari datasets."""

from __future__ import annotations

import csv
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from cbm.data import readers
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.errors import DataError
from logs import arrays, full  # type: ignore[import-not-found]


def assert_same(a: Transitions, b: Transitions, *, table_only: bool = False) -> None:
    for name in ("obs", "action", "next_obs", "terminated", "truncated", "episode"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype, name
        np.testing.assert_array_equal(left, right, err_msg=name)
    for one, other in ((a.rewards, b.rewards), (a.context, b.context)):
        assert one.keys() == other.keys()
        for name, values in one.items():
            np.testing.assert_array_equal(values, other[name])
    assert a.factors.names == b.factors.names
    assert a.factors.action_names == b.factors.action_names
    if not table_only:
        assert a.factors == b.factors
        np.testing.assert_array_equal(a.truth, b.truth)
        assert a.truth_rewards.keys() == b.truth_rewards.keys()
        for name, parents in a.truth_rewards.items():
            np.testing.assert_array_equal(parents, b.truth_rewards[name])


# files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".NPZ"])
def test_exact_round_trip(tmp_path: Path, suffix: str) -> None:
    data = full()
    data.save(tmp_path / f"log{suffix}")
    assert_same(Transitions.load(tmp_path / f"log{suffix}"), data)
    assert [file.name for file in tmp_path.iterdir()] == [f"log{suffix}"]


def test_csv_round_trip(tmp_path: Path) -> None:
    data = full()
    data.save(str(tmp_path / "log.csv"))
    again = Transitions.load(str(tmp_path / "log.csv"))
    assert_same(again, data, table_only=True)
    assert again.factors.discrete_actions == 3  # the largest that occurs; a CSV cannot say 7


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_whole_numbers_stay_a_vector(tmp_path: Path, suffix: str) -> None:
    data = arrays() | {"action": np.arange(60.0) % 3}
    Transitions.from_arrays(data).save(tmp_path / f"log{suffix}")
    again = Transitions.load(tmp_path / f"log{suffix}")
    assert again.factors.discrete_actions is None
    np.testing.assert_array_equal(again.action[:, 0], data["action"])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1e15, 1e15), min_size=6, max_size=6, unique=True), st.sampled_from(readers.SUFFIXES))
def test_every_float_survives(tmp_path_factory: pytest.TempPathFactory, values: list[float], suffix: str) -> None:
    obs = np.array(values).reshape(3, 2)
    factors = Factors((Variable("a"), Variable("b")), ("action",))
    data = Transitions(obs, np.arange(3.0), obs[::-1], factors, {"reward": obs[:, 0]})
    path = tmp_path_factory.mktemp("floats") / f"log{suffix}"
    data.save(path)
    again = Transitions.load(path, allow_constant=True)
    np.testing.assert_array_equal(again.obs, data.obs)
    np.testing.assert_array_equal(again.rewards["reward"], data.rewards["reward"])


def write_csv(path: Path, columns: dict[str, Any]) -> Path:
    with open(path, "w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


SERIES: dict[str, Any] = {
    "time": ["08:00", "08:01", "08:02", "08:03", "08:04", "08:05"],
    "obs:x": [1.5, 2, 3, 10, 11, 12],
    "obs:y": [0, 1, 0, 1, 0, 1],
    "action": [0.5, 0.25, 9, 0.125, 0.75, 9],
    "reward:task": [1, 2, 99, 4, 5, 99],
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_time_series_is_paired_within_episodes(tmp_path: Path, suffix: str) -> None:
    columns = SERIES | {"episode": [7, 7, 7, 8, 8, 8]}
    path = write_csv(tmp_path / "log.csv", columns)
    if suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        path = tmp_path / "log.parquet"
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), path)
    data = Transitions.load(path)
    np.testing.assert_array_equal(data.obs, [[1.5, 0], [2, 1], [10, 1], [11, 0]])
    np.testing.assert_array_equal(data.next_obs, [[2, 1], [3, 0], [11, 0], [12, 1]])
    np.testing.assert_array_equal(data.action[:, 0], [0.5, 0.25, 0.125, 0.75])
    np.testing.assert_array_equal(data.rewards["task"], [1, 2, 4, 5])
    np.testing.assert_array_equal(data.episode, [7, 7, 8, 8])
    assert data.factors.names == ("x", "y")


def test_time_series_without_episodes(tmp_path: Path) -> None:
    assert len(Transitions.load(write_csv(tmp_path / "a.csv", SERIES))) == 5
    flagged = SERIES | {"truncated": [0, 0, 1, 0, 0, 0], "terminated": [False] * 6}
    data = Transitions.load(write_csv(tmp_path / "b.csv", flagged))
    np.testing.assert_array_equal(data.next_obs[:, 0], [2, 3, 11, 12])
    np.testing.assert_array_equal(data.episode, [0, 0, 1, 1])


def test_csv_header_may_have_a_mark_spaces_and_notes(tmp_path: Path) -> None:
    text = "\ufeffobs:x, note, next_obs: x, action:u ,note\n1,a,2,0.5,b\n2,c,3,1,d\n3,e,4,0.5,f\n"
    (tmp_path / "log.csv").write_text(text, encoding="utf-8")
    data = Transitions.load(tmp_path / "log.csv")
    assert data.factors.names == ("x",) and data.factors.action_names == ("u",)
    np.testing.assert_array_equal(data.next_obs[:, 0], [2, 3, 4])


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_unwritable_paths(tmp_path: Path, suffix: str) -> None:
    data = full()
    (tmp_path / "file").write_text("")
    (tmp_path / f"directory{suffix}").mkdir()
    for path in (
        tmp_path / "absent" / f"a{suffix}",
        tmp_path / "file" / f"a{suffix}",
        tmp_path / f"directory{suffix}",
        tmp_path / f"{'n' * 300}{suffix}",
        tmp_path / f"zero\0{suffix}",
    ):
        with pytest.raises(DataError, match="cannot be written") as caught:
            data.save(path)
        assert "\n" not in str(caught.value) and "\0" not in str(caught.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"directory{suffix}", "file"]
    with pytest.raises(DataError, match=r"unknown kind of file '.txt'"):
        data.save(tmp_path / "log.txt")


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_interrupted_write_keeps_the_old_file(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"log{suffix}"
    full().save(path)
    before = path.read_bytes()

    def stop(handle: Any, arrays: Any) -> None:
        handle.write(b"half")
        raise KeyboardInterrupt

    name = suffix.removeprefix(".")
    monkeypatch.setitem(readers.READERS, name, readers.READERS[name]._replace(write=stop))
    with pytest.raises(KeyboardInterrupt):
        full().head(10).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.parquet"
    full().save(path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for use in (lambda: full().save(path), lambda: Transitions.load(path)):
        with pytest.raises(DataError, match="needs pyarrow, which is not installed: pip install pyarrow"):
            use()


def test_loading_a_large_file_is_quick(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(100_000, 43))
    obs[:, :8] = obs[:, :8] > 0
    np.savez(tmp_path / "log.npz", obs=obs, next_obs=np.roll(obs, 1, 0), action=obs[:, :4], reward=obs[:, 20])
    start = time.process_time()
    data = Transitions.load(tmp_path / "log.npz")
    assert time.process_time() - start < 2  # about 0.4 s; the margin is for busy machines
    assert data.factors.kinds.count("binary") == 8


# Minari -----------------------------------------------------------------------------------------------


def fake_minari(observation_space: Any, action_space: Any, episodes: list[Any]) -> types.ModuleType:
    def load_dataset(name: str, download: bool) -> Any:
        assert not download
        if name != "here/test-v0":
            raise FileNotFoundError(f"Dataset {name}\nnot found")
        return types.SimpleNamespace(
            observation_space=observation_space,
            action_space=action_space,
            iterate_episodes=lambda: iter(episodes),
        )

    module = types.ModuleType("minari")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    return module


def minari_episode(number: int, observations: Any, actions: Any) -> Any:
    steps = len(actions)
    return types.SimpleNamespace(
        id=number, observations=observations, actions=np.asarray(actions), rewards=np.arange(steps) + 0.5,
        terminations=np.arange(steps) == steps - 1, truncations=np.zeros(steps, bool),
    )  # fmt: skip


def test_minari_dict_observations(monkeypatch: pytest.MonkeyPatch) -> None:
    space = spaces.Dict(
        {"goal": spaces.Box(-9, 9, (1,)), "arm": spaces.Box(-99, 99, (2, 1)), "lamp": spaces.Discrete(2)}
    )
    episodes = [
        minari_episode(n, {"goal": np.full((s + 1, 1), n), "arm": np.arange(2 * s + 2).reshape(-1, 2, 1) + n,
                           "lamp": np.arange(s + 1) % 2}, np.arange(s) % 3)
        for n, s in enumerate([3, 2])
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "minari", fake_minari(space, spaces.Discrete(5), episodes))
    data = Transitions.load("minari:here/test-v0")
    columns = [data.factors.names.index(name) for name in ("arm_0", "arm_1", "goal", "lamp_0", "lamp_1")]
    np.testing.assert_array_equal(
        data.obs[:, columns],
        [[0, 1, 0, 1, 0], [2, 3, 0, 0, 1], [4, 5, 0, 1, 0], [1, 2, 1, 1, 0], [3, 4, 1, 0, 1]],
    )
    np.testing.assert_array_equal(data.next_obs[:, columns[0]], [2, 4, 6, 3, 5])
    np.testing.assert_array_equal(data.episode, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(data.rewards["reward"], [0.5, 1.5, 2.5, 0.5, 1.5])
    assert data.factors.discrete_actions == 5
    assert data.factors.groups()["arm"] == sorted(columns[:2])
    assert data.terminated is not None and data.terminated.sum() == 2


def test_minari_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    box = spaces.Box(-9, 9, (1,))
    short = minari_episode(4, np.zeros((3, 1)), np.zeros((3, 1)))
    monkeypatch.setitem(sys.modules, "minari", fake_minari(box, box, [short]))
    with pytest.raises(DataError, match=r"minari:nope-v0: no such Minari dataset on this machine"):
        Transitions.load("minari:nope-v0")
    with pytest.raises(DataError, match="episode 4: 3 observations for 3 steps, not 4"):
        Transitions.load("minari:here/test-v0")
    monkeypatch.setitem(sys.modules, "minari", fake_minari(spaces.Text(3), box, [short]))
    with pytest.raises(DataError, match="space Text"):
        Transitions.load("minari:here/test-v0")
    monkeypatch.setitem(sys.modules, "minari", fake_minari(box, box, []))
    with pytest.raises(DataError, match="no steps"):
        Transitions.load("minari:here/test-v0")
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(DataError, match="needs minari, which is not installed"):
        Transitions.load("minari:here/test-v0")


@pytest.mark.filterwarnings("ignore")
def test_real_minari(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    rng = np.random.default_rng(0)
    episodes = [
        minari.data_collector.EpisodeBuffer(
            id=number,
            observations=rng.normal(size=(steps + 1, 4)).astype(np.float32),
            actions=rng.integers(0, 2, steps),
            rewards=[1.0] * steps,
            terminations=[False] * (steps - 1) + [True],
            truncations=[False] * steps,
            infos={},
        )
        for number, steps in enumerate([4, 7, 5])
    ]
    space = spaces.Box(-9, 9, (4,))
    minari.create_dataset_from_buffers(
        "walk/test-v0",
        episodes,
        observation_space=space,
        action_space=spaces.Discrete(2),
        data_format="arrow",
    )
    with pytest.raises(DataError, match="reward 'reward' is constant"):
        Transitions.load("minari:walk/test-v0")
    data = Transitions.load("minari:walk/test-v0", allow_constant=True)
    np.testing.assert_array_equal(data.episode, np.repeat([0, 1, 2], [4, 7, 5]))
    assert data.factors.discrete_actions == 2
    np.testing.assert_array_equal(data.obs, np.concatenate([e.observations[:-1] for e in episodes]))
    np.testing.assert_array_equal(data.next_obs, np.concatenate([e.observations[1:] for e in episodes]))
    with pytest.raises(DataError, match="no such Minari dataset"):
        Transitions.load("minari:walk/absent-v0")
