"""The paper's formulas exactly as printed: the slow reference for the tests and the engine benchmark.

One feature network for every (target, input) pair, a maximum over the inputs, a candidate network that runs on every
candidate of every row, the slope of the score from a second backward pass, and Eq. 3 with its importance weights on all
d x d x B x N scores. No algebra is used to save work. Pair networks run as one batched product, as in the authors' own
code, so that the reference is slow because of the formulas and not because of Python loops. Targets share nothing:
several small models are one large one.

Where the paper leaves a choice (a dropped input leaves the maximum; a ReLU before each encoder's last layer), the
choice is that of `cbm.discovery.models.pairwise`, whose weights can be copied to compare number for number.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from cbm.discovery.models.pairwise import Pairwise

NOTHING = -1  # in place of an input's index: no input is dropped


class Literal(nn.Module):
    """f(s'; x) for every target: g with nothing dropped, psi with one input dropped."""

    def __init__(self, columns: list[list[int]], targets: int, hidden: int = 128, code: int = 128):
        super().__init__()
        self.columns = columns
        inputs, widest = len(columns), max(len(own) for own in columns)
        self.pair_in = Affine((targets, inputs), widest, hidden)  # 1 -> hidden (as many as there are actions)
        self.pair_out = Affine((targets, inputs), hidden, hidden)
        self.energy = Affine((targets,), hidden, code)
        self.candidate_in = Affine((targets,), 1, hidden)
        self.candidate_mid = Affine((targets,), hidden, hidden)
        self.candidate_out = Affine((targets,), hidden, code)

    @classmethod
    def from_pairwise(cls, model: Pairwise) -> Literal:
        """The same function, from the weights of the model that preset `paper` trains."""
        hidden, code = model.context_out.shape[1] - 1, model.context_out.shape[2]
        literal = cls(model.columns, len(model.context_out), hidden, code)
        literal.pair_in.take(model.pair_in)
        literal.pair_out.take(model.pair_out)
        literal.energy.take(model.context_out)
        literal.candidate_in.take(model.candidate_in)
        literal.candidate_mid.take(model.candidate_mid)
        literal.candidate_out.take(model.candidate_out)
        return literal

    def pair_features(self, x: Tensor) -> Tensor:
        """(B, C) -> (K, inputs, B, hidden)."""
        widest = self.pair_in.weight.shape[-2]
        nodes = torch.stack([functional.pad(x[:, own], (0, widest - len(own))) for own in self.columns])
        first = self.pair_in(nodes.expand(len(self.pair_in.weight), *nodes.shape))
        return self.pair_out(first.relu())

    def context(self, features: Tensor, dropped: Tensor) -> Tensor:
        """(K, inputs, B, hidden), (B,) dropped inputs -> (K, B, code): maximum, energy layer."""
        absent = torch.arange(features.shape[1])[:, None] == dropped
        strongest = features.masked_fill(absent[..., None], -math.inf).amax(1)
        return self.energy(strongest.relu())

    def candidate(self, values: Tensor) -> Tensor:
        """(K, B, N) -> (K, B, N, code)."""
        rows, n = values.shape[1:]
        hidden = self.candidate_in(values.flatten(1)[..., None]).relu()
        hidden = self.candidate_mid(hidden).relu()
        return self.candidate_out(hidden).unflatten(1, (rows, n))

    def loss(
        self,
        x: Tensor,
        y: Tensor,
        negatives: Tensor,
        dropped: Tensor,
        penalties: tuple[float, float],
    ) -> Tensor:
        """Eq. 1 and the penalties of Eq. 5: x (B, C), y (B, K), negatives (K, B, N), dropped (B,)."""
        q = self.context(self.pair_features(x), dropped)
        candidates = torch.cat([y.T[..., None], negatives], -1).detach().requires_grad_()
        f = (self.candidate(candidates) @ q[..., None])[..., 0]  # (K, B, N+1), the positive first
        (slope,) = torch.autograd.grad(f.sum(), candidates, create_graph=True)
        nce = -torch.log_softmax(f, -1)[..., 0]  # Eq. 1
        regular = (penalties[0] * f.square() + penalties[1] * slope.square()).sum(-1)  # Eq. 5
        return (nce + regular).mean(1).sum()

    @torch.no_grad()
    def cmi(self, x: Tensor, y: Tensor, negatives: Tensor, inputs: int, rows_at_once: int = 8) -> Tensor:
        """Eq. 3 for inputs 0 … inputs-1, each row's value: (K, inputs, B)."""
        chunks = [slice(start, start + rows_at_once) for start in range(0, len(x), rows_at_once)]
        return torch.cat([self._cmi(x[rows], y[rows], negatives[:, rows], inputs) for rows in chunks], -1)

    def _cmi(self, x: Tensor, y: Tensor, negatives: Tensor, inputs: int) -> Tensor:
        features = self.pair_features(x)
        q = [self.context(features, torch.full((len(x),), j)) for j in (NOTHING, *range(inputs))]
        code = self.candidate(torch.cat([y.T[..., None], negatives], -1))  # (K, B, N+1, code)
        f = torch.stack(q, -2) @ code.transpose(-1, -2)  # (K, B, 1 + inputs, N+1)
        g, psi = f[:, :, :1], f[:, :, 1:]
        return importance_sampled_cmi(g - psi, psi).transpose(1, 2)


def importance_sampled_cmi(phi: Tensor, psi: Tensor) -> Tensor:
    """Eq. 3: phi and psi of the positive (first) and of N negatives, (…, N+1) -> (…,)."""
    n = phi.shape[-1] - 1
    log_w = torch.log_softmax(psi[..., 1:], -1)  # the weights of the negatives alone
    weighted = math.log(n) + torch.logsumexp(log_w + phi[..., 1:], -1)
    positive = phi[..., 0]
    return math.log(n + 1) + positive - torch.logaddexp(positive, weighted)


class Affine(nn.Module):
    """A stack of affine maps, one for each target or for each (target, input) pair."""

    def __init__(self, stack: tuple[int, ...], inputs: int, outputs: int):
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(*stack, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*stack, 1, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        """(targets, …, n, inputs) -> (targets, …, n, outputs)."""
        return x @ self.weight + self.bias

    @torch.no_grad()
    def take(self, stacked: Tensor) -> None:
        """Weights and, as last row, offsets."""
        self.weight.copy_(stacked[:, :-1].view_as(self.weight))
        self.bias.copy_(stacked[:, -1:].view_as(self.bias))
