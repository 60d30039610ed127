"""The implicit model in its fast form: a shared trunk, and per target a critic over the whole of [0, 1].

score_i(u; x) = q_i(x) . k_i(u): q_i comes from the trunk, k_i is a piecewise-linear curve of codes over
evenly spaced knots. The knots are the candidates of InfoNCE, the same for every row and spread over the
whole range, which is Eq. 1 in the limit of many stratified candidates: the positive's own term in the
denominator vanishes, and the loss is the negative log-density of the target under e^score.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from cbm.discovery.models.base import Batch, Judge, TrunkModel
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.settings import Settings


class Implicit(TrunkModel):
    """Full model g and all leave-one-out models psi in one network."""

    def __init__(self, encoder: Encoder, targets: int, settings: Settings):
        super().__init__(encoder, settings, targets, settings.code)
        self.curve = nn.Parameter(0.3 * torch.randn(targets, settings.code, settings.knots))

    def outputs(self, first: Tensor, targets: Tensor | None = None) -> Tensor:
        """(B, width) -> (K, B, knots): the score of every candidate."""
        return critic_scores(self.trunk.rest(first, targets), self.curve if targets is None else self.curve[targets])

    def log_density(self, outputs: Tensor, batch: Batch, targets: Tensor | None = None) -> Tensor:
        return log_density(outputs, batch.u if targets is None else batch.u[:, targets])

    def lesson(self, outputs: Tensor, teacher: Tensor, targets: Tensor | None = None) -> Tensor:
        return cross_entropy(outputs, teacher)

    def judge(self, outputs: Tensor, batch: Batch) -> Judge:
        return critic_judge(outputs, batch.u, self.settings.expected)

    def penalty(self, outputs: Tensor) -> Tensor:
        return penalties(outputs, self.settings)  # Eq. 5


def critic_scores(context: Tensor, curve: Tensor) -> Tensor:
    """(B, K, code), (K, code, knots) -> (K, B, knots)."""
    return torch.bmm(context.transpose(0, 1), curve)


def penalties(scores: Tensor, settings: Settings) -> Tensor:
    """Eq. 5: squared scores and squared slopes along the candidate, means over rows and candidates."""
    total = scores.new_zeros(())
    rows = scores[:, ::8]  # a sample of rows is enough for a penalty this small
    if settings.score_penalty:
        total = total + settings.score_penalty * rows.square().mean((1, 2)).sum()
    if settings.slope_penalty:
        slope = rows.diff(dim=-1) * (rows.shape[-1] - 1)
        total = total + settings.slope_penalty * slope.square().mean((1, 2)).sum()
    return total


def log_density(scores: Tensor, u: Tensor) -> Tensor:
    """(K, B, knots) scores, (B, K) targets -> (K, B) log-density of the targets on [0, 1]."""
    return _LogDensity.apply(scores, u.T)


class _LogDensity(torch.autograd.Function):
    """score(u) - log integral of e^score, by the trapezoid rule; a gradient written out halves the time."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, u: Tensor) -> Tensor:
        cells = scores.shape[-1] - 1
        mass, total, top = _masses(scores)
        left, share = _cell(u, cells)
        ctx.save_for_backward(mass, total, left, share)
        return _at(scores, left, share) - (top + total.log())[..., 0] + math.log(cells)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        mass, total, left, share = ctx.saved_tensors
        gradient = mass * (-grads[0][..., None] / total)
        gradient.scatter_add_(-1, left, (grads[0] * (1 - share))[..., None])
        gradient.scatter_add_(-1, left + 1, (grads[0] * share)[..., None])
        return gradient, None


def cross_entropy(scores: Tensor, teacher: Tensor) -> Tensor:
    """(K, B, knots) scores of two critics -> (K, B): -E[log-density of the first], expected under the second."""
    return _CrossEntropy.apply(scores, teacher)


class _CrossEntropy(torch.autograd.Function):
    """log integral of e^score minus the mean score under the teacher's probabilities on the knots."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, teacher: Tensor) -> Tensor:
        own, total, top = _masses(scores)
        target, target_total, _ = _masses(teacher)
        ctx.save_for_backward(own.div_(total), target.div_(target_total))
        log_total = (top + total.log())[..., 0] - math.log(scores.shape[-1] - 1)
        return log_total - torch.linalg.vecdot(target, scores)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        own, target = ctx.saved_tensors
        return torch.sub(own, target).mul_(grads[0][..., None]), None


def critic_judge(scores: Tensor, u: Tensor, expected: bool) -> Judge:
    """Differences of `log_density` and of `cross_entropy` between the full critic and others.

    The full critic's terms are computed once, and each other critic's normaliser serves both differences.
    """
    cells = scores.shape[-1] - 1
    mass, total, top = _masses(scores)
    log_total = (top + total.log())[..., 0]
    belief = mass.div_(total)
    left, share = _cell(u.T, cells)
    at_outcome = _at(scores, left, share) - log_total
    in_belief = torch.linalg.vecdot(belief, scores) - log_total

    def judged(without: Tensor, targets: Tensor | None) -> Tensor:
        chosen = slice(None) if targets is None else targets
        _, its_total, its_top = _masses(without)
        its_log_total = (its_top + its_total.log())[..., 0]
        outcome = at_outcome[chosen] - _at(without, left[chosen], share[chosen]) + its_log_total
        if not expected:
            return outcome[None]
        belief_in_it = torch.linalg.vecdot(belief[chosen], without) - its_log_total
        return torch.stack([outcome, in_belief[chosen] - belief_in_it])

    return judged


def _at(scores: Tensor, left: Tensor, share: Tensor) -> Tensor:
    """Scores at points between two knots, (K, B)."""
    low, high = scores.gather(-1, left)[..., 0], scores.gather(-1, left + 1)[..., 0]
    return torch.lerp(low, high, share)


def _masses(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mass around each knot by the trapezoid rule, the sum of the masses, and the largest score; masses are relative to
    e^(largest score)."""
    top = scores.amax(-1, keepdim=True)
    mass = (scores - top).exp_()
    mass[..., 0] *= 0.5
    mass[..., -1] *= 0.5
    total = mass.sum(-1, keepdim=True)
    return mass, total, top


def _cell(u: Tensor, cells: int) -> tuple[Tensor, Tensor]:
    """The cell of the grid that u falls into (…, 1), and the position within it (…)."""
    position = u * cells
    left = position.floor().clamp_(0, cells - 1)
    return left.long()[..., None], position - left
