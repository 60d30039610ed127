"""`cbm discover`: from a log to the causal graph and the state that each reward needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from cbm.cli.arguments import (
    Device,
    Flag,
    MaybeFloat,
    MaybeInt,
    MaybePath,
    MaybeTracker,
    at_least,
    check_seed,
    parse,
    together,
)
from cbm.cli.console import Stages, print_json, show, warn, wrapped
from cbm.cli.log_options import LogOptions, load, roles_of
from cbm.cli.paths import check_run
from cbm.cli.results import result_json, show_result
from cbm.data.remarks import remarks
from cbm.data.transitions import Transitions
from cbm.device import check_device
from cbm.discovery.settings import ModelName, Preset, Rule, Settings, preset
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.knowledge import Knowledge
from cbm.jobs import check_place
from cbm.runs.tracking import Tracking

if TYPE_CHECKING:
    from cbm.data.log import Log

MAPS = ".cbm-maps"
"""Folder beside the run directory for maps of logs that are larger than memory."""
STAGES = {
    "screening": "looking at everything",
    "measuring": "refitting without each candidate",
    "measuring again": "looking again where it is close",
    "dynamics": "learning the dynamics",
    "rewards": "learning the rewards",
    "prediction": "testing predictions",
    "bootstrap": "repeating it on resampled episodes",
}


@dataclass(frozen=True, kw_only=True)
class Options(LogOptions):
    """Learn the causal graph of a log and, for each reward in it, the state that the reward needs.

    Example: cbm discover log.npz --out runs/mine

    Columns need no renaming: cbm discover log.csv --obs 'joint_*' speed --action cmd --reward r --episode run --time t
    --out runs/mine; `cbm check` takes the same options and shows how the log is understood. The command ends when
    everything is settled. The run directory gets graph.json, report.html and everything needed to resume after an
    interruption: repeat the same command to continue.
    """

    out: Path
    """Run directory, created if it does not exist."""
    model: ModelName = "implicit"
    """implicit: refits decide, contrastive networks predict (CBM).
    explicit: refits with one Gaussian of constant spread decide, Gaussian and categorical heads predict (CDL).
    demi: a learned conditional critic decides, by --epsilon."""
    preset: Preset = "fast"
    """fast: for real use.
    paper: the published networks decide, by --epsilon; much slower, and with --model implicit only.
    debug: tiny networks and fewer controls, for tests; for a quick look at a log use --minutes."""
    minutes: MaybeFloat = None
    """Time limit for the whole command. What is not settled by then is undecided, and the same command with more time
    continues from there. Default: none."""
    steps: MaybeInt = None
    """Limit on work instead of time: number of measured targets (of updates, with --preset paper and --model demi).
    Not together with --minutes."""
    workers: MaybeInt = None
    """Number of single-threaded processes that share the work; the result does not depend on it. Default: one per
    core."""
    on: str = "local"
    """Where the work runs. local: processes on this machine. ray: Ray on this machine, or the cluster named by
    RAY_ADDRESS. ray:HOST:PORT: that cluster. The result is the same."""
    bootstrap: int = 0
    """Repeat discovery on this many logs of resampled episodes, and report how often each edge and each variable of a
    minimal state was found. Takes as long as that many discoveries, on all cores or nodes."""
    device: Device = "cpu"
    seed: int = 0
    """Seed of everything random."""
    knowledge: MaybePath = None
    """JSON file of edges that must exist and edges that cannot:
    {"required": [["cause", "effect"]], "forbidden": [["action", "light"]]}"""
    rule: Annotated[Rule | None, arg(help_behavior_hint="")] = None
    """How edges are decided.
    calibrated: a threshold for each cell, from its error and a false discovery rate of 1 %, with undecided cells.
    threshold: a CMI of at least --epsilon, as in the paper.
    Default: threshold with --preset paper or --model demi (which have no other), otherwise calibrated."""
    epsilon: MaybeFloat = None
    """The threshold of --rule threshold in nats; the calibrated rule does not use it. Default: 0.02."""
    reward_inputs: Literal["next-state", "state-action", "both"] = "next-state"
    """What a reward may depend on besides the action: the state after the step, the state before it, or both."""
    last_action: Literal["auto", "on", "off"] = "auto"
    """Let models see the previous action, too. For logs that do not show the whole state (velocities, forces, delays):
    a variable that merely repeats the previous action is then no cause. The column "action" stands for both actions.
    auto: if most rows continue another row and the previous action helps to predict."""
    allow_constant: Flag = False
    """Accept variables, rewards and actions that never change. Default: they are treated as a mistake."""
    track: MaybeTracker = None
    """Send the numbers of the run to a tracker as well. A resumed run continues there."""
    json: Flag = False
    """Print the result as one JSON object."""
    quiet: Flag = False
    """Show no progress, only the result."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "discover")
    settings = _settings(options)
    check_run(options.out)
    maps = options.out.absolute().parent / MAPS
    log = load(options.data, roles_of(options), options.allow_constant, options.memory, maps, options.quiet)
    data = log.data
    knowledge = _knowledge(options, data)
    for remark in remarks(data) if options.json else ():  # else they are among the first lines of the output
        warn(remark)
    budget = Budget(options.minutes, options.steps, options.workers, options.device, options.on, options.bootstrap)
    opening = None if options.json else Once(lambda: _say_understood(options, log))
    with Tracking(options.track, options.out) as tracking:
        already, graph = run_discovery(
            data, settings, budget, options.seed, options.out, knowledge, options.quiet, opening, tracking
        )
    if options.json:
        print_json(result_json(graph, data, options.out, already))
        return
    if already:
        show(f"{options.out} is finished already: nothing to do. Its result:\n")
    show_result(graph, data, options.out, options.last_action == "on")


class Once:
    """Calls a function the first time that it is called itself."""

    def __init__(self, call: Callable[[], None]):
        self.call, self.done = call, False

    def __call__(self) -> None:
        if not self.done:
            self.done = True
            self.call()


@dataclass(frozen=True)
class Budget:
    """A ceiling, the number of processes, where they run, and the number of bootstrap replicates."""

    minutes: float | None = None
    steps: int | None = None
    workers: int | None = None
    device: str = "cpu"
    on: str = "local"
    bootstrap: int = 0


def run_discovery(
    data: Transitions,
    settings: Settings,
    budget: Budget,
    seed: int,
    run: Path,
    knowledge: Knowledge | None,
    quiet: bool,
    opening: Once | None = None,
    tracking: Tracking | None = None,
) -> tuple[bool, CausalGraph]:
    """Discover with progress and write the report; also returns whether the run was already finished.

    `opening` is called when work begins, so that a refusal prints only one line.
    """
    from cbm.discovery.discover import discover, lacks_bootstrap  # imported here because it imports torch
    from cbm.report import write_report

    before = CausalGraph.load(run) if (run / "result.json").is_file() else None
    already = before is not None and before.is_settled and not lacks_bootstrap(before, budget.bootstrap)
    opening = opening or Once(lambda: None)
    with Stages(STAGES, quiet) as stages:

        def progress(stage: str, fraction: float) -> None:
            opening()
            stages(stage, fraction)
            if tracking is not None:
                tracking()

        try:
            graph = discover(
                data,
                minutes=budget.minutes,
                steps=budget.steps,
                workers=budget.workers,
                device=budget.device,
                on=budget.on,
                bootstrap=budget.bootstrap,
                settings=settings,
                seed=seed,
                run=run,
                knowledge=knowledge,
                progress=progress,
            )
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"the state is saved in {run}, the same command goes on from there") from None
    opening()
    if not already or not (run / "report.html").is_file():
        write_report([run], run / "report.html")
    return already, graph


def _settings(options: Options) -> Settings:
    """The settings, after checking everything that depends on the options alone."""
    together(minutes=options.minutes, steps=options.steps)
    at_least("--minutes", options.minutes, 0, above=True)
    at_least("--steps", options.steps, 1)
    check_seed(options.seed)
    at_least("--epsilon", options.epsilon, 0, above=True)
    at_least("--workers", options.workers, 1)
    check_device(options.device)
    check_place(options.on)
    at_least("--bootstrap", options.bootstrap, 0)
    settings = preset(options.preset, options.model)
    named = {field.name for field in fields(Settings)} & {field.name for field in fields(Options)}
    given = {name: getattr(options, name) for name in named}
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    if options.epsilon is not None and settings.rule == "calibrated":
        at_least("--epsilon with the calibrated rule", options.epsilon, settings.smallest_effect)
    return settings


def _say_understood(options: Options, log: Log) -> None:
    """The first lines of the output: how the log was understood."""
    from cbm.cli.check import show_understood
    from cbm.data.summary import summarise

    summary = summarise(log, options.data)
    show_understood(summary)
    for sentence in summary["warnings"]:
        show(wrapped(f"look     {sentence}", "", " " * 9))
    show()


def _knowledge(options: Options, data: Transitions) -> Knowledge | None:
    if options.knowledge is None:
        return None
    knowledge = Knowledge.load(options.knowledge)
    try:
        knowledge.masks(data.factors.names, data.rewards)  # raises for names that are not in the log
    except DataError as error:
        raise DataError(f"{options.knowledge}: {error}") from None
    return knowledge
