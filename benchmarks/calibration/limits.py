"""Systems with limits: controllers with clipped integrators, tanks that overflow, rounded readings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.calibration.system import Reward, Rng, System, graph, named, uniform_actions

Maker = Callable[[int], System]


def controlled_arm(seed: int) -> System:
    """Two joints under PID controllers; the action moves the set points. Integrators are exact, and rarely clipped."""
    rng = np.random.default_rng([seed, 61])
    gain, lag, damping = rng.uniform(2, 4, 2), rng.uniform(0.5, 1.0, 2), rng.uniform(0.8, 1.5, 2)
    pull = rng.uniform(0.2, 0.5)
    names = ["q1", "q2", "v1", "v2", "i1", "i2", "g1", "g2", "temp", "hum"]
    most = np.array([0.55, 0.65])

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        q, v, i, goal = state[:, 0:2], state[:, 2:4], state[:, 4:6], state[:, 6:8]
        error = goal - q
        force = gain * error + lag * i - damping * v
        force[:, 1] += pull * np.sin(q[:, 0])
        noise = rng.normal(size=(len(state), 6))
        temp = 0.95 * state[:, 8] + 0.05 * np.abs(v[:, 0]) + 0.02 * noise[:, 4]
        return np.concatenate([
            q + 0.1 * v,
            v + 0.1 * force + 0.05 * noise[:, :2],
            np.clip(i + 0.05 * error, -most, most),
            0.95 * goal + 0.3 * action + 0.05 * noise[:, 2:4],
            temp[:, None],
            (0.8 * state[:, 9] + noise[:, 5])[:, None],
        ], 1)  # fmt: skip

    parents = {
        "q1": "q1 v1", "q2": "q2 v2", "v1": "v1 q1 i1 g1", "v2": "v2 q2 i2 g2 q1", "i1": "i1 g1 q1",
        "i2": "i2 g2 q2", "g1": "g1 action", "g2": "g2 action", "temp": "temp v1", "hum": "hum",
    }  # fmt: skip
    rewards = {
        "follow": Reward((0, 6), lambda s: -np.abs(s[:, 6] - s[:, 0])),
        "cool": Reward((8,), lambda s: -s[:, 8]),
    }
    start = lambda copies, rng: 0.3 * rng.normal(size=(copies, 10))  # noqa: E731
    return System(named(names, 2), graph(names, parents), step, uniform_actions(2), start, 200, rewards, warm_up=20)


def tanks(seed: int) -> System:
    """A cascade of four tanks without any noise: outflow with the root of the level, overflow at the brim."""
    rng = np.random.default_rng([seed, 62])
    valve, brim = rng.uniform(0.15, 0.3, 4), rng.uniform(0.9, 1.1, 4)
    names = ["level0", "level1", "level2", "level3", "inflow", "rain", "meter", "clock"]

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        level, inflow, rain = state[:, :4], state[:, 4], state[:, 5]
        out = valve * np.sqrt(np.maximum(level, 0)) * 0.5
        into = np.concatenate([inflow[:, None], out[:, :3]], 1)
        into[:, 2] += 0.05 * np.maximum(rain, 0)
        following = np.clip(level + into - out, 0, brim)
        noise = rng.normal(size=(len(state), 3))
        inflow = np.maximum(0.8 * inflow + 0.03 * (1 + action[:, 0]), 0)
        meter = out[:, 3] + 0.01 * noise[:, 1]
        rest = [inflow, 0.9 * rain + 0.4 * noise[:, 0], meter, 0.7 * state[:, 7] + noise[:, 2]]
        return np.concatenate([following, np.stack(rest, 1)], 1)

    parents = {
        "level0": "level0 inflow", "level1": "level1 level0", "level2": "level2 level1 rain",
        "level3": "level3 level2", "inflow": "inflow action", "rain": "rain", "meter": "level3", "clock": "clock",
    }  # fmt: skip
    rewards = {
        "keep": Reward((2,), lambda s: -np.abs(s[:, 2] - 0.5)),
        "last": Reward((3,), lambda s: s[:, 3]),
    }

    def start(copies: int, rng: Rng) -> np.ndarray:
        return np.concatenate([rng.uniform(0.05, 0.85, (copies, 4)), 0.1 * rng.random((copies, 1)),
                               rng.normal(size=(copies, 1)), 0.1 * rng.random((copies, 1)),
                               rng.normal(size=(copies, 1))], 1)  # fmt: skip

    return System(named(names, 1), graph(names, parents), step, uniform_actions(1), start, 100, rewards)


def rounded(seed: int) -> System:
    """A nonlinear chain whose whole state is read by a converter of few bits; and a counter."""
    rng = np.random.default_rng([seed, 63])
    weights = rng.uniform(0.3, 0.6, (6, 2)) * rng.choice([-1, 1], (6, 2))
    names = [*(f"adc{k}" for k in range(6)), "wear", "light", "bus"]

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        read = state[:, :6]
        noise = rng.normal(size=(len(state), 8))
        before = np.concatenate([action[:, :1], read[:, :5]], 1)
        after = 0.5 * read + weights[:, 0] * before + weights[:, 1] * np.tanh(2 * before) + 0.15 * noise[:, :6]
        after = np.clip(np.round(after * 16) / 16, -2, 2)
        wear = np.where(np.abs(read[:, 5]) > 1, state[:, 6] + 1, 0.0)
        light = np.where(noise[:, 6] > 1.5, 1.0 - state[:, 7], state[:, 7])
        return np.concatenate([after, np.stack([wear, light, np.round(noise[:, 7], 1)], 1)], 1)

    parents = {
        **{f"adc{k}": f"adc{k} " + (f"adc{k - 1}" if k else "action") for k in range(6)},
        "wear": "wear adc5", "light": "light",
    }  # fmt: skip
    rewards = {
        "centre": Reward((3,), lambda s: -(s[:, 3] ** 2)),
        "worn": Reward((6,), lambda s: -s[:, 6]),
    }

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = np.round(16 * rng.normal(size=(copies, 9))) / 16
        state[:, 6], state[:, 7] = 0, state[:, 7] > 0
        return state

    return System(named(names, 1, light="binary"), graph(names, parents), step, uniform_actions(1), start, 100, rewards)
