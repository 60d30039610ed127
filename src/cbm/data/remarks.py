"""Remarks about a usable log, one line each, to be read before the result."""

from __future__ import annotations

from cbm.data.mapped import blocks_of
from cbm.data.statistics import Copies
from cbm.data.transitions import Transitions
from cbm.data.validate import reward_array

REFUSED, FEW_ROWS = 50, 200
"""Fewer transitions than the first number are refused; fewer than the second leave nearly everything undecided."""
TINY = 1e-100
"""Variation below which squares approach the smallest number that a float can hold."""
NAMED = 4
"""Names listed for each kind, at most."""


def remarks(data: Transitions) -> list[str]:
    """Few rows, columns that are copies of each other, variables whose numbers are so small that their squares
    vanish."""
    found = []
    if REFUSED <= len(data) < FEW_ROWS:
        found.append(f"only {len(data)} transitions: expect little to be decided; some thousands are usual")
    copies = _copies(data)
    if copies:
        pairs = ", ".join(f"{b!r} of {a!r}" for a, b in copies[:NAMED])
        more = f" and {len(copies) - NAMED} more" if len(copies) > NAMED else ""
        found.append(f"columns that are copies ({pairs}{more}): which of two copies matters cannot be told from data")
    return found + too_small(data)


def too_small(data: Transitions) -> list[str]:
    """One sentence about all that varies too little to compute with, if anything does."""
    tiny = _tiny(data)
    names = ", ".join(f"{name!r} ({size:.0e})" for name, size in tiny[:NAMED])
    more = f" and {len(tiny) - NAMED} more" if len(tiny) > NAMED else ""
    return [f"variation too small to compute with: {names}{more}; give these in larger units"] if tiny else []


def _copies(data: Transitions) -> list[tuple[str, str]]:
    """(first, copy) for every non-constant variable that equals an earlier one in all rows."""
    copies = Copies.of(len(data.factors))
    for obs, next_obs in zip(blocks_of(data.obs), blocks_of(data.next_obs), strict=True):
        copies.add(obs, next_obs)
        if not copies.groups:
            break
    return copies.pairs(data.factors.names, data.statistics().constant("obs"))


def _tiny(data: Transitions) -> list[tuple[str, float]]:
    """Variables, rewards and actions that vary, but by less than `TINY`."""
    known = data.statistics()
    names = {"obs": data.factors.names, "action": data.factors.action_names}
    names |= {reward_array(name): (name,) for name in data.rewards}
    spans = [(name, span) for key in names for name, span in zip(names[key], known.high[key] - known.low[key])]
    return [(name, float(span)) for name, span in spans if 0 < span < TINY]
