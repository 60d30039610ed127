"""Synthetic systems whose graph, and sometimes whose CMI, is known exactly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions


def sparse_nonlinear(
    d: int, steps: int, seed: int = 0, actions: int = 4, horizon: int = 50, part: int | None = None
) -> Transitions:
    """d variables with one to three random parents each; every fifth one also listens to the action.

    s_i' = tanh, sine, product or steep step of its parents, plus noise. Logs with the same seed and different `part`
    are of one system, with other noise and actions.
    """
    rng = np.random.default_rng([seed, 31])
    truth = np.zeros((d, d + 1), dtype=bool)
    parents = [rng.choice(d, size=rng.integers(1, 4), replace=False) for _ in range(d)]
    shapes = rng.integers(4, size=d)
    weights = [rng.uniform(0.8, 1.5, len(p)) * rng.choice([-1, 1], len(p)) for p in parents]
    acted = rng.permutation(d) % 5 == 0
    mixing = rng.normal(size=(d, actions))
    mixing *= 1.2 / np.linalg.norm(mixing, axis=1, keepdims=True)
    for i, p in enumerate(parents):
        truth[i, p], truth[i, d] = True, acted[i]
    if part is not None:
        rng = np.random.default_rng([seed, 31, part])

    def step(state: np.ndarray, action: np.ndarray) -> np.ndarray:
        following = np.empty_like(state)
        for i, p in enumerate(parents):
            following[:, i] = _shape(shapes[i], state[:, p] * weights[i])
        return following + (acted * (action @ mixing.T) + rng.normal(0, 0.2, state.shape))

    copies = -(-steps // horizon)
    start = rng.normal(size=(copies, d))
    return record(step, lambda: rng.uniform(-1, 1, (copies, actions)), start, horizon, steps, truth)


def _shape(kind: int, terms: np.ndarray) -> np.ndarray:
    """(n, parents) -> (n,): a function in which every parent matters."""
    if kind == 0:
        return np.asarray(np.tanh(terms).sum(1))
    if kind == 1:
        return np.asarray(np.sin(2 * terms).sum(1))
    if kind == 2:
        return np.asarray(np.tanh(terms).prod(1) + 0.3 * np.tanh(terms).sum(1))
    return np.asarray(0.6 * np.tanh(3 * terms).sum(1))


def linear_gaussian(d: int, steps: int, seed: int = 0, horizon: int = 50) -> tuple[Transitions, np.ndarray]:
    """s' = A s + B a + noise with a Gaussian action, and the exact CMI of every (effect, cause), in nats.

    With independent noise, I(s_i'; s_j | rest) = 1/2 log(1 + A_ij^2 Var(s_j | rest) / q_i).
    """
    rng = np.random.default_rng([seed, 32])
    dynamics = rng.uniform(0.3, 0.7, (d, d)) * rng.choice([-1, 1], (d, d)) * (rng.random((d, d)) < 2.0 / d)
    dynamics *= min(1.0, 0.8 / max(np.abs(np.linalg.eigvals(dynamics)).max(), 1e-9))
    control = rng.uniform(0.3, 0.8, d) * (rng.random(d) < 0.5)
    noise = rng.uniform(0.3, 1.0, d)
    copies = -(-steps // horizon)
    state = np.zeros((copies, d))

    def act() -> np.ndarray:
        return rng.normal(size=(copies, 1))

    def step(state: np.ndarray, action: np.ndarray) -> np.ndarray:
        return np.asarray(state @ dynamics.T + action * control + noise * rng.normal(size=state.shape))

    for _ in range(200):  # let the covariance settle
        state = step(state, act())
    truth = np.concatenate([dynamics != 0, control[:, None] != 0], 1)
    return record(step, act, state, horizon, steps, truth), _exact_cmi(dynamics, control, noise)


def _exact_cmi(dynamics: np.ndarray, control: np.ndarray, noise: np.ndarray) -> np.ndarray:
    d = len(dynamics)
    covariance = np.eye(d)
    shocks = np.diag(noise**2) + np.outer(control, control)
    for _ in range(2000):
        covariance = dynamics @ covariance @ dynamics.T + shocks
    conditional = 1 / np.diag(np.linalg.inv(covariance))  # Var(s_j | all other s); the action is independent
    gain = np.concatenate([dynamics**2 * conditional, control[:, None] ** 2], 1)
    return np.asarray(0.5 * np.log1p(gain / noise[:, None] ** 2))


def record(
    step: Callable[[np.ndarray, np.ndarray], np.ndarray],
    act: Callable[[], np.ndarray],
    start: np.ndarray,
    horizon: int,
    steps: int,
    truth: np.ndarray,
    factors: Factors | None = None,
) -> Transitions:
    """`steps` transitions of copies of a system that begin at `start` (copies, d), `horizon` of each.

    `step` maps states and actions to the states that follow, `act` chooses an action for every copy.
    """
    rows: list[tuple[np.ndarray, ...]] = []
    state = start
    for _ in range(horizon):
        action = act()
        following = step(state, action)
        rows.append((state, action, following))
        state = following
    copies = len(start)
    obs, acts, after = (np.stack(part, 1).reshape(copies * horizon, -1)[:steps] for part in zip(*rows, strict=True))
    if factors is None:
        variables = tuple(Variable(f"x{i}") for i in range(truth.shape[0]))
        factors = Factors(variables, tuple(f"a{k}" for k in range(acts.shape[1])))
    action = acts[:, 0] if factors.discrete_actions else acts
    episode = np.repeat(np.arange(copies), horizon)[:steps]
    return Transitions(obs, action, after, factors, episode=episode, truth=truth)
