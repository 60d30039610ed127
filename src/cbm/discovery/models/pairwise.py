"""The paper's own network: a small feature net for every (target, input) pair, a max, and a dot product.

Slow by design (its size grows with the square of the number of variables); it is kept as preset `paper`, the reference
for the fast form. All pair networks run as one batched product, and the slope of the score is computed in the forward
pass along with the score, so no second backward pass is needed.

Two interpretations of the paper, both noted in the docs: a dropped input leaves the maximum (instead of entering it as
zeros), and each encoder has a ReLU before its last layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cbm.discovery.models.base import Batch, MaskedModel, Pointwise, split_by_mask
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.settings import EVALUATION_CANDIDATES, Settings
from cbm.discovery.tensor_dataset import TensorDataset

EVALUATION_ROWS = 32  # rows scored at once when measuring CMI


class Pairwise(MaskedModel):
    """Scores of candidates for every target's standardised next value or change."""

    def __init__(self, dataset: TensorDataset, settings: Settings):
        super().__init__()
        encoder, targets, h = dataset.encoder, len(dataset.targets), settings.width
        self.settings = settings
        low, high = dataset.train.y.amin(0), dataset.train.y.amax(0)
        self.low: Tensor
        self.high: Tensor
        self.register_buffer("low", low - 0.05 * (high - low), persistent=False)
        self.register_buffer("high", high + 0.05 * (high - low), persistent=False)
        self.columns = input_columns(encoder)
        self.widest = max(len(columns) for columns in self.columns)
        pairs = targets * len(self.columns)
        self.pair_in = _weight(pairs, self.widest, h)
        self.pair_out = _weight(pairs, h, h)
        self.context_out = _weight(targets, h, settings.code)
        self.candidate_in = _weight(targets, 1, h)
        self.candidate_mid = _weight(targets, h, h)
        self.candidate_out = _weight(targets, h, settings.code)

    def pair_features(self, x: Tensor) -> Tensor:
        """(B, C) -> (K, inputs, B, h): the features of each input for each target."""
        nodes = x.new_zeros(len(self.columns), len(x), self.widest)
        for j, columns in enumerate(self.columns):
            nodes[j, :, : len(columns)] = x[:, columns]
        targets = len(self.low)
        hidden = _affine(nodes.repeat(targets, 1, 1), self.pair_in).relu()
        return _affine(hidden, self.pair_out).unflatten(0, (targets, len(self.columns)))

    def context(self, strongest: Tensor) -> Tensor:
        """(K, B, h) maximum over the inputs -> (K, B, code)."""
        return _affine(strongest.relu(), self.context_out)

    def candidate(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """(K, n) values -> codes (K, n, code) and their derivatives with respect to the value."""
        before = _affine(y[..., None], self.candidate_in)
        slope = (before > 0) * self.candidate_in[:, :-1]
        middle = _affine(before.relu(), self.candidate_mid)
        slope = torch.bmm(slope, self.candidate_mid[:, :-1]) * (middle > 0)
        return _affine(middle.relu(), self.candidate_out), torch.bmm(slope, self.candidate_out[:, :-1])

    def loss(self, batch: Batch, dropped: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return self.loss_on(batch, dropped, self.negatives(len(batch.x), generator))

    def negatives(self, rows: int, generator: torch.Generator) -> Tensor:
        """(K, B, N) negative samples, uniform over each target's range."""
        shape = (len(self.low), rows, self.settings.candidates)
        share = torch.rand(shape, generator=generator).to(self.low.device)
        return share * (self.high - self.low)[:, None, None] + self.low[:, None, None]

    def loss_on(self, batch: Batch, dropped: Tensor, negatives: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        _targets, rows, _ = negatives.shape
        features = self.pair_features(batch.x)
        absent = torch.arange(len(self.columns), device=dropped.device)[:, None] == dropped
        q = self.context(features.masked_fill(absent[..., None], -math.inf).amax(1))  # (K, B, code)
        values = torch.cat([batch.y.T[..., None], negatives], -1)  # the positive first
        code, slope = self.candidate(values.flatten(1))
        scores = torch.einsum("kbc,kbnc->kbn", q, code.unflatten(1, (rows, -1)))
        slopes = torch.einsum("kbc,kbnc->kbn", q, slope.unflatten(1, (rows, -1)))
        nll = torch.logsumexp(scores, -1) - scores[..., 0]  # Eq. 1
        penalty = self.settings.score_penalty * scores.square() + self.settings.slope_penalty * slopes.square()
        return (nll + penalty.sum(-1)).mean(1).sum(), split_by_mask(nll, dropped)  # Eq. 5

    def evidence(self, batch: Batch) -> Pointwise:
        chunks = [slice(k, k + EVALUATION_ROWS) for k in range(0, len(batch.x), EVALUATION_ROWS)]
        grid = self.grid(EVALUATION_CANDIDATES * self.settings.candidates)
        grid_code = self.candidate(grid)[0]  # (K, N, code)
        own_code = self.candidate(batch.y.T)[0]  # (K, B, code)

        def log_density(features: Tensor, rows: slice) -> Tensor:
            q = self.context(features.amax(1))
            scores = torch.bmm(q, grid_code.transpose(1, 2))
            return (q * own_code[:, rows]).sum(-1) - torch.logsumexp(scores, -1) + math.log(grid.shape[1])

        full = torch.cat([log_density(self.pair_features(batch.x[rows]), rows) for rows in chunks], 1)

        def pointwise(j: int, targets: Tensor | None) -> Tensor:
            pieces = []
            for rows in chunks:
                features = self.pair_features(batch.x[rows])
                features[:, j] = -math.inf
                pieces.append(importance_sampled(full[:, rows] - log_density(features, rows), grid.shape[1]))
            values = torch.cat(pieces, 1)
            return (values if targets is None else values[targets])[None]

        return pointwise

    def grid(self, n: int) -> Tensor:
        """(K, n) evenly spread candidates."""
        middle = (torch.arange(n, device=self.low.device) + 0.5) / n
        return self.low[:, None] + middle * (self.high - self.low)[:, None]


def importance_sampled(difference: Tensor, candidates: int) -> Tensor:
    """Eq. 3 in closed form, from log p_g - log p_psi, both normalised over the same N candidates.

    With phi = g - psi the weighted sum is Z_g / Z_psi, so Eq. 3 is log[(N+1) / (1 + N e^-difference)].
    """
    return math.log(candidates + 1) - torch.logaddexp(difference.new_zeros(()), math.log(candidates) - difference)


def input_columns(encoder: Encoder) -> list[list[int]]:
    """The raw columns of each input (one for a variable, several for the action)."""
    columns: list[list[int]] = [[] for _ in range(encoder.inputs)]
    for column, group in sorted({*zip(encoder.source.tolist(), encoder.groups.tolist(), strict=True)}):
        columns[group].append(column)
    return columns


def _weight(n: int, inputs: int, outputs: int) -> nn.Parameter:
    """n affine maps, the offset as last row; uniform within 1/sqrt(inputs)."""
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter((2 * torch.rand(n, inputs + 1, outputs) - 1) * bound)


def _affine(x: Tensor, weight: Tensor) -> Tensor:
    return torch.baddbmm(weight[:, -1:], x, weight[:, :-1])
