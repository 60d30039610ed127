"""`cbm abstract`: the state a reward needs, with the reason for every variable."""

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


@dataclass(frozen=True)
class Options:
    """Say which variables a reward needs, and why each one is kept or dropped.

    Example: cbm abstract runs/contact --reward pick

    First comes what is certainly needed, then what cannot be ruled out, with the undecided links (-?->) that
    let it in and the reason for each. A kept variable comes with its chain of causes to the reward, a dropped
    one with the strongest link that could have kept it, the threshold that this link did not reach and the
    weakest effect that would have been seen. Strengths are conditional mutual information in nats.
    """

    run: Positional[Path]
    """A run directory of `cbm discover`, or a graph.json."""
    reward: MaybeText = None
    """Which reward. May be left out when the run has only one, and with --rule cdl."""
    rule: Rule = "cbm"
    """cbm: the causes of the reward, and their causes.
    cdl: what the action can influence, and what influences that; the same for every reward."""
    certain_only: Flag = False
    """Keep only what is certainly needed. Left out: what cannot be ruled out is kept too."""
    at_least: float = 0.0
    """Leave out effects of one variable on another of fewer nats: a smaller state, which loses a little."""
    json: Flag = False
    """Print {"reward", "rule", "certain", "possible", "abstraction", "kept", "dropped", ...}."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "abstract")
    if not 0 <= options.at_least < math.inf:
        raise DataError(f"--at-least must be a number of nats, 0 or more, got {options.at_least:g}")
    graph = CausalGraph.load(options.run).stronger(options.at_least)
    explanation = explain(graph, _reward(graph, options), options.rule, certain_only=options.certain_only)
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
    """Reasons that are longer than the terminal go on under their own beginning."""
    lines = []
    for line in text.splitlines():
        name, gap, _ = line[2:].partition("  ")
        reason = len(line) - len(line[2 + len(name) + len(gap) :].lstrip()) if line.startswith("  ") and gap else 0
        indent = " " * min(reason, width() // 2)
        lines.append(textwrap.fill(line, width(), subsequent_indent=indent, break_on_hyphens=False) or "")
    return "\n".join(lines)
