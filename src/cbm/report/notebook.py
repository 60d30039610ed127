"""A graph in a notebook: the report's own heat map and minimal states, in a frame that nothing can get out of."""

from __future__ import annotations

import html

from cbm.graph import CausalGraph
from cbm.report.graph_payload import matrix_payload, name_groups, reward_payload
from cbm.report.page import page

LARGEST = 300
"""Graphs of more variables are too large to be sent with a notebook; their report is a file."""
SCRIPTS = ("dom.js", "heatmap.js", "heatpaint.js", "doubt.js", "notebook.js")


def graph_html(graph: CausalGraph) -> str:
    """What `_repr_html_` of a graph gives: no server, no network, no script outside of its frame."""
    if len(graph) > LARGEST:
        return f"<pre>{html.escape(repr(graph))}</pre>"
    cell = max(10, min(36, 800 // (len(graph) + len(graph.rewards) + 1)))
    longest = max(map(len, graph.variables))
    cards = 210 * ((len(graph.rewards) + 1) // 2)
    height = 150 + cards + (len(graph) + len(graph.rewards)) * cell + min(24, longest) * 6
    text = page({"run": _payload(graph)}, "cbm graph", SCRIPTS)
    return (
        f'<iframe sandbox="allow-scripts" style="width:100%;height:{min(height, 1300)}px;border:0" '
        f'title="causal graph" srcdoc="{html.escape(text)}"></iframe>'
    )


def _payload(graph: CausalGraph) -> dict[str, object]:
    return {
        "index": 0,
        "name": "graph",
        "variables": list(graph.variables),
        "groups": name_groups(graph.variables),
        "as_guessed": False,
        **matrix_payload(graph),
        "rewards": [reward_payload(graph, name, None, False) for name in graph.rewards],
        "truth": None,
    }
