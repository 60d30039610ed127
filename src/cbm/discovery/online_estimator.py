"""The online estimator: a masked model on growing data, and the running CMI of its inputs.

While the policy improves, the range and the distribution of the data change. So scales, knots and targets are fitted to
the data at hand, and fitted again whenever the data have doubled; the weights are carried over, since knots are
quantiles and mean nearly the same as before. Everything that changes is in `tensors()`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from cbm.data.transitions import Transitions
from cbm.discovery.cmi import Estimate, measure_cmi, pick_rows
from cbm.discovery.decide import Verdicts, above_shadows, decide_networks
from cbm.discovery.models.base import Batch
from cbm.discovery.models.registry import build_model, numbers_per_row
from cbm.discovery.models.warm_start import warm_start
from cbm.discovery.refine import confirmed, refine, refine_until_settled, refines
from cbm.discovery.settings import (
    DOUBT,
    FIRST_UPDATES,
    FIT_ROWS,
    GROWTH,
    ONLINE_MEMORY,
    ONLINE_RATE,
    ONLINE_SMALLEST,
    ONLINE_SURE,
    ONLINE_WATCHED,
    POOL_ROWS,
    UNCONFIRMED_SHARE,
    Settings,
)
from cbm.discovery.stored import dataset_from_tensors, dataset_tensors, without_rows
from cbm.discovery.tensor_dataset import Rows, TensorDataset
from cbm.discovery.train import Trainer
from cbm.errors import DataError

AGAIN, ENOUGH = 4, 800  # refinement gets AGAIN times as many updates, at most ENOUGH


def unfinished(settings: Settings) -> Settings:
    """Settings for judging models that are still in training.

    Their leave-one-out parts lag behind the full model, whose expectations therefore overrate every input; so the loss
    at the outcomes decides.
    """
    return replace(settings, expected=False, smallest_effect=max(ONLINE_SMALLEST, settings.smallest_effect))


class Source(Protocol):
    """What is predicted from what: dynamics, or the reward of a task."""

    def fit(
        self, train: Transitions, held: Transitions, settings: Settings, seed: int
    ) -> tuple[TensorDataset, dict[str, Tensor]]:
        """A dataset fitted to these rows, and other facts found on the way."""
        ...

    def rows(self, dataset: TensorDataset, data: Transitions, rng: np.random.Generator) -> Rows:
        """Other rows in the coordinates of that dataset."""
        ...


@dataclass
class Fitted:
    """The result of one fit: a dataset without rows, its model in training, and the facts that the source found."""

    dataset: TensorDataset
    trainer: Trainer
    notes: dict[str, Tensor]
    rows: int
    """Number of training rows."""


class OnlineEstimator:
    """One masked model on data that grows."""

    def __init__(
        self, source: Source, settings: Settings, seed: int, memory: float = ONLINE_MEMORY, keep_in_doubt: bool = False,
        device: str = "cpu",
    ):  # fmt: skip
        """With `keep_in_doubt` an input counts unless it was shown to be useless; otherwise only if it was shown to be
        useful."""
        if settings.model == "demi":
            raise DataError("model demi trains in two phases and cannot follow growing data; use implicit or explicit")
        self.source, self.settings, self.seed, self.memory = source, settings, seed, memory
        self.keep_in_doubt, self.device = keep_in_doubt, torch.device(device)
        self.fitted: Fitted | None = None
        self.calls = 0
        self.seen = 0
        """Number of training rows at the last call."""
        self.running: np.ndarray | None = None
        """(2, d, inputs) running CMI and its standard error, by the target's index; infinite where there is none."""
        self.again: np.ndarray | None = None
        """The same for the refined estimates, relative to shadows."""

    # Learning

    def learn(self, train: Transitions, held: Transitions, updates: int) -> dict[str, float]:
        """`updates` gradient steps on rows drawn from `train`, then one measurement on rows of `held`."""
        rng = np.random.default_rng([self.seed, 11, self.calls])
        self.calls += 1
        self.seen = len(train)
        fitted, steps = self.fitted, updates
        if fitted is None:
            steps = FIRST_UPDATES * updates
        if fitted is None or len(train) >= GROWTH * fitted.rows:
            fitted = self.refit(train, held)
        if not fitted.dataset.targets:
            return {"rows": float(len(train))}
        pool = self.source.rows(fitted.dataset, _some(train, POOL_ROWS, rng), rng).to(self.device)
        some = _episodes(held, self.settings.evaluation_rows, rng)
        kept_out = self.source.rows(fitted.dataset, some, rng).to(self.device)
        self._prepare(fitted.trainer, fitted.dataset, pool, kept_out)
        total: dict[str, Tensor] = {}
        for _ in range(steps):
            for name, value in fitted.trainer.update(ONLINE_RATE).items():
                total[name] = total[name] + value if name in total else value
        self.measure(kept_out)
        if steps and refines(self.settings):
            self.refine(replace(fitted.dataset, train=pool, held=kept_out), min(AGAIN * updates, ENOUGH))
        fitted.trainer.dataset, fitted.trainer.watched = fitted.dataset, None  # release the rows
        return {name: float(value) / steps for name, value in total.items()} | {"rows": float(len(train))}

    def refit(self, train: Transitions, held: Transitions) -> Fitted:
        """Fit scales, knots and targets to the present data; weights are carried over where possible."""
        rng = np.random.default_rng([self.seed, 12])
        some, others = (_some(part, FIT_ROWS, rng) for part in (train, held))
        dataset, notes = self.source.fit(some, others, self.settings, self.seed)
        dataset = without_rows(dataset)
        model = build_model(dataset, self.settings, self.seed).to(self.device)
        if self.fitted is not None:
            self.fitted.trainer.use_average()
            warm_start(self.fitted.trainer.model, self.fitted.dataset, model, dataset)
        self.fitted = Fitted(dataset, self._trainer(dataset, model), notes, len(train))
        return self.fitted

    def _trainer(self, dataset: TensorDataset, model: torch.nn.Module) -> Trainer:
        trainer = Trainer(model, dataset, self.settings, self.seed)  # type: ignore[arg-type]
        trainer.refocusing = False  # happens between calls, when the model has learnt something
        return trainer

    def _prepare(self, trainer: Trainer, dataset: TensorDataset, pool: Rows, kept_out: Rows) -> None:
        """Give the trainer this call's rows, and let it drop inputs in doubt more often."""
        trainer.dataset = replace(dataset, train=pool)
        trainer.rows = torch.arange(len(pool), device=pool.device)
        size = min(ONLINE_WATCHED, len(pool), len(kept_out))
        noise = torch.Generator().manual_seed(self.calls)
        seen = torch.linspace(0, len(pool) - 1, size).long().to(pool.device)
        first = torch.arange(size, device=pool.device)
        trainer.watched = Batch.of(kept_out, first, noise), Batch.of(pool, seen, noise)
        trainer.best = (math.inf, math.inf)
        if trainer.step > 0:
            trainer.refocus()

    # Evidence

    def measure(self, rows: Rows) -> None:
        """Move the running CMI towards its value on these rows (Eq. 3; Algorithm 1, line 8)."""
        assert self.fitted is not None
        dataset, trainer = self.fitted.dataset, self.fitted.trainer
        with trainer.averaged():
            found = measure_cmi(
                trainer.model, rows, dataset.inputs, dataset.real_inputs, self.settings.evaluation_rows,
                numbers_per_row(dataset, self.settings), seed=self.calls,
            )  # fmt: skip
        self.running = self._moved(self.running, found)

    def refine(self, dataset: TensorDataset, updates: int) -> None:
        """The same with small networks of their own, for the inputs of each target that were not ruled out."""
        look = refine_until_settled if self.keep_in_doubt else refine
        found = look(dataset, self._first(), self.settings, updates, self.seed + self.calls)
        before = None if self.keep_in_doubt else self.again  # a settled doubt must act at once
        self.again = self._moved(before, found)

    def _moved(self, running: np.ndarray | None, found: Estimate) -> np.ndarray:
        """Running values after one more measurement; infinite ones start with it, and values that are infinite now
        become unknown."""
        assert self.fitted is not None
        dataset, new = self.fitted.dataset, np.stack([found.cmi, found.stderr])
        result = np.full((2, dataset.variables, dataset.inputs), np.inf) if running is None else running.copy()
        at = [target.index for target in dataset.targets]
        result[:, at] = np.where(np.isinf(result[:, at]), new, self.memory * result[:, at] + (1 - self.memory) * new)
        return result

    def _first(self) -> Estimate:
        """(K, inputs) running CMI of the masked model, relative to its shadows."""
        assert self.fitted is not None and self.running is not None
        dataset = self.fitted.dataset
        cmi, stderr = self.running[:, [target.index for target in dataset.targets]]
        return Estimate(above_shadows(cmi, dataset.real_inputs) if self.settings.rule == "calibrated" else cmi, stderr)

    def verdicts(self) -> Verdicts | None:
        """(K, real inputs) decisions on the running CMI of each target; None before the first measurement."""
        if self.fitted is None or self.running is None:
            return None
        dataset, found = self.fitted.dataset, self._first()
        real = dataset.real_inputs
        first, null = np.stack([found.cmi, found.stderr])[..., :real], found.cmi[:, real:]
        strongest = first[0].max(1, initial=0.0)

        def judged(seen: np.ndarray, share: float = 0.0) -> Verdicts:
            sure, lenience = (0.0, DOUBT) if self.keep_in_doubt else (ONLINE_SURE, 0.0)
            settings = replace(self.settings, strongest_share=max(share, self.settings.strongest_share))
            return decide_networks(seen[0], seen[1], null, settings, strongest, sure, lenience, dataset.breadth)

        if self.again is None:
            return judged(first, UNCONFIRMED_SHARE)
        again = self.again[:, [target.index for target in dataset.targets], :real]
        seen = np.isfinite(again[0])
        strongest = np.maximum(strongest, np.where(seen, again[0], 0.0).max(1, initial=0.0))
        if self.keep_in_doubt:  # refinement decides, unless the first estimate surely rules the input out
            second = first[0] + 2 * first[1] >= judged(first).thresholds
        else:  # both estimates must see an effect
            second = again[0] < first[0]
        both = np.where(seen & second, again, first)
        trusted = confirmed(judged(first).edge, judged(both).edge, seen)
        both[0] = np.where(seen | trusted, both[0], np.minimum(both[0], 0.0))
        return judged(both)

    # Exact resume

    def tensors(self) -> dict[str, Tensor]:
        result = {"calls": torch.tensor([self.calls, self.seen])}
        for name in ("running", "again"):
            if getattr(self, name) is not None:
                result[name] = torch.tensor(getattr(self, name))
        if self.fitted is not None:
            result["rows"] = torch.tensor(self.fitted.rows)
            parts = {"problem": dataset_tensors(self.fitted.dataset), "notes": self.fitted.notes}
            parts["trainer"] = self.fitted.trainer.state()
            result |= {
                f"{part}.{k}": v.detach().cpu().clone() for part, found in parts.items() for k, v in found.items()
            }
        return result

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.calls, self.seen = (int(v) for v in tensors["calls"])
        self.running, self.again = (
            tensors[name].numpy().copy() if name in tensors else None for name in ("running", "again")
        )
        self.fitted = None
        if "rows" in tensors:
            dataset = dataset_from_tensors(under("problem", tensors))
            trainer = self._trainer(dataset, build_model(dataset, self.settings, self.seed).to(self.device))
            trainer.restore(under("trainer", tensors))
            self.fitted = Fitted(dataset, trainer, under("notes", tensors), int(tensors["rows"]))


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix.`, by the rest of their names."""
    start = f"{prefix}."
    return {name[len(start) :]: value for name, value in tensors.items() if name.startswith(start)}


def _some(data: Transitions, most: int, rng: np.random.Generator) -> Transitions:
    """At most `most` rows, drawn at random, in their order."""
    if len(data) <= most:
        return data
    return data.select(np.sort(rng.choice(len(data), most, replace=False)))


def _episodes(data: Transitions, most: int, rng: np.random.Generator) -> Transitions:
    """About `most` rows of whole episodes, in their order."""
    return data.select(np.sort(pick_rows(data.episode, most, int(rng.integers(2**31)))))
