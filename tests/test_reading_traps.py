"""Logs whose rows a careless reader pairs wrongly, or whose rows and columns it loses without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cbm.cli.main import main
from cbm.data.transitions import Transitions
from cbm.errors import DataError

K = np.arange(200)
RNG = np.random.default_rng(0)
CMD = RNG.normal(size=200)
FRAME = pd.DataFrame


@pytest.fixture(params=["in memory", "mapped"])
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Reads a frame through a CSV file, in both ways."""

    def read(frame: pd.DataFrame, **roles: Any) -> Transitions:
        file = tmp_path / "log.csv"
        frame.to_csv(file, index=False)
        mapped: dict[str, Any] = {"memory": 20_000, "maps": tmp_path / "maps"}
        more = mapped if request.param == "mapped" else {}
        return Transitions.load(file, **roles, **more)

    yield read


def _steps(data: Transitions) -> set[float]:
    part = data.select(range(len(data)))
    return set((part.next_obs - part.obs)[:, 0].tolist())


def test_a_rejected_guess_leaves_the_rows_in_their_order(load: Any) -> None:
    frame = FRAME({"episode": K // 50, "x": K, "row": RNG.integers(0, 5, 200), "action": CMD})
    data = load(frame)
    assert len(data) == 196 and _steps(data) == {1.0}


@pytest.mark.parametrize("name", ["r", "timeout", "t", "run", "done"])
def test_columns_named_as_state_get_no_other_role(load: Any, name: str) -> None:
    data = load(FRAME({"u": CMD.cumsum(), name: RNG.normal(size=200), "rudder": CMD}), obs=["u", name], action="rudder")
    assert data.factors.names == ("u", name) and not data.rewards and len(data) == 199


def _recording(offset: int) -> pd.DataFrame:
    k = K[:100]
    return FRAME({"run": k // 50, "t": k % 50 * 0.1, "x": offset + k % 50, "cmd": CMD[:100]})


def test_two_recordings_with_the_same_names_and_times_are_not_woven_together(load: Any) -> None:
    with pytest.raises(DataError, match="rows 0 and 100 in one episode are both at 't' 0"):
        load(pd.concat([_recording(0), _recording(1000)]), episode="run", time="t")


def test_rows_of_one_time_are_left_out_with_their_neighbours(load: Any) -> None:
    twice = np.sort(np.append(K, 50))
    data = load(FRAME({"t": twice * 0.1, "x": twice, "cmd": CMD[twice]}), time="t")
    assert len(data) == 197 and _steps(data) == {1.0}


@pytest.mark.parametrize("order", ["newest first", "shuffled"])
def test_rows_out_of_order_are_refused_and_the_clock_is_not_ignored(load: Any, order: str) -> None:
    frame = FRAME({"timestamp": K * 0.1, "x": K, "cmd": CMD})
    frame = frame[::-1] if order == "newest first" else frame.sample(frac=1, random_state=0)
    with pytest.raises(DataError, match="not in the order of 'timestamp'"):
        load(frame)
    assert load(frame, obs=["timestamp", "x"], action="cmd").factors.names == ("timestamp", "x")


@pytest.mark.parametrize("memory", [None, 1])
def test_directories_name_the_partitions_of_a_table(tmp_path: Path, memory: int | None) -> None:
    frame = FRAME({"episode": K // 50, "x": K % 50 + 1000 * (K // 50), "cmd": CMD})
    frame.to_parquet(tmp_path / "hive", partition_cols=["episode"])
    more: dict[str, Any] = {} if memory is None else {"memory": memory, "maps": tmp_path / "maps"}
    every: list[dict[str, Any]] = [{}, {"episode": "episode"}]
    for roles in every:
        data = Transitions.load(tmp_path / "hive", **roles, **more)
        assert len(data) == 196 and data.runs().episodes == 4


def test_partitions_must_be_the_same_everywhere(tmp_path: Path) -> None:
    frame = FRAME({"x": K, "cmd": CMD})
    for place in ("run=a", "robot=b"):
        (tmp_path / "hive" / place).mkdir(parents=True)
        frame.to_parquet(tmp_path / "hive" / place / "0.parquet")
    with pytest.raises(DataError, match="'run'"):
        Transitions.load(tmp_path / "hive")


@pytest.mark.parametrize("memory", [None, 1])
def test_descriptions_of_variables_follow_them(tmp_path: Path, memory: int | None) -> None:
    states = np.column_stack([CMD.cumsum(), RNG.random(200) > 0.5])
    names, truth = np.array(["pos", "flag"]), np.array([[1, 0, 1], [0, 1, 0]])
    arrays = {"obs": states[:-1], "next_obs": states[1:], "action": CMD[:-1, None], "names": names, "truth": truth}
    file = tmp_path / "own.parquet"
    Transitions.from_arrays(arrays).save(file)
    more: dict[str, Any] = {} if memory is None else {"memory": memory, "maps": tmp_path / "maps"}
    turned = Transitions.load(file, obs=["obs:flag", "obs:pos"], action="action", **more)
    assert turned.factors.kinds == ("binary", "continuous")
    assert turned.truth is not None and turned.truth.astype(int).tolist() == [[1, 0, 0], [0, 1, 1]]
    part = Transitions.load(file, obs="obs:flag", action="action", **more)
    assert part.factors.kinds == ("binary",) and part.truth is None
    whole = Transitions.load(file, **more)
    assert whole.truth is not None and whole.truth.astype(int).tolist() == truth.tolist()


def test_an_open_quote_does_not_swallow_the_rest(tmp_path: Path) -> None:
    rows = (f"{i},{CMD[i]:.3f},{chr(34) + 'see log' if i == 80 else 'ok'}\n" for i in K)
    (tmp_path / "log.csv").write_text("x,cmd,note\n" + "".join(rows))
    with pytest.raises(DataError, match="unexpected end of data"):
        Transitions.load(tmp_path / "log.csv")


@pytest.mark.parametrize(
    "ids",
    [
        [str(10**17 + i // 10) for i in range(200)], [f"{i // 10}_0" for i in range(200)],
        ["1e2"] * 100 + ["100"] * 100, ["1.1"] * 100 + ["1.10"] * 100,
        [str(i // 10) for i in range(200)], [f"{i // 10}.0" for i in range(200)],
    ],
)  # fmt: skip
def test_names_of_episodes_are_compared_as_they_are_written(load: Any, ids: list[str]) -> None:
    assert load(FRAME({"run": ids, "x": K, "cmd": CMD})).runs().episodes == len(set(ids))


def test_numbers_with_underscores_are_names(tmp_path: Path) -> None:
    FRAME({"x": K, "label": ["2_3"] * 200, "cmd": CMD}).to_csv(tmp_path / "log.csv", index=False)
    assert Transitions.load(tmp_path / "log.csv").factors.names == ("x",)


def test_an_open_map_never_shows_another_log(tmp_path: Path) -> None:
    def written(offset: int) -> Transitions:
        FRAME({"x": offset + K, "cmd": CMD}).to_csv(tmp_path / "log.csv", index=False)
        return Transitions.load(tmp_path / "log.csv", memory=1, maps=tmp_path / "maps")

    before, after = written(0), written(5000)
    assert after.select([0, 1]).obs[:, 0].tolist() == [5000.0, 5001.0]
    with pytest.raises(DataError, match="converted it anew"):
        before.select([0, 1])
    assert len(list((tmp_path / "maps").iterdir())) == 1


def test_a_log_of_booleans_is_read() -> None:
    assert len(Transitions.from_table(FRAME({"a": CMD > 0, "b": CMD > 1, "cmd": CMD}))) == 199


def test_choices_of_polars_are_read() -> None:
    pl = pytest.importorskip("polars")
    columns = {"x": K * 1.0, "cmd": CMD, "run": [f"r{i // 50}" for i in K]}
    for kind in (pl.Categorical, pl.Enum([f"r{i}" for i in range(4)])):
        assert Transitions.from_table(pl.DataFrame(columns, schema_overrides={"run": kind})).runs().episodes == 4


def test_uneven_lists_matter_only_where_they_are_used() -> None:
    frame = FRAME({"x": K * 1.0, "cmd": CMD, "contacts": [[1.0] * (i % 3) for i in K]})
    assert len(Transitions.from_table(frame, obs="x", action="cmd")) == 199
    with pytest.raises(DataError, match="'contacts', row 1: a list of 1 numbers, not of 0"):
        Transitions.from_table(frame, obs=["x", "contacts"], action="cmd")


def test_a_colon_in_a_name_does_not_make_a_log_ours() -> None:
    frame = FRAME({"imu:ax": CMD.cumsum(), "pwm": RNG.integers(-100, 101, 200)})
    assert Transitions.from_table(frame, action="pwm").factors.discrete_actions is None


def test_a_sweep_never_replaces_runs_made_with_other_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def sweep(steps: int) -> int:
        words = ["collect", "light", "--steps", str(steps), "--out", str(tmp_path / "s"), "--quiet", "--workers", "1"]
        return main(["sweep", *words])

    assert sweep(200) == 0
    before = (tmp_path / "s" / "runs" / "seed0" / "data.npz").read_bytes()
    assert sweep(300) == 2 and "holds a run with other options" in capsys.readouterr().err
    assert (tmp_path / "s" / "runs" / "seed0" / "data.npz").read_bytes() == before
    assert sweep(200) == 0
