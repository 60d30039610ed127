"""What is worth knowing about a log that can be used: each in one line, for people to read before the result."""

from __future__ import annotations

import hashlib

import numpy as np

from cbm.data.transitions import Transitions

REFUSED, FEW_ROWS = 50, 200
"""Fewer transitions than these are refused; fewer than those leave nearly everything undecided."""
TINY = 1e-100
"""Variation below which squares come near to what a float can hold."""
NAMED = 4
"""So many names are said of each kind."""


def remarks(data: Transitions) -> list[str]:
    """Few rows, columns that are copies of each other, variables in units so small that their squares vanish."""
    found = []
    if REFUSED <= len(data) < FEW_ROWS:
        found.append(f"only {len(data)} transitions: expect little to be decided; some thousands are usual")
    copies = _copies(data)
    if copies:
        pairs = ", ".join(f"{b!r} of {a!r}" for a, b in copies[:NAMED])
        more = f" and {len(copies) - NAMED} more" if len(copies) > NAMED else ""
        found.append(f"columns that are copies ({pairs}{more}): which of two copies matters cannot be told from data")
    tiny = _tiny(data)
    if tiny:
        names = ", ".join(f"{name!r} ({size:.0e})" for name, size in tiny[:NAMED])
        more = f" and {len(tiny) - NAMED} more" if len(tiny) > NAMED else ""
        found.append(f"variation too small to compute with: {names}{more}; give these in larger units")
    return found


def _copies(data: Transitions) -> list[tuple[str, str]]:
    """(first, copy) for every variable that equals an earlier one in all rows, and that varies at all."""
    first: dict[bytes, str] = {}
    found = []
    for i, name in enumerate(data.factors.names):
        column = np.concatenate([data.obs[:, i], data.next_obs[:, i]]) + 0.0  # -0.0 is 0.0
        if (column == column[0]).all():
            continue
        key = hashlib.sha256(column.tobytes()).digest()
        if key in first:
            found.append((first[key], name))
        else:
            first[key] = name
    return found


def _tiny(data: Transitions) -> list[tuple[str, float]]:
    """Variables, rewards and actions that vary, but by less than `TINY`."""
    columns = {name: np.concatenate([data.obs[:, i], data.next_obs[:, i]]) for i, name in enumerate(data.factors.names)}
    columns |= {name: data.action[:, i] for i, name in enumerate(data.factors.action_names)}
    columns |= dict(data.rewards)
    spans = {name: float(np.ptp(column)) for name, column in columns.items()}
    return [(name, span) for name, span in spans.items() if 0 < span < TINY]
