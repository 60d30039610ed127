"""One problem from start to verdicts: the trunk looks at everything, local networks look again at what is left.

Where the trunk has few hidden units for each target, additive regressions look at everything too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from cbm.discovery.additive import additive_evidence
from cbm.discovery.checkpoint import Checkpoint
from cbm.discovery.decide import Verdicts, above_shadows, decide
from cbm.discovery.evidence import Evidence, measure, mixed
from cbm.discovery.local import Local, Slots, choose_slots
from cbm.discovery.model import MaskedModel
from cbm.discovery.models import build_model, numbers_per_row
from cbm.discovery.problem import Problem
from cbm.discovery.settings import Settings
from cbm.discovery.training import Budget, Trainer

EPOCHS = 60  # a budget in minutes never goes through the data more often than this …
FEWEST_UPDATES = 3000  # … or than it takes to make this many updates
MOST_SLOTS = 2400  # candidates of all targets together that local networks look at
ALONE_SHARE = 0.8  # of the time left, for models that get no second look
EVIDENCE_SHARE = 0.2  # of the time left, that measuring may take at the first look
UNITS_PER_TARGET = 4  # hidden units of the trunk below which it is not the only one to look
WIDE_SHARE = 0.6  # of its time is enough for a trunk that is not the only one to look
FEW_ROWS = 3.0  # divided by the root of the number of rows: share of the strongest cause by which models may err
CONFIRMED = 0.5  # of the edges of the first look, for its verdicts on what found no room in the second
LOCAL_RATE = 3.0  # small networks bear a higher learning rate than the trunk
Report = Callable[[str, float, dict[str, float]], None]
"""Stage, fraction done, numbers to log."""


@dataclass
class Clock:
    """Seconds left of a budget in minutes, or the number of updates of the trunk."""

    deadline: float | None
    steps: int | None

    def budget(self, share: float, rows: int, batch: int, spent: float) -> Budget:
        """A stage's part: `share` of the seconds left, or of the updates."""
        if self.steps is not None:
            return Budget(steps=max(1, round(self.steps * share)))
        assert self.deadline is not None
        left = max(0.0, self.deadline - time.perf_counter()) + spent
        most = max(FEWEST_UPDATES, EPOCHS * rows // batch)
        return Budget(seconds=share * left, most=most, spent=spent)

    def until(self, share: float) -> float | None:
        """The moment at which `share` of the seconds left is used up."""
        now = time.perf_counter()
        return None if self.deadline is None else now + share * max(0.0, self.deadline - now)


class Shares(NamedTuple):
    """Of the time (or the updates) then left."""

    first: float
    """For the model that sees everything."""
    again: float
    """For the networks of the second look."""
    measuring: float = EVIDENCE_SHARE
    """For measuring what these see; a budget of updates leaves it all the time it takes."""


@dataclass(frozen=True)
class Findings:
    """What is known of one problem, and the local model if there is one."""

    verdicts: Verdicts
    local: Local | None


def study(
    name: str,
    problem: Problem,
    settings: Settings,
    seed: int,
    clock: Clock,
    shares: Shares,
    checkpoint: Checkpoint,
    report: Report,
) -> Findings:
    """Train, measure, look again, decide. Finished parts are taken from the checkpoint."""
    if not problem.targets:
        return _nothing(problem)
    settings = replace(settings, strongest_share=max(settings.strongest_share, FEW_ROWS / len(problem.train) ** 0.5))
    evidence = _trunk_evidence(name, problem, settings, seed, clock, shares.first, checkpoint, report)
    real = problem.real_inputs
    shown, cmi = evidence.reported, evidence.cmi
    if settings.rule == "calibrated":
        cmi = above_shadows(cmi, real)
        shown = replace(shown, cmi=above_shadows(shown.cmi, real))
    first = decide(cmi[:, :real], evidence.stderr[:, :real], cmi[:, real:], settings, breadth=problem.breadth)
    if not refines(settings):
        return Findings(reporting(first, shown, shown), None)
    rng = np.random.default_rng([seed, 9])
    slots = choose_slots(cmi, evidence.stderr, real, problem.action_input, most_slots(problem), rng)
    local, again = _local_evidence(
        f"{name}-again", problem, slots, settings, seed + 1, clock, shares, checkpoint, report
    )
    both = slots.spread(again, replace(evidence, cmi=cmi), problem.breadth)
    second = both.cmi
    smaller = second < cmi  # both looks must see an effect: in truth the first is never the larger one
    stderr = np.where(smaller, both.stderr, evidence.stderr)
    strongest = np.maximum(cmi, second)[:, :real].max(1, initial=0.0)
    verdicts = decide(
        np.where(smaller, second, cmi)[:, :real], stderr[:, :real], cmi[:, real:], settings, strongest,
        breadth=problem.breadth,
    )  # fmt: skip
    found = together(first, verdicts, slots.looked_at(real))
    smallest = mixed(slots.spread(again.reported, shown, problem.breadth), shown, smaller)
    return Findings(reporting(found, shown, smallest), local)


def most_slots(problem: Problem) -> int:
    """How many candidates of each target are looked at again."""
    return int(np.clip(MOST_SLOTS // len(problem.targets), 10, 48))


def together(first: Verdicts, second: Verdicts, looked_at: np.ndarray) -> Verdicts:
    """The second look decides where there was one.

    Cells left out were weaker at the first look than all that were looked at again. Its verdict on them counts if of
    what it took for this target's causes the second look has confirmed a good part.
    """
    implied = ~looked_at & ~confirmed(first.edge, second.edge, looked_at)
    beyond = np.where(implied, np.maximum(first.thresholds, first.cmi), first.thresholds)
    return Verdicts(
        cmi=np.where(looked_at & ~second.edge, second.cmi, first.cmi),
        stderr=np.where(looked_at & ~second.edge, second.stderr, first.stderr),
        thresholds=np.where(looked_at, second.thresholds, beyond),
        edge=np.where(looked_at, second.edge, first.edge & ~implied),
        verdict=np.where(looked_at, second.verdict, np.where(implied, "none", first.verdict)),
    )


def confirmed(first: np.ndarray, second: np.ndarray, looked_at: np.ndarray) -> np.ndarray:
    """(K, 1): whether the second look found a good part of those edges of the first that it looked at."""
    claimed, found = ((edge & looked_at).sum(1, keepdims=True) for edge in (first, second))
    return np.asarray(found >= CONFIRMED * claimed)


def reporting(found: Verdicts, edges: Evidence, others: Evidence) -> Verdicts:
    """The verdicts with what is told of each cell, as sharp as it was measured.

    Of edges the CMI given everything else, as the method defines it; of other cells the smaller of what was seen.
    Where that lies on the other side of the threshold, the value that was decided on is told instead.
    """
    real = found.cmi.shape[1]
    cmi, stderr = (
        np.where(found.edge, one[:, :real], other[:, :real])
        for one, other in ((edges.cmi, others.cmi), (edges.stderr, others.stderr))
    )
    agrees = np.where(found.edge, cmi >= found.thresholds, cmi < found.thresholds)
    return replace(found, cmi=np.where(agrees, cmi, found.cmi), stderr=np.where(agrees, stderr, found.stderr))


def refines(settings: Settings) -> bool:
    """Whether candidates are looked at again; the paper's network and DEMI are judged as they are."""
    return settings.architecture == "trunk" and settings.model != "demi" and settings.shadows > 0


def train(name: str, trainer: Trainer, budget: Budget, checkpoint: Checkpoint, report: Report) -> None:
    """Run a trainer to the end of its budget, from the checkpoint if that stands in this stage."""
    if checkpoint.notes.get("stage") == name and checkpoint.running:
        trainer.restore(checkpoint.running)

    def remember() -> None:
        checkpoint.running = trainer.state()
        checkpoint.notes |= {"stage": name, "spent": budget.spent}

    def heard(numbers: dict[str, float]) -> None:
        report(
            name,
            numbers.pop("progress"),
            {"step": trainer.step, "seconds": round(budget.spent, 2), **numbers},
        )
        if checkpoint.due():
            remember()
            checkpoint.write()

    try:
        trainer.run(budget, heard)
    except KeyboardInterrupt:
        if trainer.between_updates:
            remember()
            checkpoint.write()
        raise
    checkpoint.notes["updates"] = {**checkpoint.notes.get("updates", {}), name: trainer.step}
    trainer.use_average()


def _evidence_progress(report: Report, name: str, done: float) -> None:
    report(f"{name}: evidence", done, {})


def spent_in(checkpoint: Checkpoint, name: str) -> float:
    return float(checkpoint.notes.get("spent", 0.0)) if checkpoint.notes.get("stage") == name else 0.0


def _trunk_evidence(
    name: str, problem: Problem, settings: Settings, seed: int, clock: Clock, share: float,
    checkpoint: Checkpoint, report: Report,
) -> Evidence:  # fmt: skip
    if not checkpoint.has(f"{name}.cmi"):
        model = build_model(problem, settings, seed)
        crowded = refines(settings) and settings.width < UNITS_PER_TARGET * len(problem.targets)
        spread = additive_evidence(problem) if crowded else None
        if clock.steps is None:
            share = ALONE_SHARE if not refines(settings) else share if spread is None else WIDE_SHARE * share
        budget = clock.budget(share, len(problem.train), settings.batch, spent_in(checkpoint, name))
        train(name, Trainer(model, problem, settings, seed), budget, checkpoint, report)
        size = numbers_per_row(problem, settings)
        heard = partial(_evidence_progress, report, name)
        again = most_slots(problem) if refines(settings) else None
        found = measure(
            model, problem.held, problem.inputs, problem.real_inputs, settings.evaluation_rows, size, heard,
            again=again, until=clock.until(EVIDENCE_SHARE),
        )  # fmt: skip
        found = found if spread is None else stronger(found, spread)
        checkpoint.keep(**_arrays(name, found))
    return _kept(checkpoint, name)


def _arrays(name: str, found: Evidence) -> dict[str, np.ndarray]:
    shown = found.reported
    return {
        f"{name}.cmi": found.cmi, f"{name}.stderr": found.stderr,
        f"{name}.reported-cmi": shown.cmi, f"{name}.reported-stderr": shown.stderr,
    }  # fmt: skip


def _kept(checkpoint: Checkpoint, name: str) -> Evidence:
    sharper = Evidence(checkpoint.array(f"{name}.reported-cmi"), checkpoint.array(f"{name}.reported-stderr"))
    return Evidence(checkpoint.array(f"{name}.cmi"), checkpoint.array(f"{name}.stderr"), sharper)


def stronger(one: Evidence, other: Evidence) -> Evidence:
    """Cell by cell what sees the larger effect: each of the two is blind to some."""
    return mixed(one, other, one.cmi >= other.cmi)


def _local_evidence(
    name: str, problem: Problem, slots: Slots, settings: Settings, seed: int, clock: Clock, shares: Shares,
    checkpoint: Checkpoint, report: Report,
) -> tuple[Local, Evidence]:  # fmt: skip
    local = build_local(problem, slots, settings, seed)
    if checkpoint.has(f"{name}.cmi"):
        restore_parameters(local, name, checkpoint)
    else:
        budget = clock.budget(shares.again, len(problem.train), settings.batch, spent_in(checkpoint, name))
        train(name, local_trainer(local, problem, settings, seed), budget, checkpoint, report)
        found = measure_local(local, slots, problem, settings, until=clock.until(shares.measuring))
        checkpoint.keep(**_arrays(name, found), **named_parameters(local, name))
    return local, _kept(checkpoint, name)


def build_local(problem: Problem, slots: Slots, settings: Settings, seed: int) -> Local:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Local(problem, slots, settings)


def local_trainer(local: Local, problem: Problem, settings: Settings, seed: int) -> Trainer:
    return Trainer(local, problem, replace(settings, learning_rate=LOCAL_RATE * settings.learning_rate), seed)


def measure_local(
    local: Local, slots: Slots, problem: Problem, settings: Settings, seed: int = 0, until: float | None = None
) -> Evidence:
    """(K, slots and the action last) on the held-out rows."""
    seen = slots.inputs.shape[1] + 1
    row_size = len(problem.targets) * (settings.knots + 8 * seen)
    return measure(local, problem.held, seen, seen, settings.evaluation_rows, row_size, seed=seed, until=until)


def named_parameters(model: MaskedModel, name: str) -> dict[str, Any]:
    return {f"{name}/{key}": value.detach().clone() for key, value in model.named_parameters()}


def restore_parameters(model: MaskedModel, name: str, checkpoint: Checkpoint) -> None:
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(checkpoint.found[f"{name}/{key}"])


def _nothing(problem: Problem) -> Findings:
    empty = np.zeros((0, problem.real_inputs))
    return Findings(Verdicts(empty, empty, empty, empty > 0, empty.astype("<U9")), None)
