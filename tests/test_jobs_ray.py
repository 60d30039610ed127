"""Jobs on Ray: the same results as anywhere else. One small cluster for all tests of this file."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.errors import DataError, WriteError
from cbm.jobs import Executor, Failure, InProcess, Job, Retry, Shared, Store

ray = pytest.importorskip("ray", exc_type=ImportError)
CHECKS = "cbm.jobs.checks"


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    from cbm.jobs.ray_executor import RayExecutor

    with RayExecutor(workers=2) as cluster:
        yield cluster


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    arrays = {"x": np.linspace(0.0, 1.0, 7), "big": np.arange(60_000.0).reshape(200, 300).T}
    return Shared.write(tmp_path / "shared", arrays).path


def job(key: str, function: str, **options: Any) -> Job:
    return Job(key, f"{CHECKS}:{function}", options)


def scales(count: int, name: str = "x") -> list[Job]:
    return [job(f"scale-{i}", "scale", name=name, by=0.1 * i) for i in range(count)]


def test_results_are_the_same_bytes_as_in_this_process(executor: Executor, shared: Path, tmp_path: Path) -> None:
    jobs = [*scales(4), job("big", "scale", name="big", by=1 / 3)]
    files = []
    for name, used in (("here", InProcess()), ("ray", executor)):
        store = Store(tmp_path / name)
        assert list(used.run(jobs, shared, store)) == [each.key for each in jobs]
        files.append([store.file(each.key).read_bytes() for each in jobs])
    assert files[0] == files[1]


def test_replaced_shared_arrays_arrive(executor: Executor, shared: Path) -> None:
    executor.run(scales(2), shared, Store(None))
    Shared.write(shared, {"x": np.array([10.0])})
    assert executor.run(scales(3), shared, Store(None))["scale-2"]["scaled"].tolist() == [2.0]


def test_workers_have_one_thread(executor: Executor, shared: Path) -> None:
    assert executor.run([job("a", "surroundings")], shared, Store(None))["a"]["limits"].tolist() == ["1"] * 4


def test_failed_jobs_are_reported_and_the_others_go_on(executor: Executor, shared: Path, tmp_path: Path) -> None:
    bad = job("bad", "fail", message="row 3", data=True)
    jobs = [job("f", "fail", message="oh"), job("d", "die"), bad, job("w", "fail_to_write"), *scales(3)]
    failures: list[Failure] = []
    results = executor.run(jobs, shared, Store(tmp_path / "r"), retry=Retry(raised=1, lost=1), failures=failures)
    assert list(results) == ["scale-0", "scale-1", "scale-2"]
    found = {failure.key: failure for failure in failures}
    assert (found["f"].attempts, found["d"].attempts, found["bad"].attempts) == (2, 2, 1)
    assert "ZeroDivisionError: oh" in found["f"].log and "ended twice" in str(found["d"].error)
    assert isinstance(found["w"].error, WriteError) and found["w"].attempts == 1
    assert isinstance(found["bad"].error, DataError) and str(found["bad"].error) == "row 3"


@pytest.mark.slow
def test_a_worker_that_dies_once_is_replaced(executor: Executor, shared: Path, tmp_path: Path) -> None:
    results = executor.run([job("d", "die", once=str(tmp_path / "died"))], shared, Store(None))
    assert results["d"]["alive"]


def test_an_attempt_that_was_given_up_changes_nothing(
    executor: Executor, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is declared lost while it still runs, as behind a cut link, and ends before the second."""
    from cbm.jobs.executor import Outcome
    from cbm.jobs.ray_executor import RayExecutor

    assert isinstance(executor, RayExecutor)
    reported: list[str] = []
    first: list[Any] = []
    original = executor._next

    def in_this_order(deadline: float | None) -> Outcome | None:
        if not first:
            first.extend(executor._refs)
            reported.append("lost")
            return Outcome(executor._refs[first[0]], "lost", "behind a cut link")
        if first[0] in executor._refs:  # the second attempt has begun; the first is waited for, however long it takes
            reported.append("stale")
            ray.wait(first)
            return executor._outcome(first[0], executor._refs.pop(first[0]))
        reported.append("current")
        return original(deadline)

    monkeypatch.setattr(executor, "_next", in_this_order)
    (tmp_path / "runs").mkdir()
    store = Store(tmp_path / "r")
    results = executor.run([job("n", "stamp", folder=str(tmp_path / "runs"))], shared, store)
    assert reported == ["lost", "stale", "current"]
    assert len(list((tmp_path / "runs").iterdir())) == 2, "both attempts ran to their end"
    assert list(results) == ["n"] and not executor._results, "the result of the first is forgotten"


@pytest.mark.slow
def test_the_deadline_stops_running_jobs(executor: Executor, shared: Path) -> None:
    started = time.monotonic()
    jobs = [job("s", "sleep", seconds=600.0), *scales(2)]
    assert "s" not in executor.run(jobs, shared, Store(None), deadline=time.monotonic() + 2.0)
    assert time.monotonic() - started < 30
    assert len(executor.run(scales(2), shared, Store(None))) == 2  # the core is free again


@pytest.mark.slow
def test_the_graph_is_the_same(executor: Executor) -> None:
    import cbm
    from cbm.discovery.settings import preset

    rng = np.random.default_rng(0)
    obs, action = rng.normal(size=(600, 3)), rng.normal(size=(600, 1))
    after = np.column_stack([obs[:, 0] + action[:, 0], 0.8 * obs[:, 1] + np.sin(obs[:, 0]), obs[:, 2]])
    after += 0.1 * rng.normal(size=after.shape)
    data = cbm.Transitions.from_arrays(
        {"obs": obs, "action": action, "next_obs": after, "reward": after[:, 1] ** 2, "episode": np.arange(600) // 20}
    )
    here = cbm.discover(data, settings=preset("debug"), workers=0)
    there = cbm.discover(data, settings=preset("debug"), on="ray")
    assert there.to_json() | {"seconds": 0} == here.to_json() | {"seconds": 0}


@pytest.mark.parametrize(
    ("address", "variable", "asked"),
    [
        (None, None, {"address": "local", "num_cpus": 2, "include_dashboard": False}),
        (None, "10.0.0.1:6379", {"address": None}),
        ("h:1", "10.0.0.1:6379", {"address": "h:1"}),
    ],
)
def test_which_cluster_is_joined(
    address: str | None, variable: str | None, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an address a new one is started, whatever an earlier cluster of this machine has left behind."""
    from cbm.jobs import ray_executor

    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(ray, "init", lambda **options: calls.append(options))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    ray_executor.connect(address, 2)
    assert [{name: call[name] for name in asked} for call in calls] == [asked]
    assert ("num_cpus" in calls[0]) == ("num_cpus" in asked)
