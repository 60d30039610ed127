"""TIA on factored states (Fu et al. 2021): a relevant and an irrelevant part that do not depend on each other.

Both parts see the action. The relevant part must predict the reward; an adversary must not be able to predict it from
the irrelevant part. The relevant part is kept.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cbm.abstraction.method import Setup
from cbm.abstraction.partitioned import Fitted, PartitionMethod, Pool
from cbm.abstraction.restricted import Views
from cbm.abstraction.table import PartitionSettings
from cbm.data.factors import Factors

RELEVANT, IRRELEVANT = 0, 1
VIEWS = Views(sees=((RELEVANT,), (IRRELEVANT,)), acts=(True, True))


class Tia(PartitionMethod):
    """Two classes, equally likely at the start."""

    name = "tia"

    def __init__(
        self, factors: Factors, task: str, seed: int, settings: PartitionSettings, on: float = 1.0, off: float = 1.0
    ):
        super().__init__(factors, task, seed, settings, VIEWS, (0.5, 0.5), on, off)

    def trained_heads(self, heads: nn.ModuleList) -> dict[str, list[nn.Parameter]]:
        return {"adversary": list(heads[IRRELEVANT].parameters())}

    def prepare(self, fitted: Fitted, pool: Pool, temperature: float) -> None:
        """Some steps of the adversary, on episodes that it is not evaluated on.

        Positions of objects that hardly move identify the episode, and thereby its rewards: evaluated on episodes that
        it has memorised, the adversary would drive all of these objects into the relevant part.
        """
        rows = pool.for_adversary
        if not len(rows):
            return
        generator, optimizer = self.partition.generator, fitted.optimizers["adversary"]
        for _ in range(self.settings.inner_steps):
            index = rows[torch.randint(len(rows), (self.settings.batch,), generator=generator)]
            with torch.no_grad():
                members = self.partition.sample(len(index), temperature)
            error = _error(fitted, pool, index, members, IRRELEVANT).mean()
            optimizer.zero_grad(set_to_none=True)
            error.backward()
            optimizer.step()

    def reward_terms(self, fitted: Fitted, pool: Pool, index: Tensor, members: Tensor) -> dict[str, Tensor]:
        """L1 error of the relevant head, minus that of the adversary, up to the error of the best constant."""
        relevant = _error(fitted, pool, index, members, RELEVANT).mean()
        judged = index[pool.kept_from_adversary[index]]
        if not len(judged):
            return {"reward": relevant}
        own = members[pool.kept_from_adversary[index]]
        fooled = _error(fitted, pool, judged, own, IRRELEVANT).mean()
        return {
            "reward": relevant,
            "adversary": self.settings.adversary_weight * torch.minimum(fooled, pool.constant_error),
        }


def _error(fitted: Fitted, pool: Pool, index: Tensor, members: Tensor, part: int) -> Tensor:
    """(B,) absolute error of a part's reward prediction."""
    features = fitted.dataset.encoder(pool.after[index])
    predicted = fitted.heads[part](features, pool.context[index], members[..., part])
    return torch.as_tensor((predicted - pool.reward[index]).abs())


def make(setup: Setup) -> Tia:
    assert isinstance(setup.options, PartitionSettings)
    return Tia(setup.factors, setup.task, setup.seed, setup.options, setup.on, setup.off)
