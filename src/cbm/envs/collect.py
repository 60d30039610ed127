"""Steps many copies of a world under a data-collecting policy and keeps the transitions.

Worlds that are fast draw everything from one stream of random numbers. Worlds that say `parallel` are
collected in chunks of `CHUNK` episodes, each with a stream of its own, in one process or in several:
the data does not depend on their number.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from cbm.data.transitions import Transitions
from cbm.envs.world import World
from cbm.errors import DataError

CHUNK = 16
"""Episodes that share a stream of random numbers, where a world is collected in parallel."""

Rows = dict[str, np.ndarray]
Recipe = Callable[[], World]


@dataclass(frozen=True)
class Collected:
    """A log and what happened while it was made."""

    data: Transitions
    events: dict[str, float]
    """The share of transitions that led to a state with each of `world.events`."""
    success: dict[str, float]
    """For each task that can succeed, the share of episodes in which it did at some step."""


def collect(
    world: World,
    steps: int,
    policy: str = "mixed",
    seed: int = 0,
    copies: int = 64,
    progress: Callable[[int], None] | None = None,
) -> Transitions:
    """`steps` transitions, episode by episode; rewards of every task; the true graph comes along.

    The data is a function of the world, `steps`, `policy`, `seed` and, unless the world is `parallel`,
    `copies`. `progress` is told how many transitions there are after each round of episodes.
    """
    return collect_with_events(world, steps, policy, seed, copies, progress).data


def collect_with_events(
    world: World,
    steps: int,
    policy: str = "mixed",
    seed: int = 0,
    copies: int = 64,
    progress: Callable[[int], None] | None = None,
    recipe: Recipe | None = None,
    workers: int = 1,
) -> Collected:
    """As `collect`; a `parallel` world may be stepped by several processes, which make it by `recipe`."""
    if steps < 1 or copies < 1 or seed < 0:
        raise DataError(f"collect: {steps=}, {copies=}, {seed=}: needs steps and copies >= 1, seed >= 0")
    if workers < 1:
        raise DataError(f"collect: {workers=}: needs at least one")
    if not world.parallel:
        rounds = _one_stream(world, steps, policy, seed, copies)
    else:
        rounds = _chunks(world, steps, policy, seed, recipe, workers)
    parts: list[Rows] = []
    made = 0
    for rows in rounds:
        rows["episode"] = (made + np.arange(len(rows["obs"]))) // world.horizon
        parts.append(rows)
        made += len(rows["obs"])
        if progress:
            progress(min(made, steps))
    return _collected(world, {key: np.concatenate([rows[key] for rows in parts])[:steps] for key in parts[0]})


def _collected(world: World, arrays: Rows) -> Collected:
    steps = len(arrays["obs"])
    arrays["truncated"][-1] = True  # the last episode stops here, whether or not it was over
    data = Transitions(
        obs=arrays["obs"],
        action=arrays["action"],
        next_obs=arrays["next_obs"],
        factors=world.factors,
        rewards={task: arrays[f"reward_{task}"] for task in world.tasks},
        context=_with_prefix(arrays, "context_"),
        terminated=np.zeros(steps, dtype=bool),
        truncated=arrays["truncated"],
        episode=arrays["episode"],
        truth=world.truth,
        truth_rewards=world.truth_rewards,
    )
    flags = {kind: _with_prefix(arrays, kind) for kind in ("event_", "success_")}
    starts = np.flatnonzero(np.diff(data.episode, prepend=-1))
    return Collected(
        data,
        events={name: float(rows.mean()) for name, rows in flags["event_"].items()},
        success={task: float(np.logical_or.reduceat(r, starts).mean()) for task, r in flags["success_"].items()},
    )


def _with_prefix(arrays: Rows, prefix: str) -> Rows:
    return {key.removeprefix(prefix): rows for key, rows in arrays.items() if key.startswith(prefix)}


def _one_stream(world: World, steps: int, policy: str, seed: int, copies: int) -> Iterator[Rows]:
    rng = np.random.default_rng(seed)
    copies = max(1, min(copies, steps // world.horizon))
    for _ in range(-(-steps // (copies * world.horizon))):
        yield _episodes(world, policy, copies, rng)


# Chunks, in one process or several


def _chunks(world: World, steps: int, policy: str, seed: int, recipe: Recipe | None, workers: int) -> Iterator[Rows]:
    """Chunks in order. The last one has as many episodes as are still needed."""
    episodes = -(-steps // world.horizon)
    sizes = [min(CHUNK, episodes - start) for start in range(0, episodes, CHUNK)]
    jobs = [(policy, size, stream) for size, stream in zip(sizes, np.random.SeedSequence(seed).spawn(len(sizes)))]
    workers = min(workers, len(jobs))
    if workers == 1 or recipe is None:
        yield from (_episodes(world, policy, size, np.random.default_rng(stream)) for policy, size, stream in jobs)
        return
    world.policy(policy, 1, np.random.default_rng(0))  # a wrong name is told here, not in a process
    method = multiprocessing.get_context("spawn")  # a copy of this process could inherit a lock that is held
    with _one_thread_each(), ProcessPoolExecutor(workers, method, _start_worker, (recipe,)) as pool:
        try:
            yield from pool.map(_job, jobs)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_worker_recipe: Recipe | None = None
_worker_world: World | None = None
"""In a worker process: its own world, made at its first job."""


def _start_worker(recipe: Recipe) -> None:
    global _worker_recipe
    _worker_recipe = recipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for the rows says that it was interrupted
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """However the process that waits for the rows ends, nobody needs them any more."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _job(job: tuple[str, int, np.random.SeedSequence]) -> Rows:
    global _worker_world
    if _worker_world is None:
        assert _worker_recipe is not None
        _worker_world = _worker_recipe()
    policy, size, stream = job
    return _episodes(_worker_world, policy, size, np.random.default_rng(stream))


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that start in here do their linear algebra on one thread: there is one for each core."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


# One round of episodes


def _episodes(world: World, policy: str, copies: int, rng: np.random.Generator) -> Rows:
    """One full episode of every copy, as rows ordered copy by copy."""
    state = world.reset(copies, rng)
    act = world.policy(policy, copies, rng)
    steps: dict[str, list[np.ndarray]] = {}
    observed = world.observe(state)
    for t in range(world.horizon):
        action = act(state, rng)
        state = world.step(state, action, rng)
        before, observed = observed, world.observe(state)
        row = {"obs": before, "action": action, "next_obs": observed}
        row |= {f"context_{name}": c for name, c in zip(world.context_names, world.context(state).T)}
        row["truncated"] = np.full(copies, t == world.horizon - 1)
        row |= {f"reward_{task}": reward for task, reward in world.rewards(state).items()}
        row |= {f"event_{name}": happens for name, happens in world.events(state).items()}
        row |= {f"success_{task}": reached for task, reached in world.success(state).items()}
        for key, values in row.items():
            steps.setdefault(key, []).append(values)
    return {key: _copy_by_copy(np.stack(arrays)) for key, arrays in steps.items()}


def _copy_by_copy(array: np.ndarray) -> np.ndarray:
    """(time, copies, ...) to (copies * time, ...)."""
    return array.swapaxes(0, 1).reshape(-1, *array.shape[2:])
