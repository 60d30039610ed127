"""How a graph shows itself: a few lines of text, a picture with matplotlib, and the report's page in a notebook."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cbm.graph.graph import CausalGraph

NAMES = 8
"""So many variables of a minimal state are named in a line."""


def summary_of(graph: CausalGraph) -> str:
    """The size of a graph and what each reward needs, one line each."""
    open_cells = graph.undecided()
    size = f"{len(graph)} variables, {int(graph.certain_edges.sum())} edges, {open_cells} undecided"
    lines = [f"CausalGraph({size}, {graph.model} model, {graph.transitions:,} transitions)"]
    for name in graph.rewards:
        certain, possible = graph.certain(name), graph.possible(name)
        more = f"; not ruled out: {_some(possible)}" if possible else ""
        lines.append(f"  {name} needs {len(certain)} of {len(graph)}: {_some(certain) or 'nothing found'}{more}")
    return "\n".join(lines)


def _some(names: tuple[str, ...]) -> str:
    rest = len(names) - NAMES
    return ", ".join(names[:NAMES]) + (f" and {rest} more" if rest > 0 else "")


def report_html(graph: CausalGraph) -> str:
    """Drawn by the report, which stands above graphs: it is looked up when a notebook asks, not imported."""
    return str(importlib.import_module("cbm.report.notebook").graph_html(graph))


def plot_matrix(graph: CausalGraph, reward: str | None, ax: Any) -> Any:
    """Rows are effects one step later, rewards last; columns are causes, the action last; a dot is an edge."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import SymLogNorm

    if ax is not None and not hasattr(ax, "imshow"):
        raise TypeError(f"ax must be matplotlib axes, not {type(ax).__name__}")
    needed = set(graph.abstraction(reward)) if reward is not None else set()
    values, edges, doubts = _with_rewards(graph)
    rows, columns = [*graph.variables, *(f"reward {name}" for name in graph.rewards)], [*graph.variables, "action"]
    if ax is None:
        side = max(3.2, min(14.0, 0.32 * len(columns)))
        _, ax = plt.subplots(figsize=(side + 1.6, side + 0.8), layout="constrained")
    knee = graph.threshold if graph.threshold > 0 else 0.01
    norm = SymLogNorm(knee, vmin=0.0, vmax=max(float(np.nanmax(values)), 10 * knee))
    image = ax.imshow(np.maximum(values, 0), cmap="Blues", norm=norm)
    for mask, mark in ((edges, "o"), (doubts, "x")):
        where = np.argwhere(mask)
        ax.scatter(where[:, 1], where[:, 0], s=14, c="black", marker=mark, linewidths=0.8)
    ax.set_xticks(range(len(columns)), columns, rotation=90)
    ax.set_yticks(range(len(rows)), rows)
    for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        label.set_fontweight("bold" if label.get_text() in needed else "normal")
    ax.set(xlabel="cause", ylabel="effect one step later")
    ax.figure.colorbar(image, ax=ax, label="CMI (nats); dot: edge, cross: undecided", shrink=0.8)
    return ax


def _with_rewards(graph: CausalGraph) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CMI, edges and undecided cells with a row for each reward; NaN where the action was not tested."""
    rows = [(reward.cmi, reward.verdict, reward.action) for reward in graph.rewards.values()]
    values = np.array([[*cmi, np.nan if action is None else action.cmi] for cmi, _, action in rows])
    verdicts = np.array([[*verdict, "" if action is None else action.verdict] for _, verdict, action in rows], object)
    if not rows:
        return graph.cmi, graph.verdict == "edge", graph.verdict == "undecided"
    verdict = np.vstack([graph.verdict.astype(object), verdicts])
    return np.vstack([graph.cmi, values]), verdict == "edge", verdict == "undecided"
