"""`cbm collect`: a log of transitions from a built-in world."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from tyro.conf import Positional

from cbm.cli.arguments import Flag, MaybeInt, MaybeText, at_least, check_seed, parse
from cbm.cli.console import Stages, duration, heading, plural, print_json, show, show_table
from cbm.cli.pairs import Pairs
from cbm.cli.paths import check_file, made_directory
from cbm.cli.variable_names import by_group, compact
from cbm.cli.world_options import recipe
from cbm.data.readers import SUFFIXES
from cbm.data.validate import MIN_ROWS
from cbm.envs.world import check_policy
from cbm.errors import DataError

if TYPE_CHECKING:
    from cbm.data.transitions import Transitions
    from cbm.envs.collect import Collected
    from cbm.envs.world import World


@dataclass(frozen=True)
class Options:
    """Make a log of transitions from a built-in world.

    Example: cbm collect contact --steps 60000 --out contact.npz

    The rewards of all tasks are recorded at every step, so that one log serves them all. .npz and .parquet files also
    hold the true graph, if the world knows it; `cbm discover` then reports how close it came.
    """

    env: Positional[str]
    """Name of the world; `cbm envs` lists them."""
    steps: int
    """Number of transitions."""
    out: Path
    """File to write: .npz, .csv or .parquet."""
    policy: str = "mixed"
    """The policy that acts. random: random actions.
    scripted, skills, or the name of a task: pursues a goal, with clumsy moments.
    mixed: both in turns.
    Worlds offer different policies; an unknown name lists them."""
    seed: int = 0
    """Seed of the log: the same seed gives the same file, whatever the number of workers."""
    backend: MaybeText = None
    """Simulator of the world, if there is a choice. Default: the first one."""
    blocks: MaybeInt = None
    """Number of movable blocks (contact only). Default: set by the world."""
    distractors: MaybeInt = None
    """Number of distractors of each kind: this many driven by the action, and as many independent of it. Default: set
    by the world."""
    rescale: Flag = False
    """Give every variable its own scale and offset, as sensors do (contact only)."""
    world_seed: MaybeInt = None
    """Seed of the world itself (for example, which distractor follows which part of the action). Default: 0."""
    option: Pairs = ()
    """Any other option of the world; may be repeated."""
    workers: MaybeInt = None
    """Number of simulating processes, for worlds that are slow enough to need them. Default: one per core."""
    force: Flag = False
    """Overwrite the file if it exists."""
    json: Flag = False
    """Print the summary as JSON."""
    quiet: Flag = False
    """Show no progress, only the summary."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "collect")
    at_least("--steps", options.steps, MIN_ROWS)
    check_seed(options.seed)
    check_seed(options.world_seed, "--world-seed")
    at_least("--workers", options.workers, 1)
    check_file(options.out, force=options.force, suffixes=SUFFIXES)
    more = {"blocks": options.blocks, "world_seed": options.world_seed, "rescale": options.rescale or None}
    make = recipe(options.env, options.backend, options.distractors, options.option, **more)
    world = make()
    check_policy(options.env, options.policy, world.policies)
    start = time.monotonic()
    workers = options.workers or os.cpu_count() or 1
    collected = log_of(world, options.env, options.steps, options.policy, options.seed, options.quiet, make, workers)
    with made_directory(options.out.parent):
        collected.data.save(options.out)
    summary = _summary(options, world, collected, time.monotonic() - start)
    if options.json:
        print_json(summary)
    else:
        _show(options, collected.data, summary)


def log_of(
    world: World,
    name: str,
    steps: int,
    policy: str,
    seed: int,
    quiet: bool,
    make: Callable[[], World] | None = None,
    workers: int = 1,
) -> Collected:
    """Collect with a progress bar."""
    from cbm.envs.collect import collect_with_events

    with Stages({"collect": f"collecting from {name}"}, quiet) as stages:
        return collect_with_events(
            world,
            steps,
            policy=policy,
            seed=seed,
            progress=lambda made: stages("collect", made / steps),
            recipe=make,
            workers=workers,
        )


def _summary(options: Options, world: World, collected: Collected, seconds: float) -> dict[str, Any]:
    from cbm.envs.coverage import moved

    data = collected.data
    changed = (data.obs != data.next_obs).mean(axis=0)
    return {
        "out": str(options.out),
        "env": options.env,
        "policy": options.policy,
        "seed": options.seed,
        "rows": len(data),
        "episodes": len(set(data.episode.tolist())),
        "actions": list(data.factors.action_names),
        "rewards": {
            name: {
                "mean": float(r.mean()),
                "std": float(r.std()),
                "min": float(r.min()),
                "max": float(r.max()),
            }
            for name, r in data.rewards.items()
        },
        "variables": {name: {"changed": float(share)} for name, share in zip(data.factors.names, changed)},
        "coverage": {"moved": moved(data, world.metres), "events": collected.events, "success": collected.success},
        "true_graph": data.truth is not None and options.out.suffix.lower() != ".csv",
        "seconds": round(seconds, 3),
    }


def _show(options: Options, data: Transitions, summary: dict[str, Any]) -> None:
    size = f"{plural(len(data), 'transition')} in {plural(summary['episodes'], 'episode')}"
    heading(f"{options.out}: {size}, {options.policy} policy, seed {options.seed}")
    show(f"action: {', '.join(summary['actions'])}\n")
    rewards = [
        (name, *(f"{reward[key]:.3g}" for key in ("mean", "std", "min", "max")))
        for name, reward in summary["rewards"].items()
    ]
    numbers = ("mean", "std", "lowest", "highest")
    show_table(("reward", *numbers), rewards, right=numbers)
    show()
    share = "changed in so many steps"  # variables that hardly change are hard to learn
    rows = [(compact(names), _range(names, summary)) for names in by_group(data.factors)]
    show_table((plural(len(data.factors), "variable"), share), rows, right=(share,))
    show()
    _show_coverage(summary["coverage"])
    if data.truth is not None and not summary["true_graph"]:
        show("A .csv file has no place for the true graph; .npz and .parquet have.")
    show(f"took  {duration(summary['seconds'])}")
    log, run = quote(str(options.out)), quote(f"runs/{options.out.stem}")
    show(f"next  cbm discover {log} --out {run}{_for_constants(data)}")


def _for_constants(data: Transitions) -> str:
    """The flag that `cbm discover` requires for a log in which something never varies."""
    try:
        data.check_varies()
    except DataError:
        return " --allow-constant"
    return ""


def _show_coverage(coverage: dict[str, dict[str, float]]) -> None:
    """Show how much of the world the log covers: what is not in the log cannot be learnt from it."""
    parts = (("moved", "{} moved", "steps"), ("events", "{}", "steps"), ("success", "{} succeeded", "episodes"))
    rows = [
        (text.format(name), f"{100 * share:.1f} % of {of}")
        for key, text, of in parts
        for name, share in coverage[key].items()
    ]
    if rows:
        show_table(("coverage", "in"), rows, right=("in",))
        show()


def _range(names: list[str], summary: dict[str, Any]) -> str:
    shares = [100 * summary["variables"][name]["changed"] for name in names]
    low, high = f"{min(shares):.1f}", f"{max(shares):.1f}"
    return f"{low} %" if low == high else f"{low} to {high} %"
