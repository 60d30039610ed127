"""A second look while data come in: fresh local networks on what the model that follows could not rule out.

They know nothing of earlier data, so they are trained from the start at every call; each is small, and sees a handful
of inputs. What is true of the second look of `study.py` holds here too, only more so: a model that has seen few rows
uses everything that goes with a cause, and a network of its own, without all that is surely no cause, predicts better
without such an input than with it.
"""

from __future__ import annotations

import numpy as np

from cbm.discovery.evidence import Evidence
from cbm.discovery.local import choose_slots
from cbm.discovery.problem import Problem
from cbm.discovery.settings import Settings
from cbm.discovery.study import build_local, local_trainer, measure_local, most_slots
from cbm.discovery.training import Budget

ROUNDS = 3  # at most, where a target is looked at until nothing more is left out
MOST = 24  # candidates of a target; on what ranks behind so many others the first look decides


def look_again(problem: Problem, first: Evidence, settings: Settings, updates: int, seed: int) -> Evidence:
    """(K, inputs) CMI given the other candidates, relative to shadows; infinite where an input was ruled out.

    `first` is relative to its shadows; the problem has the rows to learn from, and to measure on.
    """
    return _look(problem, first.cmi, first.stderr, settings, updates, seed)


def look_until_settled(problem: Problem, first: Evidence, settings: Settings, updates: int, seed: int) -> Evidence:
    """The same in rounds: what one has shown to be of no use the next leaves out, and so it sees the rest more sharply.

    For one target and few rows. Inputs are ranked by how large their effect may be: that of a true cause is measured
    badly, that of most others is surely small.
    """
    real, exact = problem.real_inputs, np.zeros_like(first.stderr)
    found = _look(problem, first.cmi + 2 * first.stderr, exact, settings, updates, seed)
    seen = np.isfinite(found.cmi)
    for number in range(1, ROUNDS):
        reach = found.cmi + found.stderr
        useful = seen & (reach > settings.smallest_effect)
        if not useful[:, :real].any() or (useful == seen)[:, :real].all():
            break
        sharper = _look(problem, np.where(useful, reach, -np.inf), exact, settings, updates, seed + 1000 * number)
        seen = np.isfinite(sharper.cmi)
        found = Evidence(np.where(seen, sharper.cmi, found.cmi), np.where(seen, sharper.stderr, found.stderr))
    return found


def _look(
    problem: Problem, cmi: np.ndarray, stderr: np.ndarray, settings: Settings, updates: int, seed: int
) -> Evidence:
    """Networks for the inputs whose (K, inputs) CMI may be large."""
    rng = np.random.default_rng([seed, 9])
    slots = choose_slots(cmi, stderr, problem.real_inputs, problem.action_input, min(MOST, most_slots(problem)), rng)
    local = build_local(problem, slots, settings, seed)
    trainer = local_trainer(local, problem, settings, seed)
    trainer.run(Budget(steps=updates), lambda _: None)
    trainer.use_average()
    found = measure_local(local, slots, problem, settings, seed=seed)
    nowhere = Evidence(np.full_like(cmi, np.inf), np.full_like(cmi, np.inf))
    return slots.spread(found, nowhere, problem.breadth)
