"""A graph in the formats of other tools: networkx, DOT, GraphML, JSON, CSV, tigramite, causal-learn.

The only place where edges turn round: a CausalGraph has row = effect, most tools want cause -> effect.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cbm.errors import DataError, unknown_name
from cbm.graph.graph import ACTION, REWARD_PREFIX, CausalGraph
from cbm.runs.files import atomic_write_bytes, csv_text

if TYPE_CHECKING:
    import networkx as nx

Row = tuple[str, str, float, float, str, bool]


def export(graph: CausalGraph, format: str, path: str | os.PathLike[str] | None = None) -> str | bytes:
    """The graph as text (or bytes for the .npz formats), also written to `path` if one is given."""
    if format not in WRITERS:
        raise unknown_name("unknown format", format, WRITERS)
    content = WRITERS[format](graph)
    if path is not None:
        atomic_write_bytes(path, content if isinstance(content, bytes) else content.encode("utf-8"))
    return content


def _cells(graph: CausalGraph) -> Iterator[Row]:
    """Every cell as (cause, effect, cmi, stderr, verdict, present): variables first, then rewards."""
    columns = (*graph.variables, ACTION)
    for i, effect in enumerate(graph.variables):
        for j, cause in enumerate(columns):
            numbers = float(graph.cmi[i, j]), float(graph.stderr[i, j])
            yield cause, effect, *numbers, str(graph.verdict[i, j]), bool(graph.adjacency[i, j])
    for name, reward in graph.rewards.items():
        for j, cause in enumerate(graph.variables):
            numbers = float(reward.cmi[j]), float(reward.stderr[j])
            yield cause, REWARD_PREFIX + name, *numbers, str(reward.verdict[j]), cause in reward.parents
        if (action := reward.action) is not None:
            yield ACTION, REWARD_PREFIX + name, action.cmi, action.stderr, action.verdict, action.verdict == "edge"


def _nodes(graph: CausalGraph) -> list[tuple[str, str]]:
    """(name, kind) of every node."""
    rewards = [(REWARD_PREFIX + name, "reward") for name in graph.rewards]
    return [*((name, "state") for name in graph.variables), (ACTION, "action"), *rewards]


def to_networkx(graph: CausalGraph) -> nx.DiGraph:
    """Edges cause -> effect with cmi, stderr and verdict; nodes have a kind: state, action or reward.

    Undecided links are edges too, since minimal states keep them; `guess` says whether they are in the best guess.
    """
    import networkx as nx

    result = nx.DiGraph()
    for name, kind in _nodes(graph):
        result.add_node(name, kind=kind)
    for cause, effect, cmi, stderr, verdict, present in _cells(graph):
        if present or verdict == "undecided":
            result.add_edge(cause, effect, cmi=cmi, stderr=stderr, verdict=verdict, guess=present)
    return result


def _node_link(graph: CausalGraph) -> str:
    import networkx as nx

    data: dict[str, Any] = nx.node_link_data(to_networkx(graph), edges="edges")
    return json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n"


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _graphml(graph: CausalGraph) -> str:
    import networkx as nx

    # XML 1.0 has no way to write most control characters, so these few become their Python escapes.
    safe = {name: _NOT_XML.sub(lambda c: ascii(c[0])[1:-1], name) for name, _ in _nodes(graph)}
    if len(set(safe.values())) < len(safe):
        raise DataError("variables: two names differ only in characters that GraphML cannot hold")
    buffer = io.BytesIO()
    # Not write_graphml: that one takes lxml when it is installed, and the file would depend on the machine.
    nx.write_graphml_xml(nx.relabel_nodes(to_networkx(graph), safe), buffer)
    return buffer.getvalue().decode("utf-8")


def _dot_string(text: str) -> str:
    """A quoted DOT string that shows `text` as it is, both as an identifier and as a label."""
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
    return '"' + text.replace("\r", "\\r").replace("\n", "\\n") + '"'


_DOT_STYLE = {"state": "shape=ellipse", "action": "shape=box", "reward": "shape=diamond"}


def _dot(graph: CausalGraph) -> str:
    lines = ["digraph cbm {", "  rankdir=LR;"]
    for name, kind in _nodes(graph):
        lines.append(f"  {_dot_string(name)} [{_DOT_STYLE[kind]}];")
    for cause, effect, cmi, _, verdict, present in _cells(graph):
        if present or verdict == "undecided":
            style = ", style=dashed" if verdict == "undecided" else ""
            lines.append(f'  {_dot_string(cause)} -> {_dot_string(effect)} [label="{cmi:.3g}"{style}];')
    return "\n".join([*lines, "}", ""])


def _csv(graph: CausalGraph) -> str:
    """All candidate edges, present or not, so that a spreadsheet can sort and filter them."""
    buffer = io.StringIO()
    # The module's own line end \r\n: with it, names that hold \r or \n are quoted on every Python version.
    writer = csv.writer(buffer)
    writer.writerow(["cause", "effect", "cmi", "stderr", "verdict", "edge"])
    for cause, effect, cmi, stderr, verdict, present in _cells(graph):
        writer.writerow([csv_text(cause), csv_text(effect), f"{cmi:.6g}", f"{stderr:.6g}", verdict, int(present)])
    return buffer.getvalue()


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _tigramite(graph: CausalGraph) -> bytes:
    """graph[j, i, 1] is "-->" when variable j causes variable i one step later; the action comes last.

    val_matrix holds the CMI at the same places. Rewards have no place in this array.
    """
    d = len(graph)
    links = np.zeros((d + 1, d + 1, 2), dtype="<U3")
    values = np.zeros((d + 1, d + 1, 2))
    links[:, :d, 1] = np.where(graph.adjacency.T, "-->", "")
    values[:, :d, 1] = graph.cmi.T
    return _npz(graph=links, val_matrix=values, var_names=np.array([*graph.variables, ACTION]))


def _causal_learn(graph: CausalGraph) -> bytes:
    """Two time slices, since causal-learn allows no self-edges: all of time t (action last), then all of t+1.

    graph[a, b] = -1 with graph[b, a] = 1 means a -> b.
    """
    d = len(graph)
    matrix = np.zeros((2 * d + 1, 2 * d + 1), dtype=np.int64)
    matrix[: d + 1, d + 1 :] = -graph.adjacency.T.astype(np.int64)
    matrix[d + 1 :, : d + 1] = graph.adjacency
    now = [f"{name}[t]" for name in (*graph.variables, ACTION)]
    return _npz(graph=matrix, names=np.array([*now, *(f"{name}[t+1]" for name in graph.variables)]))


WRITERS: dict[str, Callable[[CausalGraph], str | bytes]] = {
    "networkx": _node_link,
    "dot": _dot,
    "graphml": _graphml,
    "json": CausalGraph.dumps,
    "csv": _csv,
    "tigramite": _tigramite,
    "causal-learn": _causal_learn,
}
FORMATS = tuple(WRITERS)
SUFFIXES = {
    "networkx": ".node-link.json",
    "dot": ".dot",
    "graphml": ".graphml",
    "json": ".json",
    "csv": ".csv",
    "tigramite": ".npz",
    "causal-learn": ".npz",
}
"""The usual end of the file's name in each format."""
