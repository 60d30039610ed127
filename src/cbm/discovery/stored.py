"""The fitted part of a dataset (scales, knots, targets) as tensors and back, for checkpoints of growing data.

The rows are left out: they are recomputed from the data, in the coordinates stored here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from cbm.data.factors import Kind
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.targets import Coordinate, Target
from cbm.discovery.tensor_dataset import Rows, Scale, TensorDataset

KINDS: tuple[Kind, ...] = get_args(Kind)
ENCODER = ("source", "wave", "low", "high", "mean", "groups", "partners", "pairs", "gains")
COORDINATE = ("values", "lower", "upper")


def without_rows(dataset: TensorDataset) -> TensorDataset:
    """The same dataset with nothing to train or measure on."""
    rows = _no_rows(len(dataset.columns.mean) + len(dataset.shadow_columns), len(dataset.targets))
    return replace(dataset, train=rows, held=rows)


def _no_rows(columns: int, targets: int) -> Rows:
    none = torch.zeros(0, targets)
    return Rows(torch.zeros(0, columns), none, none, none, none.long(), np.zeros(0, np.int64))


def dataset_tensors(dataset: TensorDataset) -> dict[str, Tensor]:
    """All but the rows; every tensor is a copy."""
    tensors = {f"encoder.{name}": getattr(dataset.encoder, name).clone() for name in ENCODER}
    tensors["sizes"] = torch.tensor(
        [dataset.encoder.columns, dataset.encoder.inputs, dataset.variables, dataset.real_inputs]
    )
    for name in ("columns", "outputs"):
        scale: Scale = getattr(dataset, name)
        tensors[name] = torch.tensor(np.stack([scale.mean, scale.std]))
    tensors["shadows"] = torch.tensor(dataset.shadow_columns, dtype=torch.int64)
    plan = [(t.index, KINDS.index(t.kind), int(t.changes), len(t.coordinate.values)) for t in dataset.targets]
    tensors["targets"] = torch.tensor(plan, dtype=torch.int64).view(-1, 4)
    for name in COORDINATE:
        parts = [getattr(target.coordinate, name) for target in dataset.targets]
        tensors[f"coordinate.{name}"] = torch.tensor(np.concatenate([np.zeros(0), *parts]))
    return tensors


def dataset_from_tensors(tensors: Mapping[str, Tensor]) -> TensorDataset:
    """The inverse of `dataset_tensors`, without rows."""
    columns_read, inputs, variables, real_inputs = (int(v) for v in tensors["sizes"])
    parts = {name: tensors[f"encoder.{name}"].clone() for name in ENCODER}
    encoder = Encoder(**parts, columns=columns_read, inputs=inputs)
    plan = tensors["targets"].tolist()
    ends = np.cumsum([size for *_, size in plan])[:-1]
    curves = [np.split(tensors[f"coordinate.{name}"].numpy().copy(), ends) for name in COORDINATE]
    targets = tuple(
        Target(index, KINDS[kind], bool(changes), Coordinate(*(curve[k] for curve in curves)))
        for k, (index, kind, changes, _) in enumerate(plan)
    )
    columns, outputs = (Scale(*tensors[name].numpy().copy()) for name in ("columns", "outputs"))
    shadows = tensors["shadows"].numpy().copy()
    nothing = _no_rows(len(columns.mean) + len(shadows), len(targets))
    return TensorDataset(encoder, targets, variables, real_inputs, columns, outputs, shadows, nothing, nothing)
