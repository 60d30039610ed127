"""Compact lists of many variable names."""

from __future__ import annotations

from collections.abc import Iterable

from cbm.data.factors import Factors


def by_group(factors: Factors) -> list[list[str]]:
    """Names by group; a variable without a group is a group of its own."""
    names = factors.names
    rows: list[list[str]] = []
    for group, members in factors.groups().items():
        rows += [[names[i] for i in members]] if group else [[names[i]] for i in members]
    return rows


def compact(names: Iterable[str]) -> str:
    """hand_x, hand_y, hand_z as hand_x/y/z; cd0, cd1, ..., cd9 as cd0 ... cd9."""
    parts: list[tuple[str, list[str]]] = []
    for name in names:
        stem = name.rstrip("0123456789") if name[-1:].isdigit() else name[: name.rfind("_") + 1]
        if parts and stem and parts[-1][0] == stem:
            parts[-1][1].append(name[len(stem) :])
        else:
            parts.append((stem, [name[len(stem) :]]))
    return ", ".join(_joined(stem, ends) for stem, ends in parts)


def _joined(stem: str, ends: list[str]) -> str:
    numbers = [int(end) for end in ends if end.isdigit()]
    if len(numbers) == len(ends) > 2 and numbers == list(range(numbers[0], numbers[0] + len(ends))):
        return f"{stem}{ends[0]} ... {stem}{ends[-1]}"
    if len(numbers) == len(ends) > 1:
        return ", ".join(stem + end for end in ends)
    return stem + "/".join(ends)
