"""Whole discoveries of two things in many logs: states that combine several switches, and a clock."""

from __future__ import annotations

import numpy as np

import cbm
from cbm.data.transitions import Transitions


def _log(states: list[np.ndarray], names: list[str], action: np.ndarray, **more: np.ndarray) -> Transitions:
    """Episodes (n, T+1) of each variable as transitions."""
    obs = np.stack([state[:, :-1].ravel() for state in states], 1)
    after = np.stack([state[:, 1:].ravel() for state in states], 1)
    episode = np.repeat(np.arange(len(action)), action.shape[1])
    arrays = {"obs": obs, "next_obs": after, "action": action.reshape(-1, 1), "episode": episode, **more}
    return Transitions.from_arrays(arrays | {"names": np.array(names)})


def test_the_parity_of_three_switches() -> None:
    """No switch tells anything alone, and no two do: only the product of all three."""
    rng = np.random.default_rng(0)
    flips = rng.random((3, 60, 101)) < np.array([0.2, 0.3, 0.25])[:, None, None]
    switches = (np.cumsum(flips, 2) % 2).astype(float)
    lamp = np.concatenate([np.zeros((60, 1)), switches.sum(0)[:, :-1] % 2], 1)
    parity = (switches.sum(0)[:, 1:] % 2).ravel()
    data = _log([*switches, lamp], ["s1", "s2", "s3", "lamp"], rng.normal(size=(60, 100)), reward_parity=parity)
    graph = cbm.discover(data, workers=1)
    assert graph.parents("lamp") == ("s1", "s2", "s3") and (graph.verdict[3] == ["edge"] * 3 + ["none"] * 2).all()
    assert graph.rewards["parity"].parents == ("s1", "s2", "s3") and not graph.possible("parity")


def test_a_clock_that_always_advances_alike() -> None:
    """Its change never varies, so there is nothing to explain, and nothing to divide by."""
    rng = np.random.default_rng(0)
    clock = rng.integers(0, 20_000, (30, 1)) + np.arange(101.0)
    speed, push = np.zeros((30, 101)), rng.normal(size=(30, 100))
    for t in range(100):
        speed[:, t + 1] = 0.9 * speed[:, t] + push[:, t] + 0.3 * rng.normal(size=30)
    graph = cbm.discover(_log([speed, clock], ["speed", "clock"], push), workers=1)
    assert graph.parents("speed") == ("speed", "action") and graph.parents("clock") == ("clock",)
