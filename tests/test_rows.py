"""Which rows discovery measures on: chosen from runs of episodes, as the rule on whole arrays says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.systems import sparse_nonlinear
from cbm.cli.main import main as cbm
from cbm.data import mapped
from cbm.data.log import Limit, read_log
from cbm.data.mapped import MappedTransitions
from cbm.data.runs import Runs
from cbm.data.transitions import Transitions
from cbm.discovery.last_action import last_actions
from cbm.discovery.rows import draw, some_rows
from cbm.discovery.runfiles import fingerprint
from cbm.discovery.settings import FEWEST_UNITS, Settings
from cbm.graph import CausalGraph


def rows_of_arrays(episode: np.ndarray, most: int, seed: int) -> np.ndarray:
    """The rule in its plain form, with arrays as long as the log."""
    _, unit = np.unique(episode, return_inverse=True)
    sizes = np.bincount(unit)
    if len(sizes) < FEWEST_UNITS or sizes.max() > min(len(unit) / 8, most):
        position = np.argsort(np.argsort(unit, kind="stable"), kind="stable")
        count = min(2 * FEWEST_UNITS, len(unit))
        if len(unit) > count * most:
            count = -(-len(unit) // max(1, most // (2 * FEWEST_UNITS)))
        unit = position * count // len(unit)
    order = np.random.default_rng([seed, 76]).permutation(int(unit.max()) + 1)
    taken = np.searchsorted(np.cumsum(np.bincount(unit)[order]), most, "right")
    return np.flatnonzero(np.isin(unit, order[: max(1, int(taken))]))


EPISODES = {
    "equal": np.repeat(np.arange(50), 20),
    "unequal": np.repeat(np.random.default_rng(0).permutation(80), np.random.default_rng(1).integers(1, 40, 80)),
    "mixed": np.random.default_rng(2).integers(40, size=900),
    "one": np.zeros(1000, int),
    "few": np.repeat([3, 1, 2, 1], [400, 300, 200, 100]),
}


@pytest.mark.parametrize("name", EPISODES)
@pytest.mark.parametrize("most", [5, 100, 333, 2000])
def test_runs_give_the_rows_that_arrays_give(name: str, most: int) -> None:
    episode = EPISODES[name]
    for seed in range(3):
        rows = some_rows(Runs.of(episode), most, seed)
        if len(episode) > most:
            np.testing.assert_array_equal(rows, rows_of_arrays(episode, most, seed))
        assert len(rows) <= most or len(rows) == len(episode) <= most


def test_one_long_episode_gives_no_more_rows_than_asked_for() -> None:
    rows = some_rows(Runs(np.array([7]), np.array([10**9])), 60_000, 0)
    assert 55_000 < len(rows) <= 60_000 and rows.max() > 9 * 10**8 and rows.min() < 10**8


def test_a_billion_rows_in_short_episodes_need_no_array_of_rows() -> None:
    runs = Runs(np.arange(200_000), np.full(200_000, 5000))
    rows = some_rows(runs, 60_000, 1)
    assert len(rows) == 60_000 and (np.diff(rows) > 0).all()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    sparse_nonlinear(5, 3000, seed=2, actions=2, horizon=40).save(tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


def in_both(table: Path, tmp_path: Path) -> tuple[Transitions, MappedTransitions]:
    whole = read_log(table, limit=Limit(10**12)).data
    parts = read_log(table, limit=Limit(1, tmp_path / "maps")).data
    assert isinstance(parts, MappedTransitions)
    return whole, parts


@pytest.mark.parametrize("use", ["auto", "on", "off"])
@pytest.mark.parametrize("most", [700, 10_000])
def test_the_same_rows_are_drawn_from_a_map(
    use: str, most: int, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped, "MOST_ROWS", 101)
    whole, parts = in_both(table, tmp_path)
    settings = Settings(last_action=use, most_rows=most)  # type: ignore[arg-type]
    (a, last_a), (b, last_b) = draw(whole, settings, 3), draw(parts, settings, 3)
    for name in ("obs", "next_obs", "action", "episode"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert (last_a is None) == (last_b is None) == (use == "off")
    if last_a is not None and last_b is not None:
        np.testing.assert_array_equal(last_a, last_b)
    assert fingerprint(whole) == fingerprint(parts)


def test_an_episode_that_comes_back_is_continued_across_the_gap(tmp_path: Path) -> None:
    whole = sparse_nonlinear(4, 400, seed=1, actions=1, horizon=40)
    half = np.arange(400) % 40 < 20
    mixed = whole.select(np.concatenate([np.flatnonzero(half), np.flatnonzero(~half)]))
    mixed.save(tmp_path / "log.parquet")
    log, parts = in_both(tmp_path / "log.parquet", tmp_path)
    settings = Settings(last_action="on")
    (a, last_a), (b, last_b) = last_actions(log, "on"), draw(parts, settings, 0)
    np.testing.assert_array_equal(a.obs, b.obs)
    assert last_a is not None and last_b is not None and len(a) == 390
    np.testing.assert_array_equal(last_a, last_b)


def test_the_graph_of_a_map_is_that_of_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "log.parquet"
    sparse_nonlinear(3, 600, seed=2, actions=2, horizon=40).save(table)
    common = ["discover", str(table), "--preset", "debug", "--workers", "1", "--quiet"]
    assert cbm([*common, "--out", str(tmp_path / "a" / "run")]) == 0
    assert cbm([*common, "--out", str(tmp_path / "b" / "run"), "--memory", "1KB"]) == 0
    captured = capsys.readouterr()
    assert "600 rows would take" in captured.err
    assert [*(tmp_path / "b" / ".cbm-maps").iterdir()] and not (tmp_path / "a" / ".cbm-maps").exists()
    graphs = [CausalGraph.load(tmp_path / side / "run").to_json() for side in "ab"]
    for graph in graphs:
        graph.pop("seconds")
    assert graphs[0] == graphs[1]
    assert cbm([*common, "--out", str(tmp_path / "b" / "run"), "--memory", "1KB"]) == 0  # the same run: nothing to do
    assert "would take" not in capsys.readouterr().err


def test_check_says_the_same_of_a_map(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cbm(["check", str(table)]) == 0
    plain = capsys.readouterr()
    assert cbm(["check", str(table), "--memory", "1 KB"]) == 0
    small = capsys.readouterr()
    assert small.out == plain.out
    assert "a temporary map" in small.err


def test_a_size_that_is_none(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cbm(["check", str(table), "--memory", "much"]) == 2
    assert "--memory: 'much' is not a size" in capsys.readouterr().err
