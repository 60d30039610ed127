"""Why each variable is in the minimal state, or is not, in words a reader can check against the graph.

A kept variable gets its shortest causal path, a dropped one the strongest link that could have kept it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.abstraction.rules import Rule, controllable
from cbm.graph import ACTION, CausalGraph

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Explanation:
    """One abstraction with its reasons; `kept` and `dropped` together name every variable once, in order."""

    reward: str | None
    rule: Rule
    abstraction: tuple[str, ...]
    kept: dict[str, str]
    dropped: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "reward": self.reward,
            "rule": self.rule,
            "abstraction": list(self.abstraction),
            "kept": dict(self.kept),
            "dropped": dict(self.dropped),
        }

    def text(self) -> str:
        """Plain text, names and reasons in two columns."""
        total = len(self.kept) + len(self.dropped)
        subject = "any reward" if self.reward is None else f"reward {self.reward}"
        lines = [f"{subject}, rule {self.rule}: {len(self.kept)} of {total} variables kept"]
        width = max((len(name) for name in (*self.kept, *self.dropped)), default=0)
        for title, reasons in (("kept", self.kept), ("dropped", self.dropped)):
            lines += ["", title if reasons else f"{title}: none"]
            lines += [f"  {name:<{width}}  {reason}" for name, reason in reasons.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class _Link:
    cause: str
    effect: str
    cmi: float
    stderr: float
    threshold: float
    verdict: str

    def size(self) -> str:
        return plus_minus(self.cmi, self.stderr) + (" undecided" if self.verdict == "undecided" else "")

    def evidence(self) -> str:
        size = plus_minus(self.cmi, self.stderr)
        return f"{self.cause} -> {self.effect} CMI {size}, threshold {self.threshold:.3g} ({self.verdict})"


def explain(graph: CausalGraph, reward: str | None, rule: Rule = "cbm") -> Explanation:
    """Reasons for `graph.abstraction(reward, rule)`; rule "cdl" needs no reward."""
    mask = graph.mask(reward, rule)
    if rule == "cdl":
        kept, dropped = _cdl_reasons(graph, mask)
    else:
        assert reward is not None  # mask() has refused it
        kept, dropped = _cbm_paths(graph, reward), _cbm_evidence(graph, reward, mask)
    in_order = {name: kept[name] for name in graph.names_of(mask)}
    return Explanation(reward, rule, tuple(in_order), in_order, dropped)


def plus_minus(value: float, stderr: float) -> str:
    """Rounded to the first digit of the standard error; without one, to three digits."""
    if stderr <= 0:
        return f"{value:.3g}"
    decimals = max(0, -math.floor(math.log10(stderr)))
    if decimals > 6:
        return f"{value:.3g} ± {stderr:.0e}"
    return f"{value:.{decimals}f} ± {stderr:.{decimals}f}"


def _link(graph: CausalGraph, i: int, j: int) -> _Link:
    """The cell (effect i, cause j); column d is the action."""
    return _Link(
        cause=(*graph.variables, ACTION)[j],
        effect=graph.variables[i],
        cmi=float(graph.cmi[i, j]),
        stderr=float(graph.stderr[i, j]),
        threshold=float(graph.thresholds[i, j]),
        verdict=str(graph.verdict[i, j]),
    )


def _reward_link(graph: CausalGraph, reward: str, j: int) -> _Link:
    entry = graph.rewards[reward]
    return _Link(
        cause=graph.variables[j],
        effect=f"reward {reward}",
        cmi=float(entry.cmi[j]),
        stderr=float(entry.stderr[j]),
        threshold=float(entry.threshold[j]),
        verdict=str(entry.verdict[j]),
    )


def _shortest(
    graph: CausalGraph, seeds: BoolArray, cell: Callable[[int, int], tuple[int, int]]
) -> dict[int, tuple[int, ...]]:
    """Shortest walk from each reachable variable to a seed, both included; a tie goes to the strongest link.

    `cell(node, hop)` is the cell that says whether node attaches to hop; it sets the direction of the search.
    """
    walks: dict[int, tuple[int, ...]] = {int(seed): (int(seed),) for seed in np.flatnonzero(seeds)}
    frontier = list(walks)
    while frontier:
        found: dict[int, tuple[int, ...]] = {}
        for node in range(len(graph)):
            hops = [] if node in walks else [hop for hop in frontier if graph.adjacency[cell(node, hop)]]
            if hops:
                best = max(hops, key=lambda hop: float(graph.cmi[cell(node, hop)]))
                found[node] = (node, *walks[best])
        walks |= found
        frontier = list(found)
    return walks


def _towards(node: int, hop: int) -> tuple[int, int]:
    return hop, node  # node causes hop


def _away(node: int, hop: int) -> tuple[int, int]:
    return node, hop  # hop causes node


def _cbm_paths(graph: CausalGraph, reward: str) -> dict[str, str]:
    """For each kept variable: its path to the reward, with the CMI of every link on it."""
    parents = np.isin(graph.variables, graph.rewards[reward].parents)
    paths: dict[str, str] = {}
    for node, walk in _shortest(graph, parents, _towards).items():
        links = [_link(graph, effect, cause) for cause, effect in itertools.pairwise(walk)]
        links.append(_reward_link(graph, reward, walk[-1]))
        names = [link.cause for link in links] + [links[-1].effect]
        sizes = ", ".join(link.size() for link in links)
        paths[graph.variables[node]] = f"{' -> '.join(names)} (CMI {sizes})"
    return paths


def _cbm_evidence(graph: CausalGraph, reward: str, mask: BoolArray) -> dict[str, str]:
    kept = [int(i) for i in np.flatnonzero(mask)]
    target = "to anything kept" if kept else "to the reward"
    reasons: dict[str, str] = {}
    for j in (int(j) for j in np.flatnonzero(~mask)):
        links = [_link(graph, i, j) for i in kept] + [_reward_link(graph, reward, j)]
        reasons[graph.variables[j]] = _judge(f"no edge {target}", f"no certain edge {target}", links)
    return reasons


def _judge(sure: str, unsure: str, links: list[_Link]) -> str:
    """The claim, the strongest of the links that would have broken it, and how many are still open."""
    strongest = max(links, key=lambda link: link.cmi)
    undecided = [link for link in links if link.verdict == "undecided"]
    text = f"{unsure if undecided else sure}; strongest: {strongest.evidence()}"
    others = [link for link in undecided if link is not strongest]
    if others:
        worst = max(others, key=lambda link: link.cmi)
        text += f"; also undecided: {worst.cause} -> {worst.effect} CMI {plus_minus(worst.cmi, worst.stderr)}"
        text += f" and {len(others) - 1} more" if len(others) > 1 else ""
    return text


def _cdl_reasons(graph: CausalGraph, mask: BoolArray) -> tuple[dict[str, str], dict[str, str]]:
    d, names = len(graph), graph.variables
    reached = controllable(graph.adjacency)
    kept: dict[str, str] = {}
    for node, walk in _shortest(graph, graph.adjacency[:, d], _away).items():
        path = " -> ".join([ACTION, *(names[k] for k in reversed(walk))])
        kept[names[node]] = f"{path}: controllable"
    for node, walk in _shortest(graph, reached, _towards).items():
        if not reached[node]:
            path = " -> ".join(names[k] for k in walk)
            kept[names[node]] = f"action-relevant: {path}, which the action controls"

    sources = [*(int(k) for k in np.flatnonzero(reached)), d]
    dropped: dict[str, str] = {}
    for v in (int(v) for v in np.flatnonzero(~mask)):
        links = [_link(graph, v, j) for j in sources]
        links += [_link(graph, int(i), v) for i in np.flatnonzero(mask)]
        dropped[names[v]] = _judge(
            "not reached from the action, and not a cause of anything that is",
            "not certainly reached from the action, nor certainly a cause of anything that is",
            links,
        )
    return kept, dropped
