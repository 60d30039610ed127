"""Synthetic systems whose graph, and sometimes whose CMI, is known exactly."""

from __future__ import annotations

import numpy as np

from cbm.factors import Factors, Variable
from cbm.transitions import Transitions


def sparse_nonlinear(d: int, steps: int, seed: int = 0, actions: int = 4, horizon: int = 50) -> Transitions:
    """d variables with one to three random parents each; every fifth one also listens to the action.

    s_i' = tanh, sine, product or steep step of its parents, plus noise.
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
    copies = -(-steps // horizon)
    obs: list[np.ndarray] = []
    acts: list[np.ndarray] = []
    after: list[np.ndarray] = []
    state = rng.normal(size=(copies, d))
    for _ in range(horizon):
        action = rng.uniform(-1, 1, (copies, actions))
        following = np.empty_like(state)
        for i, p in enumerate(parents):
            following[:, i] = _shape(shapes[i], state[:, p] * weights[i])
        following += acted * (action @ mixing.T) + rng.normal(0, 0.2, state.shape)
        for kept, value in ((obs, state), (acts, action), (after, following)):
            kept.append(value)
        state = following
    return _transitions(obs, acts, after, steps, truth)


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
    for _ in range(200):  # let the covariance settle
        state = _linear_step(state, rng.normal(size=(copies, 1)), dynamics, control, noise, rng)
    obs: list[np.ndarray] = []
    acts: list[np.ndarray] = []
    after: list[np.ndarray] = []
    for _ in range(horizon):
        action = rng.normal(size=(copies, 1))
        following = _linear_step(state, action, dynamics, control, noise, rng)
        for kept, value in ((obs, state), (acts, action), (after, following)):
            kept.append(value)
        state = following
    truth = np.concatenate([dynamics != 0, control[:, None] != 0], 1)
    exact = _exact_cmi(dynamics, control, noise)
    return _transitions(obs, acts, after, steps, truth), exact


def _linear_step(
    state: np.ndarray,
    action: np.ndarray,
    dynamics: np.ndarray,
    control: np.ndarray,
    noise: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    return state @ dynamics.T + action * control + noise * rng.normal(size=state.shape)


def _exact_cmi(dynamics: np.ndarray, control: np.ndarray, noise: np.ndarray) -> np.ndarray:
    d = len(dynamics)
    covariance = np.eye(d)
    shocks = np.diag(noise**2) + np.outer(control, control)
    for _ in range(2000):
        covariance = dynamics @ covariance @ dynamics.T + shocks
    conditional = 1 / np.diag(np.linalg.inv(covariance))  # Var(s_j | all other s); the action is independent
    gain = np.concatenate([dynamics**2 * conditional, control[:, None] ** 2], 1)
    return np.asarray(0.5 * np.log1p(gain / noise[:, None] ** 2))


def _transitions(
    obs: list[np.ndarray], acts: list[np.ndarray], after: list[np.ndarray], steps: int, truth: np.ndarray
) -> Transitions:
    copies, horizon = len(obs[0]), len(obs)
    stacked = [np.stack(part, 1).reshape(copies * horizon, -1)[:steps] for part in (obs, acts, after)]
    factors = Factors(
        tuple(Variable(f"x{i}") for i in range(truth.shape[0])),
        tuple(f"a{k}" for k in range(stacked[1].shape[1])),
    )
    episode = np.repeat(np.arange(copies), horizon)[:steps]
    return Transitions(stacked[0], stacked[1], stacked[2], factors, episode=episode, truth=truth)
