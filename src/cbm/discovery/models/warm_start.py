"""Transfers the weights of a trunk to a model of the same variables whose knots or targets were refitted."""

from __future__ import annotations

import torch
from torch import Tensor

from cbm.discovery.models.base import MaskedModel, TrunkModel
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.models.implicit import Implicit
from cbm.discovery.tensor_dataset import TensorDataset


@torch.no_grad()
def warm_start(old: MaskedModel, old_dataset: TensorDataset, new: MaskedModel, dataset: TensorDataset) -> None:
    """Copy the weights that mean the same in both; the rest of `new` keeps its initial values.

    Features of a column, or of a difference, with as many knots as before are the same quantiles of it, and targets are
    matched by their variable. Models without a trunk start from scratch.
    """
    if not (isinstance(old, TrunkModel) and isinstance(new, TrunkModel)):
        return
    if old.trunk.per_target != new.trunk.per_target or old_dataset.inputs != dataset.inputs:
        return
    device = new.trunk.by_absence.device
    here, there = (at.to(device) for at in _same_features(old_dataset.encoder, dataset.encoder))
    new.trunk.by_feature.weight[:, there] = old.trunk.by_feature.weight[:, here]
    new.trunk.by_feature.bias.copy_(old.trunk.by_feature.bias)
    new.trunk.by_absence.copy_(old.trunk.by_absence)
    new.trunk.hidden.load_state_dict(old.trunk.hidden.state_dict())
    before, after = (at.to(device) for at in _same_targets(old_dataset, dataset))
    for name in ("weight", "bias"):
        sides = [getattr(m.trunk.last, name).view(m.trunk.targets, m.trunk.per_target, -1) for m in (new, old)]
        sides[0][after] = sides[1][before]
    if isinstance(old, Implicit) and isinstance(new, Implicit):
        new.curve[after] = old.curve[before]


def _same_features(old: Encoder, new: Encoder) -> tuple[Tensor, Tensor]:
    """Indices of features that read the same column in the same way, if it has as many knots in both."""
    here, there = _by_what_they_read(old), _by_what_they_read(new)
    both = [(here[what], at) for what, at in there.items() if len(here.get(what, ())) == len(at)]
    before, after = ([k for pair in both for k in pair[side]] for side in (0, 1))
    return torch.tensor(before, dtype=torch.long), torch.tensor(after, dtype=torch.long)


def _by_what_they_read(encoder: Encoder) -> dict[tuple[int, ...], list[int]]:
    """Features by the column, or pair of columns, that they read, and how they read it."""
    found: dict[tuple[int, ...], list[int]] = {}
    for k, (column, wave) in enumerate(zip(encoder.source.tolist(), encoder.wave.tolist())):
        pair = encoder.pairs[column - encoder.columns].tolist() if column >= encoder.columns else [column]
        found.setdefault((wave, *pair), []).append(k)
    return found


def _same_targets(old: TensorDataset, new: TensorDataset) -> tuple[Tensor, Tensor]:
    place = {(t.index, t.kind, t.changes): k for k, t in enumerate(old.targets)}
    shared = [(t.index, t.kind, t.changes) for t in new.targets]
    after = [k for k, key in enumerate(shared) if key in place]
    return torch.tensor([place[shared[k]] for k in after], dtype=torch.long), torch.tensor(after, dtype=torch.long)
