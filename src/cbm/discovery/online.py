"""Discovery while data come in: `update(batch)` and a running CMI, for learning dynamics beside a policy.

Scales, knots and targets are fitted once, on the warm-up data; after that every batch of new transitions is
one update of the trunk, and `evaluate` moves the running CMI towards a fresh measurement.
"""

from __future__ import annotations

import numpy as np
import torch

from cbm.discovery.decide import above_shadows, decide
from cbm.discovery.discover import assemble
from cbm.discovery.evidence import measure
from cbm.discovery.model import Batch
from cbm.discovery.models import build_model, numbers_per_row
from cbm.discovery.problem import dynamics_problem, dynamics_rows
from cbm.discovery.settings import Settings
from cbm.discovery.study import Findings
from cbm.discovery.training import Trainer
from cbm.graph import CausalGraph
from cbm.transitions import Transitions

RATE = 0.5  # where on the learning-rate schedule online updates stay


class OnlineDiscovery:
    """A dynamics graph that follows the data."""

    def __init__(self, warm_up: Transitions, settings: Settings | None = None, seed: int = 0, memory: float = 0.9):
        self.settings = settings or Settings()
        self.seed, self.memory, self.data = seed, memory, warm_up
        self.dynamics = dynamics_problem(*warm_up.split(self.settings.held_out, seed=seed), self.settings.shadows, seed)
        problem = self.dynamics.problem
        self.trainer = Trainer(build_model(problem, self.settings, seed), problem, self.settings, seed)
        self.rng = np.random.default_rng([seed, 3])
        self.cmi: np.ndarray | None = None
        """(K, inputs) running CMI; None until the first evaluation, when no edge is excluded."""
        self.stderr: np.ndarray | None = None

    def update(self, batch: Transitions) -> dict[str, float]:
        """One gradient step on new (or replayed) transitions; returns the losses."""
        rows = dynamics_rows(self.dynamics.problem, batch, self.rng)
        index = torch.arange(len(rows))
        numbers = self.trainer.learn(Batch.of(rows, index, self.trainer.generator), RATE)
        return {name: float(value) for name, value in numbers.items()}

    def evaluate(self, held: Transitions) -> np.ndarray:
        """Move the running CMI towards its value on held-out transitions; returns it, shadows left out."""
        problem = self.dynamics.problem
        rows = dynamics_rows(problem, held, self.rng)
        evidence = measure(
            self.trainer.model, rows, problem.inputs, problem.real_inputs, self.settings.evaluation_rows,
            numbers_per_row(problem, self.settings), seed=self.trainer.step,
        )  # fmt: skip
        if self.cmi is None or self.stderr is None:
            self.cmi, self.stderr = evidence.cmi, evidence.stderr
        else:
            self.cmi = self.memory * self.cmi + (1 - self.memory) * evidence.cmi
            self.stderr = self.memory * self.stderr + (1 - self.memory) * evidence.stderr
        return above_shadows(self.cmi, problem.real_inputs)[:, : problem.real_inputs]

    def graph(self) -> CausalGraph:
        """The graph as it stands; before the first evaluation every cell is an undecided edge."""
        problem = self.dynamics.problem
        real = problem.real_inputs
        if self.cmi is None or self.stderr is None:
            full = np.full((len(problem.targets), problem.inputs), self.settings.epsilon)
            cmi, stderr = full, full
        else:
            cmi, stderr = above_shadows(self.cmi, real), self.stderr
        verdicts = decide(cmi[:, :real], stderr[:, :real], cmi[:, real:] * (self.cmi is not None), self.settings)
        return assemble(
            self.data,
            self.dynamics,
            Findings(verdicts, None),
            {"names": [], "found": None},
            self.settings,
            0.0,
        )
