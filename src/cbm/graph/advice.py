"""What would settle the cells that are undecided, from the reasons that discovery gave for them.

A reason begins with one of the phrases in `ADVICE`; a new kind of reason is one more row there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cbm.graph.graph import ACTION, CausalGraph

NAMED = 3
"""So many variables or pairs are named in one sentence."""


@dataclass(frozen=True)
class _Cell:
    effect: str
    cause: str
    reason: str
    needed: bool
    """Whether it has a part in the state of a reward."""


def advice(graph: CausalGraph) -> list[str]:
    """One sentence for each kind of reason; those that hold up the state of a reward, and the commonest, first."""
    kinds: dict[str, list[_Cell]] = {}
    for cell in _undecided(graph):
        kinds.setdefault(_kind(cell.reason), []).append(cell)
    order = sorted(kinds, key=lambda kind: (-sum(cell.needed for cell in kinds[kind]), -len(kinds[kind])))
    return [f"{_count(kinds[kind])}: {_advise(kind, kinds[kind])}" for kind in order]


def _undecided(graph: CausalGraph) -> list[_Cell]:
    causes = (*graph.variables, ACTION)
    in_a_state = np.zeros(len(graph), dtype=bool)
    for name in graph.rewards:
        in_a_state |= graph.mask(name)
    cells = [
        _Cell(graph.variables[i], causes[j], str(graph.reason[i, j]), bool(in_a_state[i] and j < len(graph)))
        for i, j in np.argwhere(graph.verdict == "undecided")
    ]
    for name, reward in graph.rewards.items():
        effect = f"reward {name}"
        for j in np.flatnonzero(reward.verdict == "undecided"):
            cells.append(_Cell(effect, causes[j], str(reward.reason[j]), True))
        if reward.action is not None and reward.action.verdict == "undecided":
            cells.append(_Cell(effect, ACTION, reward.action.reason, False))
    return cells


def _kind(reason: str) -> str:
    return next((phrase for phrase in ADVICE if reason.startswith(phrase)), reason)


def _advise(kind: str, cells: list[_Cell]) -> str:
    if kind in ADVICE:
        return ADVICE[kind](cells)
    return f"{kind or 'no reason is recorded'}; more data may settle this"


def _count(cells: list[_Cell]) -> str:
    return "1 undecided cell" if len(cells) == 1 else f"{len(cells):,} undecided cells"


# What to do about each kind


def _ceiling(cells: list[_Cell]) -> str:
    return "not settled before the ceiling; run again with more --minutes, or without a ceiling"


def _threshold(cells: list[_Cell]) -> str:
    return "near the threshold; collect more data: four times as many rows halve the errors"


def _together(cells: list[_Cell]) -> str:
    """The cause goes with another variable, so that nobody can tell which of the two it is."""
    pairs = Counter((cell.cause, _partner(cell.reason)) for cell in cells)
    named = [f"{cause} moves independently of {partner or 'the others'}" for (cause, partner), _ in pairs.most_common()]
    return f"causes that go together; collect data in which {_some(named)}"


def _partner(reason: str) -> str:
    found = re.match(r".*?goes with (.+?)(?: \(.*\))?[.;,]?$", reason)
    return found[1] if found else ""


def _rare(cells: list[_Cell]) -> str:
    """Of cause and effect, the one that more of the cells share is the one that hardly ever changes; else the cause."""
    shared = Counter(cell.effect for cell in cells) + Counter(cell.cause for cell in cells)
    named = list(dict.fromkeys(max((cell.cause, cell.effect), key=lambda name: shared[name]) for cell in cells))
    return f"rare changes; collect data in which {_some(named)} {'changes' if len(named) == 1 else 'change'} more often"


def _disagree(cells: list[_Cell]) -> str:
    causes = [name for name, _ in Counter(cell.cause for cell in cells).most_common()]
    return f"models disagree; collect more varied data, of {_some(causes)} above all, or use --knowledge"


def _misfit(cells: list[_Cell]) -> str:
    causes = [name for name, _ in Counter(cell.cause for cell in cells).most_common()]
    advice = f"collect data with {_some(causes)} varied alone"
    return f"smaller than what models do not fit; use --knowledge, or {advice}"


def _rows(cells: list[_Cell]) -> str:
    return "too few rows; collect a longer log"


ADVICE: dict[str, Callable[[list[_Cell]], str]] = {
    "not settled before the ceiling": _ceiling,
    "near the threshold": _threshold,
    "hardly varies by itself": _together,
    "hardly ever changes": _rare,
    "models disagree": _disagree,
    "too few rows": _rows,
    "smaller than what models do not fit": _misfit,
}
"""What to do, by the phrase that a reason begins with."""


def _some(names: list[str]) -> str:
    more = [f"{len(names) - NAMED} more"] if len(names) > NAMED else []
    parts = names[:NAMED] + more
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
