"""Returns on Pendulum-v1 of our SAC and of Stable-Baselines3's, with equal settings, seeds and steps.

One environment, random actions first, one update per step, then the mean return with deterministic actions, from the
same start states for both. `cbm bench sac --pendulum`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.store import Columns, Row, Store
from cbm.agents.base import Sample, Shape
from cbm.agents.sac import Sac
from cbm.agents.settings import SacSettings
from cbm.errors import DataError

SETTINGS = SacSettings(hidden=(64, 64), learning_rate=1e-3, gamma=0.99, alpha_start=1.0)
FIRST_EVALUATION_SEED = 10_000
COLUMNS = Columns(
    key=("agent", "seed", "steps", "warm_up", "episodes"),
    numbers=("return", "seconds"),
    text=("agent",),
    whole=("seed", "steps", "warm_up", "episodes"),
)

Act = Callable[[NDArray[np.float32]], NDArray[Any]]
"""From an observation (3,) to an action (1,) in [-2, 2]."""


def main(seed: int, quick: bool, out: Path | None) -> dict[str, Any]:
    steps, warm_up, episodes = (300, 100, 2) if quick else (6000, 1000, 20)
    store = Store(out, COLUMNS)
    rows = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for chosen in range(seed, seed + (1 if quick else 3)):
            for name, learn in (("ours", ours), ("stable-baselines3", stable_baselines)):
                rows.append(_row(store, name, learn, chosen, steps, warm_up, episodes))
    finally:
        torch.set_num_threads(threads)
    result = {"returns": rows, **_spread(rows)}
    _show(result, steps)
    return result


def _row(
    store: Store, name: str, learn: Callable[[int, int, int], Act], seed: int, steps: int, warm_up: int, episodes: int
) -> Row:
    key: Row = dict(zip(COLUMNS.key, (name, seed, steps, warm_up, episodes)))
    row = store.find(key)
    if row is None:
        start = time.process_time()
        act = learn(seed, steps, warm_up)
        seconds = time.process_time() - start
        row = key | {"return": evaluate(act, episodes), "seconds": seconds}
        store.add(row)
    return row


def evaluate(act: Act, episodes: int) -> float:
    env = gymnasium.make("Pendulum-v1")
    total = 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=FIRST_EVALUATION_SEED + episode)
        over = False
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            total += float(reward)
            over = terminated or truncated
    return total / episodes


def ours(seed: int, steps: int, warm_up: int) -> Act:
    env, rng = gymnasium.make("Pendulum-v1"), np.random.default_rng(seed)
    agent = Sac(SETTINGS, Shape(3, 0, 1, seed, total_updates=steps))
    none = np.zeros((1, 0))
    rows = np.zeros((steps, 3 + 1 + 1 + 3), dtype=np.float32)  # obs, action, reward, next obs
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        if step < warm_up:
            action = rng.uniform(-1, 1, 1)
            agent.normaliser.update(obs[None].astype(np.float64))
        else:
            action = agent.act(obs[None], none)[0]
        following, reward, _, truncated, _ = env.step(2 * action.astype(np.float32))
        rows[step] = np.concatenate((obs, action, [float(reward)], following))
        obs = env.reset()[0] if truncated else following
        if step >= warm_up:
            drawn = rng.integers(step + 1, size=SETTINGS.batch)
            agent.update(_sample(rows[drawn]))
    return lambda obs: 2 * agent.act(obs[None], none, deterministic=True)[0]


def _sample(rows: NDArray[np.float32]) -> Sample:
    obs, action, reward, following = torch.from_numpy(rows).split((3, 1, 1, 3), 1)
    nothing = obs[:, :0]
    never = torch.zeros(len(rows))  # Pendulum ends by its time limit only
    return Sample(obs, nothing, action, reward[:, 0], following, nothing, never)


def stable_baselines(seed: int, steps: int, warm_up: int) -> Act:
    try:
        from stable_baselines3 import SAC
    except ModuleNotFoundError:
        message = "needs stable_baselines3, which is not installed: pip install stable-baselines3"
        raise DataError(f"benchmark 'sac --pendulum' {message}") from None
    model = SAC(
        "MlpPolicy",
        "Pendulum-v1",
        learning_rate=SETTINGS.learning_rate,
        learning_starts=warm_up,
        batch_size=SETTINGS.batch,
        gamma=SETTINGS.gamma,
        tau=SETTINGS.tau,
        policy_kwargs={"net_arch": list(SETTINGS.hidden)},
        seed=seed,
        device="cpu",
    )
    model.learn(steps)
    return lambda obs: model.predict(obs, deterministic=True)[0]


def _spread(rows: list[Row]) -> dict[str, Any]:
    """Whether our mean lies within the range of the other's seeds, or above it."""
    mine, theirs = ([row["return"] for row in rows if (row["agent"] == "ours") == own] for own in (True, False))
    low, high = min(theirs), max(theirs)
    return {"mean": float(np.mean(mine)), "low": low, "high": high, "within": bool(np.mean(mine) >= low)}


def _show(result: dict[str, Any], steps: int) -> None:
    table = Table(title=f"Pendulum-v1 after {steps} steps", title_justify="left")
    for column in ("agent", "seed", "return", "CPU seconds"):
        table.add_column(column, justify="right")
    for row in result["returns"]:
        table.add_row(row["agent"], str(row["seed"]), f"{row['return']:.1f}", f"{row['seconds']:.0f}")
    console = Console()
    console.print(table)
    verdict = "within or above" if result["within"] else "BELOW"
    spread = f"{result['low']:.1f} to {result['high']:.1f}"
    console.print(
        f"Our mean, {result['mean']:.1f}, is {verdict} the spread of Stable-Baselines3, {spread}.", soft_wrap=True
    )
