"""A boat in a harbour: undeclared angles, a copy of one of them, a clock, and a memoryless reading."""

from __future__ import annotations

import numpy as np

from benchmarks.calibration.system import Reward, Rng, System, graph, named, uniform_actions

NAMES = ["x", "y", "heading", "turning", "surge", "wind_from", "wind", "compass", "depth", "hour", "light", "current"]
PARENTS = {
    "x": "x heading surge current", "y": "y heading surge", "heading": "heading turning",
    "turning": "turning heading wind_from wind action", "surge": "surge action", "wind_from": "wind_from",
    "wind": "wind", "compass": "heading", "depth": "x y", "hour": "hour", "light": "hour", "current": "current",
}  # fmt: skip


def harbour(seed: int) -> System:
    """Degrees and hours wrap. The compass repeats the heading and adds no information; the depth follows from the
    position alone, but changes as slowly as the boat moves."""
    rng = np.random.default_rng([seed, 57])
    rudder, gust, hull = rng.uniform(1.5, 2.5), rng.uniform(0.15, 0.3), rng.uniform(0.6, 0.8)
    thrust, course = rng.uniform(0.4, 0.6), rng.uniform(0, 360)
    waves = rng.uniform(8, 14, 2)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        x, y, heading, turning, surge, wind_from, wind, _, _, hour, _, current = state.T
        along, across = np.cos(np.deg2rad(heading)), np.sin(np.deg2rad(heading))
        after = [
            x + surge * along + current,
            y + surge * across,
            heading + turning,
            hull * turning + rudder * action[:, 0] + gust * wind * np.sin(np.deg2rad(wind_from - heading)),
            0.9 * surge + thrust * (action[:, 1] + 1),
            wind_from,
            7 + 0.95 * (wind - 7),
            heading,
            20 + 4 * np.sin(x / waves[0]) + 3 * np.cos(y / waves[1]),
            hour + 0.25,
            np.cos(2 * np.pi * hour / 24),
            0.95 * current,
        ]
        scale = np.array([0.05, 0.05, 0.3, 0.2, 0.1, 4.0, 0.6, 2.0, 0.15, 0.0, 0.2, 0.05])
        following = np.stack(after, 1) + scale * rng.normal(size=state.shape)
        following[:, [2, 5, 7]] %= 360
        following[:, 9] %= 24
        return following

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = rng.normal(0, [40, 40, 0, 1, 0, 0, 1, 0, 0, 0, 0.5, 0.15], (copies, 12))
        state[:, [2, 5, 7]] = rng.uniform(0, 360, (copies, 3))
        state[:, 4], state[:, 6] = rng.uniform(1, 8, copies), state[:, 6] + 7
        state[:, 8], state[:, 9] = rng.uniform(13, 27, copies), np.round(rng.uniform(0, 23.75, copies) * 4) / 4
        return state

    rewards = {
        "course": Reward((2, 4), lambda s: s[:, 4] * np.cos(np.deg2rad(s[:, 2] - course)), 0.1),
        "deep": Reward((8,), lambda s: s[:, 8], 0.1),
    }
    return System(named(NAMES, 2), graph(NAMES, PARENTS), step, uniform_actions(2), start, 100, rewards)
