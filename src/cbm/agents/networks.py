"""Several networks of one shape in one batched pass: the twin critics are two of them, an actor is one.

Also: Adam with a gradient limit for each network, and target networks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class Networks(nn.Module):
    """`count` multilayer perceptrons with ReLU, `sizes` from inputs to outputs; weights are stacked.

    `normalised`: layer normalisation before each ReLU.
    """

    def __init__(
        self, count: int, sizes: Sequence[int], generator: torch.Generator, normalised: bool = False,
        device: torch.device | None = None,
    ):  # fmt: skip
        super().__init__()
        self.normalised = normalised
        layers = list(itertools.pairwise(sizes))
        self.weights = nn.ParameterList(torch.empty(count, n, m, device=device) for n, m in layers)
        self.biases = nn.ParameterList(torch.empty(count, 1, m, device=device) for _, m in layers)
        self.initialise(generator)

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """New weights in place, distributed as in `torch.nn.Linear`; drawn on the CPU, where the generator is."""
        for weight, bias in zip(self.weights, self.biases):
            bound = 1 / math.sqrt(weight.shape[1])
            for parameter in (weight, bias):
                parameter.copy_(torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator))

    def outputs(self, x: Tensor) -> Tensor:
        """(B, inputs) -> (count, B, outputs)."""
        x = x.expand(self.weights[0].shape[0], *x.shape)  # every network sees the same inputs
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            x = torch.baddbmm(bias, x, weight)  # (count, B, n) · (count, n, m)
            if layer < last and self.normalised:
                x = functional.layer_norm(x, x.shape[-1:])
            if layer < last:
                x = x.relu()
        return x


class Critics(Networks):
    """Q1 and Q2."""

    def __init__(
        self, inputs: int, actions: int, hidden: Sequence[int], generator: torch.Generator, device: torch.device,
        normalised: bool = False,
    ):  # fmt: skip
        super().__init__(2, (inputs + actions, *hidden, 1), generator, normalised, device)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """(2, B) values of (B, inputs) states and (B, actions) actions."""
        return self.outputs(torch.cat((state, action), 1)).squeeze(2)


class Optimiser:
    """Adam on some networks; the gradient of each stacked network is limited separately."""

    def __init__(self, networks: Networks, learning_rate: float, grad_clip: float | None):
        self.parameters = list(networks.parameters())
        self.grad_clip = grad_clip
        self.adam = torch.optim.Adam(self.parameters, lr=learning_rate, fused=True)
        self.reset()

    def reset(self) -> None:
        for parameter in self.parameters:
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.adam.state[parameter] = {"step": torch.zeros((), device=parameter.device), **moments}

    def step(self, loss: Tensor) -> None:
        gradients = torch.autograd.grad(loss, self.parameters)  # of these networks only
        if self.grad_clip is not None:
            limit(gradients, self.grad_clip)
        for parameter, gradient in zip(self.parameters, gradients):
            parameter.grad = gradient
        self.adam.step()

    def tensors(self) -> dict[str, Tensor]:
        """The moments themselves, not copies."""
        states = enumerate(self.adam.state[parameter] for parameter in self.parameters)
        return {f"{k}.{name}": tensor for k, state in states for name, tensor in state.items()}


@torch.no_grad()
def follow(target: Networks, source: Networks, share: float) -> None:
    """Move a target's weights by this share towards those of its source (Polyak averaging)."""
    for late, parameter in zip(target.parameters(), source.parameters()):
        late.lerp_(parameter, share)


def limit(gradients: Sequence[Tensor], longest: float) -> None:
    """Scale each stacked network's gradient (first axis) down to an L2 norm of at most `longest`, in place."""
    norms = torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in gradients])
    factor = (longest / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp_(max=1.0)  # (count,)
    if bool((factor < 1).any()):
        for gradient in gradients:
            gradient.mul_(factor[:, None, None])
