"""A system with a known one-step graph, and a log recorded from copies of it.

A `System` is a pure step function together with its declared graph, so that a test can intervene: give one input
another value, step both states with the same random numbers, and see which outputs differ. Steps therefore draw their
random numbers in shapes that do not depend on the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions

Rng = np.random.Generator
REWARD_NOISE = 0.1
"""Standard deviation of a random reward's noise; its signal has about 0.5."""


@dataclass(frozen=True)
class Reward:
    """A function of some variables of the next state."""

    parents: tuple[int, ...]
    value: Callable[[np.ndarray], np.ndarray]
    """(n, d) next states -> (n,); looks at the parents only."""
    noise: float = 0.0


@dataclass(frozen=True)
class System:
    """One system, drawn from a seed."""

    factors: Factors
    truth: np.ndarray
    """(d, d+1), the action last."""
    step: Callable[[np.ndarray, np.ndarray, Rng], np.ndarray]
    """States (n, d) and actions (n, a) -> the states that follow."""
    act: Callable[[np.ndarray, Rng], np.ndarray]
    """States (n, d) -> actions (n, a)."""
    start: Callable[[int, Rng], np.ndarray]
    """n -> states (n, d)."""
    horizon: int = 100
    """Steps of an episode."""
    rewards: dict[str, Reward] = field(default_factory=dict)
    """Left empty: two random ones."""
    warm_up: int = 0
    """Steps before the first that is logged."""


@dataclass(frozen=True)
class Kind:
    """One kind of system: a seed draws a system of it and its log."""

    collect: Callable[[int, int], Transitions]
    """Seed and number of rows -> log."""
    rows: int = 60_000
    system: Callable[[int], System] | None = None
    """The system behind a seed, where it is one of ours."""

    def __call__(self, seed: int, rows: int | None = None) -> Transitions:
        return self.collect(seed, rows or self.rows)


def kind_of(system: Callable[[int], System], rows: int = 60_000) -> Kind:
    return Kind(lambda seed, n: simulate(system(seed), n, seed), rows, system)


def simulate(system: System, rows: int, seed: int) -> Transitions:
    """`rows` transitions with the rewards and the true graph; all copies of the system are stepped at once."""
    rng = np.random.default_rng([seed, 71])
    copies = -(-rows // system.horizon)
    state = system.start(copies, rng)
    for _ in range(system.warm_up):
        state = system.step(state, system.act(state, rng), rng)
    steps: list[tuple[np.ndarray, ...]] = []
    for _ in range(system.horizon):
        action = system.act(state, rng)
        following = system.step(state, action, rng)
        steps.append((state, action, following))
        state = following
    obs, acts, after = (
        np.stack(part, 1).reshape(copies * system.horizon, -1)[:rows] for part in zip(*steps, strict=True)
    )
    action = acts[:, 0] if system.factors.discrete_actions else acts
    episode = np.repeat(np.arange(copies), system.horizon)[:rows]
    data = Transitions(obs, action, after, system.factors, episode=episode, truth=system.truth)
    return with_rewards(data, system.rewards or random_rewards(system.factors, seed), rng)


def with_rewards(data: Transitions, rewards: dict[str, Reward], rng: Rng) -> Transitions:
    """The same log with these rewards of its next states, and their true parents."""
    values = {
        name: reward.value(data.next_obs) + reward.noise * rng.normal(size=len(data))
        for name, reward in rewards.items()
    }
    d = len(data.factors)
    parents = {name: np.isin(np.arange(d), reward.parents) for name, reward in rewards.items()}
    return replace(data, rewards=values, truth_rewards=parents)


def random_rewards(factors: Factors, seed: int, noise: float = REWARD_NOISE) -> dict[str, Reward]:
    """Two rewards, each of one to three continuous variables."""
    rng = np.random.default_rng([seed, 72])
    candidates = [i for i, kind in enumerate(factors.kinds) if kind == "continuous"]
    return {name: _random_reward(rng, candidates, noise) for name in ("first", "second")}


def _random_reward(rng: Rng, candidates: Sequence[int], noise: float) -> Reward:
    parents = tuple(int(i) for i in rng.choice(candidates, int(rng.integers(1, 4)), replace=False))
    weights = rng.uniform(0.7, 1.3, len(parents)) * rng.choice([-1, 1], len(parents))
    shape = int(rng.integers(3))

    def value(after: np.ndarray) -> np.ndarray:
        bounded = np.tanh(weights * standardised(after[:, parents]))  # (n, parents)
        if shape == 0:
            return np.asarray(bounded.sum(1))
        if shape == 1:
            return np.asarray(-np.sqrt(((bounded - 0.5) ** 2).sum(1)))  # the distance to a goal
        return np.asarray(bounded.prod(1) + 0.3 * bounded.sum(1))

    return Reward(parents, value, noise)


def standardised(columns: np.ndarray) -> np.ndarray:
    """Columns around 0 with most values within -1 and 1, whatever their units and tails."""
    low, middle, high = np.quantile(columns, [0.1, 0.5, 0.9], axis=0)
    spread = np.where(high > low, (high - low) / 2, columns.std(0))
    return np.asarray((columns - middle) / np.where(spread > 0, spread, 1.0))


def graph(names: Sequence[str], parents: dict[str, str]) -> np.ndarray:
    """(d, d+1) from the names of each variable's causes, with spaces between them; `action` is the last column."""
    columns = [*names, "action"]
    truth = np.zeros((len(names), len(columns)), bool)
    for effect, causes in parents.items():
        for cause in causes.split():
            truth[columns.index(effect), columns.index(cause)] = True
    return truth


def named(names: Sequence[str], actions: int = 1, discrete: int | None = None, **kinds: str) -> Factors:
    """Factors of continuous variables, except those whose kind is given."""
    variables = tuple(Variable(name, kinds.get(name, "continuous")) for name in names)  # type: ignore[arg-type]
    return Factors(variables, tuple(f"a{k}" for k in range(actions)), discrete)


def uniform_actions(size: int) -> Callable[[np.ndarray, Rng], np.ndarray]:
    """Actions of `size` columns, each uniform in [-1, 1], whatever the state."""
    return lambda state, rng: rng.uniform(-1, 1, (len(state), size))


def normal_start(d: int, scale: float = 1.0) -> Callable[[int, Rng], np.ndarray]:
    """Independent normal starting states."""
    return lambda copies, rng: scale * rng.normal(size=(copies, d))


def memories(rng: Rng, count: int, white: float = 0.3) -> np.ndarray:
    """Coefficients of independent AR(1) variables; a share of them is white noise."""
    return np.where(rng.random(count) < white, 0.0, rng.uniform(0.3, 0.97, count))
