"""`cbm abstract`: the state that a reward needs, with a reason for every variable."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from cbm.cli.arguments import Flag, MaybeText, parse
from cbm.cli.console import print_json, show, stdout, width
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.explain import action_sentence, explain
from cbm.graph.rules import Rule
from cbm.report.learning import is_learning_run


@dataclass(frozen=True)
class Options:
    """Say which variables a reward needs, and why each one is kept or dropped.

    Example: cbm abstract runs/contact --reward pick

    Variables that are certainly needed come first, then those that cannot be ruled out, with the undecided links (-?->)
    through which they might matter and the reason for each. A kept variable is shown with its chain of causes to the
    reward; a dropped one with the strongest link that could have kept it, the threshold that this link missed and the
    weakest effect that would have been detected. Strengths are conditional mutual information in nats.
    """

    run: Positional[Path]
    """Run directory of `cbm discover`, or a graph.json."""
    reward: MaybeText = None
    """Name of the reward. Needed only if the run has several, and not with --rule cdl."""
    rule: Rule = "cbm"
    """cbm: the causes of the reward, and their causes.
    cdl: what the action can influence, and what influences that; the same for every reward."""
    certain_only: Flag = False
    """Keep only what is certainly needed. Default: variables that cannot be ruled out are kept, too."""
    at_least: float = 0.0
    """Ignore effects between variables of fewer nats. This gives a smaller state that loses little."""
    json: Flag = False
    """Print {"reward", "rule", "certain", "possible", "abstraction", "kept", "dropped", ...}."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "abstract")
    if not 0 <= options.at_least < math.inf:
        raise DataError(f"--at-least must be a number of nats, 0 or more, got {options.at_least:g}")
    graph = CausalGraph.load(options.run).stronger(options.at_least)
    as_guessed = is_learning_run(options.run) and not options.certain_only  # its policies saw what the best guess says
    explanation = explain(
        graph, _reward(graph, options), options.rule, certain_only=options.certain_only, as_guessed=as_guessed
    )
    if options.json:
        print_json(explanation.to_json())
        return
    show(explanation.text() if not stdout().is_terminal else _hanging(explanation.text()))
    reward = graph.rewards[explanation.reward] if explanation.reward is not None else None
    if reward is not None and options.rule == "cbm" and reward.action is not None:
        show(f"\n{action_sentence(reward)}")


def _reward(graph: CausalGraph, options: Options) -> str | None:
    if options.reward is not None or options.rule == "cdl":
        return options.reward
    if not graph.rewards:
        raise DataError(f"{options.run}: the log had no reward, so nothing is needed (--rule cdl asks for none)")
    if len(graph.rewards) > 1:
        raise DataError(f"{options.run}: has several rewards, choose one: --reward {'|'.join(graph.rewards)}")
    return next(iter(graph.rewards))


def _hanging(text: str) -> str:
    """Wrap long reasons at the terminal's width, indented to where each reason begins."""
    lines = []
    for line in text.splitlines():
        name, gap, _ = line[2:].partition("  ")
        reason = len(line) - len(line[2 + len(name) + len(gap) :].lstrip()) if line.startswith("  ") and gap else 0
        indent = " " * min(reason, width() // 2)
        lines.append(textwrap.fill(line, width(), subsequent_indent=indent, break_on_hyphens=False) or "")
    return "\n".join(lines)
