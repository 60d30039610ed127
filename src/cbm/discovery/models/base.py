"""The interface of every discovery model, and the part that trunk models share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cbm.discovery.models.encoder import Encoder
from cbm.discovery.models.trunk import NOTHING, Trunk
from cbm.discovery.settings import Settings
from cbm.discovery.tensor_dataset import Rows

Pointwise = Callable[[int, Tensor | None], Tensor]
"""Input j, targets (None: all) -> (1, K, B): log p(target | x) - log p(target | x without j), for each row. Or (2, K,
B): then also the expectation of this difference in each row, over targets drawn from the full model."""
Judge = Callable[[Tensor, Tensor | None], Tensor]
"""Outputs of a leave-one-out model for some targets (None: all) -> the same differences, (1 or 2, K, B)."""


@dataclass(frozen=True)
class Batch:
    """Some rows of a dataset, with targets drawn at random inside their atoms."""

    x: Tensor
    """(B, C) input columns."""
    u: Tensor
    """(B, K) targets in [0, 1]."""
    y: Tensor
    """(B, K) standardised targets."""
    level: Tensor
    """(B, K) index of a discrete target's value, 0 for continuous ones."""

    @classmethod
    def of(cls, rows: Rows, index: Tensor, generator: torch.Generator) -> Batch:
        noise = torch.rand(len(index), rows.u.shape[1], generator=generator).to(rows.device)
        u = torch.addcmul(rows.u[index], rows.width[index], noise)
        return cls(rows.x[index], u, rows.y[index], rows.level[index])


class MaskedModel(nn.Module, ABC):
    """p(target | x) and p(target | x without j), for all targets and all j, in one network."""

    @abstractmethod
    def loss(self, batch: Batch, dropped: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Sum over targets of the mean loss, with input `dropped[b]` missing in row b (-1: none)."""

    @abstractmethod
    def evidence(self, batch: Batch) -> Pointwise:
        """Pointwise CMI of every target with input j; what all j share is computed once."""

    def full_loss(self, batch: Batch) -> Tensor | None:
        """Mean over targets and rows of the full model's loss; None if weight decay is not adapted to it."""
        return None

    def draw(self, rows: int, full_share: float, focus: Tensor, generator: torch.Generator) -> Tensor:
        """(B,) the input that each row of a batch misses: any, including the action and the shadows, or none.

        Drawn on the CPU, where the generator is.
        """
        dropped = torch.multinomial(focus, rows, replacement=True, generator=generator)
        dropped[: math.ceil(full_share * rows)] = NOTHING
        return dropped

    def phases(self) -> list[list[nn.Parameter]]:
        """Parameters to train, one list for each phase of training; all phases get the same share of the budget."""
        return [list(self.parameters())]

    def enter_phase(self, phase: int) -> None:
        """Called before the first update of each phase."""


class TrunkModel(MaskedModel):
    """A trunk, and a rule that turns its outputs into log-densities."""

    def __init__(self, encoder: Encoder, settings: Settings, targets: int, per_target: int):
        super().__init__()
        self.settings = settings
        self.trunk = Trunk(encoder, settings.width, settings.depth, targets, per_target)

    @abstractmethod
    def outputs(self, first: Tensor, targets: Tensor | None = None) -> Tensor:
        """(B, width) first-layer values -> (K, B, …): what describes each target's density."""

    @abstractmethod
    def log_density(self, outputs: Tensor, batch: Batch, targets: Tensor | None = None) -> Tensor:
        """(K, B) log-density of each target (or of the `targets` requested)."""

    @abstractmethod
    def lesson(self, outputs: Tensor, teacher: Tensor, targets: Tensor | None = None) -> Tensor:
        """(K, B) cross-entropy of the densities described by `outputs` with those of `teacher`."""

    def penalty(self, outputs: Tensor) -> Tensor:
        """Regularisation term of the loss."""
        return outputs.new_zeros(())

    def loss(self, batch: Batch, dropped: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        features = self.trunk.encoder(batch.x)
        first = self.trunk.first_layer(features, dropped)
        if not self.settings.teaching:
            outputs = self.outputs(first)
            nll = -self.log_density(outputs, batch)  # Eq. 1, Eq. 4
            return nll.mean(1).sum() + self.penalty(outputs), split_by_mask(nll, dropped)
        everything = self.trunk.first_layer(features, torch.full_like(dropped, NOTHING), hide=False)
        outputs = self.outputs(torch.cat([everything, first]))
        full, masked = outputs.split(len(dropped), 1)
        return taught(-self.log_density(full, batch), self.lesson(masked, full.detach()), self.penalty(outputs))

    def full_loss(self, batch: Batch) -> Tensor | None:
        nothing = torch.full((len(batch.x),), NOTHING, device=batch.x.device)
        first = self.trunk.first_layer(self.trunk.encoder(batch.x), nothing, hide=False)
        return -self.log_density(self.outputs(first), batch).mean()

    def judge(self, outputs: Tensor, batch: Batch) -> Judge:
        """Compares the full model's `outputs` on a batch with those of models without some input."""
        return judge(outputs, batch, self.log_density, self.lesson, self.settings.expected)

    def evidence(self, batch: Batch) -> Pointwise:
        features = self.trunk.encoder(batch.x)
        first = self.trunk.first_layer(features, torch.full((len(features),), NOTHING, device=features.device))
        judged = self.judge(self.outputs(first), batch)

        def pointwise(j: int, targets: Tensor | None) -> Tensor:
            return judged(self.outputs(self.trunk.without(first, features, j), targets), targets)

        return pointwise


def judge(
    outputs: Tensor,
    batch: Batch,
    log_density: Callable[[Tensor, Batch, Tensor | None], Tensor],
    lesson: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    expected: bool,
) -> Judge:
    """Differences of log-densities, and of cross-entropies with the full model."""
    full = log_density(outputs, batch, None)
    entropy = lesson(outputs, outputs, None) if expected else None

    def judged(without: Tensor, targets: Tensor | None) -> Tensor:
        chosen = slice(None) if targets is None else targets
        outcome = full[chosen] - log_density(without, batch, targets)
        if entropy is None:
            return outcome[None]
        return torch.stack([outcome, lesson(without, outputs[chosen], targets) - entropy[chosen]])

    return judged


def taught(nll: Tensor, lesson: Tensor, penalty: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The full model learns from outcomes (Eq. 1), the leave-one-out models by distillation from the full model (Eq.
    4).

    p(y | x without j) is the mean of p(y | x) over the values of j, so the density of the full model is as good a
    training target as an outcome drawn from it, and free of its noise.
    """
    numbers = {"loss_full": nll.detach().mean(), "loss_masked": lesson.detach().mean()}
    return nll.mean(1).sum() + lesson.mean(1).sum() + penalty, numbers


def split_by_mask(nll: Tensor, dropped: Tensor) -> dict[str, Tensor]:
    """Mean loss per target of the rows that saw all inputs, and of those that missed one."""
    with torch.no_grad():
        row = nll.mean(0)
        seen = (dropped == NOTHING).float()
        full = (row * seen).sum() / seen.sum().clamp(min=1)
        masked = (row * (1 - seen)).sum() / (1 - seen).sum().clamp(min=1)
    return {"loss_full": full, "loss_masked": masked}
