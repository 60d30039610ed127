"""Densities of all variables given the members of one class: one shared network, evaluated once per class.

For target i and class c, p_i^c sees i itself, the variables of the classes that c may see, and the action if c may see
it. These variables differ from row to row, and the gradient tells what seeing one more would change.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from cbm.discovery.models.encoder import Encoder
from cbm.discovery.models.implicit import Implicit, critic_scores, log_density
from cbm.discovery.settings import Settings
from cbm.discovery.tensor_dataset import TensorDataset

CODE = 8  # size of the codes of contexts and candidates
KNOTS = 33  # points on which a target's density is represented
OWN = 16  # hidden units for a target's own past


@dataclass(frozen=True)
class Views:
    """What the dynamics of each class may depend on."""

    sees: tuple[tuple[int, ...], ...]
    """For each class, the classes whose members it sees."""
    acts: tuple[bool, ...]
    """For each class, whether it sees the action."""

    def visible(self, members: Tensor) -> Tensor:
        """(B, d, K) members -> (K, B, d + 1) what each class sees, the action last."""
        matrix = torch.tensor([[float(k in row) for k in range(len(self.sees))] for row in self.sees])
        variables = torch.einsum("bdk,ck->cbd", members, matrix)
        action = torch.tensor(self.acts, dtype=members.dtype)[:, None, None].expand(-1, len(members), 1)
        return torch.cat([variables, action], 2)


class RestrictedDynamics(nn.Module):
    """The critic of discovery (Eq. 1 with all candidates) on inputs that are masked by class."""

    def __init__(self, dataset: TensorDataset, views: Views, width: int):
        super().__init__()
        self.views, self.encoder = views, dataset.encoder
        settings = Settings(width=width, code=CODE, knots=KNOTS)
        self.critic = Implicit(dataset.encoder, len(dataset.targets), settings)
        self.own = OwnPast(dataset)

    def nll(self, x: Tensor, u: Tensor, members: Tensor) -> Tensor:
        """(B, C) inputs, (B, T) targets, (B, d, K) members -> (T, K, B): -log p_i^c."""
        classes, rows = members.shape[2], len(x)
        features = self.encoder(x)
        seen = self.views.visible(members).flatten(0, 1)  # (K * B, d + 1)
        trunk = self.critic.trunk
        shown = features.repeat(classes, 1) * seen[:, self.encoder.groups]
        context = trunk.rest(trunk.by_feature(shown) + (1 - seen) @ trunk.by_absence[: seen.shape[1]])
        own = self.own(features)
        mine = torch.cat([own[int(acts)] for acts in self.views.acts])  # (K * B, T, code)
        scores = critic_scores(context + mine, self.critic.curve)
        return -log_density(scores, u.repeat(classes, 1)).view(-1, classes, rows)

    def last_layers(self) -> list[nn.Parameter]:
        return [*self.critic.trunk.last.parameters(), self.own.to_code]


class OwnPast(nn.Module):
    """A target's own past, and the action: visible to its density whatever class the rest of a sample is in.

    A variable in a class is a member of it, so it sees itself there. Without this network, the gradient for moving a
    variable would compare a class that contains it with one that does not, and a variable with memory of itself would
    never move.
    """

    def __init__(self, dataset: TensorDataset):
        super().__init__()
        groups = dataset.encoder.groups
        places = [(groups == target.index).nonzero()[:, 0] for target in dataset.targets]
        most = max(len(place) for place in places)
        self.index = torch.stack([functional.pad(place, (0, most - len(place))) for place in places])  # (T, P)
        self.valid = torch.stack([(torch.arange(most) < len(place)).float() for place in places])
        self.action = (groups == dataset.variables).nonzero()[:, 0]
        inputs, targets = most + len(self.action), len(places)
        self.from_past = nn.Parameter(torch.randn(targets, most, OWN) / inputs**0.5)
        self.from_action = nn.Parameter(torch.randn(targets, len(self.action), OWN) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(targets, 1, OWN))
        self.to_code = nn.Parameter(torch.zeros(targets, OWN, CODE))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(B, F) -> (B, T, code), without and with the action."""
        past = (features[:, self.index] * self.valid).transpose(0, 1)  # (T, B, P)
        alone = torch.baddbmm(self.bias, past, self.from_past)
        acted = alone + features[:, self.action] @ self.from_action
        codes = [(functional.relu(hidden) @ self.to_code).transpose(0, 1) for hidden in (alone, acted)]
        return codes[0], codes[1]


class RewardHead(nn.Module):
    """The reward from the members of a class in the next state, and from the context, which every class sees."""

    def __init__(self, encoder: Encoder, variables: int, context: int, width: int):
        super().__init__()
        self.state = (encoder.groups < variables).nonzero()[:, 0]
        self.owner = encoder.groups[self.state]
        inputs = len(self.state) + context
        self.layers = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, features: Tensor, context: Tensor, members: Tensor) -> Tensor:
        """(B, F) features of the next state, (B, c), (B, d) members of the class -> (B,)."""
        shown = features[:, self.state] * members[:, self.owner]
        return torch.as_tensor(self.layers(torch.cat([shown, context], 1))[:, 0])
