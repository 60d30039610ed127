"""`cbm learn`: policies on the state that their task needs, which is found during learning or before."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from cbm.abstraction.table import METHODS, help_text
from cbm.agents.settings import AGENTS, as_agent
from cbm.cli.arguments import (
    Device,
    Flag,
    MaybeInt,
    MaybePath,
    MaybeText,
    MaybeTracker,
    at_least,
    check_seed,
    parse,
)
from cbm.cli.console import duration, heading, plural, print_json, show, show_table, wrapped
from cbm.cli.pairs import Pairs, read_pairs
from cbm.cli.paths import check_run
from cbm.cli.progress import Watch
from cbm.cli.results import EXACT
from cbm.cli.variable_names import compact
from cbm.cli.world_options import options_of
from cbm.device import check_device, find_device
from cbm.errors import DataError, unknown_name
from cbm.learning.settings import LearnSettings, preset
from cbm.runs.tracking import Tracking

if TYPE_CHECKING:
    from cbm.learning.algorithm1 import Status
    from cbm.learning.plan import Plan

Repeated = Annotated[tuple[str, ...], UseAppendAction, arg(help_behavior_hint="")]
MethodName = Annotated[str, arg(help=f"The method that chooses the variables the policy sees.\n{help_text()}")]
AgentName = Annotated[str, arg(help="The agent.\n" + "\n".join(f"{k}: {row.summary}." for k, row in AGENTS.items()))]
OWN = "; ".join(f"{name}: {', '.join(row.option_names)}" for name, row in METHODS.items() if row.options is not None)
MethodOptions = Annotated[Pairs, arg(help=f"An option of the method; may be repeated. {OWN}.")]
Names = Annotated[tuple[str, ...], arg(metavar="NAME [NAME ...]", help_behavior_hint="")]
CURVE_ROWS = 8


@dataclass(frozen=True)
class Options:
    """Learn policies on the variables that a method chooses (Algorithm 1 of the paper).

    Example: cbm learn contact --task pick --method cbm --dynamics runs/contact --steps 100000 --out runs/pick

    The same command continues after an interruption. With several tasks, one model of the dynamics serves all of them.
    """

    env: Positional[str]
    """Name of a built-in world (`cbm envs` lists them; not chemical, whose actions are discrete), or gymnasium:ID or
    gymnasium:MODULE:ID for any environment whose actions are a Box; its only task is called reward."""
    out: Path
    """Run directory, created if it does not exist."""
    task: Repeated = ()
    """Task to learn; may be repeated. Default: the world's first task."""
    method: MethodName = "cbm"
    agent: AgentName = "sac"
    steps: int = 100_000
    """Environment steps for each task."""
    together: Flag = False
    """Learn all tasks at once, with shared dynamics and data. Default: one after another."""
    dynamics: MaybePath = None
    """A run of `cbm discover`, whose graph is used unchanged. Default: the dynamics are learned alongside the
    policy."""
    certain_only: Flag = False
    """Leave out variables that the --dynamics run could not rule out: the policy sees only what its task certainly
    needs."""
    rewards: MaybeText = None
    """Source of the reward's causes. run: the --dynamics run. learned: found while the policy learns. Default: run with
    --dynamics, otherwise learned."""
    model: MaybeText = None
    """implicit or explicit, for the models learned alongside the policy; not with --dynamics, whose model is used.
    Default: implicit."""
    pretrain: MaybePath = None
    """Log on which tia and denoised learn their dynamics before the first step."""
    preset: str = "laptop"
    """laptop: minutes on one core. paper: the published table. debug: tiny, for a quick test."""
    demonstrations: MaybeInt = None
    """Number of scripted episodes put into the replay buffer first. Default: set by the preset."""
    set: Pairs = ()
    """Change one value of the preset, such as gamma=0.99 or episodes=20; may be repeated."""
    method_option: MethodOptions = ()
    backend: MaybeText = None
    """Simulator of the world, if there is a choice. Default: the first one."""
    distractors: MaybeInt = None
    """Number of distractors of each kind: this many driven by the action, and as many independent of it. Default: set
    by the world."""
    option: Pairs = ()
    """Any other option of the world; may be repeated."""
    names: Names = ()
    """Names of the variables of a gymnasium:ID environment, one for each number of its observation. Default: the keys
    of its observation space, or obs_0, obs_1, ..."""
    seed: int = 0
    """Seed of everything random: the same seed gives the same curve."""
    threads: int = 1
    """Processor threads. The networks are small, so more than one rarely helps."""
    device: Device = "cpu"
    track: MaybeTracker = None
    """Send the numbers of the run to a tracker as well. A resumed run continues there."""
    json: Flag = False
    """Print the result as one JSON object."""
    quiet: Flag = False
    """Show no progress, only the result."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "learn")
    at_least("--steps", options.steps, 1)
    at_least("--threads", options.threads, 1)
    at_least("--demonstrations", options.demonstrations, 0)
    check_seed(options.seed)
    check_run(options.out)
    check_device(options.device)
    import torch

    from cbm.learning.algorithm1 import learn

    torch.set_num_threads(options.threads)
    plan = plan_from(options)
    already = (options.out / "result.json").is_file()
    with Watch(plan.world, options.quiet) as watch, Tracking(options.track, options.out) as tracking:

        def progress(status: Status) -> None:
            watch(status)
            tracking()

        try:
            result = learn(plan, options.out, progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"the same command goes on from the last checkpoint in {options.out}") from None
    if not already or not (options.out / "report.html").is_file():
        _write_report(options.out)
    if options.json:
        print_json({"run": str(options.out), "finished": "already" if already else True, **result})
        return
    if already:
        show(f"{options.out} is finished already: nothing to do. Its result:\n")
    show_result(plan, options.out, result)


def _write_report(run: Path) -> None:
    """Write the report; a failure is reported, but does not invalidate what was learned."""
    from cbm.report import write_report

    try:
        write_report([run], run / "report.html")
    except DataError as error:
        print(f"cbm: no report could be made: {error}", file=sys.stderr)


# From options to a plan


def plan_from(options: Options) -> Plan:
    from cbm.learning.plan import Plan
    from cbm.learning.task_env import GYMNASIUM, make_task_env

    world_options = options_of(options.backend, options.distractors, options.option)
    gymnasium = options.env.startswith(GYMNASIUM)
    if options.names:
        if not gymnasium:
            raise DataError("--names: built-in worlds name their variables; this is for gymnasium:ID")
        world_options["names"] = list(options.names)
    tasks = options.task or make_task_env(options.env, world_options).tasks[:1]
    rewards = options.rewards or ("run" if options.dynamics is not None else "learned")
    for name, value, known in (
        ("--rewards", rewards, ("run", "learned")),
        ("--model", options.model or "implicit", ("implicit", "explicit")),
    ):
        if value not in known:
            raise unknown_name(f"{name}: unknown choice", value, known)
    if options.model is not None and options.dynamics is not None:
        raise DataError("--model: with --dynamics RUN everything is learned with the model of that run")
    if rewards == "run" and options.dynamics is None:
        raise DataError("--rewards run: needs --dynamics RUN, whose rewards are meant")
    if options.certain_only and options.dynamics is None:
        raise DataError("--certain-only: needs --dynamics RUN, whose verdicts are meant")
    settings = _settings(options, "" if gymnasium else options.env, tasks[0])
    if settings.last_action and options.dynamics is not None:
        raise DataError("--set last_action: dynamics of a run are as they were found; see cbm discover --last-action")
    return Plan(
        world=options.env,
        tasks=tasks,
        method=options.method,
        steps=options.steps,
        settings=settings,
        options=world_options,
        together=options.together,
        preset=options.preset,
        seed=options.seed,
        dynamics=options.dynamics,
        certain_only=options.certain_only,
        rewards=rewards,  # type: ignore[arg-type]
        model=options.model or "implicit",  # type: ignore[arg-type]
        method_options=read_pairs("--method-option", options.method_option),
        pretrain=options.pretrain,
        device=str(find_device(options.device)),
    )


def _settings(options: Options, world: str, task: str) -> LearnSettings:
    settings = preset(options.preset, world, task)  # type: ignore[arg-type]
    agent = as_agent(settings.agent, options.agent)
    prefix = f"{options.agent}."
    changes = read_pairs("--set", options.set, prefix)
    if options.demonstrations is not None:
        if "demonstrations" in changes:
            raise DataError("--demonstrations and --set demonstrations cannot be given together")
        changes["demonstrations"] = options.demonstrations
    own = {field.name for field in fields(LearnSettings)} - {"agent"}
    inner = {field.name for field in fields(agent)}
    ours = {key: key.removeprefix(prefix) for key in changes if key.removeprefix(prefix) in inner}
    for key in changes:
        if key not in own and key not in ours:
            raise unknown_name("--set: unknown setting", key, sorted(own | inner))
    agent = replace(agent, **{name: changes[key] for key, name in ours.items()})
    return replace(settings, **{key: value for key, value in changes.items() if key in own}, agent=agent)


# The printed result


def show_result(plan: Plan, run: Path, result: dict[str, Any]) -> None:
    config = json.loads((run / "config.json").read_text())
    variables = [variable["name"] for variable in config["factors"]["variables"]]
    for task, found in result["tasks"].items():
        _show_task(task, found, variables, config["oracle"].get(task), plan.settings.episodes)
    _show_curves(run)
    spent = {name: seconds / max(result["seconds"], 1e-9) for name, seconds in result["spent"].items()}
    shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in sorted(spent.items(), key=lambda s: -s[1]))
    shown = f", {plan.settings.demonstrations} scripted episodes first" if plan.settings.demonstrations else ""
    show(f"{plan.method} on {plan.world}, {plural(plan.steps, 'step')} a task{shown}, seed {plan.seed}")
    show(f"time    {duration(result['seconds'])} ({shares})")
    show(f"curve   {run / 'eval.csv'}")
    show(f"report  {run / 'report.html'}")
    truth_known = any(found["exact"] is not None for found in result["tasks"].values())
    show(f"next    cbm evaluate {run}{' --ood' if truth_known else ''}")


def _show_task(task: str, found: dict[str, Any], variables: list[str], true: list[str] | None, episodes: int) -> None:
    done = "" if found["success"] is None else f"success in {100 * found['success']:.0f} % of {episodes} episodes, "
    heading(f"{task}: {done}return {found['return']:.4g}")
    kept = found["kept"]
    names = compact(kept) if kept else "none"
    show(wrapped(f"the policy sees {len(kept)} of {len(variables)} variables: {names}", "  ", "  "))
    if found["exact"]:
        show(f"  {EXACT}")
    elif true is not None:
        parts = [
            f"{title}: {compact(names)}"
            for title, names in (
                ("missing", [name for name in true if name not in kept]),
                ("too many", [name for name in kept if name not in true]),
            )
            if names
        ]
        show(wrapped(f"The true graph gives {len(true)}; {'; '.join(parts)}.", "  ", "  "))
    show()


def _show_curves(run: Path) -> None:
    """Some evenly spaced lines of eval.csv."""
    path = run / "eval.csv"
    lines = [line.split(",") for line in path.read_text().splitlines()] if path.is_file() else []
    rows = [dict(zip(lines[0], line)) for line in lines[1:]]
    chosen = sorted({round(k * (len(rows) - 1) / max(1, CURVE_ROWS - 1)) for k in range(CURVE_ROWS)}) if rows else []
    titles = ("task", "step", "return", "success", "kept", "seconds")
    cells = [
        (row["task"], f"{int(row['step']):,}", row["return"], row["success"] or "-", row["kept"], row["seconds"])
        for row in (rows[k] for k in chosen)
    ]
    show_table(titles, cells, right=titles[1:])
    show()
