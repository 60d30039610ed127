"""The explicit model (CDL): a Gaussian over each continuous target, class probabilities over each discrete one."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from cbm.discovery.models.base import Batch, TrunkModel
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.settings import Settings

LOG_STD = (
    -7.0,
    3.0,
)  # in units of the target's deviation; unbounded, the likelihood of an exactly repeated target diverges


class Explicit(TrunkModel):
    """log p(target | inputs) from a mean and a log standard deviation, or from logits."""

    def __init__(self, encoder: Encoder, levels: tuple[int, ...], settings: Settings):
        super().__init__(encoder, settings, len(levels), max(2, *levels, 2))
        self.levels: Tensor
        self.register_buffer("levels", torch.tensor(levels), persistent=False)

    def outputs(self, first: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.trunk.rest(first, targets).transpose(0, 1)  # (K, B, outputs)

    def log_density(self, outputs: Tensor, batch: Batch, targets: Tensor | None = None) -> Tensor:
        if targets is None:
            return explicit_log_prob(outputs, batch.y, batch.level, self.levels)
        return explicit_log_prob(outputs, batch.y[:, targets], batch.level[:, targets], self.levels[targets])

    def lesson(self, outputs: Tensor, teacher: Tensor, targets: Tensor | None = None) -> Tensor:
        return explicit_cross_entropy(outputs, teacher, self.levels if targets is None else self.levels[targets])


def explicit_log_prob(heads: Tensor, y: Tensor, level: Tensor, levels: Tensor) -> Tensor:
    """(K, B, outputs), targets (B, K) -> (K, B)."""
    log_std = heads[..., 1].clamp(*LOG_STD)
    gaussian = -0.5 * ((y.T - heads[..., 0]) * (-log_std).exp()).square() - log_std - 0.5 * math.log(2 * math.pi)
    if not bool(levels.any()):
        return gaussian
    discrete = _log_classes(heads, levels).gather(-1, level.T[..., None])[..., 0]
    return torch.where(levels[:, None] > 0, discrete, gaussian)


def explicit_cross_entropy(heads: Tensor, teacher: Tensor, levels: Tensor) -> Tensor:
    """(K, B, outputs) of two models -> (K, B): -E[log-density of the first], expected under the second."""
    log_std = heads[..., 1].clamp(*LOG_STD)
    spread = (teacher[..., 0] - heads[..., 0]).square() + (2 * teacher[..., 1].clamp(*LOG_STD)).exp()
    gaussian = 0.5 * spread * (-2 * log_std).exp() + log_std + 0.5 * math.log(2 * math.pi)
    if not bool(levels.any()):
        return gaussian
    discrete = -(_log_classes(teacher, levels).exp() * _log_classes(heads, levels)).sum(-1)
    return torch.where(levels[:, None] > 0, discrete, gaussian)


def _log_classes(heads: Tensor, levels: Tensor) -> Tensor:
    """Log-probability of each level of a discrete target."""
    beyond = torch.arange(heads.shape[-1], device=heads.device) >= levels[:, None, None]
    return functional.log_softmax(heads.masked_fill(beyond, -1e9), -1)
