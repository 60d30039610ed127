"""`cbm verify`: the graph of a world found by intervention, compared with the one that it declares."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from cbm.cli.arguments import Flag, MaybeInt, MaybePath, MaybeText, at_least, check_seed, parse
from cbm.cli.console import Stages, duration, heading, listed, plural, print_json, show, show_table, wrapped
from cbm.cli.pairs import Pairs
from cbm.cli.paths import check_file, made_directory
from cbm.cli.variable_names import compact
from cbm.cli.world_options import recipe
from cbm.errors import unknown_name

if TYPE_CHECKING:
    from cbm.envs.verify import Verification
    from cbm.envs.world import World

MOST_ROWS = 30
"""Differences listed on the screen, at most; --out has all of them."""
UNIT = "standard deviations of the effect variable's change in one step"
WITHIN_A_STEP = (
    "Found edges lead from one step to the next. A published graph may hold what happens within a step instead: "
    "docs/concepts/one-step-graphs.md."
)


@dataclass(frozen=True)
class Options:
    """Find the true graph of a world by intervening on its simulator.

    Example: cbm verify contact

    In states visited by the world's policies, each variable in turn is set to another value, close to values in the
    data; the changed and the unchanged state are stepped with the same action and the same random numbers. Any
    difference afterwards is an effect. The command prints how often and how strongly the edges act, and the differences
    from the graph that the world declares.
    """

    env: Positional[str]
    """Name of the world; `cbm envs` lists them."""
    states: int = 2000
    """Number of states in which every variable is changed."""
    policy: Annotated[tuple[str, ...], UseAppendAction, arg(help_behavior_hint="")] = ()
    """Policy that leads to these states; may be repeated. Default: all policies of the world."""
    seed: int = 0
    """Seed of everything random."""
    backend: MaybeText = None
    """Simulator of the world, if there is a choice. Default: the first one."""
    distractors: MaybeInt = None
    """Number of distractors of each kind: this many driven by the action, and as many independent of it. Default: set
    by the world."""
    option: Pairs = ()
    """Any other option of the world; may be repeated."""
    truth: str = "physical"
    """The declared graph to compare with, if a world has several."""
    tolerance: float = 0.01
    """An edge acts in a state if its effect exceeds this many standard deviations of the variable's change in one step,
    and ten times the numerical noise."""
    min_share: float = 0.001
    """An edge is found if it acts in more than this share of the visited states ..."""
    min_states: int = 2
    """... and in at least this many of the states tried."""
    out: MaybePath = None
    """File for every possible edge with its share and strength: .csv or .json."""
    strict: Flag = False
    """Exit with code 1 if the graphs differ."""
    json: Flag = False
    """Print the result as JSON."""
    quiet: Flag = False
    """Show no progress, only the result."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "verify")
    at_least("--states", options.states, 1)
    check_seed(options.seed)
    at_least("--tolerance", options.tolerance, 0)
    at_least("--min-share", options.min_share, 0)
    at_least("--min-states", options.min_states, 1)
    if options.out is not None:
        check_file(options.out, force=True, suffixes=(".csv", ".json"))
    world = recipe(options.env, options.backend, options.distractors, options.option)()
    if options.truth not in world.truths:
        raise unknown_name(f"{options.env}: unknown graph", options.truth, world.truths)
    result = _verify(options, world)
    summary = _summary(options, world, result)
    if options.out is not None:
        with made_directory(options.out.parent):
            _write(options.out, result, summary)
    if options.json:
        print_json(summary)
    else:
        _show(options, world, result)
    if options.strict and not result.agrees:
        raise SystemExit(1)


def _verify(options: Options, world: World) -> Verification:
    from cbm.envs.verify import verify

    with Stages({"verify": f"intervening on {options.env}"}, options.quiet) as stages:
        return verify(
            world,
            options.states,
            policies=options.policy or None,
            declared=world.truths[options.truth],
            seed=options.seed,
            tolerance=options.tolerance,
            min_share=options.min_share,
            min_states=options.min_states,
            progress=lambda done: stages("verify", done),
        )


# For people


def _show(options: Options, world: World, result: Verification) -> None:
    along = f"{plural(result.states, 'state')} along {', '.join(result.policies)}"
    heading(f"{options.env}: {plural(len(result.variables), 'variable')}, {along}\n")
    show_table(
        ("cause", "effect", "edges", "declared", "act in", "effect where they act", "95 %"),
        _between_groups(world, result),
        right=("edges", "declared", "act in", "effect where they act", "95 %"),
    )
    show(f"\nEffects in {UNIT}.")
    for title, names in _untested(world, result).items():
        if names:
            show(wrapped(f"{title}, so their effects are not tested:"))
            show(listed(names))
    together = {frozenset((name, *others)) for name, others in result.moves_others.items()}
    if together:
        order = sorted(together, key=lambda names: min(map(result.variables.index, names)))
        sets = (compact(name for name in result.variables if name in names) for names in order)
        show(wrapped("cannot be set one at a time, and changed together:"))
        show(listed(sets))
    show()
    heading(f"{plural(int(result.found.sum()), 'edge')} found by intervention")
    for name, truth in world.truths.items():
        wrong = (result.found != truth) & result.tested
        verdict = f"differs in {wrong.sum():,}" if wrong.any() else "agrees in all"
        show(f"declared graph {name!r}: {truth.sum():,} edges; {verdict} of {result.tested.sum():,} tested cells")
        if wrong.any() and name != "physical":
            show(wrapped(WITHIN_A_STEP, "  "))
    for mask, title in (
        (result.undeclared, "found and not declared"),
        (result.unseen, "declared and not seen acting"),
    ):
        _show_differences(title, mask, result)
    show(f"took  {duration(result.seconds)}")
    if options.out is not None:
        show(f"cells {options.out}")


def _untested(world: World, result: Verification) -> dict[str, list[str]]:
    names = [name for name, share in zip(result.columns, result.changed) if share == 0]
    follow = {name for name, can in zip(result.variables, world.settable) if not can}
    return {
        "follow from others and cannot be set": [name for name in names if name in follow],
        "could not be changed without leaving the data": [name for name in names if name not in follow],
    }


def _between_groups(world: World, result: Verification) -> list[tuple[str, ...]]:
    """One row for each pair of objects with an edge between them, found or declared."""
    groups = world.factors.groups()
    rows: list[tuple[str, ...]] = []
    for effect, members in groups.items():
        for cause, causes in {**groups, "action": [len(result.variables)]}.items():
            cells = np.ix_(members, causes)
            found, declared = result.found[cells], result.declared[cells]
            if not (found | declared).any():
                continue
            amount = f"{found.sum()} of {found.size}"
            wrong = "" if (found == declared)[result.tested[cells]].all() else " !"
            numbers = ("", "", "")
            if found.any():
                shares, medians, strong = (
                    numbers_of[cells][found] for numbers_of in (result.share, result.median, result.strong)
                )
                numbers = (_percent(shares), _span(medians), _span(strong))
            rows.append((cause, effect, amount, f"{declared.sum()}{wrong}", *numbers))
    return rows


def _percent(shares: np.ndarray) -> str:
    low, high = f"{100 * shares.min():.2g}", f"{100 * shares.max():.2g}"
    low, high = ("100" if text == "1e+02" else text for text in (low, high))
    return f"{low} %" if low == high else f"{low} to {high} %"


def _span(values: np.ndarray) -> str:
    low, high = f"{values.min():.2g}", f"{values.max():.2g}"
    return low if low == high else f"{low} to {high}"


def _show_differences(title: str, mask: np.ndarray, result: Verification) -> None:
    cells = np.argwhere(mask)
    if not len(cells):
        return
    show()
    heading(f"{title}: {plural(len(cells), 'edge')}")
    order = np.argsort(-result.share[mask], kind="stable")
    rows = [
        (
            result.columns[j],
            result.variables[i],
            f"{100 * result.share[i, j]:.3g} % ({result.count[i, j]:,})",
            f"{result.median[i, j]:.2g}",
            f"{result.strong[i, j]:.2g}",
        )
        for i, j in cells[order][:MOST_ROWS]
    ]
    titles = ("cause", "effect", "acts in (states)", "effect where it acts", "95 %")
    show_table(titles, rows, right=titles[2:])
    if len(cells) > MOST_ROWS:
        show(f"and {len(cells) - MOST_ROWS:,} more; --out FILE has them all")


# For programs


def _summary(options: Options, world: World, result: Verification) -> dict[str, Any]:
    tested = result.tested
    return {
        "env": options.env,
        "policies": list(result.policies),
        "states": result.states,
        "seed": options.seed,
        "variables": len(result.variables),
        "truth": options.truth,
        "agrees": result.agrees,
        "edges": {"found": int(result.found.sum()), "declared": int(result.declared.sum())},
        "cells": {"all": int(tested.size), "tested": int(tested.sum())},
        "undeclared": [_cell(result, i, j) for i, j in np.argwhere(result.undeclared)],
        "unseen": [_cell(result, i, j) for i, j in np.argwhere(result.unseen)],
        "differences": {name: int(((result.found != truth) & tested).sum()) for name, truth in world.truths.items()},
        "untested": [name for name, share in zip(result.columns, result.changed) if share == 0],
        "set_together": {name: list(others) for name, others in result.moves_others.items()},
        "seconds": round(result.seconds, 3),
    }


def _cell(result: Verification, i: int, j: int) -> dict[str, Any]:
    return {
        "cause": result.columns[j],
        "effect": result.variables[i],
        "declared": int(result.declared[i, j]),
        "found": int(result.found[i, j]),
        "tested": round(float(result.changed[j]), 6),
        "share": round(float(result.share[i, j]), 6),
        "states": int(result.count[i, j]),
        "median": float(f"{result.median[i, j]:.4g}"),
        "quantile95": float(f"{result.strong[i, j]:.4g}"),
    }


def _write(path: Path, result: Verification, summary: dict[str, Any]) -> None:
    """Write every cell: row by row of effects, and in each row cause by cause, as the graph is stored."""
    from cbm.runs.files import atomic_write_text, csv_text

    cells = [_cell(result, i, j) for i, j in np.ndindex(result.found.shape)]
    if path.suffix.lower() == ".json":
        atomic_write_text(path, json.dumps(summary | {"every": cells}, indent=1) + "\n")
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(cells[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(cell | {key: csv_text(cell[key]) for key in ("cause", "effect")} for cell in cells)
    atomic_write_text(path, text.getvalue())
