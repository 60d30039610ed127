"""Learns a partition of the variables together with the dynamics and the reward that it must explain.

    L = sum_i sum_c m_i^c (-log p_i^c) + reward terms + size penalty

where m is the sampled partition. TIA and Denoised MDP differ in which class sees which, and in the reward terms. Scales
and knots are fitted to the experience, and refitted whenever it has doubled; weights are carried over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from cbm.abstraction.method import Experience
from cbm.abstraction.partition import Partition
from cbm.abstraction.restricted import RestrictedDynamics, RewardHead, Views
from cbm.abstraction.table import PartitionSettings
from cbm.data.factors import Factors
from cbm.data.transitions import Transitions
from cbm.discovery.models.warm_start import warm_start
from cbm.discovery.online_estimator import under
from cbm.discovery.stored import dataset_from_tensors, dataset_tensors, without_rows
from cbm.discovery.targets import action_columns
from cbm.discovery.tensor_dataset import Rows, Scale, TensorDataset, dynamics_dataset, dynamics_rows
from cbm.errors import DataError
from cbm.graph import CausalGraph

GROWTH = 2.0  # factor by which the rows must have grown for a new fit
FIT_ROWS = 40_000  # rows to which scales and knots are fitted, at most
CHUNK = 200  # updates whose rows are encoded at once
DECAY = 1e-3  # weight decay, multiplied by the learning rate


@dataclass(frozen=True)
class Pool:
    """Rows from which batches are drawn."""

    rows: Rows
    after: Tensor
    """(N, C) columns of the next state, in the units of the inputs."""
    context: Tensor
    """(N, c)."""
    reward: Tensor
    """(N,) in standard deviations."""
    kept_from_adversary: Tensor
    """(N,) booleans: rows of episodes that no adversary is trained on."""

    @cached_property
    def for_adversary(self) -> Tensor:
        """Indices of the rows on which an adversary may be trained."""
        return (~self.kept_from_adversary).nonzero()[:, 0]

    @cached_property
    def constant_error(self) -> Tensor:
        """Mean absolute error of the best constant prediction of the reward."""
        return (self.reward - self.reward.median()).abs().mean()


@dataclass
class Fitted:
    """The result of one fit: coordinates, networks in training, and the number of rows."""

    dataset: TensorDataset
    reward_scale: Scale
    context_scale: Scale
    dynamics: RestrictedDynamics
    heads: nn.ModuleList
    optimizers: dict[str, torch.optim.Optimizer]
    rows: int

    def parameters(self) -> dict[str, nn.Parameter]:
        named = {f"dynamics.{name}": p for name, p in self.dynamics.named_parameters()}
        return named | {f"heads.{name}": p for name, p in self.heads.named_parameters()}


class PartitionMethod:
    """What TIA and Denoised MDP share; they define `views`, `start`, `reward_terms` and `penalty`."""

    name = "partition"
    heads = 2

    def __init__(
        self, factors: Factors, task: str, seed: int, settings: PartitionSettings, views: Views,
        start: tuple[float, ...], on: float = 1.0, off: float = 1.0,
    ):  # fmt: skip
        self.factors, self.task, self.seed, self.settings, self.views = factors, task, seed, settings, views
        self.on, self.off = on, off
        self.partition = Partition((torch.tensor(start) / start[-1]).log().repeat(len(factors), 1), seed)
        self.kept = np.ones(len(factors), bool)
        self.step = 0
        self.fitted: Fitted | None = None
        self.mover = torch.optim.Adam([self.partition.logits], lr=settings.logit_rate, betas=(0.9, 0.99))

    # What TIA and Denoised MDP add

    def reward_terms(self, fitted: Fitted, pool: Pool, index: Tensor, members: Tensor) -> dict[str, Tensor]:
        """Named terms, in standard deviations of the reward; "reward" is added to the loss, "adversary" subtracted."""
        raise NotImplementedError

    def penalty(self, members: Tensor) -> Tensor:
        """(B, d) cost of each variable in its present class."""
        return self.settings.size_penalty * members[..., 0]

    def prepare(self, fitted: Fitted, pool: Pool, temperature: float) -> None:
        """Called before each update."""

    def trained_heads(self, heads: nn.ModuleList) -> dict[str, list[nn.Parameter]]:
        """Heads with an optimiser of their own, by its name."""
        return {}

    # The protocol

    def learn(self, experience: Experience, updates: int) -> dict[str, float]:
        """Gradient steps on rows drawn from the experience; returns means over them."""
        data = experience.transitions(False)
        numbers = self.train(data, updates)
        lead = self.partition.lead()
        self.kept = (lead >= self.on) | (self.kept & (lead >= self.off))  # equals argmax if both are 1
        temperature = self.settings.temperature(self.step)
        return numbers | {"kept": float(self.kept.sum()), "temperature": temperature, "rows": float(len(data))}

    def pretrain(self, data: Transitions, updates: int) -> dict[str, float]:
        """The warm-up on another log of the same world, such as one used for discovery."""
        numbers = self.train(data, updates, moving=False)
        self.step = self.settings.warm_up  # whatever their number, the temperature falls from here on
        return numbers

    def mask(self) -> np.ndarray:
        """Variables of class 0; everything if there are none."""
        return self.kept.copy() if self.kept.any() else np.ones_like(self.kept)

    def graph(self) -> CausalGraph | None:
        return None

    # Learning

    def train(self, data: Transitions, updates: int, moving: bool = True) -> dict[str, float]:
        if self.task not in data.rewards:
            raise DataError(f"the experience has no reward {self.task!r}")
        if self.fitted is None or len(data) >= GROWTH * self.fitted.rows:
            self.fitted = self._fit(data)
        if self.fitted is None:  # no variable has changed yet
            return {}
        rng = np.random.default_rng([self.seed, 21, self.step])
        total: dict[str, Tensor] = {}
        for begin in range(0, updates, CHUNK):
            count = min(CHUNK, updates - begin)
            pool = self._pool(self.fitted, data, count, rng)
            for order in torch.arange(len(pool.rows)).view(count, -1):
                for name, value in self.update(self.fitted, pool, order, moving).items():
                    total[name] = total.get(name, torch.zeros(())) + value
        return {name: float(value) / updates for name, value in total.items()}

    def update(self, fitted: Fitted, pool: Pool, index: Tensor, moving: bool = True) -> dict[str, Tensor]:
        """One step of the networks, and of the partition once the warm-up is over."""
        settings, moving = self.settings, moving and self.step >= self.settings.warm_up
        temperature = settings.temperature(self.step)
        self.prepare(fitted, pool, temperature)
        self._freeze(fitted, moving and settings.dynamics == "pretrained")
        members = self.partition.sample(len(index), temperature)  # (B, d, K)
        rows, noise = pool.rows, torch.rand(len(index), len(fitted.dataset.targets), generator=self.partition.generator)
        u = torch.addcmul(rows.u[index], rows.width[index], noise)
        nll = fitted.dynamics.nll(rows.x[index], u, members)  # (T, K, B)
        chosen = members[:, [target.index for target in fitted.dataset.targets]].permute(1, 2, 0)
        nats = (nll * (chosen if settings.selector == "attached" else chosen.detach())).sum(1).mean(1).sum()
        terms = self.reward_terms(fitted, pool, index, members)
        reward_loss = terms["reward"] - terms.get("adversary", torch.zeros(()))
        loss = nats + settings.reward_weight * reward_loss + self.penalty(members).sum(1).mean()
        optimizers = [fitted.optimizers["weights"], *([self.mover] if moving else [])]
        for optimizer in (fitted.optimizers["weights"], self.mover):
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        self.step += 1
        return {"dynamics": nats.detach(), **{name: value.detach() for name, value in terms.items()}}

    def _freeze(self, fitted: Fitted, frozen: bool) -> None:
        free = {id(p) for p in fitted.dynamics.last_layers()}
        for parameter in fitted.dynamics.parameters():
            parameter.requires_grad_(not frozen or id(parameter) in free)

    def _pool(self, fitted: Fitted, data: Transitions, updates: int, rng: np.random.Generator) -> Pool:
        """Rows for several updates, drawn with replacement."""
        part = data.select(rng.integers(len(data), size=updates * self.settings.batch))
        rows = dynamics_rows(fitted.dataset, part, rng)
        action = action_columns(part.action, self.factors.discrete_actions)
        after = torch.from_numpy(fitted.dataset.columns(np.concatenate([part.next_obs, action], 1)))
        context = torch.from_numpy(fitted.context_scale(_context(part)))
        reward = torch.from_numpy(fitted.reward_scale(part.rewards[self.task][:, None])[:, 0])
        return Pool(rows, after, context, reward, torch.from_numpy(part.episode % 2 == 1))

    # Fitting to the present data

    def _fit(self, data: Transitions) -> Fitted | None:
        """Fit coordinates to the present data; weights are carried over where possible."""
        rng = np.random.default_rng([self.seed, 22])
        size = min(len(data), FIT_ROWS)
        some = data.select(np.sort(rng.choice(len(data), size, replace=False)))
        dataset = without_rows(dynamics_dataset(some, some.head(1), 0, self.seed).dataset)
        if not dataset.targets:
            return self.fitted
        scales = Scale.fit(some.rewards[self.task][:, None]), Scale.fit(_context(some))
        new = self._build(dataset, *scales, len(data))
        if self.fitted is not None:
            old, known = self.fitted, self.fitted.parameters()
            with torch.no_grad():
                for name, parameter in new.parameters().items():
                    if name in known and known[name].shape == parameter.shape:
                        parameter.copy_(known[name])
            warm_start(old.dynamics.critic, old.dataset, new.dynamics.critic, dataset)
        return new

    def _build(self, dataset: TensorDataset, reward_scale: Scale, context_scale: Scale, rows: int) -> Fitted:
        settings, optimizers = self.settings, dict[str, torch.optim.Optimizer]()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            dynamics = RestrictedDynamics(dataset, self.views, settings.width)
            sizes = dataset.encoder, dataset.variables, len(context_scale.mean), settings.width
            heads = nn.ModuleList([RewardHead(*sizes) for _ in range(self.heads)])
        apart = self.trained_heads(heads)
        elsewhere = {id(p) for group in apart.values() for p in group}
        together = [p for p in (*dynamics.parameters(), *heads.parameters()) if id(p) not in elsewhere]
        for name, parameters in {"weights": together, **apart}.items():
            optimizers[name] = torch.optim.AdamW(
                parameters, lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=DECAY, fused=True
            )
        return Fitted(dataset, reward_scale, context_scale, dynamics, heads, optimizers, rows)

    # Exact resume

    def tensors(self) -> dict[str, Tensor]:
        """Everything that `learn` changes."""
        found = {"logits": self.partition.logits.detach().clone(), "kept": torch.tensor(self.kept)}
        found["generator"] = self.partition.generator.get_state()
        found["step"] = torch.tensor(self.step)
        found |= _optimizer_tensors("mover", self.mover)
        if (fitted := self.fitted) is not None:
            found["rows"] = torch.tensor(fitted.rows)
            for name, scale in (("reward", fitted.reward_scale), ("context", fitted.context_scale)):
                found[f"scale.{name}"] = torch.tensor(np.stack([scale.mean, scale.std]))
            found |= {f"problem.{name}": value for name, value in dataset_tensors(fitted.dataset).items()}
            found |= {f"weights.{name}": p.detach().clone() for name, p in fitted.parameters().items()}
            for name, optimizer in fitted.optimizers.items():
                found |= _optimizer_tensors(f"optimizer.{name}", optimizer)
        return found

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.partition.logits.copy_(tensors["logits"])
        self.partition.generator.set_state(tensors["generator"])
        self.kept, self.step, self.fitted = tensors["kept"].numpy().copy(), int(tensors["step"]), None
        _restore_optimizer("mover", self.mover, tensors)
        if "rows" not in tensors:
            return
        scales = [Scale(*tensors[f"scale.{name}"].numpy().copy()) for name in ("reward", "context")]
        dataset = dataset_from_tensors(under("problem", tensors))
        self.fitted = self._build(dataset, scales[0], scales[1], int(tensors["rows"]))
        for name, parameter in self.fitted.parameters().items():
            parameter.copy_(tensors[f"weights.{name}"])
        for name, optimizer in self.fitted.optimizers.items():
            _restore_optimizer(f"optimizer.{name}", optimizer, tensors)


def _context(data: Transitions) -> np.ndarray:
    return np.array(list(data.context.values())).reshape(len(data.context), len(data)).T


def _optimizer_tensors(name: str, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    states = ((k, key, value) for k, p in enumerate(parameters) for key, value in optimizer.state.get(p, {}).items())
    return {f"{name}.{k}.{key}": value.detach().clone() for k, key, value in states}


def _restore_optimizer(name: str, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    optimizer.state.clear()
    for k, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
        found = under(f"{name}.{k}", tensors)
        if found:
            optimizer.state[parameter] = {key: value.clone() for key, value in found.items()}
