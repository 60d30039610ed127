"""Sharper estimates on growing data: new networks for the candidates that the online estimator could not rule out.

They are trained from scratch at every call, without memory of earlier data; each is small, and sees only a few inputs.
A model trained on few rows uses everything that correlates with a cause; a separate network without all inputs that are
surely no causes predicts better without such an input than with it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from cbm.discovery.cmi import Estimate, measure_cmi
from cbm.discovery.models.candidates import CandidateNetworks, CandidateSets, choose_candidates
from cbm.discovery.settings import CONFIRMED, LOCAL_RATE, MOST_SECOND, MOST_SLOTS, SECOND_LOOKS, Settings
from cbm.discovery.tensor_dataset import TensorDataset
from cbm.discovery.train import Budget, Trainer


def refine(dataset: TensorDataset, first: Estimate, settings: Settings, updates: int, seed: int) -> Estimate:
    """(K, inputs) CMI given the other candidates, relative to shadows; infinite for inputs that were ruled out.

    `first` is relative to its shadows; the dataset contains the rows to train on and to measure on.
    """
    return _look(dataset, first.cmi, first.stderr, settings, updates, seed)


def refine_until_settled(
    dataset: TensorDataset, first: Estimate, settings: Settings, updates: int, seed: int
) -> Estimate:
    """The same in rounds: each round leaves out what the last one has shown to be useless, and so sees the rest more
    sharply.

    For one target and few rows. Inputs are ranked by how large their effect may be: that of a true cause is measured
    imprecisely, that of most others is surely small.
    """
    real, exact = dataset.real_inputs, np.zeros_like(first.stderr)
    found = _look(dataset, first.cmi + 2 * first.stderr, exact, settings, updates, seed)
    seen = np.isfinite(found.cmi)
    for number in range(1, SECOND_LOOKS):
        reach = found.cmi + found.stderr
        useful = seen & (reach > settings.smallest_effect)
        if not useful[:, :real].any() or (useful == seen)[:, :real].all():
            break
        sharper = _look(dataset, np.where(useful, reach, -np.inf), exact, settings, updates, seed + 1000 * number)
        seen = np.isfinite(sharper.cmi)
        found = Estimate(np.where(seen, sharper.cmi, found.cmi), np.where(seen, sharper.stderr, found.stderr))
    return found


def _look(
    dataset: TensorDataset, cmi: np.ndarray, stderr: np.ndarray, settings: Settings, updates: int, seed: int
) -> Estimate:
    """Train and measure networks for the inputs whose (K, inputs) CMI may be large."""
    rng = np.random.default_rng([seed, 9])
    slots = choose_candidates(
        cmi, stderr, dataset.real_inputs, dataset.action_input, min(MOST_SECOND, most_candidates(dataset)), rng
    )
    local = build_candidate_networks(dataset, slots, settings, seed)
    trainer = candidate_trainer(local, dataset, settings, seed)
    trainer.run(Budget(steps=updates), lambda _: None)
    trainer.use_average()
    found = measure_candidates(local, slots, dataset, settings, seed=seed)
    nowhere = Estimate(np.full_like(cmi, np.inf), np.full_like(cmi, np.inf))
    return slots.spread(found, nowhere, dataset.breadth)


def refines(settings: Settings) -> bool:
    """Whether candidates are refined; the paper's network and DEMI are used as they are."""
    return settings.architecture == "trunk" and settings.model != "demi" and settings.shadows > 0


def confirmed(first: np.ndarray, second: np.ndarray, looked_at: np.ndarray) -> np.ndarray:
    """(K, 1) booleans: whether refinement confirmed a large enough share of the first estimate's edges among the inputs
    that it saw."""
    claimed, found = ((edge & looked_at).sum(1, keepdims=True) for edge in (first, second))
    return np.asarray(found >= CONFIRMED * claimed)


def most_candidates(dataset: TensorDataset) -> int:
    """Number of candidates of each target that are refined, at most."""
    return int(np.clip(MOST_SLOTS // len(dataset.targets), 10, 48))


def build_candidate_networks(
    dataset: TensorDataset, slots: CandidateSets, settings: Settings, seed: int
) -> CandidateNetworks:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        networks = CandidateNetworks(dataset, slots, settings)
    return networks.to(dataset.train.device)


def candidate_trainer(local: CandidateNetworks, dataset: TensorDataset, settings: Settings, seed: int) -> Trainer:
    return Trainer(local, dataset, replace(settings, learning_rate=LOCAL_RATE * settings.learning_rate), seed)


def measure_candidates(
    local: CandidateNetworks, slots: CandidateSets, dataset: TensorDataset, settings: Settings, seed: int = 0
) -> Estimate:
    """(K, candidates, with the action last) CMI on the held-out rows."""
    seen = slots.inputs.shape[1] + 1
    row_size = len(dataset.targets) * (settings.knots + 8 * seen)
    return measure_cmi(local, dataset.held, seen, seen, settings.evaluation_rows, row_size, seed=seed)
