"""Trains any masked model: batches, dropped inputs, learning-rate schedule, averaged weights, resumable state."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cbm.discovery.cmi import measure_cmi, pick_rows
from cbm.discovery.models.base import Batch, MaskedModel, TrunkModel
from cbm.discovery.models.registry import numbers_per_row
from cbm.discovery.settings import (
    AVERAGE_EVERY,
    AVERAGE_LENGTH,
    FOCUS_CELLS,
    FOCUS_ROWS,
    HARD_TO_TELL,
    HARDER,
    REFOCUS,
    STRONGEST_DECAY,
    WARM_UP,
    WATCH_EVERY,
    WATCHED,
    Settings,
)
from cbm.discovery.tensor_dataset import TensorDataset
from cbm.runs.checkpoint import copy_tensor


@dataclass
class Budget:
    """How long to train: a number of updates, or of seconds."""

    steps: int | None = None
    seconds: float | None = None
    most: int | None = None
    """Updates after which a budget in seconds ends early."""
    spent: float = 0.0
    """Seconds used so far, earlier runs of a resumed training included."""
    _clock: float = field(default_factory=time.perf_counter)

    def tick(self) -> None:
        now = time.perf_counter()
        self.spent, self._clock = self.spent + now - self._clock, now

    def progress(self, step: int) -> float:
        """0 at the start, 1 when the budget is used up."""
        if self.steps is not None:
            return step / max(self.steps, 1)
        by_time = self.spent / max(self.seconds or 0.0, 1e-9)
        return by_time if self.most is None else max(by_time, step / self.most)


@contextmanager
def interrupt_deferred() -> Iterator[None]:
    """Ctrl-C inside takes effect on leaving, so that no update is cut in half. A handler that is already installed
    stays."""
    alone = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not alone:
        yield
        return
    interrupts: list[bool] = []
    before = signal.signal(signal.SIGINT, lambda *_: interrupts.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


class Trainer:
    """One model on one dataset; everything that changes during training is in `state()`.

    Model and rows are on one device. Random numbers are drawn on the CPU, and the state is kept there.
    """

    def __init__(self, model: MaskedModel, dataset: TensorDataset, settings: Settings, seed: int):
        self.row_size = numbers_per_row(dataset, settings)
        self.model, self.dataset, self.settings = model, dataset, settings
        self.generator = torch.Generator().manual_seed(seed)
        self.step = 0
        self.phase = -1
        self.between_updates = True
        """False inside an update, when the state is half old and half new."""
        self.phases = model.phases()
        self.average = {name: value.detach().clone() for name, value in model.named_parameters()}
        self.watched, self.rows = self._keep_out(seed)
        self.decay = settings.weight_decay
        self.best = (math.inf, math.inf)
        """The lowest loss so far on the held-out rows, and the loss on training rows at that time."""
        self.optimizer = self._optimizer(0)
        self.focus = self.even_focus()
        self.refocused = 0
        self.refocusing = isinstance(model, TrunkModel)

    def _optimizer(self, phase: int) -> torch.optim.AdamW:
        return torch.optim.AdamW(
            self.phases[phase], lr=self.settings.learning_rate, betas=(0.9, 0.99),
            weight_decay=self.decay, fused=True,
        )  # fmt: skip

    def run(
        self,
        budget: Budget,
        report: Callable[[dict[str, float]], None],
        every: int = 50,
        deadline: float | None = None,
    ) -> None:
        """Update until the budget is used up, or the `deadline` of time.monotonic() is past."""
        while (progress := budget.progress(self.step)) < 1 and (deadline is None or time.monotonic() < deadline):
            self.between_updates = False
            with interrupt_deferred():
                numbers = self.update(progress)
                self.between_updates = True
            budget.tick()
            if self.step % every == 0:
                report({**{k: float(v) for k, v in numbers.items()}, "progress": budget.progress(self.step)})

    def update(self, progress: float) -> dict[str, Tensor]:
        """One gradient step on one batch; `progress` in [0, 1] sets the phase and the learning rate."""
        within = self._enter(progress)
        if self.refocusing and self.refocused < len(REFOCUS) and within >= REFOCUS[self.refocused]:
            self.refocused += 1
            self.refocus()
        if self.step % WATCH_EVERY == 0:
            self.watch()
        size = min(self.settings.batch, len(self.rows))
        draw = torch.randint(len(self.rows), (size,), generator=self.generator).to(self.rows.device)
        return self.learn(Batch.of(self.dataset.train, self.rows[draw], self.generator), within)

    def learn(self, batch: Batch, within: float) -> dict[str, Tensor]:
        for group in self.optimizer.param_groups:
            warm = min(1.0, (self.step + 1) / WARM_UP)
            cosine = 0.02 + 0.49 * (1 + math.cos(math.pi * within))
            group["lr"] = self.settings.learning_rate * warm * cosine
            group["weight_decay"] = self.decay
        full_share = 0.0 if self.settings.teaching else self.settings.full_share
        dropped = self.model.draw(len(batch.x), full_share, self.focus, self.generator).to(batch.x.device)
        loss, numbers = self.model.loss(batch, dropped, self.generator)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.step += 1
        if self.step % AVERAGE_EVERY == 0:
            self._move_average()
        return numbers

    def _keep_out(self, seed: int) -> tuple[tuple[Batch, Batch] | None, Tensor]:
        """Batches to detect overfitting (one of held-out rows, one of training rows), and the rows to train on."""
        rows = self.dataset.train
        least, cells = WATCHED
        size = min(len(rows) // 20, max(least, cells // max(len(self.dataset.targets), 1)))
        if type(self.model).full_loss is MaskedModel.full_loss or size < least // 10:
            return None, torch.arange(len(rows), device=rows.device)
        order = torch.from_numpy(pick_rows(rows.cluster, len(rows), seed)).to(rows.device)
        noise = torch.Generator().manual_seed(seed)
        kept_out, seen = (Batch.of(rows, part, noise) for part in (order[:size], order[-size:]))
        return (kept_out, seen), order[size:].sort().values

    @torch.no_grad()
    def watch(self) -> None:
        """Raise weight decay when the held-out rows are predicted worse than before and training rows better.

        Lower it, at most to its initial value, when it has become too strong: when both are predicted worse.
        """
        if self.watched is None:
            return
        with self.averaged():
            losses = [self.model.full_loss(batch) for batch in self.watched]
        new, trained = (float(loss) for loss in losses if loss is not None)
        if new <= self.best[0]:
            self.best = (new, trained)
            return
        factor = HARDER if trained < self.best[1] else 1 / HARDER
        first = self.settings.weight_decay
        self.decay = min(max(self.decay * factor, first), STRONGEST_DECAY * first)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Inside this context, the model has its averaged weights."""
        current = [p.detach().clone() for p in self.model.parameters()]
        self.use_average()
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(list(self.model.parameters()), current)

    def even_focus(self) -> Tensor:
        """The same probability for every real input; all shadows together get at most a fifth of the rows."""
        real, shadows = self.dataset.real_inputs, self.dataset.inputs - self.dataset.real_inputs
        weight = torch.ones(self.dataset.inputs)
        weight[real:] = min(1.0, 0.25 * real / max(shadows, 1))
        return weight / weight.sum()

    def refocus(self) -> None:
        """Drop those inputs more often whose effects are neither clearly present nor clearly absent.

        A leave-one-out model that is not trained enough makes its input look necessary; more rows for inputs in doubt
        settle most of them.
        """
        inputs, real = self.dataset.inputs, self.dataset.real_inputs
        rows = int(np.clip(FOCUS_CELLS // (inputs * max(len(self.dataset.targets), 1)), *FOCUS_ROWS))
        with self.averaged():
            cmi = measure_cmi(self.model, self.dataset.train, inputs, real, rows, self.row_size).cmi
        if inputs > real:
            cmi = cmi - np.median(cmi[:, real:], 1, keepdims=True)
        doubt = np.clip(cmi / HARD_TO_TELL, 0, 1) * np.exp(-np.clip(cmi, 0, None) / (5 * HARD_TO_TELL))
        weight = torch.from_numpy(doubt.sum(0)).float() + 1e-6
        self.focus = 0.5 * self.even_focus() + 0.5 * weight / weight.sum()

    def _enter(self, progress: float) -> float:
        """Start the phase that `progress` falls into; returns the progress within that phase."""
        position = min(progress, 1 - 1e-9) * len(self.phases)
        phase = int(position)
        if phase != self.phase:
            if self.phase >= 0:  # what the last phase trained keeps its averaged weights
                self.use_average()
            self.phase, self.refocused = phase, 0
            self.focus = self.even_focus()
            self.model.enter_phase(phase)
            self.optimizer = self._optimizer(phase)
        return position - phase

    @torch.no_grad()
    def _move_average(self) -> None:
        moves = self.step // AVERAGE_EVERY
        share = 1 / min(AVERAGE_LENGTH, 1 + moves / 5)
        torch._foreach_lerp_(list(self.average.values()), [p.data for p in self.model.parameters()], share)

    @torch.no_grad()
    def use_average(self) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.copy_(self.average[name])

    def state(self) -> dict[str, Tensor]:
        """Everything needed to resume training exactly where it stands."""
        tensors = {f"model.{k}": v.detach() for k, v in self.model.named_parameters()}
        tensors |= {f"average.{k}": v for k, v in self.average.items()}
        for k, parameter in enumerate(self.phases[max(self.phase, 0)]):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{k}.{key}"] = value
        tensors["generator"] = self.generator.get_state()
        tensors["step"] = torch.tensor([self.step, self.phase, self.refocused])
        tensors["focus"] = self.focus
        tensors["decay"] = torch.tensor([self.decay, *self.best], dtype=torch.float64)
        return {name: tensor.cpu() for name, tensor in tensors.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `state()`; names and shapes are checked while copying."""
        self.step, self.phase, self.refocused = (int(v) for v in tensors["step"])
        self.focus = tensors["focus"].clone()
        decay, *best = tensors["decay"].tolist()
        self.decay, self.best = decay, (best[0], best[1])
        if self.phase >= 0:
            self.model.enter_phase(self.phase)
            self.optimizer = self._optimizer(self.phase)
        for name, parameter in self.model.named_parameters():
            copy_tensor(parameter, tensors, f"model.{name}")
            copy_tensor(self.average[name], tensors, f"average.{name}")
        for k, parameter in enumerate(self.phases[max(self.phase, 0)]):
            prefix = f"optimizer.{k}."
            own = {key[len(prefix) :]: v for key, v in tensors.items() if key.startswith(prefix)}
            found = {key: v.to(parameter.device, copy=True) for key, v in own.items()}
            if found:
                self.optimizer.state[parameter] = _moments(found, parameter, prefix)
        self.generator.set_state(tensors["generator"])


def _moments(found: dict[str, Tensor], parameter: Tensor, prefix: str) -> dict[str, Tensor]:
    """Adam's state of one parameter, as stored in a checkpoint."""
    for name, shape in (("step", torch.Size()), ("exp_avg", parameter.shape), ("exp_avg_sq", parameter.shape)):
        if name not in found or found[name].shape != shape:
            raise ValueError(f"{prefix}{name} is missing or has another shape than {tuple(shape)}")
    return found
