"""What a discovered graph says, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from cbm.abstraction.rules import cbm_abstraction
from cbm.checks import read_json
from cbm.commands.console import duration, heading, listed, plural, show, wrapped
from cbm.discovery.effort import few_updates, updates_of
from cbm.discovery.last_action import repetitions
from cbm.graph import CausalGraph
from cbm.scores import Score
from cbm.transitions import Transitions

EXACT = "This is exactly the set that the true graph gives."


def result_json(graph: CausalGraph, data: Transitions, run: Path, already: bool) -> dict[str, Any]:
    score = score_of(graph, data)
    return {
        "run": str(run),
        "graph": str(run / "graph.json"),
        "report": str(run / "report.html"),
        "rewards": {
            name: {"parents": list(reward.parents), "abstraction": list(graph.abstraction(name))}
            for name, reward in graph.rewards.items()
        },
        "edges": int(graph.adjacency.sum()),
        "undecided": undecided(graph),
        "seconds": round(graph.seconds, 3),
        "updates": updates_of(read_json(run / "result.json")),
        "finished": "already" if already else True,
        "score": None if score is None else score.to_json(),
    }


def show_result(graph: CausalGraph, data: Transitions, run: Path, last_action: bool = False) -> None:
    """`last_action`: models saw it, so that what repeats it need not be named."""
    for name in graph.rewards:
        _show_reward(graph, data, name)
    if not graph.rewards:
        show("The log has no reward, so there is a graph but no task to find the needed state for.\n")
    size = f"{plural(int(graph.adjacency.sum()), 'edge')} of {graph.adjacency.size:,} possible ones"
    open_cells = undecided(graph)
    unsure = f", {plural(open_cells, 'cell')} undecided" if open_cells else ", none undecided"
    heading(f"graph: {size}{unsure}")
    score = score_of(graph, data)
    if score is not None:
        show("against the true graph that came with the log:")
        show("\n".join(wrapped(line, "  ", " " * 11) for line in score.table(6).splitlines()))
    if not last_action:
        _show_repetitions(graph, data)
    if few := few_updates(read_json(run / "result.json")):
        show()
        show(wrapped(f"{few} More --minutes or --steps make the result better.", "  "))
    show()
    show(f"{graph.model} model, {graph.transitions:,} transitions of {len(graph)} variables, {duration(graph.seconds)}")
    show(f"graph   {run / 'graph.json'}")
    show(f"report  {run / 'report.html'}")
    if graph.rewards:
        reward = f" --reward {next(iter(graph.rewards))}" if len(graph.rewards) > 1 else ""
        show(f"why     cbm abstract {run}{reward}")


def _show_repetitions(graph: CausalGraph, data: Transitions) -> None:
    """A cause that only shows the last action may stand for something that the log does not show."""
    effects = graph.adjacency[:, : len(graph)] & ~np.eye(len(graph), dtype=bool)
    causes = graph.names_of(repetitions(data) & effects.any(0))
    if causes:
        taken = "taken for causes, but they show" if len(causes) > 1 else "taken for a cause, but it shows"
        note = f"{', '.join(causes)}: {taken} nothing more than the last action"
        show()
        show(wrapped(f"{note}; with --last-action only what lies beyond that counts", "  "))


def _show_reward(graph: CausalGraph, data: Transitions, name: str) -> None:
    needed, parents = graph.abstraction(name), graph.rewards[name].parents
    heading(f"{name} needs {len(needed)} of {len(graph)} variables")
    show(listed(needed) if needed else "  none was found; more --minutes or a longer log may find some")
    if needed and len(parents) < len(needed):
        through = [variable for variable in needed if variable not in parents]
        show(wrapped(f"only through the others: {', '.join(through)}", "  "))
    verdict = against_truth(graph, data, name)
    if verdict:
        show(wrapped(verdict, "  "))
    show()


def against_truth(graph: CausalGraph, data: Transitions, reward: str) -> str | None:
    """How the state found for a reward differs from the one the true graph gives; None if that is not
    known."""
    if data.truth is None or reward not in data.truth_rewards:
        return None
    true = cbm_abstraction(data.truth, data.truth_rewards[reward])
    found = graph.mask(reward)
    if (true == found).all():
        return EXACT
    parts = []
    for title, mask in (("missing", true & ~found), ("too many", found & ~true)):
        if mask.any():
            parts.append(f"{title}: {', '.join(graph.names_of(mask))}")
    return f"The true graph gives {int(true.sum())} variables; {'; '.join(parts)}."


def score_of(graph: CausalGraph, data: Transitions) -> Score | None:
    return None if data.truth is None else graph.compare(data.truth)


def undecided(graph: CausalGraph) -> int:
    """Cells without a verdict, those of the rewards included."""
    cells = [graph.verdict.ravel(), *(reward.verdict for reward in graph.rewards.values())]
    return int((np.concatenate(cells) == "undecided").sum())
