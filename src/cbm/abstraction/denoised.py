"""Denoised MDP on factored states (Wang et al. 2022): separates what is controllable and relevant from the rest.

x is controllable and relevant to the reward, y relevant and not controllable, z the rest:

    p(x' | x, a)    p(y' | y)    p(z' | z, x, y, a)    r = r_x(x') + r_y(y')

Only x is kept, as the original policy sees only x. `z_inputs="own"` with `selector="detached"` is the variant in the
authors' code, where z sees only z.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cbm.abstraction.method import Setup
from cbm.abstraction.partitioned import Fitted, PartitionMethod, Pool
from cbm.abstraction.restricted import Views
from cbm.abstraction.table import PartitionSettings
from cbm.data.factors import Factors

X, Y, Z = 0, 1, 2
VIEWS = {
    "original": Views(sees=((X,), (Y,), (X, Y, Z)), acts=(True, False, True)),
    "own": Views(sees=((X,), (Y,), (Z,)), acts=(True, False, False)),
}
START = (0.5, 0.25, 0.25)
"""Since z may see everything, every variable is at first predicted best in z. With half of the variables in x, those
that the reward needs are still there when its other causes are searched for."""


class Denoised(PartitionMethod):
    """Three classes; at the start half of the variables are in x."""

    name = "denoised"

    def __init__(
        self, factors: Factors, task: str, seed: int, settings: PartitionSettings, on: float = 1.0, off: float = 1.0
    ):
        super().__init__(factors, task, seed, settings, VIEWS[settings.z_inputs], START, on, off)

    def reward_terms(self, fitted: Fitted, pool: Pool, index: Tensor, members: Tensor) -> dict[str, Tensor]:
        """L1 error of r_x + r_y."""
        features, context = fitted.dataset.encoder(pool.after[index]), pool.context[index]
        parts = [fitted.heads[c](features, context, members[..., c]) for c in (X, Y)]
        return {"reward": (parts[0] + parts[1] - pool.reward[index]).abs().mean()}

    def penalty(self, members: Tensor) -> Tensor:
        settings = self.settings
        return torch.as_tensor(settings.size_penalty * (members[..., X] + settings.y_share * members[..., Y]))


def make(setup: Setup) -> Denoised:
    assert isinstance(setup.options, PartitionSettings)
    return Denoised(setup.factors, setup.task, setup.seed, setup.options, setup.on, setup.off)
