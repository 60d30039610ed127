"""How often each edge, and each variable of a minimal state, came out when episodes were resampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cbm.errors import DataError

if TYPE_CHECKING:
    from cbm.graph.graph import CausalGraph

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
    def from_json(cls, data: Any, variables: int) -> Bootstrap:
        """A DataError names the field that is wrong."""
        if not isinstance(data, dict) or not isinstance(data.get("rewards"), dict):
            raise DataError("bootstrap: expected an object with replicates, edges and rewards")
        replicates = data.get("replicates")
        if type(replicates) is not int or replicates < 1:
            raise DataError("bootstrap.replicates: expected a whole number of at least 1")
        found: dict[str, dict[str, Shares]] = {"certain": {}, "abstraction": {}}
        for name, entry in data["rewards"].items():
            for key, shares in found.items():
                value = entry.get(key) if isinstance(entry, dict) else None
                shares[name] = _shares(value, (variables,), f"bootstrap.rewards.{name}.{key}")
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


def bootstrap_sentence(graph: CausalGraph, reward: str) -> str:
    """How often each variable of a minimal state came out, the rarest first; and what else came out often."""
    found = graph.bootstrap
    assert found is not None
    shares, kept = found.abstraction[reward], graph.mask(reward)
    unsure = sorted((float(shares[k]), graph.variables[k]) for k in np.flatnonzero(kept & (shares < 1)))
    others = sorted((-float(shares[k]), graph.variables[k]) for k in np.flatnonzero(~kept & (shares > 0)))
    always = int((kept & (shares == 1)).sum())
    parts = [f"{always} of {int(kept.sum())} in every one of {found.replicates} resampled logs"]
    if unsure:
        parts.append("the others: " + ", ".join(f"{name} {share:.0%}" for share, name in unsure[:8]))
    if others:
        parts.append(
            "not in it, but sometimes found: " + ", ".join(f"{name} {-share:.0%}" for share, name in others[:5])
        )
    return "; ".join(parts)
