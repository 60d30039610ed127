"""Variables that repeat others: the buffers of a delayed command, and sensors that follow what a reward reads."""

from __future__ import annotations

import numpy as np

from benchmarks.calibration.system import Reward, Rng, System, graph, named

VALVE = [
    "buf1", "buf2", "buf3", "stem", "flow", "head", "temp", "heater", "torque", "temp_2", "air", "loop", "spare",
    "pump",
]  # fmt: skip
VALVE_PARENTS = {
    "buf1": "action", "buf2": "buf1", "buf3": "buf2", "stem": "stem buf3", "flow": "flow stem head", "head": "head",
    "temp": "temp flow heater", "heater": "heater temp", "torque": "torque stem", "temp_2": "temp flow heater",
    "air": "air", "loop": "action", "pump": "pump",
}  # fmt: skip


def sticky_valve(seed: int) -> System:
    """A valve whose command arrives three steps late, through buffers that are variables: the first is the last action.

    The stem sticks until the command is far enough away and stops at its ends; the flow has a dead zone; a thermostat
    keeps its state between two limits. The next command remembers the last one, and so goes with the buffers.
    """
    rng = np.random.default_rng([seed, 83])
    gain = rng.uniform(0.8, 1.2, 4)
    stick, dead, limits = rng.uniform(0.15, 0.25), rng.uniform(0.25, 0.4), rng.uniform(0.4, 0.6, 2)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        first, second, third, stem, flow, head, temp, heater, torque = state[:, :9].T
        noise = rng.normal(size=(len(state), 10))
        gap = third - stem
        open_ = np.sign(stem) * np.maximum(np.abs(stem) - dead, 0)
        warmth = 0.85 * temp + 0.25 * gain[1] * (2 * heater - 1) - 0.3 * gain[2] * np.clip(flow, -0.6, 0.6)
        warmth = warmth + 0.05 * noise[:, 3]
        after = [
            action[:, 0],
            first,
            second,
            np.clip(np.where(np.abs(gap) > stick, stem + 0.7 * gap, stem), -1, 1) + 0.005 * noise[:, 0],
            0.6 * flow + 1.2 * gain[0] * open_ * (1 + 0.4 * np.tanh(head)) + 0.04 * noise[:, 1],
            0.95 * head + 0.31 * noise[:, 2],
            warmth,
            np.where(temp < -limits[0], 1, np.where(temp > limits[1], 0, heater)),
            0.5 * torque + gain[3] * stem**3 + 0.05 * noise[:, 4],
            warmth + 0.15 * noise[:, 5],
            6 + 0.97 * (state[:, 10] - 6) + 0.05 * noise[:, 6],
            action[:, 0] + 0.15 * noise[:, 7],
            noise[:, 8],
            50 + 0.9 * (state[:, 13] - 50) + 0.44 * noise[:, 9],
        ]
        return np.stack(after, 1)

    def act(state: np.ndarray, rng: Rng) -> np.ndarray:
        return 0.6 * state[:, :1] + 0.15 * state[:, 6:7] + 0.65 * rng.normal(size=(len(state), 1))

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = 0.5 * rng.normal(size=(copies, 14))
        state[:, 7] = state[:, 7] > 0
        state[:, [10, 13]] += [6, 50]
        return state

    rewards = {
        "temp": Reward((6,), lambda s: -np.abs(s[:, 6])),
        "wear": Reward((8,), lambda s: -np.abs(s[:, 8])),
    }
    factors = named(VALVE, heater="binary")
    return System(factors, graph(VALVE, VALVE_PARENTS), step, act, start, 150, rewards, warm_up=10)


ROVER = [
    "px", "py", "vx", "vy", "slope", "beacon_x", "beacon_y", "drill", "load", "rock", "power", "sun",
    "gps_x", "gps_y", "amps", "panel", "pace", "trail", "sky", "command", "dust",
]  # fmt: skip
ROVER_PARENTS = {
    "px": "px vx", "py": "py vy", "vx": "vx slope action", "vy": "vy action", "slope": "slope",
    "beacon_x": "beacon_x", "beacon_y": "beacon_y", "drill": "drill load action", "load": "load rock", "rock": "rock",
    "power": "power sun", "sun": "sun", "gps_x": "px vx", "gps_y": "py vy", "amps": "load rock", "panel": "power sun",
    "pace": "pace vx vy", "trail": "px", "sky": "sky sun", "command": "action", "dust": "dust",
}  # fmt: skip


def rover(seed: int) -> System:
    """A rover whose rewards are the distance to a beacon, and a product less a penalty above a threshold.

    No reward reads the satellite positions, the drill's current or the panel, but each of them follows a variable that
    one reads to about a tenth of its deviation.
    """
    rng = np.random.default_rng([seed, 84])
    gain, hot = rng.uniform(0.8, 1.2, 6), rng.uniform(0.2, 0.6)
    mixing = rng.uniform(0.4, 1.2, 3) * rng.choice([-1, 1], 3)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        px, py, vx, vy, slope, beacon_x, beacon_y, drill, load, rock, power, sun = state[:, :12].T
        noise = rng.normal(size=state.shape)
        push = 0.3 * np.tanh(action[:, :2])
        grinding = 0.15 * gain[3] * (np.minimum(load**2, 6) - 1)
        main = [
            0.97 * px + 0.25 * gain[0] * vx,
            0.97 * py + 0.25 * gain[1] * vy,
            0.8 * vx + push[:, 0] - 0.15 * gain[2] * np.sin(2 * slope),
            0.8 * vy + push[:, 1],
            0.95 * slope,
            0.99 * beacon_x,
            0.99 * beacon_y,
            0.8 * drill + 0.3 * action[:, 2] + grinding,
            0.7 * load + 0.5 * gain[4] * np.tanh(1.5 * rock),
            0.9 * rock,
            0.8 * power + 0.35 * gain[5] * np.abs(sun) - 0.28,
            0.95 * sun,
        ]
        scale = np.array([0.03, 0.03, 0.05, 0.05, 0.3, 0.12, 0.12, 0.08, 0.2, 0.44, 0.08, 0.31])
        after = np.stack(main, 1) + scale * noise[:, :12]
        others = [
            0.8 * state[:, 16] + 0.2 * np.hypot(vx, vy),
            px,
            0.5 * state[:, 18] + 0.5 * sun,
            action @ mixing,
            0.9 * state[:, 20],
        ]
        readings = after[:, [0, 1, 8, 10]] * [1, 1, 2, -1]  # sensors of the same moment
        scale = np.array([0.12, 0.12, 0.15, 0.1, 0.02, 0.1, 0.1, 0.0, 0.44])
        echoes = np.concatenate([readings, np.stack(others, 1)], 1) + scale * noise[:, 12:]
        return np.concatenate([after, echoes], 1)

    def act(state: np.ndarray, rng: Rng) -> np.ndarray:
        way = np.stack([state[:, 5] - state[:, 0], state[:, 6] - state[:, 1], -state[:, 7]], 1)
        return 0.5 * way + rng.normal(size=way.shape)

    def start(copies: int, rng: Rng) -> np.ndarray:
        return 0.7 * rng.normal(size=(copies, 21))

    rewards = {
        "reach": Reward((0, 1, 5, 6), lambda s: -np.hypot(s[:, 0] - s[:, 5], s[:, 1] - s[:, 6])),
        "drill": Reward((7, 8, 10), lambda s: 0.5 * np.clip(s[:, 8] * s[:, 10], -3, 3) - (s[:, 7] > hot), 0.05),
    }
    return System(named(ROVER, 3), graph(ROVER, ROVER_PARENTS), step, act, start, 100, rewards, warm_up=20)
