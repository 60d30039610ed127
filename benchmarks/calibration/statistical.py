"""Systems that are hard for a statistical reason: tails, twins, modes, time scales, noise, variance, interaction."""

from __future__ import annotations

import numpy as np

from benchmarks.calibration.system import Rng, System, graph, memories, named, normal_start, uniform_actions


def heavy_tails(seed: int) -> System:
    """Thirty independent AR(1) variables, Student noise of two to three degrees of freedom; the action moves six."""
    rng = np.random.default_rng([seed, 57])
    d = 30
    keep, freedom = rng.uniform(0.3, 0.95, d), rng.uniform(2, 3, d)
    push = np.zeros((d, 2))
    moved = rng.choice(d, 6, replace=False)
    push[moved] = rng.uniform(0.6, 1.5, (6, 2)) * rng.choice([-1, 1], (6, 2))

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        return keep * state + action @ push.T + rng.standard_t(freedom, state.shape)

    truth = np.eye(d, d + 1, dtype=bool)
    truth[moved, d] = True
    return System(named([f"x{i}" for i in range(d)], 2), truth, step, uniform_actions(2), normal_start(d), 100)


def twin_sensors(seed: int) -> System:
    """Two quantities, each with two sensors that agree to 0.1 to 1 %.

    The seed decides whether the quantity or one of its sensors drives another variable. The data may not tell which of
    two sensors it is; the truth contains it nevertheless, and "undecided" is then the best answer.
    """
    rng = np.random.default_rng([seed, 58])
    names = ["q", "q_one", "q_two", "y", "later", "u", "u_one", "u_two", "w", "echo", "drift", "white"]
    keep, push = rng.uniform(0.8, 0.95, 2), rng.uniform(0.3, 0.6)
    error = 10.0 ** rng.uniform(-3, -2, 2)  # of a quantity's deviation, which is about 1
    driver = rng.choice(3, 2)  # of y and of w: the quantity, its first or its second sensor
    slope = rng.uniform(0.5, 1.0, 3) * rng.choice([-1, 1], 3)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        q, u, y, later, w, drift = state[:, [0, 5, 3, 4, 8, 10]].T
        noise = rng.normal(size=state.shape)
        fresh = np.sqrt(1 - keep**2)
        after = [
            keep[0] * q + push * action[:, 0] + fresh[0] * noise[:, 0],
            q + error[0] * noise[:, 1],
            q + error[0] * noise[:, 2],
            0.5 * y + slope[0] * state[:, driver[0]] + 0.2 * noise[:, 3],
            0.3 * later + np.tanh(slope[1] * y) + 0.2 * noise[:, 4],
            keep[1] * u + fresh[1] * noise[:, 5],
            u + error[1] * noise[:, 6],
            u + error[1] * noise[:, 7],
            0.5 * w + np.sin(slope[2] * 2 * state[:, 5 + driver[1]]) + 0.2 * noise[:, 8],
            action[:, 0] + 0.3 * noise[:, 9],
            0.95 * drift + 0.3 * noise[:, 10],
            noise[:, 11],
        ]
        return np.stack(after, 1)

    parents = {
        "q": "q action", "q_one": "q", "q_two": "q", "y": f"y {names[driver[0]]}", "later": "later y",
        "u": "u", "u_one": "u", "u_two": "u", "w": f"w {names[5 + driver[1]]}", "echo": "action", "drift": "drift",
    }  # fmt: skip
    return System(
        named(names), graph(names, parents), step, uniform_actions(1), normal_start(12), horizon=100, warm_up=30
    )


def modes(seed: int) -> System:
    """A mode of three values selects which of two linear laws acts; the action moves the mode, and some variables."""
    rng = np.random.default_rng([seed, 59])
    d = 9  # besides the mode
    laws = _sparse_laws(rng, d)
    push = rng.uniform(0.3, 0.8, d) * (rng.random(d) < 0.3)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        mode, x = state[:, 0], state[:, 1:]
        second = mode == 2  # values 0 and 1 share a law
        moved = rng.random(len(state)) < np.where(action[:, 0] > 0, 0.4, 0.1)
        after = np.where(second[:, None], x @ laws[1].T, x @ laws[0].T) + push * action
        after = after + 0.3 * rng.normal(size=x.shape)
        return np.concatenate([np.where(moved, (mode + 1) % 3, mode)[:, None], after], 1)

    truth = np.zeros((d + 1, d + 2), bool)
    truth[0, [0, -1]] = True
    truth[1:, 1:-1] = (laws != 0).any(0)
    truth[1:, 0] = (laws[0] != laws[1]).any(1)
    truth[1:, -1] = push != 0

    def start(copies: int, rng: Rng) -> np.ndarray:
        return np.concatenate([rng.integers(0, 3, (copies, 1)), rng.normal(size=(copies, d))], 1).astype(float)

    names = ["mode", *(f"x{i}" for i in range(d))]
    return System(named(names, mode="categorical"), truth, step, uniform_actions(1), start, 100)


def _sparse_laws(rng: Rng, d: int) -> np.ndarray:
    """(2, d, d): one to three causes each, rows that sum to less than 1; five rows differ between the laws."""
    laws = np.zeros((2, d, d))
    differs = rng.permutation(d) < 5
    for i in range(d):
        causes = rng.choice(d, rng.integers(1, 4), replace=False)
        first = rng.uniform(0.4, 0.9, len(causes)) * rng.choice([-1, 1], len(causes))
        laws[:, i, causes] = 0.9 * first / max(np.abs(first).sum(), 1.0)
        if differs[i]:
            laws[1, i] *= -1
            laws[1, i, causes[0]] = 0.0  # this cause acts under the first law only
            if len(causes) == 1:
                laws[1, i, rng.choice(np.delete(np.arange(d), causes[0]))] = 0.7
    return laws


def slow_fast(seed: int) -> System:
    """Four variables that forget in a step, two in thirty and four in a thousand, coupled; two independent ones."""
    rng = np.random.default_rng([seed, 60])
    names = [*(f"fast{k}" for k in range(4)), "mid0", "mid1", *(f"slow{k}" for k in range(4)), "drift", "white"]
    span = np.array([1.0] * 4 + [30.0] * 2 + [1000.0] * 4)
    rate = 1 - np.exp(-1 / span)
    pull = np.zeros((10, 11))  # where each variable is drawn to; the action is the last column
    for k in range(4):
        pull[k, 6 + k] = rng.uniform(0.5, 1.0) * rng.choice([-1, 1])
        pull[6 + k, rng.choice(6)] = rng.uniform(1.0, 2.0) * rng.choice([-1, 1])
    for k in range(2):
        pull[4 + k, rng.choice(4)] = rng.uniform(1.0, 2.0)
    pull[rng.choice(4, 2, replace=False), 10] = rng.uniform(0.5, 1.0, 2)
    noise = np.concatenate([rng.uniform(0.3, 0.6, 4), rng.uniform(0.03, 0.06, 2), rng.uniform(0.001, 0.003, 4)])

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        x = state[:, :10]
        aim = np.tanh(np.concatenate([x, action], 1)) @ pull.T
        following = x + rate * (aim - x) + noise * rng.normal(size=x.shape)
        drift = 0.999 * state[:, 10] + 0.03 * rng.normal(size=len(x))
        return np.concatenate([following, drift[:, None], rng.normal(size=(len(x), 1))], 1)

    truth = np.zeros((12, 13), bool)
    truth[:10, :10], truth[:10, 12] = (pull[:, :10] != 0) | np.eye(10, dtype=bool), pull[:, 10] != 0
    truth[10, 10] = True
    return System(named(names), truth, step, uniform_actions(1), normal_start(12), 400)


def pure_noise(seed: int) -> System:
    """Twenty independent variables, white or with a memory; the action does nothing."""
    rng = np.random.default_rng([seed, 61])
    keep = memories(rng, 20, white=0.4)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        return keep * state + rng.normal(size=state.shape)

    truth = np.eye(20, 21, dtype=bool) & (keep > 0)[:, None]
    return System(named([f"x{i}" for i in range(20)], 2), truth, step, uniform_actions(2), normal_start(20), 100)


def variance(seed: int) -> System:
    """Three variables whose noise level, and nothing else, depends on another one; the action moves one of those."""
    rng = np.random.default_rng([seed, 62])
    names = ["v", "w", "y0", "y1", "y2", "estimator", "echo", "n0", "n1", "n2"]
    keep, own = rng.uniform(0.7, 0.9, 2), rng.uniform(0.4, 0.8, 3)
    source, steep = rng.integers(0, 2, 3), rng.uniform(1.0, 2.0, 3) * rng.choice([-1, 1], 3)
    noises = memories(rng, 3)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        noise = rng.normal(size=state.shape)
        levels = 0.2 + 0.8 / (1 + np.exp(-steep * state[:, source]))  # (n, 3)
        parts = [
            (keep * state[:, :2] + 0.5 * noise[:, :2]),
            own * np.array([0, 1, 1]) * state[:, 2:5] + levels * noise[:, 2:5],
            (0.5 * state[:, 5] + 0.5 * state[:, 3] + 0.2 * noise[:, 5])[:, None],
            (action[:, 0] + 0.3 * noise[:, 6])[:, None],
            noises * state[:, 7:] + noise[:, 7:],
        ]
        following = np.concatenate(parts, 1)
        following[:, 0] += 0.8 * action[:, 0]
        return following

    ways = ["", "y1", "y2"]  # y0 has no memory
    parents = {f"y{k}": f"{ways[k]} {names[source[k]]}" for k in range(3)}
    parents |= {"v": "v action", "w": "w", "estimator": "estimator y1", "echo": "action"}
    truth = graph(names, parents | {f"n{k}": f"n{k}" for k in range(3) if noises[k]})
    return System(named(names), truth, step, uniform_actions(1), normal_start(10), 100)


def interaction(seed: int) -> System:
    """Products of two signs, of which one alone says nothing: of two variables, and of a variable and the action."""
    rng = np.random.default_rng([seed, 63])
    names = ["p", "q", "r", "y", "z", "estimator", "n0", "n1", "n2", "n3"]
    keep, noise_level = rng.uniform(0.3, 0.8, 3), rng.uniform(0.2, 0.5, 2)
    noises = memories(rng, 4)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        p, q, r, y, _, estimator = state[:, :6].T
        noise = rng.normal(size=state.shape)
        after = [
            keep[0] * p + 0.6 * action[:, 0] + 0.5 * noise[:, 0],
            keep[1] * q + 0.5 * noise[:, 1],
            keep[2] * r + 0.5 * noise[:, 2],
            np.sign(p) * np.sign(q) + noise_level[0] * noise[:, 3],
            np.sign(action[:, 1]) * np.sign(r) + noise_level[1] * noise[:, 4],
            0.5 * estimator + 0.5 * y + 0.2 * noise[:, 5],
        ]
        return np.concatenate([np.stack(after, 1), noises * state[:, 6:] + noise[:, 6:]], 1)

    parents = {"p": "p action", "q": "q", "r": "r", "y": "p q", "z": "r action", "estimator": "estimator y"}
    truth = graph(names, parents | {f"n{k}": f"n{k}" for k in range(4) if noises[k]})
    return System(named(names, 2), truth, step, uniform_actions(2), normal_start(10), 100)
