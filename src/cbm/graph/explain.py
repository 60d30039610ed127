"""Why each variable is in the minimal state, or is not, in words a reader can check against the graph.

A kept variable gets its causal path, with undecided links drawn as -?->: the path with the fewest of them, and the
shortest of those. A dropped variable gets the strongest link that could have kept it.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.graph.graph import ACTION, CausalGraph, RewardGraph
from cbm.graph.limits import coarse_limits, limits_sentence
from cbm.graph.rules import Rule, controllable

BoolArray = NDArray[np.bool_]
NOT_RULED_OUT = "cannot be ruled out: "  # instead of evidence, where there is none


@dataclass(frozen=True)
class Explanation:
    """One abstraction with its reasons; `kept` and `dropped` together name every variable once, in order."""

    reward: str | None
    rule: Rule
    certain: tuple[str, ...]
    """Needed whatever the undecided cells turn out to be."""
    possible: tuple[str, ...]
    """Cannot be ruled out, whether they are kept or not."""
    abstraction: tuple[str, ...]
    """What is kept."""
    kept: dict[str, str]
    """The path of each kept variable."""
    dropped: dict[str, str]
    """The evidence against each other one."""
    undecided_links: dict[str, tuple[str, ...]]
    """For each possible variable: the undecided links on its path, with the reason of each."""
    decided: bool
    """Whether anything is known: not when every cell of the reward is undecided."""
    coarse_limits: Mapping[str, float] = field(default_factory=dict)
    """Where only strong effects would have been seen: limits of detection in nats."""

    def to_json(self) -> dict[str, Any]:
        return {
            "reward": self.reward,
            "rule": self.rule,
            "certain": list(self.certain),
            "possible": list(self.possible),
            "abstraction": list(self.abstraction),
            "kept": dict(self.kept),
            "dropped": dict(self.dropped),
            "decided": self.decided,
            "undecided_links": {name: list(links) for name, links in self.undecided_links.items()},
            "coarse_limits": dict(self.coarse_limits),
        }

    def text(self) -> str:
        """Plain text, names and reasons in two columns."""
        width = max((len(name) for name in (*self.kept, *self.dropped)), default=0)
        ruled_out = [name for name in self.dropped if name not in self.possible]
        sections: list[tuple[str, tuple[str, ...] | list[str]]] = [
            ("certainly needed", self.certain),
            ("cannot be ruled out", [name for name in self.possible if name in self.kept]),
            ("cannot be ruled out, but left out", [name for name in self.possible if name in self.dropped]),
            ("dropped", ruled_out),
        ]
        lines = [self._title()]
        for title, names in sections:
            if names or title in ("certainly needed", "dropped"):
                none = "none" if self.decided or title == "dropped" else "nothing is known yet"
                lines += ["", title if names else f"{title}: {none}"]
            for name in names:
                reason = (self.kept | self.dropped)[name].removeprefix(NOT_RULED_OUT)
                lines.append(f"  {name:<{width}}  {reason}")
                lines += [f"  {'':<{width}}  undecided: {link}" for link in self.undecided_links.get(name, ())]
        if self.coarse_limits:
            lines += ["", limits_sentence(dict(self.coarse_limits))]
        return "\n".join(lines)

    def _title(self) -> str:
        total = len(self.kept) + len(self.dropped)
        subject = "any reward" if self.reward is None else f"reward {self.reward}"
        title = f"{subject}, rule {self.rule}: {'' if self.decided else 'undecided, '}"
        title += f"{len(self.kept)} of {total} variables kept"
        if not self.possible:
            return title
        left_out = sum(name in self.dropped for name in self.possible)
        fate = f", {left_out} of these left out" if left_out else ""
        return f"{title}; {len(self.certain)} certainly needed, {len(self.possible)} cannot be ruled out{fate}"


@dataclass(frozen=True)
class _Link:
    cause: str
    effect: str
    cmi: float
    stderr: float
    threshold: float
    verdict: str
    reason: str
    limit: float

    def arrow(self) -> str:
        return " -?-> " if self.verdict == "undecided" else " -> "

    def size(self) -> str:
        return plus_minus(self.cmi, self.stderr) + (" undecided" if self.verdict == "undecided" else "")

    def evidence(self) -> str:
        limit = "" if math.isnan(self.limit) else f", limit of detection {self.limit:.3g}"
        size = plus_minus(self.cmi, self.stderr)
        link = f"{self.cause}{self.arrow()}{self.effect}"
        return f"{link} CMI {size}, threshold {self.threshold:.3g} ({self.verdict}){limit}"

    def doubt(self) -> str:
        return f"{self.cause}{self.arrow()}{self.effect}: {self.reason or 'no reason is recorded'}"


@dataclass(frozen=True)
class _Path:
    """Why a variable is kept: words around a chain of links."""

    text: str
    links: tuple[_Link, ...]

    def undecided(self) -> tuple[str, ...]:
        return tuple(link.doubt() for link in self.links if link.verdict == "undecided")


def explain(
    graph: CausalGraph,
    reward: str | None,
    rule: Rule = "cbm",
    *,
    certain_only: bool = False,
    as_guessed: bool = False,
) -> Explanation:
    """Reasons for `graph.abstraction(reward, rule)`; rule "cdl" needs no reward.

    `certain_only` and `as_guessed` explain the mask without what cannot be ruled out, and `graph.guessed_mask`.
    """
    certain = graph.mask(reward, rule, certain_only=True)
    possible = graph.mask(reward, rule)
    kept = graph.guessed_mask(reward, rule) if as_guessed else certain if certain_only else possible
    if rule == "cdl":
        paths, evidence = _cdl_paths(graph), _cdl_evidence(graph, possible)
    else:
        assert reward is not None  # mask() has refused it
        paths, evidence = _cbm_paths(graph, reward), _cbm_evidence(graph, reward, kept, possible)
    names = graph.variables
    dropped = {
        names[k]: NOT_RULED_OUT + paths[k].text if possible[k] else evidence[k]
        for k in (int(k) for k in np.flatnonzero(~kept))
    }
    in_doubt = [int(k) for k in np.flatnonzero(possible & ~certain)]
    return Explanation(
        reward=reward,
        rule=rule,
        certain=graph.names_of(certain),
        possible=graph.names_of(possible & ~certain),
        abstraction=graph.names_of(kept),
        kept={names[k]: paths[k].text for k in (int(k) for k in np.flatnonzero(kept))},
        dropped=dropped,
        undecided_links={names[k]: paths[k].undecided() for k in in_doubt},
        decided=graph.rewards[reward].decided if reward is not None and rule == "cbm" else graph.decided,
        coarse_limits=coarse_limits(graph, reward) if reward is not None and rule == "cbm" else {},
    )


def action_sentence(reward: RewardGraph) -> str:
    """Whether the reward depends on the action itself, where that was measured."""
    if reward.action is None:
        return ""
    if reward.action.verdict == "undecided":
        why = reward.action.reason or "no reason is recorded"
        return f"Whether it depends on the action itself is undecided: {why}."
    return f"It {'depends' if reward.action.verdict == 'edge' else 'does not depend'} on the action itself."


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
        reason=str(graph.reason[i, j]),
        limit=float(graph.limit_of_detection[i]),
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
        reason=str(entry.reason[j]),
        limit=entry.limit_of_detection,
    )


# Paths


def _price(graph: CausalGraph, verdict: str) -> int:
    """Of one link: many decided ones are better than an undecided one more."""
    return 1 if verdict == "edge" else _price_of_doubt(graph)


def _price_of_doubt(graph: CausalGraph) -> int:
    return 2 * len(graph) + 3  # more than all links of any path: there and back again, and the one to the reward


@dataclass(frozen=True)
class _Walks:
    """The cheapest walk from each variable that has one to a seed, both included, and its price."""

    walks: dict[int, tuple[int, ...]]
    prices: dict[int, int]


def _cheapest(graph: CausalGraph, seeds: Mapping[int, int], cell: Callable[[int, int], tuple[int, int]]) -> _Walks:
    """Dijkstra over possible edges from seeds with a price of their own; a tie goes to the strongest link.

    `cell(node, hop)` is the cell that says whether node attaches to hop; it sets the direction of the search.
    """
    found = _Walks({}, {})
    queue: list[tuple[int, float, int, tuple[int, ...]]] = [(price, 0.0, seed, ()) for seed, price in seeds.items()]
    heapq.heapify(queue)
    while queue:
        price, _, node, rest = heapq.heappop(queue)
        if node in found.walks:
            continue
        found.walks[node], found.prices[node] = (node, *rest), price
        for other in range(len(graph)):
            verdict = str(graph.verdict[cell(other, node)])
            if other not in found.walks and verdict != "none":
                strength = float(graph.cmi[cell(other, node)])
                entry = (price + _price(graph, verdict), -strength, other, found.walks[node])
                heapq.heappush(queue, entry)
    return found


def _towards(node: int, hop: int) -> tuple[int, int]:
    return hop, node  # node causes hop


def _away(node: int, hop: int) -> tuple[int, int]:
    return node, hop  # hop causes node


def _chain(links: list[_Link]) -> str:
    return links[0].cause + "".join(link.arrow() + link.effect for link in links)


def _cbm_paths(graph: CausalGraph, reward: str) -> dict[int, _Path]:
    """For each possible variable: its path to the reward, with the CMI of every link on it."""
    verdict = graph.rewards[reward].verdict
    seeds = {int(k): _price(graph, str(verdict[k])) for k in np.flatnonzero(verdict != "none")}
    paths: dict[int, _Path] = {}
    for node, walk in _cheapest(graph, seeds, _towards).walks.items():
        links = [_link(graph, effect, cause) for cause, effect in itertools.pairwise(walk)]
        links.append(_reward_link(graph, reward, walk[-1]))
        paths[node] = _Path(f"{_chain(links)} (CMI {', '.join(link.size() for link in links)})", tuple(links))
    return paths


def _cdl_paths(graph: CausalGraph) -> dict[int, _Path]:
    """For each possible variable: the path on which the action reaches it, or its own path to what is reached so."""
    d = len(graph)
    seeds = {int(k): _price(graph, str(graph.verdict[k, d])) for k in np.flatnonzero(graph.verdict[:, d] != "none")}
    reached = _cheapest(graph, seeds, _away)
    relevant = _cheapest(graph, reached.prices, _towards)
    paths: dict[int, _Path] = {}
    for node, walk in relevant.walks.items():
        doubt = relevant.prices[node] // _price_of_doubt(graph)
        controlled = node in reached.prices and reached.prices[node] // _price_of_doubt(graph) <= doubt
        target = node if controlled else walk[-1]
        forth = [d, *reversed(reached.walks[target])]
        control = [_link(graph, effect, cause) for cause, effect in itertools.pairwise(forth)]
        if controlled:
            paths[node] = _Path(f"{_chain(control)}: controllable", tuple(control))
            continue
        links = [_link(graph, effect, cause) for cause, effect in itertools.pairwise(walk)]
        sure = all(link.verdict == "edge" for link in control)
        how = "which the action controls" if sure else f"which the action may control: {_chain(control)}"
        paths[node] = _Path(f"action-relevant: {_chain(links)}, {how}", (*links, *control))
    return paths


# Evidence


def _cbm_evidence(graph: CausalGraph, reward: str, kept: BoolArray, possible: BoolArray) -> dict[int, str]:
    """For each variable that is ruled out."""
    effects = [int(i) for i in np.flatnonzero(kept)]
    claim = f"no edge {'to anything kept' if effects else 'to the reward'}"
    evidence: dict[int, str] = {}
    for j in (int(j) for j in np.flatnonzero(~possible)):
        links = [_link(graph, i, j) for i in effects] + [_reward_link(graph, reward, j)]
        evidence[j] = f"{claim}; strongest: {_strongest(links).evidence()}"
    return evidence


def _cdl_evidence(graph: CausalGraph, possible: BoolArray) -> dict[int, str]:
    d = len(graph)
    sources = [*(int(k) for k in np.flatnonzero(controllable(graph.possible_edges))), d]
    claim = "not reached from the action, and not a cause of anything that is"
    evidence: dict[int, str] = {}
    for v in (int(v) for v in np.flatnonzero(~possible)):
        links = [_link(graph, v, j) for j in sources] + [_link(graph, int(i), v) for i in np.flatnonzero(possible)]
        evidence[v] = f"{claim}; strongest: {_strongest(links).evidence()}"
    return evidence


def _strongest(links: list[_Link]) -> _Link:
    return max(links, key=lambda link: link.cmi)
