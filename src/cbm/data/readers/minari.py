"""Minari datasets that are already on this machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.data.factors import Factors
from cbm.data.readers.common import optional, reason
from cbm.data.readers.tables import Arrays
from cbm.errors import DataError


def read(name: str) -> Arrays:
    """A Minari dataset that is already on this machine; nothing is downloaded."""
    minari = optional("minari", "reading a Minari dataset")
    try:
        dataset = minari.load_dataset(name, download=False)
        factors = Factors.from_spaces(dataset.observation_space, dataset.action_space)
        return _from_episodes(factors, dataset.observation_space, list(dataset.iterate_episodes()))
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"no such Minari dataset on this machine: 'minari download {name}' fetches it") from None
    except Exception as error:
        raise DataError(f"the Minari dataset cannot be read: {reason(error)}") from None


def _from_episodes(factors: Factors, observation_space: Any, episodes: list[Any]) -> Arrays:
    episodes = [episode for episode in episodes if len(episode.rewards)]
    if not episodes:
        raise DataError("the Minari dataset has no steps")
    states = [_flat_observations(observation_space, episode.observations) for episode in episodes]
    steps = [len(episode.rewards) for episode in episodes]
    for episode, state, count in zip(episodes, states, steps, strict=True):
        if len(state) != count + 1:
            raise DataError(f"episode {episode.id}: {len(state)} observations for {count} steps, not {count + 1}")
    actions = [np.asarray(episode.actions).reshape(n, -1) for episode, n in zip(episodes, steps, strict=True)]
    arrays = {
        "obs": np.concatenate([state[:-1] for state in states]),
        "action": np.concatenate(actions),
        "next_obs": np.concatenate([state[1:] for state in states]),
        "reward": np.concatenate([episode.rewards for episode in episodes]),
        "terminated": np.concatenate([episode.terminations for episode in episodes]),
        "truncated": np.concatenate([episode.truncations for episode in episodes]),
        "episode": np.repeat(np.arange(len(episodes)), steps),
        "names": np.array(factors.names),
        "groups": np.array([variable.group for variable in factors.variables]),
        "action_names": np.array(factors.action_names),
    }
    if factors.discrete_actions is not None:
        arrays["discrete_actions"] = np.array(factors.discrete_actions)
    return arrays


def _flat_observations(space: Any, values: Any) -> np.ndarray:
    """Observations of an episode as rows, in the order of `Factors.from_spaces`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return np.hstack([_flat_observations(part, values[key]) for key, part in space.spaces.items()])
    if isinstance(space, spaces.Discrete):
        return (np.asarray(values).reshape(-1, 1) == space.start + np.arange(space.n)).astype(float)
    rows = np.asarray(values)
    return rows.reshape(len(rows), -1)
