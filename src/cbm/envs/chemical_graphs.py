"""The graphs of the chemical world: the named ones, what one step makes of them, and a picture.

Graphs between objects are (N, N) booleans with [k, j] true when object j depends on object k; k < j
always, so the objects' order is a causal order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Graph = np.ndarray

# The parents of object j among n objects.
GRAPHS: dict[str, Callable[[int, int], Sequence[int]]] = {
    "collider": lambda j, n: range(j) if j == n - 1 else (),
    "chain": lambda j, n: (j - 1,),
    "full": lambda j, n: range(j),
    "fork": lambda j, n: (0,),
    "jungle": lambda j, n: ((j - 1) // 2, ((j - 1) // 2 - 1) // 2),  # a tree whose grandparents count as well
    "tree": lambda j, n: ((j - 1) // 2,),
    "bidiagonal": lambda j, n: (j - 1, j - 2),
}


def named_graph(name: str, objects: int) -> Graph:
    graph = np.zeros((objects, objects), dtype=bool)
    for j in range(1, objects):
        for parent in GRAPHS[name](j, objects):
            if parent >= 0:  # near the root there may be no grandparent
                graph[parent, j] = True
    return graph


def ancestry(graph: Graph) -> Graph:
    """[k, j] true when a path leads from k to j."""
    reached = graph.copy()
    for k in reversed(range(len(graph))):  # what k reaches directly has been completed before
        reached[k] |= reached[graph[k]].any(0)
    return reached


def one_step_graph(graph: Graph) -> np.ndarray:
    """(N, N) booleans, [j, k] true when the colour of k at t causes the colour of j at t+1.

    Setting object i resamples all its descendants D(i) from *new* colours; every other object keeps its
    colour. So the old colour of k matters only where k survives the step, that is for actions on an i with
    k not in {i} and not in D(i), and then in two ways. It is the new colour of k: a self-edge, unless
    every other object is an ancestor of k. And it is read by the children m of k that are resampled, m in
    D(i), and through their new colours by all the descendants of these. Hence

        k -> k  iff some i has k not in {i} + D(i)
        k -> j  iff some i and some child m of k have k not in {i} + D(i), m in D(i), j in {m} + D(m)

    With one parent an object, every ancestor of m other than k is an ancestor of k: chains, forks and
    trees have no edge between two colours at all.
    """
    n = len(graph)
    reached = ancestry(graph)
    touched = reached | np.eye(n, dtype=bool)  # [i, k]: setting i does not leave k as it is
    survives = ~touched
    read = np.einsum("ik,km,im->km", survives, graph, reached)  # booleans: "or" of "and"
    causes = (read @ touched) | np.diag(survives.any(0))
    return causes.T


def depths(graph: Graph) -> np.ndarray:
    """(N,) length of the longest path that ends in each object."""
    depth = np.zeros(len(graph), dtype=int)
    for j in range(len(graph)):
        if graph[:, j].any():
            depth[j] = 1 + depth[graph[:, j]].max()
    return depth


def picture(graph: Graph, colours: np.ndarray, targets: np.ndarray, width: int, height: int) -> np.ndarray:
    """The graph as (height, width, 3) bytes: discs have the current colours, the rings around them the targets."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    dots = 100
    figure = Figure(figsize=(width / dots, height / dots), dpi=dots)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    x, y = _places(graph)
    for k, j in np.argwhere(graph):
        bend = 0.2 if abs(y[k] - y[j]) > 1 else 0.0  # around what lies between
        style = {"arrowstyle": "-|>", "color": "0.4", "connectionstyle": f"arc3,rad={bend}", "shrinkB": 15}
        axes.annotate("", (x[j], y[j]), (x[k], y[k]), arrowprops=style, zorder=1)
    palette = colormaps["tab10"]
    axes.scatter(x, y, 700, palette(colours % 10), edgecolors=palette(targets % 10), linewidths=6, zorder=2)
    for k in range(len(graph)):
        axes.text(x[k], y[k], str(k), color="white", ha="center", va="center", zorder=3)
    axes.set_xlim(x.min() - 0.6, x.max() + 0.6)
    axes.set_ylim(y.min() - 0.6, y.max() + 0.6)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _places(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Causes above their effects, each level side by side."""
    depth = depths(graph)
    x = np.zeros(len(graph))
    for level in range(depth.max() + 1):
        members = np.flatnonzero(depth == level)
        x[members] = np.arange(len(members)) - (len(members) - 1) / 2 + 0.15 * (level % 2)
    return x, -depth.astype(float)
