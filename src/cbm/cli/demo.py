"""`cbm demo`: the whole story on two built-in worlds, explained while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from cbm.cli.arguments import Flag, MaybeFloat, at_least, check_seed, parse
from cbm.cli.collect import log_of
from cbm.cli.console import duration, heading, plural, print_json, show, show_table, wrapped
from cbm.cli.discover import Budget, run_discovery
from cbm.cli.paths import check_run, made_directory
from cbm.cli.results import EXACT, against_truth, graph_sentence, needs_sentence, result_json, score_of
from cbm.cli.variable_names import compact
from cbm.data.transitions import Transitions
from cbm.discovery.settings import preset
from cbm.errors import DataError
from cbm.graph import CausalGraph

CONTACT_STEPS, LIGHT_STEPS = 60_000, 20_000


@dataclass(frozen=True)
class Options:
    """The whole story on two built-in worlds: collect a log, learn the graph, find what each task needs.

    It takes a few minutes on two processor cores. The same command continues where it was stopped, or shows the summary
    again.
    """

    out: Path = Path("runs/demo")
    """Directory for the logs, the two runs and the report."""
    minutes: MaybeFloat = None
    """Time limit for each world; what is not settled by then stays undecided. Default: none."""
    seed: int = 0
    """Seed of everything random."""
    json: Flag = False
    """Print the results as one JSON object, without the story."""
    quiet: Flag = False
    """Print only the summary."""


@dataclass(frozen=True)
class Chapter:
    """One world, its log and what was learnt from it."""

    world: str
    run: Path
    data: Transitions
    graph: CausalGraph
    already: bool


class Teller:
    """Prints the story, unless silenced."""

    def __init__(self, options: Options):
        self.silent = options.json or options.quiet

    def step(self, title: str) -> None:
        if not self.silent:
            heading(f"\n{title}")

    def say(self, text: str) -> None:
        if not self.silent:
            show(wrapped(text, "  "))

    def found(self, text: str) -> None:
        if not self.silent:
            show(wrapped(f"-> {text}", "  ", "   "))


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "demo")
    at_least("--minutes", options.minutes, 0, above=True)
    check_seed(options.seed)
    for run in (options.out / "contact", options.out / "light"):
        check_run(run)
    start = time.monotonic()
    teller = Teller(options)
    contact = _contact(options, teller)
    light = _light(options, teller)
    from cbm.report import write_report

    report = write_report([contact.run, light.run], options.out / "report.html")
    seconds = time.monotonic() - start
    if options.json:
        runs = {c.world: result_json(c.graph, c.data, c.run, c.already) for c in (contact, light)}
        print_json({"out": str(options.out), "report": str(report), "runs": runs, "seconds": round(seconds, 3)})
    else:
        _summary(options, contact, light, report, seconds)


def _contact(options: Options, teller: Teller) -> Chapter:
    teller.step("1  A log of a robot at a table")
    teller.say(
        "A hand with a gripper, three blocks that move only while they are held, one block that is fixed, "
        "and 20 distractors: numbers that change all the time and mean nothing, half of them driven by "
        "the action. All we get is a log of the 36 numbers before and after each step."
    )
    data = _log("contact", CONTACT_STEPS, options, teller)
    teller.step("2  The causal graph")
    teller.say(
        "Which number, now, changes which number one step later? A model learns to predict every variable "
        "from all the others, and from all but one: where leaving one out makes the prediction worse, "
        "there is an edge. This takes a minute or two."
    )
    chapter = _learn("contact", data, options, Budget(options.minutes))
    _tell_graph(chapter, teller)
    teller.step("3  Two tasks, two minimal states, one graph")
    teller.say(
        "CBM keeps the variables that a reward depends on, and whatever these depend on in turn. Nothing "
        "else can make a difference to a policy for this task."
    )
    _tell_tasks(chapter, teller)
    _tell_cdl(chapter, teller)
    return chapter


def _light(options: Options, teller: Teller) -> Chapter:
    teller.step("4  A car at a traffic light")
    teller.say(
        "Six variables: position, speed, the light, its countdown, the radio and the wind. Task cross "
        "pays for speed while the light is green. No action changes the light, and yet it decides "
        "everything."
    )
    data = _log("light", LIGHT_STEPS, options, teller)
    chapter = _learn("light", data, options, Budget(options.minutes))
    _tell_graph(chapter, teller)
    _tell_tasks(chapter, teller)
    _tell_cdl(chapter, teller)
    return chapter


def _log(name: str, steps: int, options: Options, teller: Teller) -> Transitions:
    """Collected anew each time: the same seed gives the same rows, so that a stopped run recognises them."""
    from cbm.envs.registry import make_world

    start = time.monotonic()
    quiet = options.quiet or options.json
    data = log_of(make_world(name), name, steps, "mixed", options.seed, quiet).data
    path = options.out / f"{name}.npz"
    if not path.exists():
        with made_directory(path.parent):
            data.save(path)
    teller.found(f"{plural(len(data), 'transition')} in {duration(time.monotonic() - start)}: {path}")
    return data


def _learn(name: str, data: Transitions, options: Options, budget: Budget) -> Chapter:
    run = options.out / name
    try:
        already, graph = run_discovery(
            data, preset("fast"), budget, options.seed, run, None, options.quiet or options.json
        )
    except DataError as error:
        raise DataError(f"{error} (another demo is in {options.out}? choose another --out)") from None
    return Chapter(name, run, data, graph, already)


def _tell_graph(chapter: Chapter, teller: Teller) -> None:
    graph, score = chapter.graph, score_of(chapter.graph, chapter.data)
    again = " (learnt before: taken from the finished run)" if chapter.already else ""
    teller.found(f"{graph_sentence(graph)}, in {duration(graph.seconds)}{again}.")
    if score is not None:
        teller.say(
            f"The world knows its own graph, so we can check: {100 * score.accuracy:.1f} % of the cells "
            f"are right ({100 * score.self_loops_accuracy:.1f} % if every variable caused only itself), "
            f"{plural(len(score.missed), 'edge')} missed, {len(score.spurious)} too many, F1 {score.f1:.3f}."
        )


def _tell_tasks(chapter: Chapter, teller: Teller) -> None:
    for reward in chapter.graph.rewards:
        check = against_truth(chapter.graph, chapter.data, reward)
        teller.found(f"{needs_sentence(chapter.graph, reward)}. {check or ''}")


def _tell_cdl(chapter: Chapter, teller: Teller) -> None:
    kept = chapter.graph.abstraction(rule="cdl")
    teller.say(
        f"The older rule, CDL, keeps what the action can influence, whatever the task: {len(kept)} of "
        f"{len(chapter.graph)}."
    )
    for line in _cdl_lines(chapter):
        teller.found(line)


def _cdl_lines(chapter: Chapter) -> list[str]:
    """For each task, what CDL's rule drops and what it keeps without need; one line each."""
    graph, kept = chapter.graph, chapter.graph.abstraction(rule="cdl")
    lines = []
    for reward in graph.rewards:
        needed = graph.abstraction(reward)
        lost = [name for name in needed if name not in kept]
        idle = [name for name in kept if name not in needed]
        parts = [f"drops {compact(lost)} (needed)"] if lost else []
        parts += [f"keeps {compact(idle)} (not needed)"] if idle else []
        lines += [f"{reward}: {'; '.join(parts)}"] if parts else []
    return lines


def _summary(options: Options, contact: Chapter, light: Chapter, report: Path, seconds: float) -> None:
    if not options.quiet:
        heading("\nWhat came out")
    rows = []
    for chapter in (contact, light):
        for reward in chapter.graph.rewards:
            certain, possible = chapter.graph.certain(reward), chapter.graph.possible(reward)
            count = f"{len(certain)}{f' (+{len(possible)})' if possible else ''} of {len(chapter.graph)}"
            parts = [compact(certain)] if certain else []
            parts += [f"not ruled out: {compact(possible)}"] if possible else []
            rows.append((chapter.world, reward, count, "; ".join(parts)))
    show_table(("world", "task", "needs", "variables that the task needs"), rows, right=("needs",))
    show()
    show(_moral(options, contact, light))
    show(f"\n{_times(contact, light, seconds)}")
    show(f"report  {report}  (open it in a browser)")
    show(f"why     cbm abstract {contact.run} --reward {next(iter(contact.graph.rewards))}")
    show("yours   cbm discover YOUR_LOG.npz --out runs/mine")


def _is_right(chapter: Chapter) -> bool:
    """Whether every task got exactly the set that the true graph gives."""
    return all(against_truth(chapter.graph, chapter.data, reward) == EXACT for reward in chapter.graph.rewards)


def _moral(options: Options, contact: Chapter, light: Chapter) -> str:
    if not (_is_right(contact) and _is_right(light)):
        return wrapped(
            "Not every set is the one that the true graph gives: the ceiling came too early. The same command without "
            "--minutes goes on from here."
        )
    kept = light.graph.abstraction(rule="cdl")
    lost = [name for name in light.graph.abstraction("cross") if name not in kept]
    text = (
        "A policy for one task can ignore the other variables: it has less to learn and cannot be misled "
        f"by them. One log and one graph served {plural(len(contact.graph.rewards), 'task')}."
    )
    if "light" in lost:
        text += " At the traffic light, keeping only what the action influences would have hidden the light."
    return wrapped(text)


def _times(contact: Chapter, light: Chapter, seconds: float) -> str:
    if contact.already and light.already:
        return "Both runs had been finished before; nothing was computed again."
    return f"Everything took {duration(seconds)}."
