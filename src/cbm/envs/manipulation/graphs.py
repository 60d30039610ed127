"""True graphs of the manipulation worlds, from rules between groups of variables.

A rule says which groups a group depends on; every scalar of a cause is then a parent of every scalar of the
effect. Things that nothing moves (a fixed block, a marker) keep only themselves, scalar by scalar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from cbm.data.factors import Factors
from cbm.envs.manipulation.layout import Quantity

ACTION = "action"


def graph(factors: Factors, rules: Mapping[str, Iterable[str]]) -> np.ndarray:
    """(d, d+1) booleans from {effect group: cause groups or "action"}; groups without a rule keep themselves."""
    groups, d = factors.groups(), len(factors)
    truth = np.zeros((d, d + 1), dtype=bool)
    for group, members in groups.items():
        if group not in rules:
            truth[members, members] = True
            continue
        for cause in rules[group]:
            columns = [d] if cause == ACTION else groups[cause]
            truth[np.ix_(members, columns)] = True
    return truth


def parents(parts: tuple[Quantity, ...], read: Iterable[str]) -> np.ndarray:
    """(d,) booleans of the variables of the quantities in `read`."""
    chosen = set(read)
    return np.array([part.name in chosen for part in parts for _ in part.variables])
