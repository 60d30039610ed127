"""One network for all targets, which is told which input is missing.

z = trunk([M * e(x), 1 - M]), then one linear head. A sample drops the same input for every target, so features that
several targets need (contact between hand and block) are learnt once, and evaluating a leave-one-out model for all
targets costs one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from cbm.discovery.models.encoder import Encoder

NOTHING = -1  # in place of an input's index: no input is dropped


class Trunk(nn.Module):
    """Maps encoded inputs and the index of a missing input to a few numbers per target."""

    def __init__(self, encoder: Encoder, width: int, depth: int, targets: int, per_target: int):
        super().__init__()
        self.encoder, self.targets, self.per_target = encoder, targets, per_target
        self.by_feature = nn.Linear(encoder.features, width)
        self.by_absence = nn.Parameter(torch.zeros(encoder.inputs + 1, width))  # last row: nothing is absent
        self.hidden = nn.ModuleList([nn.Linear(width, width) for _ in range(depth - 1)])
        self.last = nn.Linear(width, targets * per_target)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `.to(device)` calls; the encoder is not a module, so it is moved here."""
        super()._apply(fn, recurse)
        self.encoder = self.encoder.moved(fn)
        return self

    def first_layer(self, features: Tensor, dropped: Tensor, hide: bool = True) -> Tensor:
        """(B, F), (B,) -> (B, width); `hide=False` marks the input as missing without removing it."""
        if hide:
            features = features.masked_fill(self.encoder.hidden(dropped), 0.0)
        absence = functional.embedding(dropped % len(self.by_absence), self.by_absence)
        return self.by_feature(features) + absence

    def without(self, first: Tensor, features: Tensor, j: int) -> Tensor:
        """`first_layer` with input j dropped in every row, computed from the one with nothing dropped."""
        own = self.encoder.of_input(j)
        effect = features[:, own] @ self.by_feature.weight[:, own].T
        return first - effect + (self.by_absence[j] - self.by_absence[NOTHING])

    def rest(self, first: Tensor, targets: Tensor | None = None) -> Tensor:
        """(B, width) -> (B, K, outputs per target), for all targets or for some."""
        hidden = functional.relu(first)
        for layer in self.hidden:
            hidden = functional.relu(layer(hidden))
        weight: Tensor = self.last.weight
        bias: Tensor = self.last.bias
        if targets is not None:
            weight = weight.view(self.targets, -1, weight.shape[1])[targets].flatten(0, 1)
            bias = bias.view(self.targets, -1)[targets].flatten()
        return functional.linear(hidden, weight, bias).view(len(first), -1, self.per_target)
