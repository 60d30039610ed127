"""Larger systems of one law: rings of chaotic weather, and a network of genes."""

from __future__ import annotations

import numpy as np

from benchmarks.calibration.system import Rng, System, named, uniform_actions

RING = 13
GENES = 60


def rings(seed: int) -> System:
    """Two Lorenz-96 rings of 13 sites with little noise; the action forces some sites of the first.

    One Euler step: a site depends on itself, its two neighbours and the second site upstream only.
    """
    rng = np.random.default_rng([seed, 55])
    step_size, forcing = rng.uniform(0.006, 0.01), rng.uniform(7.5, 8.5, 2)
    forced = np.sort(rng.choice(RING, 3, replace=False))
    strength = rng.uniform(4, 8, 3)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        following = []
        for k in range(2):
            x = state[:, k * RING : (k + 1) * RING]
            ahead, behind, second = np.roll(x, -1, 1), np.roll(x, 1, 1), np.roll(x, 2, 1)
            change = (ahead - second) * behind - x + forcing[k]
            if k == 0:
                change[:, forced] += strength * action
            following.append(x + step_size * change)
        return np.concatenate(following, 1) + 0.02 * rng.normal(size=state.shape)

    one = np.eye(RING, dtype=bool)
    ring = one | np.roll(one, 1, 1) | np.roll(one, -1, 1) | np.roll(one, -2, 1)  # columns i, i+1, i-1, i-2
    truth = np.zeros((2 * RING, 2 * RING + 1), bool)
    truth[:RING, :RING] = truth[RING:, RING:-1] = ring
    truth[forced, -1] = True
    names = [f"{ring}{i}" for ring in "ab" for i in range(RING)]

    def start(copies: int, rng: Rng) -> np.ndarray:
        return rng.normal(2.5, 3, (copies, 2 * RING))

    return System(named(names, 3), truth, step, uniform_actions(3), start, 200, warm_up=200)


def genes(seed: int) -> System:
    """Sixty genes with one to three regulators each, Hill functions, multiplicative noise, three drugs as action."""
    rng = np.random.default_rng([seed, 56])
    regulators = [rng.choice(np.delete(np.arange(GENES), i), rng.integers(1, 4), replace=False) for i in range(GENES)]
    signs = [rng.choice([-1, 1], len(found)) for found in regulators]
    steep = rng.uniform(2, 4, GENES)
    decay, noise = rng.uniform(0.2, 0.5, GENES), rng.uniform(0.05, 0.15, GENES)
    unit = 10.0 ** rng.uniform(-1, 2, GENES)
    drugged = rng.choice(GENES, 12, replace=False)
    drug = rng.integers(0, 3, 12)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        level = state / unit
        made = np.empty_like(level)
        for i, found in enumerate(regulators):
            power = level[:, found] ** (steep[i] * signs[i])  # a repressor has a negative power
            made[:, i] = 2 * decay[i] * (power / (1 + power)).mean(1)
        made[:, drugged] *= 1 - 0.5 * action[:, drug]
        return ((1 - decay) * level + made) * np.exp(noise * rng.normal(size=level.shape)) * unit

    truth = np.eye(GENES, GENES + 1, dtype=bool)
    for i, found in enumerate(regulators):
        truth[i, found] = True
    truth[drugged, GENES] = True

    def act(state: np.ndarray, rng: Rng) -> np.ndarray:
        return rng.uniform(0, 1, (len(state), 3))

    def start(copies: int, rng: Rng) -> np.ndarray:
        return unit * np.exp(rng.normal(0, 0.5, (copies, GENES)))

    return System(named([f"gene{i}" for i in range(GENES)], 3), truth, step, act, start, 50)
