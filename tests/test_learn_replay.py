"""The table of transitions, demonstrations in it, and checkpoints of it that notice damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cbm.envs.registry import make_world
from cbm.errors import DataError
from cbm.learning import replay as replay_module
from cbm.learning.demonstrations import demonstrate, scripts
from cbm.learning.replay import Replay
from cbm.learning.snapshots import Snapshots
from cbm.learning.task_env import GymTaskEnv, WorldTaskEnv
from cbm.learning.vector_env import EpisodeCounter, Moves

FACTORS = make_world("light").factors
D, A = len(FACTORS), len(FACTORS.action_names)


def _moves(first: int, count: int, episode: int | None = None) -> Moves:
    """Rows that say their own number everywhere: obs n, action n + .1, next_obs n + .2, rewards n and -n."""
    n = np.arange(first, first + count, dtype=float)[:, None]
    return Moves(
        obs=n + np.zeros(D),
        context=n + np.array([0.5, 0.6]),
        action=n + 0.1 + np.zeros(A),
        next_obs=n + 0.2 + np.zeros(D),
        next_context=n + np.array([0.7, 0.8]),
        rewards={"cross": n[:, 0], "park": -n[:, 0]},
        success={},
        terminated=n[:, 0] % 7 == 0,
        truncated=np.zeros(count, bool),
        episode=np.full(count, first // 10 if episode is None else episode),
    )


def _replay(capacity: int = 1000, rows: int = 0) -> Replay:
    replay = Replay(FACTORS, ("goal_x", "goal_y"), ("cross", "park"), capacity)
    for first in range(0, rows, 10):
        replay.add(_moves(first, 10))
    return replay


def _numbers(replay: Replay) -> list[int]:
    """Which rows are there."""
    drawn = replay.sample(5000, "cross", np.random.default_rng(0)).reward
    return sorted({int(n) for n in drawn})


def test_sampled_rows_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "CHUNK", 16)
    replay = _replay(rows=200)
    sample = replay.sample(64, "park", np.random.default_rng(3))
    n = -sample.reward
    assert sample.obs.shape == (64, D) and sample.obs.dtype == torch.float32
    for part, offset in ((sample.obs, 0.0), (sample.action, 0.1), (sample.next_obs, 0.2)):
        assert torch.allclose(part, n[:, None] + offset, atol=1e-4)
    assert torch.allclose(sample.context, n[:, None] + torch.tensor([0.5, 0.6]), atol=1e-4)
    assert torch.allclose(sample.next_context, n[:, None] + torch.tensor([0.7, 0.8]), atol=1e-4)
    assert (sample.terminated == (n % 7 == 0)).all()
    again = replay.sample(64, "park", np.random.default_rng(3))
    assert (again.reward == sample.reward).all()


def test_the_oldest_rows_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "CHUNK", 16)
    replay = _replay(capacity=64, rows=250)
    assert len(replay) == 64 and replay.total == 250
    assert _numbers(replay) == list(range(186, 250))
    assert replay.transitions(held_out=False).obs[0, 0] == 186  # in the order in which they came
    kept = replay.numbered(0, 250)
    assert len(kept["rows"]) == 64 and kept["rows"][0, 0] == 186
    assert replay.numbered(240, 245)["rows"][:, 0].tolist() == [240, 241, 242, 243, 244]


def test_one_episode_in_five_is_held_out() -> None:
    replay = _replay(rows=200)  # episodes 0 ... 19
    train, held = replay.transitions(held_out=False), replay.transitions(held_out=True)
    assert sorted(set(held.episode)) == [4, 9, 14, 19] and len(train) == 160 and len(held) == 40
    assert (np.diff(train.obs[:, 0]) > 0).all()
    assert np.allclose(held.rewards["park"], -held.obs[:, 0]) and set(held.rewards) == {"cross", "park"}
    assert np.allclose(held.context["goal_y"], held.obs[:, 0] + 0.8)  # of the state that the reward is of
    assert replay.transitions(held_out=True) is held  # methods of several tasks share it
    replay.add(_moves(200, 10))
    assert len(replay.transitions(held_out=False)) == 170


def test_methods_are_asked_when_there_is_something_to_measure_on() -> None:
    assert not _replay(rows=40).measurable and not _replay(rows=240).measurable  # 40 rows of four episodes
    assert _replay(rows=250).measurable


def test_fewer_rows_come_as_whole_episodes() -> None:
    part = _replay(rows=200).transitions(held_out=False, most=50)
    assert len(part) == 50 and len(set(part.episode)) == 5
    assert part.episode.min() == 0 and part.episode.max() == 18  # spread over the run


def test_a_task_may_look_at_its_own_rows_only() -> None:
    replay = _replay()
    for source, first in ((0, 0), (1, 10), (-1, 20)):  # two tasks, and demonstrations, which are everybody's
        replay.add(_moves(first, 10), source)
    seen = replay.sample(500, "cross", np.random.default_rng(0), source=1).reward
    assert sorted({int(n) for n in seen}) == list(range(10, 30))


# Demonstrations


def test_demonstrations_are_whole_scripted_episodes() -> None:
    task_env = WorldTaskEnv("light")
    tables = []
    for _ in range(2):
        replay = Replay(task_env.factors, (), task_env.tasks, 10_000)
        numbers = demonstrate(task_env, ("cross", "park"), 3, 0, EpisodeCounter(), replay)
        tables.append(replay.numbered(0, replay.total)["rows"])
        assert numbers["rows"] == len(replay) == 3 * task_env.world.horizon
        assert set(replay.episode[: len(replay)]) == {0, 1, 2} and (replay.source[: len(replay)] == -1).all()
        assert 0 <= numbers["success_park"] <= 1 and "success_cross" not in numbers
    assert (tables[0] == tables[1]).all()


def test_tasks_with_scripts_of_their_own() -> None:
    pytest.importorskip("mujoco")
    assert scripts(WorldTaskEnv("block"), ("pick", "stack", "pick", "push")) == ["pick", "stack", "mixed"]
    assert scripts(WorldTaskEnv("contact"), ("pick", "stack")) == ["mixed"]
    with pytest.raises(DataError, match="no scripted"):
        scripts(GymTaskEnv("gymnasium:Pendulum-v1"), ("reward",))


# Checkpoints


STATE: dict[str, Any] = {
    "step": 12,
    "nothing": None,
    "text": "ä",
    "huge": 2**127 + 1,
    "deep": {"weights": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)), "empty": {}},
    "counts": np.arange(5),
    "flags": np.array([True, False]),
    "scalar": torch.tensor(3.5, dtype=torch.float64),
}


def _same(one: Any, two: Any) -> None:
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            _same(one[key], two[key])
    elif isinstance(one, torch.Tensor | np.ndarray):
        assert one.dtype == two.dtype and one.shape == two.shape and bool((one == two).all())
    else:
        assert one == two


@pytest.fixture
def written(tmp_path: Path) -> tuple[Snapshots, Replay]:
    """Three checkpoints, of which two generations are left."""
    snapshots, replay = Snapshots(tmp_path / "checkpoint"), _replay()
    for k in (1, 2, 3):
        for first in range(100 * (k - 1), 100 * k, 10):
            replay.add(_moves(first, 10))
        snapshots.write(k, {**STATE, "step": k}, replay)
    return snapshots, replay


def _loaded(snapshots: Snapshots) -> tuple[dict[str, Any], Replay]:
    replay = _replay()
    state = Snapshots(snapshots.directory).load(replay)
    assert state is not None
    return state, replay


def test_everything_comes_back(written: tuple[Snapshots, Replay]) -> None:
    state, replay = _loaded(written[0])
    _same(state, {**STATE, "step": 3})
    assert replay.total == 300
    _same(replay.numbered(0, 300), written[1].numbered(0, 300))
    assert len(written[0].generations()) == 2


def test_rows_are_written_once(written: tuple[Snapshots, Replay]) -> None:
    snapshots, replay = written
    files = {path.name: path.stat().st_mtime_ns for path in snapshots.directory.glob("rows-*")}
    assert len(files) == 3
    replay.add(_moves(300, 10))
    snapshots.write(4, STATE, replay)
    now = {path.name: path.stat().st_mtime_ns for path in snapshots.directory.glob("rows-*")}
    assert files.items() <= now.items() and len(now) == 4


def test_rows_that_no_generation_needs_are_removed(tmp_path: Path) -> None:
    snapshots, replay = Snapshots(tmp_path), _replay(capacity=50)
    for k in range(10):
        for first in range(20 * k, 20 * k + 20, 10):
            replay.add(_moves(first, 10))
        snapshots.write(k, STATE, replay)
    assert len(list(tmp_path.glob("rows-*"))) == 4  # rows 130 ... 179 for one generation, 150 ... 199 for the other
    other = _replay(capacity=50)
    assert Snapshots(tmp_path).load(other) is not None
    assert other.total == 200 and _numbers(other) == list(range(150, 200))


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["weights", "header", "short", "empty", "rows", "rows gone"])
def test_damage_is_noticed_and_the_one_before_is_used(
    written: tuple[Snapshots, Replay], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = written[0].generations()[0]
    rows = sorted(written[0].directory.glob("rows-*"))[-1]
    if damage == "weights":
        _flip(newest, newest.stat().st_size - 1)
    elif damage == "header":
        _flip(newest, 40)
    elif damage == "short":
        newest.write_bytes(newest.read_bytes()[:-7])
    elif damage == "empty":
        newest.write_bytes(b"")
    elif damage == "rows":
        _flip(rows, rows.stat().st_size // 2)
    else:
        rows.unlink()
    state, replay = _loaded(written[0])
    assert state["step"] == 2 and replay.total == 200 and _numbers(replay) == list(range(200))
    said = capsys.readouterr().err
    named = rows if damage.startswith("rows") else newest
    assert said.startswith("cbm: ") and named.name in said and "00000002" in said and said.count("\n") == 1


def test_nothing_sound_is_left(written: tuple[Snapshots, Replay]) -> None:
    for path in written[0].generations():
        path.write_bytes(b"no checkpoint")
    with pytest.raises(DataError, match="no checkpoint can be read .*00000003.*00000002"):
        _loaded(written[0])


def test_nothing_was_ever_saved(tmp_path: Path) -> None:
    assert Snapshots(tmp_path / "checkpoint").load(_replay()) is None
