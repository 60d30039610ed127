"""graph.json: a causal graph as JSON values, and back.

Schema 2 has the doubt in it: `settled`, `reason`, `limit_of_detection`, `last_action`, the two rates, and what each
reward certainly and possibly needs. `bootstrap` is there if episodes were resampled. Files of schema 1 are read too;
what they do not say gets its default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cbm.errors import DataError, unknown_name
from cbm.graph.bootstrap import Bootstrap
from cbm.graph.checks import names_list, number
from cbm.graph.reward import ActionEffect, RewardGraph

if TYPE_CHECKING:
    from cbm.graph.graph import CausalGraph

SCHEMA = 2
READABLE = (1, 2)
ACTION = "action"  # the name of the last column
REWARD_PREFIX = "reward:"  # how a reward is named where variables and rewards share one list of names

OPTIONAL = ("thresholds", "settled", "limit_of_detection", "last_action", "false_discovery_rate", "miss_rate")
"""What may be absent, besides `reason`."""


# Writing


def graph_to_json(graph: CausalGraph) -> dict[str, Any]:
    bootstrap = {} if graph.bootstrap is None else {"bootstrap": graph.bootstrap.to_json()}
    return _required_fields(graph) | bootstrap


def _required_fields(graph: CausalGraph) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "variables": list(graph.variables),
        "adjacency": graph.adjacency.astype(int).tolist(),
        "cmi": rounded(graph.cmi),
        "stderr": rounded(graph.stderr),
        "verdict": graph.verdict.tolist(),
        "threshold": rounded(graph.threshold),
        "rewards": {name: _reward_to_json(graph, name) for name in graph.rewards},
        "model": graph.model,
        "transitions": graph.transitions,
        "seconds": rounded(graph.seconds),
        "version": graph.version,
        "thresholds": rounded(graph.thresholds),
        "settled": graph.settled.astype(int).tolist(),
        "reason": [
            {"effect": graph.variables[i], "cause": (*graph.variables, ACTION)[j], "reason": str(graph.reason[i, j])}
            for i, j in np.argwhere(graph.reason != "")
        ],
        "limit_of_detection": rounded(graph.limit_of_detection),
        "last_action": graph.last_action,
        "false_discovery_rate": rounded(graph.false_discovery_rate),
        "miss_rate": rounded(graph.miss_rate),
    }


def _reward_to_json(graph: CausalGraph, name: str) -> dict[str, Any]:
    reward = graph.rewards[name]
    return {
        "parents": list(reward.parents),
        "cmi": rounded(reward.cmi),
        "certain": list(graph.certain(name)),
        "possible": list(graph.possible(name)),
        "abstraction": list(graph.abstraction(name)),
        "stderr": rounded(reward.stderr),
        "verdict": reward.verdict.tolist(),
        "thresholds": rounded(reward.threshold),
        "settled": reward.settled.astype(int).tolist(),
        "reason": [
            {"cause": graph.variables[j], "reason": str(reward.reason[j])} for j in np.flatnonzero(reward.reason != "")
        ],
        "limit_of_detection": rounded(reward.limit_of_detection),
        "action": None if reward.action is None else _action_to_json(reward.action),
    }


def _action_to_json(action: ActionEffect) -> dict[str, Any]:
    return {
        "cmi": rounded(action.cmi),
        "stderr": rounded(action.stderr),
        "verdict": action.verdict,
        "threshold": rounded(action.threshold),
        "reason": action.reason,
    }


# Reading


def graph_from_json(data: Any) -> dict[str, Any]:
    """The arguments of a CausalGraph; a DataError names the field that is wrong."""
    if not isinstance(data, dict):
        raise DataError("graph: expected a JSON object")
    if type(schema := take(data, "schema")) is not int or schema not in READABLE:
        raise DataError(f"schema: {schema!r}, but this version reads schema {' and '.join(map(str, READABLE))}")
    variables = variable_names(take(data, "variables"))
    rewards = take(data, "rewards")
    if not isinstance(rewards, dict):
        raise DataError("rewards: expected an object with one entry for each reward")
    threshold = number(take(data, "threshold"), "threshold")
    transitions = take(data, "transitions")
    if type(transitions) is not int:
        raise DataError("transitions: expected a whole number")
    for key in ("model", "version"):
        if not isinstance(take(data, key), str):
            raise DataError(f"{key}: expected a string")
    fields: dict[str, Any] = {
        key: take(data, key)
        for key in ("adjacency", "cmi", "stderr", "verdict", "model", "transitions", "seconds", "version")
    }
    fields |= {
        "variables": variables,
        "threshold": threshold,
        "rewards": {name: _reward_from_json(name, r, variables, threshold) for name, r in rewards.items()},
    }
    fields |= {key: data[key] for key in OPTIONAL if key in data}
    if "reason" in data:
        fields["reason"] = _read_reasons(data["reason"], "reason", variables, (*variables, ACTION))
    if data.get("bootstrap") is not None:
        fields["bootstrap"] = Bootstrap.from_json(data["bootstrap"], len(variables), list(rewards))
    return fields


def variable_names(value: Any) -> tuple[str, ...]:
    names = names_list(value, "variables")
    if not names:
        raise DataError("variables: empty, a graph needs at least one variable")
    for name in names:
        if name == ACTION or name.startswith(REWARD_PREFIX):
            raise DataError(f"variables: {name!r} is a reserved name (the action, or a reward)")
    return names


def _reward_from_json(name: str, data: Any, variables: tuple[str, ...], threshold: float) -> RewardGraph:
    where = f"rewards.{name}"
    if not isinstance(data, dict):
        raise DataError(f"{where}: expected an object")
    parents = names_list(take(data, "parents", f"{where}."), f"{where}.parents")
    take(data, "abstraction", f"{where}.")
    for key in ("abstraction", "certain", "possible"):  # they follow from the graph and are computed afresh
        for other in names_list(data.get(key, []), f"{where}.{key}"):
            if other not in variables:
                raise unknown_name(f"{where}.{key}: unknown variable", other, variables)
    d = len(variables)
    return RewardGraph(
        parents=parents,
        cmi=take(data, "cmi", f"{where}."),
        stderr=data.get("stderr", np.zeros(d)),
        verdict=data.get("verdict", np.where(np.isin(variables, parents), "edge", "none")),
        threshold=data.get("thresholds", np.full(d, threshold)),
        settled=data.get("settled", np.ones(d, bool)),
        reason=_read_reasons(data.get("reason", []), f"{where}.reason", None, variables),
        limit_of_detection=data.get("limit_of_detection", math.nan),
        action=_action_from_json(data.get("action"), f"{where}.action"),
    )


def _action_from_json(data: Any, where: str) -> ActionEffect | None:
    if data is None:
        return None
    if not isinstance(data, dict):
        raise DataError(f"{where}: expected an object, or null")
    cmi, stderr, verdict, threshold = (take(data, k, f"{where}.") for k in ("cmi", "stderr", "verdict", "threshold"))
    return ActionEffect(cmi, stderr, verdict, threshold, data.get("reason", ""))


def _read_reasons(
    value: Any, where: str, effects: tuple[str, ...] | None, causes: tuple[str, ...]
) -> np.ndarray[Any, np.dtype[np.str_]]:
    """[{"effect", "cause", "reason"}, …] as one text for each cell; without `effects`, cells have a cause only."""
    keys = ("cause", "reason") if effects is None else ("effect", "cause", "reason")
    if not isinstance(value, list):
        raise DataError(f"{where}: expected a list of objects with {', '.join(keys)}")
    texts = np.full((1 if effects is None else len(effects), len(causes)), "", dtype=object)
    for k, entry in enumerate(value):
        if not isinstance(entry, dict) or any(not isinstance(entry.get(key), str) for key in keys):
            raise DataError(f"{where}[{k}]: expected an object with the texts {', '.join(keys)}")
        row = 0 if effects is None else _index(entry["effect"], effects, f"{where}[{k}].effect")
        texts[row, _index(entry["cause"], causes, f"{where}[{k}].cause")] = entry["reason"]
    result: np.ndarray[Any, np.dtype[np.str_]] = texts.astype(np.str_)
    return result[0] if effects is None else result


def _index(name: str, names: Sequence[str], where: str) -> int:
    if name not in names:
        raise unknown_name(f"{where}: unknown variable", name, names)
    return names.index(name)


def take(data: dict[str, Any], key: str, where: str = "") -> Any:
    if key not in data:
        raise DataError(f"{where}{key}: missing")
    return data[key]


def rounded(values: Any) -> Any:
    """Plain floats with 6 significant digits, nested as the array was; NaN becomes None."""
    if np.ndim(values) == 0:
        return None if np.isnan(values) else float(f"{float(values):.6g}")
    return [rounded(v) for v in values]
