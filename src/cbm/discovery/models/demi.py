"""DEMI (Algorithm 2 of the appendix): learns the conditional critic phi, with psi frozen.

Kept to reproduce the paper's finding: phi sees all inputs, so it also corrects what psi has not yet learnt from the
inputs that both see, and the CMI it reports is too high.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from cbm.discovery.models.base import Batch, MaskedModel, Pointwise, split_by_mask
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.models.implicit import Implicit, critic_scores, log_density, penalties
from cbm.discovery.models.trunk import NOTHING, Trunk
from cbm.discovery.settings import Settings


class Demi(MaskedModel):
    """psi first; then phi by InfoNCE on psi* + phi."""

    def __init__(self, encoder: Encoder, targets: int, settings: Settings):
        super().__init__()
        self.settings = settings
        self.psi = Implicit(encoder, targets, replace(settings, teaching=False))  # by InfoNCE, as published
        self.phi = Trunk(encoder, settings.width, settings.depth, targets, settings.code)
        self.phi_curve = nn.Parameter(0.3 * torch.randn(targets, settings.code, settings.knots))
        self.learning_phi = False

    def phases(self) -> list[list[nn.Parameter]]:
        return [list(self.psi.parameters()), [*self.phi.parameters(), self.phi_curve]]

    def enter_phase(self, phase: int) -> None:
        self.learning_phi = phase == 1
        self.psi.requires_grad_(not self.learning_phi)

    def loss(self, batch: Batch, dropped: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        if not self.learning_phi:
            return self.psi.loss(batch, dropped, generator)
        features = self.psi.trunk.encoder(batch.x)
        with torch.no_grad():
            psi = self.psi.outputs(self.psi.trunk.first_layer(features, dropped))
        phi = self.conditional(self.phi.first_layer(features, dropped, hide=False))
        nll = -log_density(psi + phi, batch.u)  # L_NCE(phi + psi*)
        return nll.mean(1).sum() + penalties(phi, self.settings), split_by_mask(nll, dropped)

    def conditional(self, first: Tensor, targets: Tensor | None = None) -> Tensor:
        return critic_scores(
            self.phi.rest(first, targets), self.phi_curve if targets is None else self.phi_curve[targets]
        )

    def evidence(self, batch: Batch) -> Pointwise:
        features = self.psi.trunk.encoder(batch.x)
        nothing = torch.full((len(features),), NOTHING, device=features.device)
        first = self.psi.trunk.first_layer(features, nothing)

        def pointwise(j: int, targets: Tensor | None) -> Tensor:
            psi = self.psi.outputs(self.psi.trunk.without(first, features, j), targets)
            phi = self.conditional(self.phi.first_layer(features, torch.full_like(nothing, j), hide=False), targets)
            u = batch.u if targets is None else batch.u[:, targets]
            # Eq. 3 with weights w = softmax(psi): phi+ - log sum_n w_n e^phi_n
            return (log_density(psi + phi, u) - log_density(psi, u))[None]

        return pointwise
