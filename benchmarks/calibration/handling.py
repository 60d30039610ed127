"""Things that move under conditions: a cube only in the hand, parcels that are dropped only where a hub is full."""

from __future__ import annotations

import numpy as np

from benchmarks.calibration.system import Reward, Rng, System, graph, named

LOW, HIGH = np.array([-0.4, -0.4, 0.0]), np.array([0.4, 0.4, 0.5])
"""Where the hand can be."""
SHUT, FALL, BONUS = 0.4, 0.08, 0.1
"""The opening below which the hand holds, how far a cube falls in a step, and how near the goal has to be."""


def gripper(seed: int) -> System:
    """A hand that carries a cube to a goal, without any noise in either of them.

    The cube moves as the hand does while the hand is near and nearly shut, and otherwise falls or rests: all causes of
    where it is are causes of each coordinate. The goal is constant in an episode. The reward is minus the distance
    from cube to goal, and a bonus where it is small.
    """
    rng = np.random.default_rng([seed, 81])
    near, speed = rng.uniform(0.12, 0.16), rng.uniform(0.05, 0.07)
    mixing = rng.uniform(0.4, 1.2, (4, 2)) * rng.choice([-1, 1], (4, 2))
    hand, cube, goal = (" ".join(f"{thing}_{axis}" for axis in "xyz") for thing in ("hand", "cube", "goal"))
    names = f"{hand} opening {cube} {goal} box_x box_y wrist amps light camera".split()

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        at, opening, block = state[:, :3], state[:, 3:4], state[:, 4:7]
        moved = np.clip(at + speed * action[:, :3], LOW, HIGH)
        held = (np.linalg.norm(at - block, axis=1, keepdims=True) < near) & (opening < SHUT)
        carried = np.where(held, block + moved - at, block - [0, 0, FALL])
        carried[:, 2] = np.maximum(carried[:, 2], 0)
        noise = rng.normal(size=(len(state), 3))
        wrist, amps = (action @ mixing).T
        rest = [wrist, amps + 0.1 * noise[:, 0], 0.95 * state[:, 14] + 0.3 * noise[:, 1], noise[:, 2]]
        opened = np.clip(opening + 0.3 * action[:, 3:], 0, 1)
        return np.concatenate([moved, opened, carried, state[:, 7:12], np.stack(rest, 1)], 1)

    def act(state: np.ndarray, rng: Rng) -> np.ndarray:
        """Go to the cube, mostly shut, carry it to the goal and let go there; every second action is a random one."""
        at, opening, block, aim = state[:, :3], state[:, 3], state[:, 4:7], state[:, 7:10]
        close = np.linalg.norm(at - block, axis=1) < 0.8 * near
        arrived = np.linalg.norm(block - aim, axis=1) < BONUS
        way = np.where((close & (opening < SHUT))[:, None], aim - block, block - at)
        shuts = close & ~arrived & (rng.random(len(state)) < 0.8)
        usual = np.concatenate([0.5 * way / speed, np.where(shuts, -1.0, 1.0)[:, None]], 1)
        usual = np.clip(usual, -1, 1) + 0.35 * rng.normal(size=usual.shape)
        other = rng.uniform(-1, 1, usual.shape)
        return np.where(rng.random((len(state), 1)) < 0.5, np.clip(usual, -1, 1), other)

    def start(copies: int, rng: Rng) -> np.ndarray:
        """A third of the cubes are in the hand, the others lie on the floor."""
        state = np.concatenate([rng.uniform(-0.3, 0.3, (copies, 12)), rng.normal(size=(copies, 4))], 1)
        state[:, 2:4] = rng.uniform([0, 0], [0.4, 1], (copies, 2))
        state[:, 6], state[:, 9] = 0, rng.uniform(0.05, 0.3, copies)
        lifted = rng.random((copies, 1)) < 1 / 3
        grasp = state[:, :3] + rng.uniform(-0.05, 0.05, (copies, 3)) * [1, 1, 0]
        state[:, 3:7] = np.where(lifted, np.concatenate([np.full((copies, 1), 0.1), grasp], 1), state[:, 3:7])
        return state

    def place(s: np.ndarray) -> np.ndarray:
        distance = np.linalg.norm(s[:, 4:7] - s[:, 7:10], axis=1)
        return np.asarray((distance < BONUS) - distance)

    parents = {name: f"{name} action" for name in f"{hand} opening".split()}
    parents |= {name: f"{hand} opening {cube} action" for name in cube.split()}
    parents |= {name: name for name in f"{goal} box_x box_y light".split()} | {"wrist": "action", "amps": "action"}
    rewards = {
        "place": Reward((4, 5, 6, 7, 8, 9), place),
        "ready": Reward((3,), lambda s: -np.abs(s[:, 3] - 0.5)),
    }
    return System(named(names, 4), graph(names, parents), step, act, start, 50, rewards)


PARCELS = [
    "unloading", "sorting", "loading", "workers", "trucks", "dropped", "done", "rate", "day_sin", "day_cos",
    "calls", "pages", "hall", "panel",
]  # fmt: skip
PARCEL_PARENTS = {
    "unloading": "unloading workers rate", "sorting": "sorting unloading workers action",
    "loading": "loading sorting trucks action", "workers": "workers action", "trucks": "trucks",
    "dropped": "unloading workers rate", "done": "loading trucks", "rate": "rate day_sin",
    "day_sin": "day_sin day_cos", "day_cos": "day_sin day_cos", "pages": "pages", "hall": "hall", "panel": "action",
}  # fmt: skip


def parcels(seed: int) -> System:
    """Three queues of parcels in series. What does not fit into the first is dropped: a count that is mostly zero.

    Every stage serves a random number, which leaves one queue and joins the next one in the same step. The action calls
    a worker, sends one home, or hurries the sorting. Parcels come at a rate that follows the hour.
    """
    rng = np.random.default_rng([seed, 82])
    pace = rng.uniform([0.8, 2.0, 2.3], [1.0, 2.5, 2.8])
    usual, daily, room = rng.uniform(0.6, 0.8), rng.uniform(0.1, 0.2), int(rng.integers(12, 18))
    turn = 2 * np.pi / rng.integers(40, 90)
    lamp = rng.permutation(4) + rng.uniform(-0.3, 0.3, 4)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        first, second, third, workers, trucks, _, _, rate, sin, cos = state[:, :10].T
        choice, n = action[:, 0], len(state)
        noise, comes, ill = rng.normal(size=(n, 3)), rng.random(n), rng.random(n) < 0.03
        came = _poisson(rng, np.exp(rate), 40)
        unloaded = np.minimum(first, _poisson(rng, pace[0] * workers, 30))
        sorted_ = np.minimum(second, _poisson(rng, pace[1] * (1 + 0.8 * (choice == 3)), 30))
        loaded = np.minimum(third, _poisson(rng, pace[2] * trucks, 30))
        waiting = first + came - unloaded
        after = [
            np.minimum(waiting, room),
            np.minimum(second + unloaded - sorted_, 60),
            np.minimum(third + sorted_ - loaded, 60),
            np.clip(workers + (choice == 1) - (choice == 2) - ill, 1, 6),
            np.clip(trucks + (comes < 0.15) - (comes > 0.87), 0, 2),
            np.maximum(waiting - room, 0),
            loaded,
            usual + 0.8 * (rate - usual) + daily * sin + 0.12 * noise[:, 0],
            np.cos(turn) * sin + np.sin(turn) * cos,
            np.cos(turn) * cos - np.sin(turn) * sin,
            rng.poisson(3.0, n),
            _poisson(rng, 1 + 0.7 * state[:, 11], 50),
            20 + 0.95 * (state[:, 12] - 20) + 0.6 * noise[:, 1],
            lamp[choice.astype(int)] + 0.2 * noise[:, 2],
        ]
        return np.stack(after, 1).astype(float)

    def act(state: np.ndarray, rng: Rng) -> np.ndarray:
        first, second, workers = state[:, 0], state[:, 1], state[:, 3]
        wanted = np.select([(first > 8) & (workers < 5), first < 2, second > 8], [1, 2, 3], 0)
        return np.where(rng.random(len(state)) < 0.5, rng.integers(0, 4, len(state)), wanted)[:, None]

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = rng.poisson(3.0, (copies, 14)).astype(float)
        state[:, 3:7] = rng.integers([1, 0, 0, 0], [7, 3, 1, 1], (copies, 4))
        hour = rng.uniform(0, 2 * np.pi, copies)
        state[:, 7], state[:, 8], state[:, 9] = rng.normal(usual, 0.3, copies), np.sin(hour), np.cos(hour)
        state[:, 12] = rng.normal(20, 2, copies)
        return state

    rewards = {
        "throughput": Reward((6,), lambda s: s[:, 6]),
        "staffing": Reward((3,), lambda s: -s[:, 3]),
    }
    factors = named(PARCELS, discrete=4)
    return System(factors, graph(PARCELS, PARCEL_PARENTS), step, act, start, 150, rewards, warm_up=20)


def _poisson(rng: Rng, rate: np.ndarray, most: int) -> np.ndarray:
    """Counts with these rates, at most `most`; the random numbers that are drawn do not depend on the rates."""
    arrivals = rng.exponential(size=(len(rate), most)).cumsum(1)
    return np.asarray((arrivals <= rate[:, None]).sum(1))
