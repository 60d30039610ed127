"""Discovery on growing data, to learn the dynamics next to a policy.

There are two ways to use it: `learn(train, held, updates)` on all data so far, which refits scales and knots as the
data grow; or, with scales fixed by warm-up data, `update(batch)` for single steps and `evaluate(held)`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.discovery.assemble import assemble
from cbm.discovery.decide import above_shadows
from cbm.discovery.models.base import Batch
from cbm.discovery.online_estimator import OnlineEstimator, unfinished
from cbm.discovery.settings import ONLINE_MEMORY, ONLINE_RATE, Settings
from cbm.discovery.tensor_dataset import Rows, TensorDataset, dynamics_dataset, dynamics_rows
from cbm.graph import CausalGraph


class DynamicsSource:
    """(s_t, a_t) -> s_{t+1} of every variable that ever changes."""

    def fit(
        self, train: Transitions, held: Transitions, settings: Settings, seed: int
    ) -> tuple[TensorDataset, dict[str, Tensor]]:
        found = dynamics_dataset(train, held, settings.shadows, seed, settings.differences)
        return found.dataset, {"moving": torch.tensor(found.moving), "memory": torch.tensor(found.memory)}

    def rows(self, dataset: TensorDataset, data: Transitions, rng: np.random.Generator) -> Rows:
        return dynamics_rows(dataset, data, rng)


class OnlineDiscovery:
    """A dynamics graph that is updated with the data; `factors` describe the variables if there are no warm-up data."""

    def __init__(
        self,
        warm_up: Transitions | None = None,
        settings: Settings | None = None,
        seed: int = 0,
        memory: float = ONLINE_MEMORY,
        factors: Factors | None = None,
        device: str = "cpu",
    ):
        known = warm_up.factors if warm_up is not None else factors
        assert known is not None, "either warm-up data or factors must be given"
        self.factors, self.settings = known, settings or unfinished(Settings())
        self.estimator = OnlineEstimator(DynamicsSource(), self.settings, seed, memory, device=device)
        self.rng = np.random.default_rng([seed, 3])
        if warm_up is not None:
            self.estimator.refit(*warm_up.split(self.settings.held_out, seed=seed))

    def learn(self, train: Transitions, held: Transitions, updates: int) -> dict[str, float]:
        """Gradient steps on all rows so far, then a measurement on held-out rows; returns mean losses."""
        return self.estimator.learn(train, held, updates)

    def update(self, batch: Transitions) -> dict[str, float]:
        """One gradient step on new (or replayed) transitions; returns the losses."""
        fitted = self.estimator.fitted
        assert fitted is not None, "single updates need warm-up data"
        rows = dynamics_rows(fitted.dataset, batch, self.rng).to(self.estimator.device)
        numbers = fitted.trainer.learn(
            Batch.of(rows, torch.arange(len(rows), device=rows.device), fitted.trainer.generator), ONLINE_RATE
        )
        return {name: float(value) for name, value in numbers.items()}

    def evaluate(self, held: Transitions) -> np.ndarray:
        """Move the running CMI towards its value on held-out transitions; returns it without shadows."""
        fitted = self.estimator.fitted
        assert fitted is not None, "an evaluation needs warm-up data"
        self.estimator.calls += 1  # other rows each time
        self.estimator.measure(dynamics_rows(fitted.dataset, held, self.rng).to(self.estimator.device))
        assert self.estimator.running is not None
        cmi = self.estimator.running[0, [target.index for target in fitted.dataset.targets]]
        return above_shadows(cmi, fitted.dataset.real_inputs)[:, : fitted.dataset.real_inputs]

    def graph(self) -> CausalGraph:
        """The current graph; before the first evaluation every cell is an undecided edge."""
        fitted, verdicts = self.estimator.fitted, self.estimator.verdicts()
        if fitted is None or verdicts is None:
            return undecided_graph(self.factors, self.settings)
        notes = {name: value.numpy() for name, value in fitted.notes.items()}
        index = np.array([target.index for target in fitted.dataset.targets], int)
        return assemble(
            self.factors, self.estimator.seen, index, notes["moving"], notes["memory"], verdicts, {}, self.settings, 0.0
        )

    def tensors(self) -> dict[str, Tensor]:
        """Everything that `learn` changes; `restore` is the inverse."""
        return self.estimator.tensors()

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.estimator.restore(tensors)


def undecided_graph(factors: Factors, settings: Settings) -> CausalGraph:
    """The graph before any evidence: no edge is excluded, and none is certain."""
    shape = (len(factors), len(factors) + 1)
    return CausalGraph(
        variables=factors.names,
        adjacency=np.ones(shape, bool),
        cmi=np.zeros(shape),
        stderr=np.zeros(shape),
        verdict=np.full(shape, "undecided"),
        threshold=settings.epsilon,
        model=settings.model,
    )
