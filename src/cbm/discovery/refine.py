"""A second look while data come in: fresh local networks on what the model that follows could not rule out.

They know nothing of earlier data, so they are trained from the start at every call; each is small, and sees a handful
of inputs. A model that has seen few rows uses everything that goes with a cause; a network of its own, without all that
is surely no cause, predicts better without such an input than with it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from cbm.discovery.cmi import Evidence, measure
from cbm.discovery.models.candidates import Local, Slots, choose_slots
from cbm.discovery.settings import CONFIRMED, LOCAL_RATE, MOST_SECOND, MOST_SLOTS, SECOND_LOOKS, Settings
from cbm.discovery.tensor_dataset import Problem
from cbm.discovery.train import Budget, Trainer


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
    for number in range(1, SECOND_LOOKS):
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
    slots = choose_slots(
        cmi, stderr, problem.real_inputs, problem.action_input, min(MOST_SECOND, most_slots(problem)), rng
    )
    local = build_local(problem, slots, settings, seed)
    trainer = local_trainer(local, problem, settings, seed)
    trainer.run(Budget(steps=updates), lambda _: None)
    trainer.use_average()
    found = measure_local(local, slots, problem, settings, seed=seed)
    nowhere = Evidence(np.full_like(cmi, np.inf), np.full_like(cmi, np.inf))
    return slots.spread(found, nowhere, problem.breadth)


def refines(settings: Settings) -> bool:
    """Whether candidates are looked at again; the paper's network and DEMI are judged as they are."""
    return settings.architecture == "trunk" and settings.model != "demi" and settings.shadows > 0


def confirmed(first: np.ndarray, second: np.ndarray, looked_at: np.ndarray) -> np.ndarray:
    """(K, 1): whether the second look found a good part of those edges of the first that it looked at."""
    claimed, found = ((edge & looked_at).sum(1, keepdims=True) for edge in (first, second))
    return np.asarray(found >= CONFIRMED * claimed)


def most_slots(problem: Problem) -> int:
    """How many candidates of each target are looked at again."""
    return int(np.clip(MOST_SLOTS // len(problem.targets), 10, 48))


def build_local(problem: Problem, slots: Slots, settings: Settings, seed: int) -> Local:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Local(problem, slots, settings)


def local_trainer(local: Local, problem: Problem, settings: Settings, seed: int) -> Trainer:
    return Trainer(local, problem, replace(settings, learning_rate=LOCAL_RATE * settings.learning_rate), seed)


def measure_local(local: Local, slots: Slots, problem: Problem, settings: Settings, seed: int = 0) -> Evidence:
    """(K, slots and the action last) on the held-out rows."""
    seen = slots.inputs.shape[1] + 1
    row_size = len(problem.targets) * (settings.knots + 8 * seen)
    return measure(local, problem.held, seen, seen, settings.evaluation_rows, row_size, seed=seed)
