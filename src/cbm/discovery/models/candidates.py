"""Refinement: each target gets a small network of its own that sees only its candidate causes.

The trunk rules out most inputs of most targets. What remains is a handful per target, so each leave-one-out model is
trained on one row in ten instead of one in a hundred, nothing irrelevant has to be ignored, and weak effects can be
separated from none. A candidate j is judged by I(target; j | the other candidates): as in the full test, this is zero
for a variable that is no cause as long as all causes are among the candidates; for a cause it is never smaller than
there. The same networks, restricted to the causes found, are used for prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from cbm.discovery.cmi import Estimate
from cbm.discovery.models.base import Batch, MaskedModel, Pointwise, judge, split_by_mask, taught
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.models.explicit import explicit_cross_entropy, explicit_log_prob
from cbm.discovery.models.implicit import critic_judge, cross_entropy, log_density, penalties
from cbm.discovery.models.trunk import NOTHING
from cbm.discovery.settings import CANDIDATE, LOCAL_WIDTH, MOST_PAIRS, Settings
from cbm.discovery.tensor_dataset import TensorDataset


@dataclass(frozen=True)
class CandidateSets:
    """The inputs that each target's network sees."""

    inputs: np.ndarray
    """(K, m) input index in each slot of each target, -1 if the slot is empty."""
    action: int | None
    """The action's input index; every network sees it."""

    @property
    def filled(self) -> np.ndarray:
        return self.inputs >= 0

    def above_shadows(self, values: np.ndarray, breadth: np.ndarray) -> np.ndarray:
        """(K, m + 1) values relative to the mean of the shadows among each target's slots, if there are any.

        A shadow without which the prediction improves counts as zero: it must not make the others look stronger.
        `breadth` (real inputs,) is the number of columns of each; spurious values of an action grow with that number.
        """
        is_shadow = np.pad(self.inputs >= len(breadth), ((0, 0), (0, 1)))
        usual = (values.clip(0) * is_shadow).sum(1, keepdims=True) / np.maximum(is_shadow.sum(1, keepdims=True), 1)
        above = values - usual
        if self.action is not None:
            above[:, -1:] = values[:, -1:] - breadth[self.action] * usual
        return above

    def scatter(self, values: np.ndarray, into: np.ndarray) -> np.ndarray:
        """`into` (K, inputs) with the cells that were refined replaced by `values` (K, m + 1)."""
        result = into.copy()
        target, slot = np.nonzero(self.filled)
        result[target, self.inputs[target, slot]] = values[target, slot]
        if self.action is not None:
            result[:, self.action] = values[:, -1]
        return result

    def spread(self, refined: Estimate, first: Estimate, breadth: np.ndarray) -> Estimate:
        """(K, inputs) the refined estimate, relative to its shadows, where there is one; elsewhere the first
        estimate."""
        cmi = self.scatter(self.above_shadows(refined.cmi, breadth), first.cmi)
        return Estimate(cmi, self.scatter(refined.stderr, first.stderr))


class CandidateNetworks(MaskedModel):
    """K small networks, run as one batched product; arrays are (K, features, B), so that a gather moves whole rows.

    The slots hold state variables (and shadows); the action, a wider input, has a path of its own. As a dropped slot
    its index is m.
    """

    def __init__(self, dataset: TensorDataset, slots: CandidateSets, settings: Settings):
        super().__init__()
        self.settings = settings
        self.explicit = settings.model == "explicit"
        self.levels: Tensor
        self.slots: Tensor
        self.register_buffer("levels", torch.tensor(dataset.levels), persistent=False)
        self.register_buffer("slots", torch.from_numpy(slots.inputs), persistent=False)
        self.action_input = dataset.action_input
        block, action = feature_blocks(dataset.encoder, dataset.action_input)
        targets, m = slots.inputs.shape
        outputs = max(2, *dataset.levels, 2) if self.explicit else settings.code
        pairs, ends, pair_block = pair_slots(dataset, slots)
        self._see(dataset.encoder, {"block": block, "action": action, "pair_block": pair_block}, pairs, ends)
        size = m * self.block.shape[1] + self.pairs.shape[1] * self.pair_block.shape[1]
        self.enter = _weight(targets, LOCAL_WIDTH, size)
        self.enter_action = nn.Parameter(
            torch.randn(targets * LOCAL_WIDTH, len(self.action)) / math.sqrt(len(self.action) + 1)
        )
        self.absent = nn.Parameter(torch.zeros(targets, m + 2, LOCAL_WIDTH))  # a slot, the action, or nothing is absent
        self.middle = _weight(targets, LOCAL_WIDTH, LOCAL_WIDTH)
        self.leave = _weight(targets, outputs, LOCAL_WIDTH)
        self.curve = nn.Parameter(0.3 * torch.randn(targets, settings.code, settings.knots))
        self.allowed: Tensor | None
        self.register_buffer("allowed", None, persistent=False)

    def _see(self, encoder: Encoder, parts: dict[str, Tensor], pairs: Tensor, ends: Tensor) -> None:
        """Make an encoder of only the features that some network sees, and adapt the feature indices of the blocks to
        it."""
        self.block: Tensor
        self.action: Tensor
        self.pair_block: Tensor
        self.pairs: Tensor
        self.ends: Tensor
        read = (parts["block"][self.slots].flatten(), parts["pair_block"][pairs].flatten(), parts["action"])
        used = torch.unique(torch.cat(read))
        used = used[used < encoder.features]
        place = torch.full((encoder.features + 1,), len(used))  # all others read as the empty one, which is zero
        place[used] = torch.arange(len(used))
        moved = {name: place[part] for name, part in parts.items()} | {"pairs": pairs, "ends": ends}
        for name, part in moved.items():
            self.register_buffer(name, part, persistent=False)
        self.encoder = encoder.only(used)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `.to(device)` calls; the encoder is not a module, so it is moved here."""
        super()._apply(fn, recurse)
        self.encoder = self.encoder.moved(fn)
        return self

    def restrict(self, parents: np.ndarray) -> None:
        """From now on the networks see only these causes, (K, inputs) booleans."""
        slots = self.slots.cpu().numpy()
        seen = np.take_along_axis(parents, np.maximum(slots, 0), 1) & (slots >= 0)
        action = parents[:, self.action_input] if self.action_input is not None else np.zeros(len(slots), bool)
        self.allowed = torch.from_numpy(np.concatenate([seen, action[:, None]], 1)).float().to(self.slots.device)

    def keep(self, dropped: Tensor) -> Tensor:
        """(K, B) dropped slot -> (K, m + 1, B) zeros and ones: what each network sees, the action last."""
        slots = torch.arange(self.slots.shape[1] + 1, device=dropped.device)
        seen = (slots[:, None] != dropped[:, None]).float()
        return seen if self.allowed is None else seen * self.allowed[..., None]

    def by_feature(self, features: Tensor) -> Tensor:
        """(B, F) -> (F + 1, B), with a last row of zeros, which empty slots read."""
        return torch.cat([features, features.new_zeros(len(features), 1)], 1).T.contiguous()

    def first_layer(self, by_feature: Tensor, dropped: Tensor) -> Tensor:
        """(F + 1, B) features, (K, B) dropped slot or -1 -> (K, LOCAL_WIDTH, B)."""
        targets, m = self.slots.shape
        keep = self.keep(dropped)
        view = by_feature[self.block[self.slots]]  # (K, m, size, B); index -1 is the empty input
        view = (view * keep[:, :m, None]).flatten(1, 2)
        if self.pairs.shape[1]:
            rows = torch.arange(targets, device=keep.device)[:, None]
            both = keep[rows, self.ends[..., 0]] * keep[rows, self.ends[..., 1]]  # (K, p, B)
            differences = by_feature[self.pair_block[self.pairs]] * both[:, :, None]
            view = torch.cat([view, differences.flatten(1, 2)], 1)
        hidden = _affine(self.enter, view)
        if len(self.action):
            hidden = torch.addcmul(hidden, self.push(by_feature), keep[:, m:])
        note = (dropped % (m + 2)).unsqueeze(-1).expand(-1, -1, LOCAL_WIDTH)
        return hidden + self.absent.gather(1, note).transpose(1, 2)

    def push(self, by_feature: Tensor) -> Tensor:
        """The action's contribution to the first layer, (K, LOCAL_WIDTH, B)."""
        return (self.enter_action @ by_feature[self.action]).view(len(self.slots), LOCAL_WIDTH, -1)

    def without(self, first: Tensor, by_feature: Tensor, slot: int) -> Tensor:
        """`first_layer` with `slot` dropped in every row, computed from the one with nothing dropped (or forbidden)."""
        m, size = self.slots.shape[1], self.block.shape[1]
        first = first + (self.absent[:, slot] - self.absent[:, NOTHING])[..., None]
        if slot < m:
            weight = self.enter[:, :, slot * size : (slot + 1) * size]
            first = torch.baddbmm(first, weight, by_feature[self.block[self.slots[:, slot]]], alpha=-1)
        elif len(self.action):
            first = first - self.push(by_feature)
        gone = (self.ends == slot).any(-1) & (self.pairs < len(self.pair_block) - 1)  # (K, p)
        for p in gone.any(0).nonzero()[:, 0].tolist():
            start = m * size + p * self.pair_block.shape[1]
            weight = self.enter[:, :, start : start + self.pair_block.shape[1]] * gone[:, p, None, None]
            first = torch.baddbmm(first, weight, by_feature[self.pair_block[self.pairs[:, p]]], alpha=-1)
        return first

    def further_layers(self, first: Tensor) -> Tensor:
        """(K, LOCAL_WIDTH, B) -> (K, B, outputs)."""
        return _affine(self.leave, _affine(self.middle, first.relu()).relu()).transpose(1, 2)

    def heads(self, features: Tensor, dropped: Tensor) -> Tensor:
        """(B, F) features, (K, B) dropped slot or -1 -> (K, B, outputs).

        With (K, nB) dropped slots the rows are evaluated n times, each time with other slots dropped.
        """
        by_feature = self.by_feature(features).repeat(1, dropped.shape[1] // len(features))
        return self.further_layers(self.first_layer(by_feature, dropped))

    def densities(self, heads: Tensor) -> Tensor:
        """(K, B, …): the parameters of each target's density."""
        return heads if self.explicit else torch.bmm(heads, self.curve)

    def outputs(self, features: Tensor, dropped: Tensor) -> Tensor:
        return self.densities(self.heads(features, dropped))

    def log_density(self, outputs: Tensor, batch: Batch, targets: Tensor | None = None) -> Tensor:
        """(K, B) log-density of the targets; always of all targets."""
        if self.explicit:
            return explicit_log_prob(outputs, batch.y, batch.level, self.levels)
        return log_density(outputs, batch.u)

    def lesson(self, outputs: Tensor, teacher: Tensor, targets: Tensor | None = None) -> Tensor:
        if self.explicit:
            return explicit_cross_entropy(outputs, teacher, self.levels)
        return cross_entropy(outputs, teacher)

    def draw(self, rows: int, full_share: float, focus: Tensor, generator: torch.Generator) -> Tensor:
        """For every target, one of its own candidates to drop, independently of the other targets."""
        if self.allowed is not None:
            return torch.full((len(self.slots), rows), NOTHING)
        action = torch.full((len(self.slots), 1), float(len(self.action) > 0))
        chance = torch.cat([(self.slots.cpu() >= 0).float(), action], 1) + 1e-9
        dropped = torch.multinomial(chance, rows, replacement=True, generator=generator)
        dropped[:, : math.ceil(full_share * rows)] = NOTHING
        return dropped

    def loss(self, batch: Batch, dropped: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        features = self.encoder(batch.x)
        if self.allowed is not None or not self.settings.teaching:  # all models are fitted to outcomes
            outputs = self.outputs(features, dropped)
            nll = -self.log_density(outputs, batch)
            return nll.mean(1).sum() + self.penalty(outputs), split_by_mask(nll, dropped[0])
        everything = torch.full_like(dropped, NOTHING)
        outputs = self.outputs(features, torch.cat([everything, dropped], 1))
        full, masked = outputs.split(len(features), 1)
        return taught(-self.log_density(full, batch), self.lesson(masked, full.detach()), self.penalty(outputs))

    def penalty(self, outputs: Tensor) -> Tensor:
        return outputs.new_zeros(()) if self.explicit else penalties(outputs, self.settings)

    def full_loss(self, batch: Batch) -> Tensor | None:
        features = self.encoder(batch.x)
        nothing = torch.full((len(self.slots), len(features)), NOTHING, device=features.device)
        return -self.log_density(self.outputs(features, nothing), batch).mean()

    def evidence(self, batch: Batch) -> Pointwise:
        by_feature = self.by_feature(self.encoder(batch.x))
        nothing = torch.full((len(self.slots), len(batch.x)), NOTHING, device=by_feature.device)
        first = self.first_layer(by_feature, nothing)
        outputs, expected = self.densities(self.further_layers(first)), self.settings.expected
        if self.explicit:
            judged = judge(outputs, batch, self.log_density, self.lesson, expected)
        else:
            judged = critic_judge(outputs, batch.u, expected)

        def pointwise(slot: int, targets: Tensor | None) -> Tensor:
            without = self.without(first, by_feature, slot)
            values = judged(self.densities(self.further_layers(without)), None)
            return values if targets is None else values[:, targets]

        return pointwise


def feature_blocks(encoder: Encoder, action_input: int | None) -> tuple[Tensor, Tensor]:
    """Feature indices of every input, (inputs + 1, size), padded with the index of an always-zero column (the last row,
    the empty input, and the action's row are all padding); and the action's own features."""
    single = torch.where(encoder.source < encoder.columns, encoder.groups, -1)  # differences have blocks of their own
    action = (single == (-2 if action_input is None else action_input)).nonzero()[:, 0]
    counts = torch.bincount(single[single >= 0], minlength=encoder.inputs)
    if action_input is not None:
        counts[action_input] = 0
    block = torch.full((encoder.inputs + 1, int(counts.max())), encoder.features)
    for j in range(encoder.inputs):
        if j != action_input:
            own = (single == j).nonzero()[:, 0]
            block[j, : len(own)] = own
    return block, action


def pair_slots(dataset: TensorDataset, slots: CandidateSets) -> tuple[Tensor, Tensor, Tensor]:
    """The differences that each target's network sees: those of two inputs that it sees.

    (K, p) the index of each difference, (K, p, 2) the slots of its two variables (the action's slot is the last), and
    the feature indices of every difference, padded with the index of an always-zero column; the last one is the empty
    one.
    """
    encoder = dataset.encoder
    count, m = len(encoder.pairs), slots.inputs.shape[1]
    owned = [(encoder.source == encoder.columns + p).nonzero()[:, 0] for p in range(count)]
    block = torch.full((count + 1, max((len(own) for own in owned), default=0)), encoder.features)
    for p, own in enumerate(owned):
        block[p, : len(own)] = own
    inputs = [(int(encoder.groups[own[0]]), int(encoder.partners[own[0]])) for own in owned]
    seen: list[list[tuple[int, int, int]]] = []
    for row in slots.inputs:
        place = {int(j): slot for slot, j in enumerate(row) if j >= 0}
        if slots.action is not None:
            place[slots.action] = m
        seen.append([(p, place[a], place[b]) for p, (a, b) in enumerate(inputs) if a in place and b in place])
    width = min(max((len(found) for found in seen), default=0), MOST_PAIRS)
    rows = [(found + [(count, 0, 0)] * width)[:width] for found in seen]
    table = torch.tensor(rows, dtype=torch.long).view(len(seen), width, 3)
    return table[..., 0], table[..., 1:], block


def choose_candidates(
    cmi: np.ndarray,
    stderr: np.ndarray,
    real_inputs: int,
    action_input: int | None,
    most: int,
    rng: np.random.Generator,
) -> CandidateSets:
    """For each target its possible causes, strongest first, and a few shadows for calibration."""
    targets = len(cmi)
    shadows = np.arange(real_inputs, cmi.shape[1])
    calibrating = min(2, len(shadows))
    possible = cmi[:, :real_inputs] + 2 * stderr[:, :real_inputs] > CANDIDATE
    if action_input is not None:
        possible[:, action_input] = False  # the action has its own path and is always refined
    rows = []
    for k in range(targets):
        order = np.argsort(-cmi[k, :real_inputs])
        chosen = [j for j in order if possible[k, j]][: most - calibrating]
        rows.append([*chosen, *rng.choice(shadows, calibrating, replace=False)])
    m = max(len(row) for row in rows)
    return CandidateSets(np.array([row + [-1] * (m - len(row)) for row in rows], dtype=np.int64), action_input)


def _weight(n: int, outputs: int, inputs: int) -> nn.Parameter:
    """n affine maps, the offset as last column."""
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter((2 * torch.rand(n, outputs, inputs + 1) - 1) * bound)


def _affine(weight: Tensor, x: Tensor) -> Tensor:
    """(n, outputs, inputs + 1), (n, inputs, B) -> (n, outputs, B)."""
    return torch.baddbmm(weight[..., -1:], weight[..., :-1], x)
