"""Tables of how often each variable and each edge was found on resampled logs."""

from __future__ import annotations

import numpy as np

from cbm.cli.console import heading, plural, show, show_table, wrapped
from cbm.graph import CausalGraph
from cbm.graph.bootstrap import Bootstrap

VARIABLES, EDGES, REWARDS = 30, 12, 6
"""Rows of variables, rows of edges and columns that are printed at most; graph.json has all of them."""
ACTION = "action"

Rows = list[list[str]]


def show_bootstrap(graph: CausalGraph) -> None:
    found = graph.bootstrap
    assert found is not None
    heading(f"in how many of {plural(found.replicates, 'log')} with resampled episodes it came out")
    if found.abstraction:
        _show_variables(graph, found)
    _show_edges(graph, found)
    show()


def _show_variables(graph: CausalGraph, found: Bootstrap) -> None:
    names = list(found.abstraction)[:REWARDS]
    rows = variable_rows(graph, found, names)
    show_table(["needed by", *names], rows[:VARIABLES], right=names)
    left = [plural(len(rows) - VARIABLES, "more variable")] if len(rows) > VARIABLES else []
    left += [plural(len(found.abstraction) - REWARDS, "more reward")] if len(found.abstraction) > REWARDS else []
    if left:
        show(f"  {' and '.join(left)} in graph.json")
    if rare := rare_sentence(graph, found, names):
        show(wrapped(rare, "  "))
    if any(" to " in cell for row in rows for cell in row[1:]):
        show("  3 to 8: certainly needed in 3 of them, not ruled out in 8")
    show()


def variable_rows(graph: CausalGraph, found: Bootstrap, rewards: list[str]) -> Rows:
    """Number of logs in which each variable was certainly needed, and in which it was not ruled out; rare ones are left
    out."""
    total = found.replicates
    rows = []
    for k in np.flatnonzero(~_rare(graph, found, rewards)):
        pairs = [(_times(found.certain[r][k], total), _times(found.abstraction[r][k], total)) for r in rewards]
        rows.append([graph.variables[k], *(_range(certain, kept) for certain, kept in pairs)])
    return rows


def rare_sentence(graph: CausalGraph, found: Bootstrap, rewards: list[str]) -> str:
    """One line on the variables that only a few logs could not rule out."""
    most = np.max([found.abstraction[r] for r in rewards], 0)
    rare = _rare(graph, found, rewards) & (most > 0)
    if not rare.any():
        return ""
    count, times = int(rare.sum()), _times(most[rare].max(), found.replicates)
    return f"{plural(count, 'other')} not ruled out in at most {times}, and never certainly needed"


def _rare(graph: CausalGraph, found: Bootstrap, rewards: list[str]) -> np.ndarray:
    """(d,) variables that no reward keeps here, none certainly needs in any log, and none keeps in half of the logs."""
    rare = np.ones(len(graph), bool)
    for name in rewards:
        rare &= ~graph.mask(name) & (found.certain[name] == 0) & (found.abstraction[name] < 0.5)
    return rare


def _show_edges(graph: CausalGraph, found: Bootstrap) -> None:
    rows = unsteady_edges(graph, found)
    always = int((found.edges == 1).sum())
    show(f"{plural(always, 'edge')} came out of all of them, {plural(len(rows), 'other')} of some")
    if rows:
        show_table(["edge", "in", "here"], rows[:EDGES], right=["in"])
    if len(rows) > EDGES:
        show(wrapped(f"{len(rows) - EDGES} more in graph.json and in the report's heat map", "  "))


def unsteady_edges(graph: CausalGraph, found: Bootstrap) -> Rows:
    """Edges found on some logs but not on all, those nearest to half of them first, with their verdict on the full
    log."""
    causes = [*graph.variables, ACTION]
    cells = np.argwhere((found.edges > 0) & (found.edges < 1))
    order = np.argsort([abs(float(found.edges[i, j]) - 0.5) for i, j in cells], kind="stable")
    return [
        [
            f"{causes[j]} -> {graph.variables[i]}",
            str(_times(found.edges[i, j], found.replicates)),
            str(graph.verdict[i, j]),
        ]
        for i, j in cells[order]
    ]


def _times(share: float, total: int) -> int:
    return round(float(share) * total)


def _range(certain: int, kept: int) -> str:
    return str(kept) if certain == kept else f"{certain} to {kept}"
