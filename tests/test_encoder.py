"""Features that the models see: piecewise linear, centred, grouped by input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cbm.discovery.models.encoder import Encoder
from cbm.discovery.settings import BINS


def _features(encoder: Encoder, column: np.ndarray) -> np.ndarray:
    return encoder(torch.tensor(column[:, None], dtype=torch.float32)).numpy()


@pytest.mark.parametrize("shape", ["normal", "heavy", "uniform"])
def test_a_scalar_becomes_ramps_between_its_quantiles(shape: str) -> None:
    rng = np.random.default_rng(0)
    values = {"normal": rng.normal(size=4000), "heavy": rng.standard_t(2, 4000), "uniform": rng.random(4000)}[shape]
    encoder = Encoder.fit(values[:, None], ["continuous"], [0])
    assert encoder.features == BINS and encoder.inputs == 1 and not encoder.groups.any()
    knots = np.quantile(values, np.linspace(0, 1, BINS + 1))
    for f in range(BINS):
        ramp = np.clip((values - knots[f]) / (knots[f + 1] - knots[f]), 0, 1)
        assert np.allclose(_features(encoder, values)[:, f], ramp - ramp.mean(), atol=1e-4)


def test_features_are_centred_and_bounded_and_constant_outside_the_data() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(5, 2, 3000)
    encoder = Encoder.fit(values[:, None], ["continuous"], [0])
    features = _features(encoder, values)
    assert np.abs(features.mean(0)).max() < 1e-5 and np.abs(features).max() <= 1
    outside = _features(encoder, np.array([values.min(), -1e6, values.max(), 1e6]))
    assert np.allclose(outside[0], outside[1]) and np.allclose(outside[2], outside[3])


def test_together_the_ramps_can_express_any_threshold_between_knots() -> None:
    """A linear map of the features fits a step at a quantile to within one bin."""
    rng = np.random.default_rng(2)
    values = rng.normal(size=4000)
    encoder = Encoder.fit(values[:, None], ["continuous"], [0])
    features = np.c_[_features(encoder, values), np.ones(len(values))]
    step = (values > np.quantile(values, 0.75)).astype(float)
    fitted = features @ np.linalg.lstsq(features, step, rcond=None)[0]
    assert np.mean((fitted - step) ** 2) < 0.03


@pytest.mark.parametrize("levels", [[0.0, 1.0], [-1.0, 0.0, 4.0], [float(k) for k in range(2 * BINS)]])
def test_levels_get_a_thermometer_code(levels: list[float]) -> None:
    rng = np.random.default_rng(3)
    values = rng.choice(levels, 2000)
    encoder = Encoder.fit(values[:, None], ["categorical"], [0])
    assert encoder.features == len(levels) - 1
    code = _features(encoder, np.array(levels)) + encoder.mean.numpy()
    assert np.allclose(code, np.tril(np.ones((len(levels), len(levels) - 1)), -1), atol=1e-6)


def test_a_constant_column_and_a_mostly_constant_one() -> None:
    rng = np.random.default_rng(4)
    still = np.full(3000, 2.5)
    encoder = Encoder.fit(still[:, None], ["continuous"], [0])
    assert np.isfinite(_features(encoder, still)).all() and not _features(encoder, still).any()
    rare = np.where(rng.random(3000) < 0.02, rng.normal(size=3000), 0.0)
    encoder = Encoder.fit(rare[:, None], ["continuous"], [0])
    assert encoder.features >= 4  # the rare values still get knots of their own
    assert np.isfinite(_features(encoder, rare)).all()
    moved = rare != 0
    assert _features(encoder, rare)[moved].std(0).max() > 0.2


def test_knots_closer_than_float32_can_tell_are_merged() -> None:
    values = np.concatenate([np.linspace(0, 1e-9, 2000), np.linspace(0.5, 1, 2000)])
    features = _features(Encoder.fit(values[:, None], ["continuous"], [0]), values)
    assert np.isfinite(features).all() and np.abs(features).max() <= 1


def test_angles_are_continuous_across_pi() -> None:
    rng = np.random.default_rng(5)
    values = rng.uniform(-np.pi, np.pi, 4000)
    encoder = Encoder.fit(values[:, None], ["angle"], [0])
    assert encoder.features == BINS
    near = _features(encoder, np.array([np.pi - 1e-4, -np.pi + 1e-4, 0.0]))
    assert np.abs(near[0] - near[1]).max() < 1e-2 and np.abs(near[0] - near[2]).max() > 0.5
    turned = _features(encoder, np.array([0.3, 0.3 + 2 * np.pi]))
    assert np.allclose(turned[0], turned[1], atol=1e-5)
    circle = _features(encoder, np.linspace(-np.pi, np.pi, 400))
    distinct = np.linalg.norm(circle[:, None] - circle[None, :-1], axis=2)[:-1]
    np.fill_diagonal(distinct, 1)
    assert distinct.min() > 1e-3  # no two angles look alike


def test_groups_and_sources_of_several_columns() -> None:
    """Two variables, then an action of two columns that is one input."""
    rng = np.random.default_rng(6)
    columns = np.stack([rng.normal(size=500), rng.integers(2, size=500), *rng.normal(size=(2, 500))], 1)
    encoder = Encoder.fit(columns, ["continuous", "binary", "continuous", "continuous"], [0, 1, 2, 2])
    assert encoder.inputs == 3
    assert torch.bincount(encoder.groups).tolist() == [BINS, 1, 2 * BINS]
    assert torch.bincount(encoder.source).tolist() == [BINS, 1, BINS, BINS]
    x = torch.tensor(columns, dtype=torch.float32)
    changed = x.clone()
    changed[:, 3] += 0.5
    differs = (encoder(x) != encoder(changed)).any(0)
    assert differs.any() and bool((encoder.source[differs] == 3).all())


def test_mixed_kinds_keep_raw_columns_apart_from_waves() -> None:
    rng = np.random.default_rng(7)
    columns = np.stack([rng.normal(size=1000), rng.uniform(-np.pi, np.pi, 1000)], 1)
    both = Encoder.fit(columns, ["continuous", "angle"], [0, 1])
    x = torch.tensor(columns, dtype=torch.float32)
    alone = [
        Encoder.fit(columns[:, [0]], ["continuous"], [0])(x[:, :1]),
        Encoder.fit(columns[:, [1]], ["angle"], [0])(x[:, 1:]),
    ]
    assert torch.allclose(both(x), torch.cat(alone, 1))
