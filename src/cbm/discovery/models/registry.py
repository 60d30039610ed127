"""Chooses and builds a model from the settings."""

from __future__ import annotations

import torch

from cbm.discovery.models.base import MaskedModel
from cbm.discovery.models.demi import Demi
from cbm.discovery.models.explicit import Explicit
from cbm.discovery.models.implicit import Implicit
from cbm.discovery.models.pairwise import Pairwise
from cbm.discovery.settings import Settings
from cbm.discovery.tensor_dataset import TensorDataset
from cbm.errors import DataError


def check_settings(settings: Settings) -> None:
    """Refuse combinations for which there is no model."""
    if settings.architecture == "pairwise" and settings.model != "implicit":
        raise DataError(f"preset paper exists for model implicit only, not for {settings.model}")


def build_model(dataset: TensorDataset, settings: Settings, seed: int) -> MaskedModel:
    """A freshly initialised model; the same seed gives the same weights."""
    check_settings(settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if settings.architecture == "pairwise":
            return Pairwise(dataset, settings)
        if settings.model == "explicit":
            return Explicit(dataset.encoder, dataset.levels, settings)
        if settings.model == "demi":
            return Demi(dataset.encoder, len(dataset.targets), settings)
        return Implicit(dataset.encoder, len(dataset.targets), settings)


def numbers_per_row(dataset: TensorDataset, settings: Settings) -> int:
    """Size of a model's largest intermediate array for one row, so that evaluation fits in memory."""
    targets = len(dataset.targets)
    if settings.architecture == "pairwise":
        return 4 * targets * dataset.inputs * settings.width
    return 2 * targets * max(settings.knots, settings.code) + 4 * settings.width
