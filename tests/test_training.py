"""What training does beside gradient steps: weight decay that follows overfitting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.systems import linear_gaussian
from cbm.discovery.models.registry import build_model
from cbm.discovery.settings import STRONGEST_DECAY, Settings, preset
from cbm.discovery.tensor_dataset import dynamics_dataset
from cbm.discovery.train import Trainer

SETTINGS = replace(preset("fast"), width=128, knots=17, batch=64)


def _trainer(rows: int, settings: Settings = SETTINGS) -> Trainer:
    data, _ = linear_gaussian(4, rows, seed=0)
    dataset = dynamics_dataset(*data.split(0.2), settings.shadows, 0).dataset
    return Trainer(build_model(dataset, settings, 0), dataset, settings, 0)


def test_rows_that_watch_overfitting_are_not_trained_on() -> None:
    trainer = _trainer(4000)
    assert trainer.watched is not None
    kept_out, seen = trainer.watched
    trained = trainer.dataset.train.x[trainer.rows]
    together = torch.cat([kept_out.x, trained]).numpy()
    assert len(kept_out.x) == len(seen.x) == 3200 // 20
    assert np.array_equal(np.unique(together, axis=0), np.unique(trainer.dataset.train.x.numpy(), axis=0))
    assert len(kept_out.x) + len(trained) == len(trainer.dataset.train)
    known = {row.tobytes() for row in trained.numpy()}
    assert all(row.tobytes() in known for row in seen.x.numpy())
    assert not any(row.tobytes() in known for row in kept_out.x.numpy())


def test_a_short_log_is_used_whole() -> None:
    trainer = _trainer(400)
    assert trainer.watched is None and len(trainer.rows) == len(trainer.dataset.train)
    trainer.watch()
    assert trainer.decay == SETTINGS.weight_decay


@pytest.mark.slow
def test_decay_rises_when_a_short_log_is_learnt_by_heart() -> None:
    trainer = _trainer(4000)
    for step in range(900):
        trainer.update(step / 900)
    assert trainer.decay > SETTINGS.weight_decay
    other = _trainer(4000)
    other.restore(trainer.state())
    assert (other.decay, other.best) == (trainer.decay, trainer.best)


@pytest.mark.parametrize(
    ("losses", "factor"),
    [((0.9, 0.9), 1.0), ((1.1, 0.9), 2.0), ((1.1, 1.1), 1.0), ((0.9, 1.2), 1.0)],
    ids=["better", "by heart", "both worse, and decay as it was", "new rows better"],
)
def test_decay_follows_two_losses(monkeypatch: pytest.MonkeyPatch, losses: tuple[float, float], factor: float) -> None:
    trainer = _trainer(4000)
    trainer.best = (1.0, 1.0)
    values = iter(losses)
    monkeypatch.setattr(trainer.model, "full_loss", lambda batch: torch.tensor(next(values)))
    trainer.watch()
    assert trainer.decay == pytest.approx(factor * SETTINGS.weight_decay)


def test_decay_falls_again_but_stays_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = _trainer(4000)
    trainer.best = (1.0, 1.0)
    learnt: list[float] = []
    for own in (0.5,) * 12 + (1.5,) * 12:
        values = iter((1.1, own))
        monkeypatch.setattr(trainer.model, "full_loss", lambda batch, values=values: torch.tensor(next(values)))
        trainer.watch()
        learnt.append(trainer.decay / SETTINGS.weight_decay)
    assert max(learnt) == pytest.approx(STRONGEST_DECAY) and learnt[-1] == pytest.approx(1.0)
