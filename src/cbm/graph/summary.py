"""What a graph says in one line, for the end of a long day."""

from __future__ import annotations

from cbm.graph.graph import CausalGraph


def in_short(graph: CausalGraph) -> str:
    """pick needs 7 of 36 variables, stack 10. Nothing is in doubt."""
    if not graph.rewards:
        return f"{_count(int(graph.certain_edges.sum()), 'edge')} among {len(graph)} variables. {_doubt(graph)}"
    known = [name for name, reward in graph.rewards.items() if reward.decided]
    parts = []
    for place, name in enumerate(known):
        certain, possible = len(graph.certain(name)), len(graph.possible(name))
        of = f" of {len(graph)} variables" if place == 0 else ""
        more = f" and perhaps {possible} more" if possible else ""
        parts.append(f"{name} needs {certain}{of}{more}" if place == 0 else f"{name} {certain}{more}")
    sentences = [f"{', '.join(parts)}."] if parts else []
    unknown = [name for name in graph.rewards if name not in known]
    if unknown:
        sentences.append(f"Nothing is known yet about {' and '.join(unknown)}.")
    return " ".join([*sentences, _doubt(graph)])


def _doubt(graph: CausalGraph) -> str:
    """Doubt about links that no reward needs changes nothing for the answer above it."""
    cells = graph.undecided()
    if not cells:
        return "Nothing is in doubt."
    if not graph.rewards:
        return f"{_count(cells, 'link')} in doubt."
    doubt = f"{_count(cells, 'link')} {'is' if cells == 1 else 'are'} in doubt"
    touched = any(graph.possible(name) or not reward.decided for name, reward in graph.rewards.items())
    return f"{doubt}." if touched else f"{doubt}; the answer does not depend on {'it' if cells == 1 else 'them'}."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
