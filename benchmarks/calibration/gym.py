"""Gymnasium's own environments under random actions, with additional variables that look as if they mattered.

Four projections of the action (without noise: the next value is a linear function of the action) and four independent
noises are appended. The graphs follow from the equations of motion:

- CartPole (Euler): positions depend on the present speeds only, so the action affects only speeds. The term
  `turning^2 sin(angle)` makes the cart's speed depend on the pole's angular speed; its share is about 1e-4 of a
  step's change, far above the rounding of the stored float32.
- Pendulum: the new speed moves the angle, so cos and sin depend on everything; the speed depends on sin, not on cos.
- MountainCarContinuous: the new velocity moves the position, so the action affects both; walls are hardly ever hit.
- Acrobot (Runge-Kutta): every physical variable depends on all physical variables and the action within one step.

The stored observations are rounded to float32 while the simulators keep float64 (except MountainCar), which acts as a
noise of about 1e-8. cos and sin of one angle determine each other up to a sign: both are declared where the angle acts
through both.

Rewards are functions of the next state, as the method assumes. CartPole's own reward is constant; so is Acrobot's, and
MountainCar's is the square of the action, as long as no goal is reached, which random actions do not do: these are left
out. Pendulum's is a function of the present state and the torque: the same cost is computed from the next state,
without the torque.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import numpy as np

from benchmarks.calibration.system import Kind, Reward, Rng, with_rewards
from cbm.data.factors import Factors, Variable, infer_kinds
from cbm.data.transitions import Transitions

ROWS = 40_000
EXTRA = 4
"""Projections of the action, and as many noises."""
GYM_SEED = 73


@dataclass(frozen=True)
class Environment:
    """What has to be said about one environment."""

    id: str
    names: tuple[str, ...]
    truth: tuple[str, ...]
    """For each variable one character per cause, `x` or `.`, the action last."""
    rewards: dict[str, Reward]
    horizon: int = 200
    """Longest episode; it ends earlier where the environment says so."""


def _angle(s: np.ndarray) -> np.ndarray:
    return np.arctan2(s[:, 1], s[:, 0])


def _tip(s: np.ndarray) -> np.ndarray:
    """Height of the acrobot's tip; its own reward tells whether this is above 1."""
    return -s[:, 0] - (s[:, 0] * s[:, 2] - s[:, 1] * s[:, 3])


CARTPOLE = Environment(
    "CartPole-v1",
    ("position", "speed", "angle", "turning"),
    ("xx...", ".xxxx", "..xx.", "..xxx"),
    {
        "centred": Reward((0,), lambda s: -np.abs(s[:, 0])),
        "balanced": Reward((2, 3), lambda s: -(s[:, 2] ** 2) - 0.1 * s[:, 3] ** 2),
    },
    horizon=50,
)
PENDULUM = Environment(
    "Pendulum-v1",
    ("cos", "sin", "speed"),
    ("xxxx", "xxxx", ".xxx"),
    {
        "cost": Reward((0, 1, 2), lambda s: -(_angle(s) ** 2) - 0.1 * s[:, 2] ** 2),
        "upright": Reward((0,), lambda s: s[:, 0]),
    },
)
MOUNTAIN_CAR = Environment(
    "MountainCarContinuous-v0",
    ("position", "velocity"),
    ("xxx", "xxx"),
    {
        "height": Reward((0,), lambda s: np.sin(3 * s[:, 0])),
        "energy": Reward((0, 1), lambda s: np.sin(3 * s[:, 0]) + 600 * s[:, 1] ** 2),
    },
)
ACROBOT = Environment(
    "Acrobot-v1",
    ("cos1", "sin1", "cos2", "sin2", "turning1", "turning2"),
    ("xxxxxxx",) * 6,
    {
        "tip": Reward((0, 1, 2, 3), _tip),
        "calm": Reward((4, 5), lambda s: -np.hypot(s[:, 4], s[:, 5])),
    },
)


def collect(environment: Environment, seed: int, rows: int) -> Transitions:
    """`rows` transitions under random actions, with the projections and noises beside the environment's variables."""
    rng = np.random.default_rng([seed, GYM_SEED])
    env = gymnasium.make(environment.id).unwrapped
    obs, action, after, episode = _run(env, environment, rows, rng)
    discrete = int(env.action_space.n) if isinstance(env.action_space, gymnasium.spaces.Discrete) else None
    columns = np.eye(discrete)[action[:, 0].astype(int)] if discrete else action
    first = np.append(True, episode[1:] != episode[:-1])
    projections = _lagged(columns @ rng.normal(size=(columns.shape[1], EXTRA)), first, rng)
    noises, memory = _noises(first, rng)
    now, later = (
        np.concatenate([physical, projected, noise], 1)
        for physical, projected, noise in zip((obs, after), projections, noises, strict=True)
    )
    factors = _factors(environment, now, later, action.shape[1], discrete)
    truth = _truth(environment, memory)
    acts = action[:, 0].astype(int) if discrete else action
    data = Transitions(now, acts, later, factors, episode=episode, truth=truth)
    return with_rewards(data, environment.rewards, rng)


def _run(env: gymnasium.Env, environment: Environment, rows: int, rng: Rng) -> tuple[np.ndarray, ...]:
    """Observations, actions, next observations and episode numbers."""
    env.action_space.seed(int(rng.integers(2**31)))
    obs, action, after, episode = [], [], [], []
    number, age = -1, environment.horizon
    ended = True
    for _ in range(rows):
        if ended or age == environment.horizon:
            seen, _ = env.reset(seed=int(rng.integers(2**31)))
            number, age = number + 1, 0
        chosen = env.action_space.sample()
        following, _, ended, _, _ = env.step(chosen)
        obs.append(seen)
        action.append(np.ravel(chosen))
        after.append(following)
        episode.append(number)
        seen, age = following, age + 1
    return tuple(np.array(part, np.float64) for part in (obs, action, after)) + (np.array(episode),)


def _lagged(later: np.ndarray, first: np.ndarray, rng: Rng) -> tuple[np.ndarray, np.ndarray]:
    """Present and next values: the present ones are those of the row before, random ones where an episode begins."""
    now = np.roll(later, 1, 0)
    now[first] = later[rng.integers(len(later), size=int(first.sum()))]
    return now, later


def _noises(first: np.ndarray, rng: Rng) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Present and next values of two white noises and two with a memory, and the four memories."""
    memory = np.array([0.0, 0.0, rng.uniform(0.3, 0.8), rng.uniform(0.8, 0.98)])
    now, later = np.empty((len(first), EXTRA)), np.empty((len(first), EXTRA))
    fresh = rng.normal(size=later.shape)
    value = fresh[0]
    for t, begins in enumerate(first):
        value = rng.normal(size=EXTRA) / np.sqrt(1 - memory**2) if begins else value
        now[t] = value
        value = memory * value + fresh[t]
        later[t] = value
    return (now, later), memory


def _factors(environment: Environment, obs: np.ndarray, after: np.ndarray, actions: int, n: int | None) -> Factors:
    """Kinds of the projections as a reader of files would infer them: one of two discrete actions is binary."""
    p = len(environment.names)
    extra = [*(f"projection{k}" for k in range(EXTRA)), *(f"noise{k}" for k in range(EXTRA))]
    kinds = infer_kinds(obs[:, p:], after[:, p:])
    physical = [Variable(name) for name in environment.names]
    beside = [Variable(name, kind) for name, kind in zip(extra, kinds, strict=True)]
    return Factors((*physical, *beside), tuple(f"a{k}" for k in range(actions)), n)


def _truth(environment: Environment, memory: np.ndarray) -> np.ndarray:
    p = len(environment.names)
    d = p + 2 * EXTRA
    truth = np.zeros((d, d + 1), bool)
    for i, row in enumerate(environment.truth):
        causes = np.array(list(row)) == "x"
        truth[i, :p], truth[i, d] = causes[:p], causes[p]
    truth[p : p + EXTRA, d] = True
    truth[np.arange(p + EXTRA, d), np.arange(p + EXTRA, d)] = memory > 0
    return truth


def gym_kind(environment: Environment) -> Kind:
    collected: Callable[[int, int], Transitions] = lambda seed, rows: collect(environment, seed, rows)  # noqa: E731
    return Kind(collected, ROWS)
