"""How small an effect a state could have missed: "none" means no effect above the limit of detection of its target.

Where that limit is low there is nothing to add. Where it is high, because a law is not fitted or rows are few, a weak
cause may be missing from the state without a trace, and whoever uses the state should know on which variables.
"""

from __future__ import annotations

import numpy as np

from cbm.graph.graph import CausalGraph

COARSE = 0.1  # nats: a limit above this is worth a word
NAMED = 3  # targets that are named


def coarse_limits(graph: CausalGraph, reward: str) -> dict[str, float]:
    """Limits above `COARSE` of what a state rests on: the reward, and each variable of its state; highest first."""
    entry, mask = graph.rewards[reward], graph.mask(reward)
    limits = {f"reward {reward}": entry.limit_of_detection}
    limits |= {graph.variables[k]: float(graph.limit_of_detection[k]) for k in np.flatnonzero(mask)}
    coarse = {name: float(f"{limit:.2g}") for name, limit in limits.items() if limit > COARSE}  # unknown (NaN): not
    return dict(sorted(coarse.items(), key=lambda item: -item[1]))


def limits_sentence(limits: dict[str, float]) -> str:
    """In words, that of the reward first; empty where all limits are low."""
    ordered = sorted(limits, key=lambda name: (not name.startswith("reward "), -limits[name]))
    sizes = [f"{limits[name]:.2g} nats on {name}" for name in ordered[:NAMED]]
    if len(ordered) > NAMED:
        rest = max(limits[name] for name in ordered[NAMED:])
        sizes.append(f"up to {rest:.2g} nats on {len(ordered) - NAMED} more")
    return f"weak causes may be missing: none would have been seen below {', '.join(sizes)}" if sizes else ""
