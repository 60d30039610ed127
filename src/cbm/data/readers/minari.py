"""Minari datasets: by their names where they are on this machine, or as the HDF5 file of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.data.factors import Factors
from cbm.data.readers.common import array_of, optional, reason
from cbm.data.readers.episodes import Columns, is_vector, joined
from cbm.data.readers.tables import Arrays
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.errors import DataError


def read(name: str, roles: Roles) -> Reading:
    """A Minari dataset that is already on this machine; nothing is downloaded."""
    if roles.named:
        raise DataError("a Minari dataset says what its columns are: --obs, --action and so on are for tables")
    arrays = _read(name)
    return Reading(arrays, ReadingNotes("minari", len(arrays["obs"]), episode="the format"))


def _read(name: str) -> Arrays:
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


def read_file(file: Any, roles: Roles) -> Reading:
    """The HDF5 file of a dataset: `episode_0/observations` has one row more than `episode_0/actions`."""
    keys = sorted((key for key in file if key.startswith("episode_")), key=lambda key: (len(key), key))
    groups = [(key, file[key]) for key in keys]
    for key, group in groups:
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            if name not in group:
                raise DataError(f"{key} has no {name!r}")
    groups = [(key, group) for key, group in groups if len(group["rewards"])]
    if not groups:
        raise DataError("the Minari dataset has no steps")
    columns = Columns("minari")
    for name in _leaves(groups[0][1]["observations"], "observations"):
        _add_states(columns, groups, name)
    columns.action = columns.add("action", _joined(groups, "actions"))
    columns.reward = columns.add("reward", _joined(groups, "rewards"))
    for name, flag in (("terminations", "terminated"), ("truncations", "truncated")):
        columns.flags |= {flag: next(iter(columns.add(flag, _joined(groups, name))))}
    lengths = [len(group["rewards"]) for _, group in groups]
    columns.episode = tuple(columns.add("episode", np.repeat(np.arange(len(groups)), lengths)))
    return columns.read(roles)


def _add_states(columns: Columns, groups: list[tuple[str, Any]], name: str) -> None:
    label = name.removeprefix("observations").lstrip("/").replace("/", "_") or "obs"
    if not is_vector(groups[0][1][name].shape):
        columns.left_out[label] = "pictures"
        return
    states = [array_of(group[name], f"{key}/{name}") for key, group in groups]
    for (key, group), state in zip(groups, states, strict=True):
        steps = len(group["rewards"])
        if len(state) != steps + 1:
            raise DataError(f"{key}: {len(state)} observations for {steps} steps, not {steps + 1}")
    labels = columns.add(label, joined([state[:-1] for state in states], name))
    columns.obs |= labels
    columns.add_next(list(labels), joined([state[1:] for state in states], name))


def _leaves(item: Any, path: str) -> list[str]:
    """Paths of the arrays in a group; the observations of a Dict space are groups."""
    if not hasattr(item, "keys"):
        return [path]
    return [leaf for key in item for leaf in _leaves(item[key], f"{path}/{key}")]


def _joined(groups: list[tuple[str, Any]], name: str) -> np.ndarray:
    return joined([array_of(group[name], f"{key}/{name}") for key, group in groups], name)
