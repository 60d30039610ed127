"""Typical user logs of small systems whose graph is known.

Each has its own difficulty: no noise and two discrete actions; neighbours that are nearly equal; binary, categorical
and periodic variables together; few rows in units that differ by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.systems import record
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions

SHORT = 20  # factor by which the short log has fewer transitions than requested


def cartpole(steps: int, seed: int = 0, horizon: int = 20) -> Transitions:
    """The textbook's pole on a cart, pushed left or right at random; no noise at all."""
    rng = np.random.default_rng([seed, 41])

    def step(state: np.ndarray, action: np.ndarray) -> np.ndarray:
        speed, angle, turning = state[:, 1], state[:, 2], state[:, 3]
        push = (np.where(action[:, 0] == 1, 10.0, -10.0) + 0.05 * turning**2 * np.sin(angle)) / 1.1
        bend = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        pull = push - 0.05 * bend * np.cos(angle) / 1.1
        return state + 0.02 * np.stack([speed, pull, turning, bend], 1)

    truth = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 1, 1, 0], [0, 0, 1, 1, 1]], bool)
    names = ("position", "speed", "angle", "turning")
    factors = Factors(tuple(Variable(name) for name in names), ("push",), 2)
    copies = -(-steps // horizon)
    start = rng.normal(0, [1.0, 0.5, 0.1, 0.5], (copies, 4))
    return record(step, lambda: rng.integers(0, 2, (copies, 1)), start, horizon, steps, truth, factors)


def rooms(steps: int, seed: int = 0, count: int = 8, horizon: int = 100) -> Transitions:
    """A row of rooms that warm each other, two heaters, and weather at both ends that nothing influences."""
    rng = np.random.default_rng([seed, 42])
    heated = np.sort(rng.choice(count, 2, replace=False))
    exchange = 0.05 * (np.eye(count, k=1) + np.eye(count, k=-1))
    outside = np.zeros(count)
    outside[[0, -1]] = 0.02
    passed = exchange - np.diag(exchange.sum(1) + outside)

    def step(state: np.ndarray, action: np.ndarray) -> np.ndarray:
        warmth, weather = state[:, :count], state[:, count:]
        change = warmth @ passed.T + weather * outside + rng.normal(0, 0.05, warmth.shape)
        change[:, heated] += 0.8 * action
        return np.concatenate([warmth + change, 0.3 + 0.98 * weather + rng.normal(0, 0.5, weather.shape)], 1)

    truth = np.zeros((count + 1, count + 2), bool)
    truth[:count, :count] = (exchange > 0) | np.eye(count, dtype=bool)
    truth[[0, count - 1, count], count] = True
    truth[heated, -1] = True
    variables = (*(Variable(f"room{i}") for i in range(count)), Variable("weather"))
    copies = -(-steps // horizon)
    start = np.concatenate([rng.normal(20, 2, (copies, count)), rng.normal(15, 3, (copies, 1))], 1)
    factors = Factors(variables, ("heater0", "heater1"))
    return record(step, lambda: rng.uniform(0, 1, (copies, 2)), start, horizon, steps, truth, factors)


def mixed(steps: int, seed: int = 0, horizon: int = 50) -> Transitions:
    """A switch that gates, a mode with three values, an angle that turns; also a drift and a flag."""
    rng = np.random.default_rng([seed, 43])

    def step(state: np.ndarray, action: np.ndarray) -> np.ndarray:
        lever, load, on, mode, angle, _, drift, flag = state.T
        n = len(state)
        likely_on = 1 / (1 + np.exp(-4 * (lever - 0.2)))
        switched = rng.random(n) < np.where(on == 1, 0.5, 0.1)
        following = [
            0.8 * lever + 0.5 * np.tanh(2 * action[:, 0]) + rng.normal(0, 0.1, n),
            0.7 * load + np.where(on == 1, 0.6 * lever, 0.0) + rng.normal(0, 0.1, n),
            rng.random(n) < likely_on,
            np.where(switched, (mode + 1) % 3, mode),
            (angle + 0.3 * load + rng.normal(0, 0.05, n) + np.pi) % (2 * np.pi) - np.pi,
            np.cos(angle) + 0.5 * (mode == 2) + rng.normal(0, 0.1, n),
            0.95 * drift + rng.normal(0, 0.3, n),
            np.where(rng.random(n) < 0.3, 1 - flag, flag),
        ]
        return np.stack(following, 1).astype(float)

    kinds = {
        "lever": "continuous", "load": "continuous", "on": "binary", "mode": "categorical", "angle": "angle",
        "height": "continuous", "drift": "continuous", "flag": "binary",
    }  # fmt: skip
    causes = {0: (0, 8), 1: (0, 1, 2), 2: (0,), 3: (2, 3), 4: (1, 4), 5: (3, 4), 6: (6,), 7: (7,)}
    truth = np.zeros((8, 9), bool)
    for effect, found in causes.items():
        truth[effect, list(found)] = True
    n = -(-steps // horizon)
    start = np.stack(
        [
            rng.normal(size=n), rng.normal(size=n), rng.integers(0, 2, n), rng.integers(0, 3, n),
            rng.uniform(-np.pi, np.pi, n), rng.normal(size=n), rng.normal(size=n), rng.integers(0, 2, n),
        ],
        1,
    ).astype(float)  # fmt: skip
    variables = tuple(Variable(name, kind) for name, kind in kinds.items())  # type: ignore[arg-type]
    return record(
        step, lambda: rng.uniform(-1, 1, (n, 2)), start, horizon, steps, truth, Factors(variables, ("a0", "a1"))
    )


def short(steps: int, seed: int = 0, d: int = 15, horizon: int = 50) -> Transitions:
    """d variables with one to three causes each, a twentieth of the steps, and units from thousandths to millions."""
    rng = np.random.default_rng([seed, 44])
    causes = [rng.choice(d + 2, rng.integers(1, 4), replace=False) for _ in range(d)]
    weights = [rng.uniform(0.5, 1.2, len(found)) * rng.choice([-1, 1], len(found)) for found in causes]
    waves = [rng.random(len(found)) < 0.5 for found in causes]

    def step(state: np.ndarray, action: np.ndarray) -> np.ndarray:
        seen = np.concatenate([state, action], 1)
        sums = [
            (np.where(wave, np.sin(2 * seen[:, found]), seen[:, found]) * weight).sum(1)
            for found, weight, wave in zip(causes, weights, waves, strict=True)
        ]
        return np.asarray(np.tanh(np.stack(sums, 1)) + rng.normal(0, 0.2, state.shape))

    truth = np.zeros((d, d + 1), bool)
    for effect, found in enumerate(causes):
        truth[effect, np.minimum(found, d)] = True
    steps //= SHORT
    copies = -(-steps // horizon)
    data = record(step, lambda: rng.uniform(-1, 1, (copies, 2)), rng.normal(0, 0.5, (copies, d)), horizon, steps, truth)
    unit = 10.0 ** rng.uniform(-3, 6, d)
    offset = 10 * rng.normal(size=d) * unit
    return replace(data, obs=data.obs * unit + offset, next_obs=data.next_obs * unit + offset)


LOGS: dict[str, Callable[[int, int], Transitions]] = {
    "cartpole": cartpole, "rooms": rooms, "mixed": mixed, "short": short,
}  # fmt: skip
