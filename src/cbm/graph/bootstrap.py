"""How often each edge, and each variable of a minimal state, came out when episodes were resampled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.errors import DataError, unknown_name

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Shares of the replicates, between 0 and 1."""

    replicates: int
    edges: Shares  # (d, d+1) where the verdict was "edge"
    certain: dict[str, Shares]  # (d,) for each reward: among what it certainly needs
    abstraction: dict[str, Shares]  # (d,) for each reward: in its minimal state, with what cannot be ruled out

    def to_json(self) -> dict[str, Any]:
        return {
            "replicates": self.replicates,
            "edges": np.round(self.edges, 4).tolist(),
            "rewards": {
                name: {
                    "certain": np.round(self.certain[name], 4).tolist(),
                    "abstraction": np.round(self.abstraction[name], 4).tolist(),
                }
                for name in self.certain
            },
        }

    @classmethod
    def from_json(cls, data: Any, variables: int, rewards: Collection[str]) -> Bootstrap:
        """A DataError names the field that is wrong."""
        if not isinstance(data, dict) or not isinstance(data.get("rewards"), dict):
            raise DataError("bootstrap: expected an object with replicates, edges and rewards")
        replicates = data.get("replicates")
        if type(replicates) is not int or replicates < 1:
            raise DataError("bootstrap.replicates: expected a whole number of at least 1")
        found: dict[str, dict[str, Shares]] = {"certain": {}, "abstraction": {}}
        for name, entry in data["rewards"].items():
            if name not in rewards:
                raise unknown_name("bootstrap.rewards: unknown reward", name, rewards)
            for key, shares in found.items():
                value = entry.get(key) if isinstance(entry, dict) else None
                shares[name] = _shares(value, (variables,), f"bootstrap.rewards.{name}.{key}")
            if (found["certain"][name] > found["abstraction"][name]).any():
                raise DataError(f"bootstrap.rewards.{name}: more often certain than in the minimal state")
        edges = _shares(data.get("edges"), (variables, variables + 1), "bootstrap.edges")
        return cls(replicates, edges, **found)


def _shares(value: Any, shape: tuple[int, ...], where: str) -> Shares:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: expected numbers") from None
    if array.shape != shape or not ((array >= 0) & (array <= 1)).all():
        raise DataError(f"{where}: expected shares between 0 and 1, of shape {shape}")
    array.setflags(write=False)
    return array
