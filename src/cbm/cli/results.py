"""Results of discovery as text for people and as JSON for programs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from cbm.cli.bootstrap_table import show_bootstrap
from cbm.cli.console import duration, heading, listed, plural, show, wrapped
from cbm.cli.variable_names import compact
from cbm.data.transitions import Transitions
from cbm.discovery.last_action import repetitions
from cbm.discovery.rows import in_memory
from cbm.graph import CausalGraph, RewardGraph
from cbm.graph.advice import advice
from cbm.graph.explain import action_sentence, explain
from cbm.graph.limits import coarse_limits, limits_sentence
from cbm.graph.rules import cbm_abstraction
from cbm.graph.scores import Score
from cbm.graph.summary import in_short
from cbm.runs.files import read_json

EXACT = "This is exactly the set that the true graph gives."
DOUBTS = 4
"""Undecided links named in one sentence, at most."""
ADVISED = 2
"""Kinds of undecided cells with a line of advice, at most."""
REPETITION_ROWS = 60_000
"""Rows of a memory-mapped log that are searched for repetitions of the last action."""


def result_json(graph: CausalGraph, data: Transitions, run: Path, already: bool) -> dict[str, Any]:
    score = score_of(graph, data)
    return {
        "run": str(run),
        "graph": str(run / "graph.json"),
        "report": str(run / "report.html"),
        "rewards": {name: _reward_json(graph, name) for name in graph.rewards},
        "edges": int(graph.adjacency.sum()),
        "undecided": graph.undecided(),
        "unsettled": unsettled(graph),
        "advice": advice(graph),
        "in_short": in_short(graph),
        "seconds": round(graph.seconds, 3),
        "updates": _updates(run),
        "finished": "already" if already else True,
        "score": None if score is None else score.to_json(),
    } | ({} if graph.bootstrap is None else {"bootstrap": graph.bootstrap.to_json()})


def _reward_json(graph: CausalGraph, name: str) -> dict[str, Any]:
    reward, reasons = graph.rewards[name], explain(graph, name)
    return {
        "parents": list(reward.parents),
        "decided": reward.decided,
        "certain": list(reasons.certain),
        "possible": list(reasons.possible),
        "abstraction": list(reasons.abstraction),
        "undecided_links": {variable: list(links) for variable, links in reasons.undecided_links.items()},
        "coarse_limits": dict(reasons.coarse_limits),
        "action": None if reward.action is None else reward.action.verdict,
    }


def _updates(run: Path) -> Any:
    """Number of updates of each stage's models, if recorded."""
    result = read_json(run / "result.json") if (run / "result.json").is_file() else None
    return result.get("updates", {}) if isinstance(result, dict) else {}


def show_result(graph: CausalGraph, data: Transitions, run: Path, last_action: bool = False) -> None:
    """`last_action`: models saw the previous action, so variables that repeat it need not be named."""
    for name in graph.rewards:
        _show_reward(graph, data, name)
    if not graph.rewards:
        show("The log has no reward, so there is a graph but no task to find the needed state for.\n")
    heading(f"graph: {graph_sentence(graph)}")
    score = score_of(graph, data)
    if score is not None:
        show("against the true graph that came with the log:")
        show("\n".join(wrapped(line, "  ", " " * 11) for line in score.table(6).splitlines()))
    if not (last_action or graph.last_action):
        _show_repetitions(graph, data)
    show()
    if graph.bootstrap is not None:
        show_bootstrap(graph)
    show(f"{graph.model} model, {graph.transitions:,} transitions of {len(graph)} variables, {duration(graph.seconds)}")
    show(f"graph   {run / 'graph.json'}")
    show(f"report  {run / 'report.html'}")
    if graph.rewards:
        reward = f" --reward {next(iter(graph.rewards))}" if len(graph.rewards) > 1 else ""
        show(f"why     cbm abstract {run}{reward}")
    _show_advice(graph)
    show()
    show(wrapped(f"in short: {in_short(graph)}"))


def graph_sentence(graph: CausalGraph) -> str:
    """The number of edges and of undecided cells; without any verdict only the latter."""
    open_cells = graph.undecided()
    if not graph.decided:
        return f"undecided, {plural(open_cells, 'cell')}"
    certain = int(graph.certain_edges.sum())
    size = f"{plural(certain, 'edge')} of {graph.adjacency.size:,} possible ones"
    return f"{size}, {plural(open_cells, 'cell')} undecided" if open_cells else f"{size}, none undecided"


def _show_advice(graph: CausalGraph) -> None:
    sentences = advice(graph)
    for sentence in sentences[:ADVISED]:
        show(wrapped(f"settle  {sentence}", "", " " * 8))


def _show_repetitions(graph: CausalGraph, data: Transitions) -> None:
    """Name causes that merely show the last action: they may stand for something that the log does not show."""
    effects = graph.adjacency[:, : len(graph)] & ~np.eye(len(graph), dtype=bool)
    causes = graph.names_of(repetitions(in_memory(data, REPETITION_ROWS, 0)) & effects.any(0))
    if causes:
        taken = "taken for causes, but they show" if len(causes) > 1 else "taken for a cause, but it shows"
        note = f"{', '.join(causes)}: {taken} nothing more than the last action"
        show()
        show(wrapped(f"{note}; with --last-action on, only what lies beyond that counts", "  "))


def _show_reward(graph: CausalGraph, data: Transitions, name: str) -> None:
    reward, needed = graph.rewards[name], graph.certain(name)
    if not reward.decided:
        heading(f"{name} is undecided:")
        show(wrapped(undecided_sentence(reward), "  "))
    else:
        certainly = "certainly needs" if graph.possible(name) else "needs"
        heading(f"{name} {certainly} {len(needed)} of {len(graph)} variables")
        show(listed(needed) if needed else f"  {nothing_sentence(reward)}")
        through = [variable for variable in needed if variable not in reward.parents]
        if through:
            show(wrapped(f"only through the others: {', '.join(through)}", "  "))
        if doubts := doubt_sentence(graph, name):
            show(wrapped(doubts, "  "))
        if coarse := limits_sentence(coarse_limits(graph, name)):
            show(wrapped(coarse, "  "))
    for sentence in (action_sentence(reward), against_truth(graph, data, name) if reward.decided else None):
        if sentence:
            show(wrapped(sentence, "  "))
    show()


def needs_sentence(graph: CausalGraph, name: str) -> str:
    """The variables that a reward needs, in one sentence."""
    reward, needed = graph.rewards[name], graph.certain(name)
    if not reward.decided:
        return f"{name} is undecided: {undecided_sentence(reward)}"
    certainly = "certainly needs" if graph.possible(name) else "needs"
    names = compact(needed) if needed else nothing_sentence(reward)
    doubts = doubt_sentence(graph, name)
    return f"{name} {certainly} {len(needed)} of {len(graph)}: {names}{f'; {doubts}' if doubts else ''}"


def undecided_sentence(reward: RewardGraph) -> str:
    """For a reward without a verdict on any variable: in that case, finding nothing is not a result."""
    reasons = Counter(str(reason) for reason in reward.reason if reason)
    why = "; ".join(reason for reason, _ in reasons.most_common(DOUBTS)) or "no reason is recorded"
    return f"none of the {len(reward.verdict)} variables could be tied to it or ruled out: {why}"


def nothing_sentence(reward: RewardGraph) -> str:
    if not reward.settled.any():
        return "undecided: nothing had settled when the time was up"
    above = "" if np.isnan(reward.limit_of_detection) else f", above {reward.limit_of_detection:.2g} nats"
    return f"nothing found that it {'certainly ' if (reward.verdict == 'undecided').any() else ''}depends on{above}"


def doubt_sentence(graph: CausalGraph, name: str) -> str:
    """The variables that cannot be ruled out for a reward, and why; variables let in by the same undecided link are
    grouped."""
    groups: dict[str, list[str]] = {}
    for variable, links in explain(graph, name).undecided_links.items():
        groups.setdefault(links[-1], []).append(variable)  # the link nearest to the reward
    shown = [f"{compact(names)} ({link})" for link, names in list(groups.items())[:DOUBTS]]
    rest = [name for names in list(groups.values())[DOUBTS:] for name in names]
    shown += [f"and {len(rest)} more"] if rest else []
    return f"cannot be ruled out: {', '.join(shown)}" if shown else ""


def against_truth(graph: CausalGraph, data: Transitions, reward: str) -> str | None:
    """How the state found for a reward differs from that of the true graph; None if that is not known."""
    if data.truth is None or reward not in data.truth_rewards:
        return None
    true = cbm_abstraction(data.truth, data.truth_rewards[reward])
    found, certain = graph.mask(reward), graph.mask(reward, certain_only=True)
    if (true == found).all():
        return EXACT
    parts = []
    for title, mask in (
        ("missing", true & ~found),
        ("too many", certain & ~true),
        ("not ruled out, though not needed", found & ~certain & ~true),
    ):
        if mask.any():
            parts.append(f"{title}: {', '.join(graph.names_of(mask))}")
    return f"The true graph gives {int(true.sum())} variables; {'; '.join(parts)}."


def score_of(graph: CausalGraph, data: Transitions) -> Score | None:
    return None if data.truth is None else graph.compare(data.truth)


def unsettled(graph: CausalGraph) -> int:
    """Number of cells whose models or tests were cut short, including those of the rewards."""
    return int((~graph.settled).sum()) + sum(int((~reward.settled).sum()) for reward in graph.rewards.values())
