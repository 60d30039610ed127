"""Which differences of two variables the networks see beside the variables themselves.

Whether a hand touches a block depends on where they are relative to each other, and a network that sees only the two
positions learns that slowly. So it also sees the difference of the same quantity of two objects (`hand_x` and
`block_x`: the part of the name after the last underscore), if the data suggest that the two are related: objects that
touch, carry or follow each other have certain differences far more often than unrelated ones would. A difference is
hidden from a model whenever one of its two variables is.
"""

from __future__ import annotations

import itertools

import numpy as np

from cbm.data.factors import Kind
from cbm.discovery.settings import CONCENTRATED, PEAK, PEAK_ROWS, PER_VARIABLE


def related_pairs(
    columns: np.ndarray, names: list[str], kinds: list[Kind], rng: np.random.Generator, first: int = 0
) -> np.ndarray:
    """(P, 2) columns, in the units of the data, whose difference is concentrated; the most concentrated first.

    One of the two is column `first` or a later one.
    """
    candidates = [pair for pair in same_quantity(names, kinds) if max(pair) >= first]
    rows = columns[rng.choice(len(columns), min(PEAK_ROWS, len(columns)), replace=False)]
    shuffled = rows[rng.permutation(len(rows))]
    found = []
    for a, b in candidates:
        together, apart = _narrowest(rows[:, a] - rows[:, b]), _narrowest(rows[:, a] - shuffled[:, b])
        # No pair where the peak has no width (two objects at rest), or where one of the two has a favourite value.
        if together > 0 and apart > CONCENTRATED * together:
            found.append((apart / together, a, b))
    found.sort(reverse=True)
    return np.array([pair[1:] for pair in found[: PER_VARIABLE * len(names)]], dtype=int).reshape(-1, 2)


def same_quantity(names: list[str], kinds: list[Kind]) -> list[tuple[int, int]]:
    """Pairs of continuous columns whose names differ only in the object: OBJECT_QUANTITY."""
    by_quantity: dict[str, list[int]] = {}
    for column, (name, kind) in enumerate(zip(names, kinds)):
        thing, _, quantity = name.rpartition("_")
        if thing and quantity and kind == "continuous":
            by_quantity.setdefault(quantity, []).append(column)
    return [pair for columns in by_quantity.values() for pair in itertools.combinations(columns, 2)]


def _narrowest(values: np.ndarray) -> float:
    """Width of the narrowest interval that holds a share of `PEAK` of the values."""
    ordered = np.sort(values)
    inside = max(2, int(PEAK * len(ordered)))
    return float((ordered[inside:] - ordered[:-inside]).min()) if len(ordered) > inside else 0.0
