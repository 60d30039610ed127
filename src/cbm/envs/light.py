"""A car at a traffic light: the variable that decides the reward is one no action can change.

After the paper's first figure. An abstraction that keeps what the action influences (CDL's rule)
drops the light, and with it the only way to know whether driving on is rewarded.
"""

from __future__ import annotations

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.envs.world import Policy, Rng, WorldBase, check_policy

NAMES = ("position", "speed", "light", "countdown", "radio", "wind")
POSITION, SPEED, LIGHT, COUNTDOWN, RADIO, WIND = range(6)
ACTION = len(NAMES)  # the last column of the graph
PARKED = 0.1  # the car has parked when it is closer than this to the origin
EXPLORE = {"random": 1.0, "scripted": 0.3, "mixed": 0.6}  # share of steps with a random throttle


class LightWorld(WorldBase):
    """Six variables; task `cross` pays for speed at green, task `park` for standing at the origin."""

    tasks: tuple[str, ...] = ("cross", "park")
    policies: tuple[str, ...] = ("random", "scripted", "mixed")
    action_size = 2
    horizon = 100

    def __init__(self) -> None:
        self.factors = Factors(
            tuple(Variable(name, "binary" if name == "light" else "continuous") for name in NAMES),
            ("throttle", "volume"),
        )
        parents = {
            POSITION: (POSITION, SPEED),
            SPEED: (SPEED, ACTION),
            LIGHT: (LIGHT, COUNTDOWN),
            COUNTDOWN: (COUNTDOWN,),
            RADIO: (ACTION,),
            WIND: (WIND,),
        }
        self.truth = np.zeros((len(NAMES), ACTION + 1), dtype=bool)
        for child, causes in parents.items():
            self.truth[child, list(causes)] = True
        self.truth_rewards = {task: np.zeros(len(NAMES), dtype=bool) for task in self.tasks}
        self.truth_rewards["cross"][[SPEED, LIGHT]] = True
        self.truth_rewards["park"][POSITION] = True
        self.bounds = np.full(len(NAMES), -np.inf), np.full(len(NAMES), np.inf)
        for variable, low, high in ((POSITION, -2, 2), (SPEED, -1, 1), (LIGHT, 0, 1), (COUNTDOWN, 0, 1)):
            self.bounds[0][variable], self.bounds[1][variable] = low, high

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        state = rng.uniform(-1, 1, (n, len(NAMES)))
        state[:, LIGHT] = rng.integers(2, size=n)
        state[:, COUNTDOWN] = rng.uniform(0, 1, n)
        return state

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        n = len(state)
        action = np.clip(action, -1, 1)
        after = np.empty_like(state)
        drive = 0.9 * state[:, SPEED] + 0.2 * action[:, 0]
        after[:, SPEED] = np.clip(drive + rng.normal(0, 0.02, n), -1, 1)
        after[:, POSITION] = np.clip(state[:, POSITION] + 0.2 * state[:, SPEED] + rng.normal(0, 0.01, n), -2, 2)
        due = state[:, COUNTDOWN] < 0.1  # the light changes when its countdown has run out
        after[:, LIGHT] = np.where(due, 1 - state[:, LIGHT], state[:, LIGHT])
        after[:, COUNTDOWN] = np.where(due, rng.uniform(0.5, 1, n), state[:, COUNTDOWN] - rng.uniform(0.05, 0.1, n))
        after[:, RADIO] = action[:, 1] + rng.normal(0, 0.05, n)
        after[:, WIND] = 0.8 * state[:, WIND] + rng.normal(0, 0.2, n)
        return after

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        green = np.where(state[:, LIGHT] > 0.5, 1.0, -1.0)
        return {"cross": green * state[:, SPEED], "park": -np.abs(state[:, POSITION])}

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"park": np.abs(state[:, POSITION]) < PARKED}  # one cannot be done with driving across

    def render(self, state: np.ndarray, width: int, height: int) -> np.ndarray:
        from cbm.envs.sketches import crossing

        position, speed, light, countdown = (float(state[k]) for k in (POSITION, SPEED, LIGHT, COUNTDOWN))
        return crossing(position, speed, light > 0.5, countdown, width, height)

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        check_policy("light", name, self.policies)
        explore = EXPLORE[name]

        def act(state: np.ndarray, rng: Rng) -> np.ndarray:
            wish = np.where(state[:, LIGHT] > 0.5, 1.0, -state[:, SPEED])  # go at green, slow down at red
            action = rng.uniform(-1, 1, (len(state), self.action_size))
            action[:, 0] = np.where(rng.random(len(state)) < explore, action[:, 0], wish)
            return np.clip(action, -1, 1)

        return act
