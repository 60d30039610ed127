"""A graph in a notebook: the report's own heat map and minimal states, in a frame that nothing can get out of."""

from __future__ import annotations

import html
from typing import Any

from cbm.graph import CausalGraph
from cbm.report.graph_payload import matrix_payload, name_groups, reward_payload
from cbm.report.page import page

LARGEST = 300
"""Graphs of more variables are too large to be sent with a notebook; their report is a file."""
HIGHEST = 1600
"""Pixels; a frame that needs more has a scroll bar."""
LINE, ACTION, BOOTSTRAP, CHIPS = 44, 60, 260, 36
"""Letters in a line of a card, in the sentence about the action, in that about resampled logs; variables on a card."""
SCRIPTS = ("dom.js", "heatmap.js", "heatpaint.js", "doubt.js", "notebook.js")


def graph_html(graph: CausalGraph) -> str:
    """What `_repr_html_` of a graph gives: no server, no network, no script outside of its frame."""
    if len(graph) > LARGEST:
        return f"<pre>{html.escape(repr(graph))}</pre>"
    payload = _payload(graph)
    text = page({"run": payload}, "cbm graph", SCRIPTS)
    return (
        f'<iframe sandbox="allow-scripts" style="width:100%;height:{min(_height(payload), HIGHEST)}px;border:0" '
        f'title="causal graph" srcdoc="{html.escape(text)}"></iframe>'
    )


def _height(run: dict[str, Any]) -> int:
    """Pixels that a frame needs, which cannot grow by itself: rather too many than too few."""
    rows, rewards = len(run["variables"]) + len(run["rewards"]), run["rewards"]
    cell = max(10, min(36, 800 // (rows + 1)))
    cards = [_card_height(run, reward) for reward in rewards]
    pairs = [max(cards[k : k + 2]) + 16 for k in range(0, len(cards), 2)]  # two stand side by side
    return 200 + sum(pairs) + rows * cell + min(24, max(map(len, run["variables"]))) * 6


def _card_height(run: dict[str, Any], reward: dict[str, Any]) -> int:
    """Of one reward: its title, its variables, and the sentences below."""
    names = [run["variables"][index] for index, _ in reward["kept"][:CHIPS]]
    chips = [-(-sum(len(name) + 4 for name in names) // LINE) + bool(reward["possible"])]
    sentences = [2 * LINE, *([ACTION] if reward["action"] else []), *([30] if reward["possible"] else [])]
    paragraphs = [sum(sentences), len(reward["coarse"]), BOOTSTRAP if reward["bootstrap"] else 0]
    lines = [-(-length // LINE) for length in paragraphs if length]
    return 91 + 28 * sum(chips) + sum(10 + 20 * count for count in lines)


def _payload(graph: CausalGraph) -> dict[str, Any]:
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
