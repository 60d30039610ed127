"""Networks: the published estimators from training to verdicts, and the predictor that sees only the causes found.

Preset `paper` (one network per pair) and model `demi` are trained for a number of updates and judged by the paper's
threshold. If time runs out first, nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from cbm.data.transitions import Transitions
from cbm.discovery.checkpoint import Checkpoint
from cbm.discovery.cmi import Estimate, measure_cmi
from cbm.discovery.decide import Verdicts, decide_networks
from cbm.discovery.models.base import MaskedModel
from cbm.discovery.models.candidates import CandidateSets
from cbm.discovery.models.registry import build_model, numbers_per_row
from cbm.discovery.predict import Predictor
from cbm.discovery.refine import build_candidate_networks
from cbm.discovery.settings import LOCAL_RATE, Settings
from cbm.discovery.tensor_dataset import Dynamics, TensorDataset, dynamics_dataset, reward_dataset
from cbm.discovery.train import Budget, Trainer
from cbm.graph import CausalGraph
from cbm.graph.reward import UNSETTLED
from cbm.runs.checkpoint import copy_tensor, usable

Report = Callable[[str, float, dict[str, float]], None]
"""Stage, fraction done, numbers to log."""


def published(settings: Settings) -> bool:
    """Whether the settings ask for a published estimator instead of refits."""
    return settings.architecture == "pairwise" or settings.model == "demi"


@dataclass(frozen=True)
class NetworkVerdicts:
    """Results of the published networks."""

    dynamics: Dynamics
    verdicts: Verdicts
    rewards: Verdicts | None


def run_networks(
    train: Transitions, held: Transitions, settings: Settings, seed: int, deadline: float | None, steps: int | None,
    checkpoint: Checkpoint, report: Report, device: str = "cpu",
) -> NetworkVerdicts:  # fmt: skip
    """Dynamics, then all rewards as one dataset; `steps` updates of the former (None: as the settings say)."""
    steps = steps or settings.updates
    dynamics = dynamics_dataset(train, held, settings.shadows, seed, settings.differences)
    place = torch.device(device)
    found = _judge_dataset("dynamics", dynamics.dataset.to(place), settings, seed, deadline, steps, checkpoint, report)
    rewards = None
    if train.rewards:
        before = settings.reward_inputs == "state-action"
        dataset = reward_dataset(train, held, list(train.rewards), settings.shadows, seed, before, settings.differences)
        rewards = _judge_dataset(
            "rewards", dataset.to(place), settings, seed + 2, deadline, max(1, steps // 2), checkpoint, report
        )
    return NetworkVerdicts(dynamics, found, rewards)


def _judge_dataset(
    name: str, dataset: TensorDataset, settings: Settings, seed: int, deadline: float | None, steps: int,
    checkpoint: Checkpoint, report: Report,
) -> Verdicts:  # fmt: skip
    """Train, measure, decide. Finished stages are taken from the checkpoint."""
    shape = (len(dataset.targets), dataset.real_inputs)
    if not dataset.targets:
        empty = np.zeros(shape)
        return Verdicts(empty, empty, empty, empty > 0, empty.astype("<U9"))
    if not checkpoint.has(f"{name}.cmi"):
        model = build_model(dataset, settings, seed).to(dataset.train.device)
        if not train(name, Trainer(model, dataset, settings, seed), Budget(steps=steps), checkpoint, report, deadline):
            return _open(shape)
        size = numbers_per_row(dataset, settings)
        progress = partial(_evidence_progress, report, name)
        found = measure_cmi(
            model, dataset.held, dataset.inputs, dataset.real_inputs, settings.evaluation_rows, size, progress
        ).reported
        checkpoint.keep(**{f"{name}.cmi": found.cmi, f"{name}.stderr": found.stderr})
    with usable(checkpoint.place):
        kept = Estimate(_stored(checkpoint, f"{name}.cmi", dataset), _stored(checkpoint, f"{name}.stderr", dataset))
    real = dataset.real_inputs
    return decide_networks(
        kept.cmi[:, :real], kept.stderr[:, :real], kept.cmi[:, real:], settings, breadth=dataset.breadth
    )


def _stored(checkpoint: Checkpoint, name: str, dataset: TensorDataset) -> np.ndarray:
    """An array of a finished stage, with one number for each target and input."""
    array, shape = checkpoint.array(name), (len(dataset.targets), dataset.inputs)
    if array.shape != shape or array.dtype.kind != "f":
        raise ValueError(f"{name} has shape {array.shape} of {array.dtype}, expected numbers of shape {shape}")
    return array


def _open(shape: tuple[int, int]) -> Verdicts:
    """Verdicts that claim nothing."""
    zeros, no = np.zeros(shape), np.zeros(shape, bool)
    undecided, why = np.full(shape, "undecided"), np.full(shape, UNSETTLED)
    return Verdicts(zeros, zeros, zeros, no, undecided, why, no, np.full(shape[0], np.nan))


def train(
    name: str, trainer: Trainer, budget: Budget, checkpoint: Checkpoint, report: Report, deadline: float | None = None
) -> bool:
    """Run a trainer to the end of its budget, from the checkpoint if that was written in this stage; False: out of
    time."""
    if checkpoint.notes.get("stage") == name and checkpoint.running:
        with usable(checkpoint.place):
            trainer.restore(checkpoint.running)

    def remember() -> None:
        checkpoint.running = trainer.state()
        checkpoint.notes |= {"stage": name, "spent": budget.spent}

    def log_metrics(metrics: dict[str, float]) -> None:
        report(
            name,
            metrics.pop("progress"),
            {"step": trainer.step, "seconds": round(budget.spent, 2), **metrics},
        )
        if checkpoint.due():
            remember()
            checkpoint.write()

    try:
        trainer.run(budget, log_metrics, deadline=deadline)
    except KeyboardInterrupt:
        if trainer.between_updates:
            remember()
            checkpoint.write()
        raise
    checkpoint.notes["updates"] = {**checkpoint.notes.get("updates", {}), name: trainer.step}
    if budget.progress(trainer.step) < 1:
        remember()
        checkpoint.write()
        return False
    trainer.use_average()
    return True


def _evidence_progress(report: Report, name: str, done: float) -> None:
    report(f"{name}: evidence", done, {})


def train_predictor(
    data: Transitions, graph: CausalGraph, settings: Settings, seed: int, checkpoint: Checkpoint, report: Report,
    device: str = "cpu",
) -> Predictor | None:  # fmt: skip
    """Small networks, one for each variable, that see only its causes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # next to other work, two threads are slower than one
    try:
        train_rows, held_rows = data.split(settings.held_out, seed=seed)
        dynamics = dynamics_dataset(train_rows, held_rows, settings.shadows, seed, settings.differences)
        dataset, name = dynamics.dataset.to(torch.device(device)), "prediction"
        if not dataset.targets:
            return None
        parents = np.zeros((len(dataset.targets), dataset.inputs), bool)
        parents[:, : dataset.real_inputs] = graph.adjacency[[t.index for t in dataset.targets], : dataset.real_inputs]
        local = build_candidate_networks(dataset, _slots(parents, dataset), settings, seed + 1)
        local.restrict(parents)
        if checkpoint.has(f"{name}.done"):
            restore_parameters(local, name, checkpoint)
        else:
            updates = Budget(steps=settings.prediction_updates)
            fast = replace(settings, learning_rate=LOCAL_RATE * settings.learning_rate)  # small networks tolerate it
            train(name, Trainer(local, dataset, fast, seed + 4), updates, checkpoint, report)
            checkpoint.keep(**{f"{name}.done": np.ones(1), **named_parameters(local, name)})
        return Predictor(data.factors, dynamics, local)
    finally:
        torch.set_num_threads(before)


def _slots(parents: np.ndarray, dataset: TensorDataset) -> CandidateSets:
    action = dataset.action_input
    rows = [[j for j in np.flatnonzero(row) if j != action] for row in parents]
    width = max(1, *(len(row) for row in rows), 1)
    return CandidateSets(np.array([row + [-1] * (width - len(row)) for row in rows], dtype=np.int64), action)


def named_parameters(model: MaskedModel, name: str) -> dict[str, Any]:
    return {f"{name}/{key}": value.detach().cpu().clone() for key, value in model.named_parameters()}


def restore_parameters(model: MaskedModel, name: str, checkpoint: Checkpoint) -> None:
    with usable(checkpoint.place):
        for key, parameter in model.named_parameters():
            copy_tensor(parameter, checkpoint.found, f"{name}/{key}")
