"""Jobs: the same results wherever they run, nothing lost, nothing half-written, nobody left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.errors import DataError, WriteError
from cbm.jobs import Executor, Failure, Job, Retry, Shared, Store, default_workers, local_executor
from cbm.jobs.store import write_attempt

CHECKS = "cbm.jobs.checks"
LONG = 600.0  # seconds; a test that waits for such a job to end fails by its time limit


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return Shared.write(tmp_path / "shared", {"x": np.linspace(0.0, 1.0, 7), "label": np.array(["a", "bc"])}).path


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    """One pool for the tests that do not look at its processes: starting Python takes most of their time."""
    with local_executor(2) as workers:
        yield workers


def job(key: str, function: str, **options: Any) -> Job:
    return Job(key, f"{CHECKS}:{function}", options)


def scales(count: int) -> list[Job]:
    return [job(f"scale-{i}", "scale", name="x", by=0.1 * i) for i in range(count)]


def leftovers(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if file.suffix != ".npz"]


# -- results ----------------------------------------------------------------------------------------------------


def test_results_do_not_depend_on_the_number_of_workers(shared: Path, tmp_path: Path) -> None:
    jobs = scales(6)
    files = []
    for workers in (0, 1, 2):
        store = Store(tmp_path / f"results-{workers}")
        with local_executor(workers) as pool:
            on_disk = pool.run(jobs, shared, store)
            in_memory = pool.run(jobs, shared, Store(None))
        assert list(on_disk) == list(in_memory) == [each.key for each in jobs]
        for i, each in enumerate(jobs):
            np.testing.assert_array_equal(on_disk[each.key]["scaled"], np.linspace(0.0, 1.0, 7) * (0.1 * i))
            np.testing.assert_array_equal(in_memory[each.key]["scaled"], on_disk[each.key]["scaled"])
        files.append([store.file(each.key).read_bytes() for each in jobs])
    assert files[0] == files[1] == files[2]


def test_stored_results_are_not_run_again(shared: Path, tmp_path: Path) -> None:
    store, calls = Store(tmp_path / "results"), []
    store.put("bad", {"scaled": np.array(5)})  # a job that would fail, if it were run
    jobs = [*scales(2), job("bad", "fail", message="run again")]
    with local_executor(0) as pool:
        results = pool.run(jobs, shared, store, progress=lambda done, total: calls.append((done, total)))
        assert calls == [(2, 3), (3, 3)] and results["bad"]["scaled"] == 5
        calls.clear()
        assert list(pool.run(jobs, shared, Store(store.path))) == list(results) and not calls


def test_a_damaged_result_is_run_again(shared: Path, tmp_path: Path) -> None:
    store, jobs = Store(tmp_path / "results"), scales(2)
    with local_executor(0) as pool:
        first = pool.run(jobs, shared, store)
        file = store.file(jobs[0].key)
        whole = file.read_bytes()
        place = whole.index(first[jobs[0].key]["by"].tobytes())
        for damaged in (b"", whole[: len(whole) // 2], whole[:place] + b"?" + whole[place + 1 :], b"PK" * 100):
            file.write_bytes(damaged)
            with pytest.warns(UserWarning, match="damaged"):
                assert not store.has(jobs[0].key)
            assert not file.exists()
            pool.run(jobs, shared, store)
            assert file.read_bytes() == whole


@pytest.mark.parametrize("on_disk", [True, False])
def test_store_keeps_every_kind_of_array(tmp_path: Path, on_disk: bool) -> None:
    arrays = {
        "file": np.arange(6.0).reshape(2, 3).T,  # numpy.savez cannot store this name
        "text": np.array(["", "Größe"]),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.array(True),
        "complex": np.array([1j, np.nan]),
    }
    store = Store(tmp_path if on_disk else None)
    store.put("k", arrays)
    arrays["file"][0] = -1  # the store has a copy
    got = store.get("k")
    assert list(got) == list(arrays) and got["file"].tolist() == [[0, 3], [1, 4], [2, 5]]
    for name in ("text", "empty", "scalar", "complex"):
        np.testing.assert_array_equal(got[name], arrays[name], strict=True)
    with pytest.raises(TypeError, match="'k'.*'o' has dtype object|k.npz.*'o' has dtype object"):
        store.put("k", {"o": np.array([None])})
    with pytest.raises(KeyError, match="absent"):
        store.get("absent")


def test_old_temporary_files_are_removed_at_the_next_start(tmp_path: Path) -> None:
    old, new = tmp_path / ".k.npz.1.ab.tmp", tmp_path / ".k.npz.2.cd.tmp"
    old.touch()
    new.touch()  # perhaps being written by another process
    os.utime(old, (0, 0))
    Store(tmp_path)
    assert not old.exists() and new.exists()


# -- shared arrays ----------------------------------------------------------------------------------------------


def test_shared_arrays_are_mapped_and_read_only(shared: Path) -> None:
    arrays = Shared(shared)
    assert "x" in arrays and "y" not in arrays and arrays["x"] is arrays["x"]
    assert type(arrays["x"]) is np.ndarray and arrays["label"].tolist() == ["a", "bc"]
    with pytest.raises(ValueError, match="read-only"):
        arrays["x"][0] = 1
    with pytest.raises(KeyError, match="no shared array 'y'"):
        arrays["y"]
    with pytest.raises(ValueError, match="name of a shared array"):
        arrays["../x"]
    with pytest.raises(DataError, match="no directory"):
        Shared(shared / "absent")
    (shared / "bad.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match="bad.npy"):
        arrays["bad"]


def test_replaced_shared_arrays_reach_workers_that_live_on(shared: Path, pool: Executor) -> None:
    before = Shared(shared)["x"]
    pool.run(scales(3), shared, Store(None))
    Shared.write(shared, {"x": np.array([10.0]), "none": np.zeros((0, 2))})
    assert len(before) == 7 and Shared(shared)["none"].shape == (0, 2)
    assert pool.run(scales(3), shared, Store(None))["scale-2"]["scaled"].tolist() == [2.0]


# -- what a job may be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "function", "options"),
    [
        ("a/b", f"{CHECKS}:scale", {}),
        ("", f"{CHECKS}:scale", {}),
        ("a\n", f"{CHECKS}:scale", {}),
        ("a", "os:system", {}),
        ("a", "cbmx.jobs:run", {}),
        ("a", "cbm.jobs.checks.scale", {}),
        ("a", f"{CHECKS}:scale", {"pair": (1, 2)}),
        ("a", f"{CHECKS}:scale", {"number": float("nan")}),
        ("a", f"{CHECKS}:scale", {"array": np.zeros(2)}),
        ("a", f"{CHECKS}:scale", {1: 2}),
    ],
)
def test_what_cannot_be_sent_is_refused(key: str, function: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="key|function|options"):
        Job(key, function, options)


def test_two_jobs_with_one_key_are_refused(shared: Path) -> None:
    with pytest.raises(ValueError, match="two jobs have the key 'scale-0'"):
        local_executor(0).run(scales(1) * 2, shared, Store(None))


# -- errors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("here", [True, False])
def test_a_job_that_raises(shared: Path, tmp_path: Path, pool: Executor, here: bool) -> None:
    used, store = local_executor(0) if here else pool, Store(tmp_path / "results")
    with pytest.raises(DataError) as caught:
        used.run([job("f", "fail", message="row 3 of 'x'", data=True)], shared, store)
    assert str(caught.value) == "row 3 of 'x'"
    with pytest.raises(RuntimeError, match=r"job 'f' failed:\n(?s:.*)checks.py(?s:.*)ZeroDivisionError: oh"):
        used.run([*scales(1), job("f", "fail", message="oh")], shared, store)
    assert not store.has("f") and leftovers(tmp_path / "results") == []
    assert len(used.run(scales(3), shared, store)) == 3  # the pool goes on


@pytest.mark.parametrize("here", [True, False])
def test_a_write_that_fails_in_a_job_is_no_bad_input_and_not_tried_again(
    shared: Path, pool: Executor, here: bool
) -> None:
    used, jobs = local_executor(0) if here else pool, [job("w", "fail_to_write"), *scales(2)]
    with pytest.raises(WriteError, match="job 'w': cannot write x: no room"):
        used.run(jobs[:1], shared, Store(None), retry=Retry(raised=3))
    failures: list[Failure] = []
    assert len(used.run(jobs, shared, Store(None), retry=Retry(raised=3), failures=failures)) == 2
    [failure] = failures
    assert isinstance(failure.error, WriteError) and failure.attempts == 1 and "fail_to_write" in failure.log


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_result_for_which_there_is_no_room_is_a_failed_write() -> None:
    with pytest.raises(WriteError, match="cannot write /dev/full"):
        write_attempt(Path("/dev/full"), {"x": np.zeros(100_000)})


def test_a_failing_job_stops_the_others(shared: Path, pool: Executor) -> None:
    with pytest.raises(RuntimeError, match="job 'f'"):
        pool.run([job("s", "sleep", seconds=LONG), job("f", "fail", message="oh")], shared, Store(None))
    assert len(pool.processes) == 1


def test_a_job_whose_worker_dies_is_tried_once_more(shared: Path, tmp_path: Path, pool: Executor) -> None:
    jobs = [job("d", "die", once=str(tmp_path / "died")), *scales(3)]
    results = pool.run(jobs, shared, Store(tmp_path / "results"))
    assert list(results) == ["d", "scale-0", "scale-1", "scale-2"] and results["d"]["alive"]
    with pytest.raises(RuntimeError, match="job 'd'.*ended twice.*SIG"):
        pool.run([job("d", "die")], shared, Store(None))


def test_a_worker_that_dies_between_runs_is_replaced(shared: Path) -> None:
    with local_executor(1) as pool:
        pool.run(scales(1), shared, Store(None))
        [process] = pool.processes
        os.kill(process, signal.SIGTERM)
        until_gone([process])
        pool.run(scales(1), shared, Store(None))
        assert len(pool.processes) == 1 and pool.processes != [process]


# -- deadlines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_after_the_deadline_no_job_starts(shared: Path, workers: int) -> None:
    store = Store(None)
    store.put("scale-1", {"scaled": np.array(1)})
    with local_executor(workers) as pool:
        assert list(pool.run(scales(3), shared, store, deadline=time.monotonic())) == ["scale-1"]
        assert pool.processes == []


def test_the_deadline_stops_running_jobs(shared: Path, tmp_path: Path, pool: Executor) -> None:
    jobs = [job("s", "sleep", seconds=LONG), *scales(2)]
    pool.run(scales(2), shared, Store(None))  # the workers are up, so that the deadline is not about their start
    store = Store(tmp_path / "results")
    results = pool.run(jobs, shared, store, deadline=time.monotonic() + 1.0)
    assert "s" not in results and not store.has("s") and leftovers(tmp_path / "results") == []
    assert list(pool.run(scales(2), shared, store)) == ["scale-0", "scale-1"]


# -- processes --------------------------------------------------------------------------------------------------


def test_workers_have_one_thread_and_stay(shared: Path) -> None:
    assert default_workers() >= 1
    with local_executor(4) as pool:
        assert pool.processes == []
        here = pool.run([job("a", "surroundings")], shared, Store(None))["a"]
        assert here["limits"].tolist() == ["1"] * 4 and not here["torch"]
        assert pool.processes == [here["process"]] and here["process"] != os.getpid()
        assert pool.run([job("a", "surroundings")], shared, Store(None))["a"]["process"] == here["process"]
    assert pool.processes == [] and gone(int(here["process"]))


def test_noise_on_stdout_does_no_harm(shared: Path, pool: Executor, capfd: pytest.CaptureFixture[str]) -> None:
    results = pool.run([job(f"n{i}", "noise") for i in range(3)], shared, Store(None))
    assert [str(result["read"]) for result in results.values()] == [""] * 3
    assert capfd.readouterr().out == ""


# A user's script without `if __name__ == "__main__"`. It says which workers it has when its first job ends; then the
# other jobs keep it busy. It runs in a directory with a file that must not be taken for the package.
SCRIPT = """
import sys
from cbm.jobs import Job, Shared, Store, local_executor
shared = Shared.write("shared", {"x": [1.0, 2.0]}).path
jobs = [Job("scale", "cbm.jobs.checks:scale", {"name": "x", "by": 2})]
jobs += [Job(f"s{i}", "cbm.jobs.checks:sleep", {"seconds": float(sys.argv[1])}) for i in range(2)]
pool = local_executor(2)
def tell(done, total):
    if done == 1:
        print(*pool.processes, flush=True)
results = pool.run(jobs, shared, Store("results"), progress=tell)
pool.close()
print(results["scale"]["scaled"].tolist(), list(results))
"""


def start_script(folder: Path, seconds: float) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    (folder / "cbm.py").write_text("raise SystemExit('not the module that was meant')")
    command = [sys.executable, "-P", "script.py", str(seconds)]
    pipe = subprocess.PIPE
    # Tests that run in the background ignore Ctrl-C, and so would the script.
    listen = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, preexec_fn=listen)


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    out, err = start_script(tmp_path, seconds=0.0).communicate()
    assert out.splitlines()[1:] == ["[2.0, 4.0] ['scale', 's0', 's1']"] and err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("way", ["SIGKILL", "SIGINT"])
def test_no_worker_outlives_its_parent(tmp_path: Path, way: str) -> None:
    parent = start_script(tmp_path, seconds=LONG)
    assert parent.stdout is not None
    workers = [int(number) for number in parent.stdout.readline().split()]
    assert len(workers) == 2 and not any(gone(worker) for worker in workers)
    parent.send_signal(getattr(signal, way))
    _, err = parent.communicate()
    until_gone(workers)
    assert leftovers(tmp_path / "results") == []
    assert err.count("Traceback") == (way == "SIGINT") and ("KeyboardInterrupt" in err) == (way == "SIGINT")


def gone(process: int) -> bool:
    """No such process, or only its exit code is left for a parent that does not ask for it."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return Path("/proc/self/stat").exists()
    except ProcessLookupError:
        return True


def until_gone(processes: list[int]) -> None:
    """Return when all have ended; they have long, since the machine may be busy with other things."""
    end = time.monotonic() + 60
    while not all(gone(process) for process in processes):
        assert time.monotonic() < end, f"still running: {processes}"
        time.sleep(0.02)


def test_importing_jobs_loads_neither_torch_nor_scipy() -> None:
    code = "import sys, cbm.jobs; print([name for name in ('torch', 'scipy', 'matplotlib') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
