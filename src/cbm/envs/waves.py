"""An open-loop policy for bodies with motors: every motor swings like a sine of its own."""

from __future__ import annotations

import numpy as np

from cbm.envs.world import Rng

FREQUENCY = (0.3, 3.0)  # range in Hz
NEW_WAVES = 1.0  # mean seconds until a copy's motors get other waves
NOISE = 0.2  # added to every action
STRETCH = 0.5  # mean seconds of swinging, and of wandering


class Waves:
    """Independent random actions make a cheetah tremble on the spot; swings move its joints twice as far.

    With `wander` a copy takes uniform random actions for about half of the time.
    """

    def __init__(self, n: int, size: int, seconds: float, rng: Rng, wander: bool):
        """`seconds` is the time of one step."""
        self.seconds, self.wander = seconds, wander
        self.waves = self._draw(n, size, rng)
        self.phase = rng.uniform(0, 2 * np.pi, (n, size))
        self.wandering: np.ndarray = rng.random(n) < 0.5

    def _draw(self, n: int, size: int, rng: Rng) -> np.ndarray:
        """(3, n, size): how far the phase advances in a step, amplitude, centre."""
        speed = 2 * np.pi * self.seconds * rng.uniform(*FREQUENCY, (n, size))
        amplitude = rng.uniform(0, 1, (n, 1)) * rng.uniform(0, 1, (n, size))  # some copies hardly move
        return np.stack([speed, amplitude, (1 - amplitude) * rng.uniform(-1, 1, (n, size))])

    def __call__(self, state: np.ndarray, rng: Rng) -> np.ndarray:
        n, size = len(self.phase), self.phase.shape[1]
        fresh = rng.random(n) < self.seconds / NEW_WAVES
        self.waves = np.where(fresh[:, None], self._draw(n, size, rng), self.waves)
        speed, amplitude, centre = self.waves
        self.phase += speed
        action = centre + amplitude * np.sin(self.phase) + NOISE * rng.normal(size=(n, size))
        anything = rng.uniform(-1, 1, (n, size))
        self.wandering = self.wandering ^ (rng.random(n) < self.seconds / STRETCH)
        if self.wander:
            action = np.where(self.wandering[:, None], anything, action)
        return np.clip(action, -1, 1)
