"""Multi-step prediction error of models of the dynamics: over 1 to 20 steps, in and out of distribution.

Out of distribution, distractors are replaced by N(0, 100²) noise, as in the paper's appendix (100 is the standard
deviation). A model that predicts from causes alone is not affected. Errors are averaged over the variables that are not
distractors and that ever change, in units of each one's typical change per step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cbm.data.transitions import Transitions
from cbm.discovery.checkpoint import Checkpoint
from cbm.discovery.discover import fit
from cbm.discovery.network_pipeline import published, train_predictor
from cbm.discovery.predict import Predictor
from cbm.discovery.runfiles import fingerprint
from cbm.discovery.settings import ModelName, Settings, preset
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.learning.task_env import distractors
from cbm.runs.directory import CHECKPOINT
from cbm.runs.files import read_json

STEPS = 20
STRANGE = 100.0
"""Standard deviation of the noise that replaces distractors."""
STARTS = 500
MODELS: tuple[ModelName, ...] = ("implicit", "explicit")


def prediction_errors(predictor: Predictor, held: Transitions, seed: int, starts: int = STARTS) -> list[dict[str, Any]]:
    """[{"steps", "in", "out", "still"}, ...]; `still` is the error of predicting that nothing changes."""
    held = _by_episode(held)
    steps = min(STEPS, int(np.bincount(_runs(held)).max()))
    at = _starts(held, steps)
    at = at[np.linspace(0, len(at) - 1, min(starts, len(at))).astype(int)]
    actions = held.action[at[:, None] + np.arange(steps)]
    strange = held.obs[at].copy()
    meant = distractors(held.factors)
    strange[:, meant] = STRANGE * np.random.default_rng([seed, 51]).normal(size=(len(at), int(meant.sum())))
    change = np.std(held.next_obs - held.obs, axis=0)
    counted = (change > 0) & ~meant
    if not counted.any():
        raise DataError("prediction: nothing but distractors moves in this log")
    rollouts = {"in": predictor.rollout(held.obs[at], actions), "out": predictor.rollout(strange, actions)}

    def error(predicted: np.ndarray, true: np.ndarray) -> float:
        return round(float((np.abs(predicted - true) / np.where(counted, change, 1.0))[:, counted].mean()), 6)

    result = []
    for k in range(steps):
        true = held.next_obs[at + k]
        errors = {place: error(states[:, k], true) for place, states in rollouts.items()}
        result.append({"steps": k + 1, **errors, "still": error(held.obs[at], true)})
    return result


def fitted(data: Transitions, model: ModelName, updates: int | None, seed: int, device: str = "cpu") -> Predictor:
    """A model of the dynamics of a log, with the graph found in it, trained for `updates` steps."""
    log = replace(data, rewards={}, context={}, truth_rewards={})
    settings = preset("fast", model)
    if updates is not None:
        settings = replace(settings, prediction_updates=updates)
    predictor = fit(log, settings=settings, seed=seed, device=device).predictor
    assert predictor is not None
    return predictor


@dataclass(frozen=True)
class Stored:
    """The result of a finished run of `cbm discover`, and how its log was split."""

    model: ModelName
    predictor: Predictor
    train: Transitions
    held: Transitions


def stored(run: Path, data: Transitions, device: str = "cpu") -> Stored | None:
    """The predictor of a discovery run; None unless `data` is the log of that run.

    Scales and knots are fitted to the log and not stored, so the weights are meaningless without it.
    """
    config = read_json(run / "config.json") if (run / "config.json").is_file() else None
    if not isinstance(config, dict) or not (run / "result.json").is_file() or config.get("data") != fingerprint(data):
        return None
    settings, seed = Settings.from_json(config["settings"]), config["seed"]
    checkpoint = Checkpoint(run / CHECKPOINT)
    if published(settings) or not checkpoint.has("prediction.done"):
        return None
    predictor = train_predictor(data, CausalGraph.load(run), settings, seed, checkpoint, lambda *_: None, device)
    if predictor is None:
        return None
    return Stored(settings.model, predictor, *data.split(settings.held_out, seed=seed))


def _by_episode(data: Transitions) -> Transitions:
    return data.select(np.argsort(data.episode, kind="stable"))


def _runs(held: Transitions) -> np.ndarray:
    """(T,) number of the uninterrupted sequence that each row belongs to."""
    broken = (held.episode[1:] != held.episode[:-1]) | (held.obs[1:] != held.next_obs[:-1]).any(1)
    return np.concatenate([[0], np.cumsum(broken)])


def _starts(held: Transitions, steps: int) -> np.ndarray:
    """Rows from which `steps` rows follow each other."""
    runs = _runs(held)
    n = len(held) - steps + 1
    return np.flatnonzero(runs[:n] == runs[steps - 1 : steps - 1 + n])
