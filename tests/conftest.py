"""What tests share: the number of threads; for the command line calling it, refusing, a log, a fake engine, a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cbm.cli import main as cli
from cbm.data.transitions import Transitions
from cbm.envs.screen import draw_without_display
from cbm.graph import CausalGraph, RewardGraph
from logs import good  # type: ignore[import-not-found]

draw_without_display()  # before any test imports MuJoCo
# What Tianshou and robosuite compile when it is first used takes longer than the little that tests do with it.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
Result = tuple[int, str, str]
ROWS = 40


@pytest.fixture(scope="module")
def two_threads() -> Iterator[None]:
    """As on a small machine, whatever this one has."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(2, before))
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """As in child processes: with more threads sums are made in another order, and round differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Exit code, output and error stream of one command line."""

    def call(*arguments: Any) -> Result:
        code = cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def refused() -> Callable[..., None]:
    """Checks for exit code 2, one line that names what is wrong, and nothing else."""

    def check(result: Result, *parts: str) -> None:
        code, out, err = result
        assert code == 2 and out == "", (code, out, err)
        assert err.startswith("cbm: ") and err.endswith("\n") and err.count("\n") == 1 and len(err) < 1500, err
        assert "Traceback" not in err and "None" not in err, err
        for part in parts:
            assert part in err, err

    return check


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small sound log under a name; changes replace arrays, a change to None leaves one out."""

    def save(name: str, **changes: Any) -> Path:
        arrays = good(rows=ROWS)
        arrays["reward_go"] = arrays.pop("reward")
        np.savez(tmp_path / name, **{key: value for key, value in (arrays | changes).items() if value is not None})
        return tmp_path / name

    return save


def _graph_of(data: Transitions) -> CausalGraph:
    """The true graph if the data has one, else self-loops; every reward depends on the first variable."""
    d = len(data.factors)
    edges = np.eye(d, d + 1, dtype=bool) if data.truth is None else data.truth
    rewards = {}
    for name in data.rewards:
        mask = data.truth_rewards.get(name, np.arange(d) == 0)
        rewards[name] = RewardGraph(
            parents=tuple(np.array(data.factors.names)[mask]),
            cmi=mask * 0.5,
            stderr=np.full(d, 0.001),
            verdict=np.where(mask, "edge", "none"),
            threshold=np.full(d, 0.01),
        )
    return CausalGraph(
        variables=data.factors.names,
        adjacency=edges,
        cmi=edges * 0.3,
        stderr=np.full((d, d + 1), 0.001),
        verdict=np.where(edges, "edge", "none"),
        threshold=0.01,
        rewards=rewards,
        model="implicit",
        transitions=len(data),
        seconds=1.5,
        version="0",
    )


@pytest.fixture
def graph_of() -> Callable[[Transitions], CausalGraph]:
    return _graph_of


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Discovery that takes no time and gives the true graph; the list records how it was called."""
    calls: list[dict[str, Any]] = []

    def discover(data: Transitions, *, run: Path, progress: Any, **options: Any) -> CausalGraph:
        calls.append({"data": data, "run": run, **options})
        if (run / "result.json").exists():
            return CausalGraph.load(run)
        for stage in ("dynamics", "evidence", "rewards", "prediction"):
            for fraction in (0.0, 0.5, 1.0):
                progress(stage, fraction)
        graph = _graph_of(data)
        run.mkdir(parents=True, exist_ok=True)
        (run / "config.json").write_text("{}")
        graph.save(run)
        (run / "result.json").write_text("{}")
        return graph

    monkeypatch.setattr("cbm.discovery.discover.discover", discover)
    return calls


@pytest.fixture
def light_run(tmp_path: Path) -> Path:
    """A finished run on the world with two rewards."""
    from cbm.envs.collect import collect
    from cbm.envs.registry import make_world

    directory = tmp_path / "light"
    directory.mkdir()
    _graph_of(collect(make_world("light"), 300)).save(directory)
    return directory
