"""Whether a run's models were trained long enough to be believed."""

from __future__ import annotations

FEW_UPDATES = {"dynamics": 300, "rewards": 200}
"""With 200 and 160 even a world of six variables came out wrong."""


def updates_of(result: object) -> dict[str, int]:
    """How often the models of each stage were updated, from a result.json; empty where it is not written down."""
    made = result.get("updates") if isinstance(result, dict) else None
    return made if isinstance(made, dict) and all(isinstance(n, int) for n in made.values()) else {}


def few_updates(result: object) -> str:
    """A sentence about stages that had hardly begun: a slow machine, many variables or a small budget; else ""."""
    made = updates_of(result)
    few = [f"{made[k]:,} for the {k}" for k, enough in FEW_UPDATES.items() if made.get(k, enough) < enough]
    if not few:
        return ""
    return f"The models were updated only a few times ({', '.join(few)}): causes may be missing or made up."
