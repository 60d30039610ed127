"""Means and standard errors of pointwise CMI, against a computation written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from cbm.discovery import cmi
from cbm.discovery.cmi import measure_cmi, pick_rows
from cbm.discovery.models.base import Batch, MaskedModel, Pointwise
from cbm.discovery.settings import LONGEST_CLUSTER
from cbm.discovery.tensor_dataset import Rows

TARGETS, INPUTS, REAL = 3, 5, 4


class Known(MaskedModel):
    """Pointwise values read from a table: `values[row, target, input]`; a row's number is its only column."""

    def __init__(self, values: np.ndarray):
        super().__init__()
        self.values = torch.from_numpy(values)
        self.asked: list[tuple[int, int, int]] = []

    def loss(self, batch: Batch, dropped: Tensor, generator: torch.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        raise NotImplementedError

    def evidence(self, batch: Batch) -> Pointwise:
        rows = batch.x[:, 0].long()

        def pointwise(j: int, targets: Tensor | None) -> Tensor:
            found = self.values[rows, :, j].T
            self.asked.append((j, len(rows), TARGETS if targets is None else len(targets)))
            return (found if targets is None else found[targets])[None]

        return pointwise


def _rows(cluster: np.ndarray) -> Rows:
    n = len(cluster)
    zeros = torch.zeros(n, TARGETS)
    x = torch.arange(n, dtype=torch.float32)[:, None]
    return Rows(x, zeros, zeros, zeros, zeros.long(), cluster=cluster)


def _clustered(values: np.ndarray, clusters: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean over rows and its standard error when whole clusters are the units, as in textbooks on ratios."""
    rows = np.concatenate(clusters)
    mean = values[rows].mean(0)
    total = sum(((values[c] - mean).sum(0)) ** 2 for c in clusters)
    g = len(clusters)
    return mean, np.sqrt(total * g / (g - 1)) / len(rows)


def _pieces(cluster: np.ndarray) -> list[np.ndarray]:
    """Every episode cut into clusters of at most LONGEST_CLUSTER rows."""
    episodes = [np.flatnonzero(cluster == c) for c in np.unique(cluster)]
    return [e[k : k + LONGEST_CLUSTER] for e in episodes for k in range(0, len(e), LONGEST_CLUSTER)]


def _values(rng: np.random.Generator, cluster: np.ndarray, level: float = 1.0) -> np.ndarray:
    """Values with a part that all rows of an episode share."""
    shared = rng.normal(size=(int(cluster.max()) + 1, TARGETS, INPUTS))
    return np.asarray(level + shared[cluster] + rng.normal(size=(len(cluster), TARGETS, INPUTS)))


@pytest.mark.parametrize("lengths", [[1] * 300, [7] * 40, [3, 50, 1, 20, 11] * 8, [200] * 2 + [199, 1]])
def test_short_episodes_are_the_units(lengths: list[int]) -> None:
    rng = np.random.default_rng(0)
    cluster = np.repeat(np.arange(len(lengths)), lengths)
    values = _values(rng, cluster)
    found = measure_cmi(Known(values), _rows(cluster), INPUTS, REAL, 10_000, row_size=1)
    mean, stderr = _clustered(values, _pieces(cluster))
    assert found.cmi.shape == found.stderr.shape == (TARGETS, INPUTS)
    assert np.allclose(found.cmi, mean, rtol=1e-10) and np.allclose(found.stderr, stderr, rtol=1e-8)


def test_long_episodes_are_cut_into_clusters() -> None:
    rng = np.random.default_rng(1)
    lengths = [450, 1000, 200, 201, 149]  # each fits into one chunk, and all into the first stage
    cluster = np.repeat(np.arange(len(lengths)), lengths)
    values = _values(rng, cluster)
    mean, stderr = _clustered(values, _pieces(cluster))
    found = measure_cmi(Known(values), _rows(cluster), INPUTS, REAL, 2000, row_size=1)
    assert np.allclose(found.cmi, mean, rtol=1e-10) and np.allclose(found.stderr, stderr, rtol=1e-8)
    chopped = measure_cmi(Known(values), _rows(cluster), INPUTS, REAL, 2000, cmi.CHUNK_NUMBERS // 430)
    assert np.allclose(chopped.cmi, mean, rtol=1e-10)
    assert np.allclose(chopped.stderr, stderr, rtol=0.3)  # a chunk's end cuts a cluster in two


def test_standard_error_sees_what_rows_of_an_episode_share() -> None:
    """Treating rows as independent would understate the error several times; means over new data show it."""
    rng = np.random.default_rng(2)
    cluster = np.repeat(np.arange(60), 30)
    means, errors = [], []
    for _ in range(60):
        values = _values(rng, cluster, level=0.0)
        found = measure_cmi(Known(values), _rows(cluster), INPUTS, REAL, 10_000, row_size=1)
        means.append(found.cmi)
        errors.append(found.stderr)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.1)
    assert np.mean(errors) > 3 * np.sqrt(2 / len(cluster))


def test_second_stage_looks_only_at_unsettled_cells() -> None:
    rng = np.random.default_rng(3)
    cluster = np.repeat(np.arange(600), 10)
    values = 0.01 * rng.normal(size=(6000, TARGETS, INPUTS))
    values -= values[:].mean(0)
    alive = np.zeros((TARGETS, INPUTS), bool)
    alive[0, 1] = alive[2, 1] = alive[1, 3] = True
    values += np.where(alive, 0.1, -0.01)
    values[..., REAL:] = 0.0  # shadows: exactly nothing
    model = Known(values)
    found = measure_cmi(model, _rows(cluster), INPUTS, REAL, 10_000, row_size=1)
    assert np.allclose(found.cmi[alive], values.mean(0)[alive], atol=1e-12)
    _, stderr = _clustered(values, _pieces(cluster))
    assert np.allclose(found.stderr[alive], stderr[alive], rtol=1e-6)
    assert np.abs(found.cmi - values.mean(0))[~alive].max() < 2e-3
    rows_of = {j: sum(n * k for i, n, k in model.asked if i == j) for j in range(INPUTS)}
    assert rows_of[0] == 2000 * TARGETS and rows_of[2] == 2000 * TARGETS  # settled after the first stage
    assert rows_of[1] == 2000 * TARGETS + 4000 * 2 and rows_of[3] == 2000 * TARGETS + 4000


def test_an_effect_counts_beyond_that_of_a_typical_shadow() -> None:
    """What every dropped input costs settles nothing: only the excess does."""
    rng = np.random.default_rng(4)
    cluster = np.repeat(np.arange(500), 10)
    values = 0.05 + 1e-4 * rng.normal(size=(5000, TARGETS, INPUTS))
    values[:, :, 0] += 0.01
    model = Known(values)
    measure_cmi(model, _rows(cluster), INPUTS, REAL, 10_000, row_size=1)
    rows_of = {j: sum(n for i, n, _ in model.asked if i == j) for j in range(INPUTS)}
    assert rows_of[0] == 5000 and all(rows_of[j] == 2000 for j in range(1, INPUTS))


def test_pick_rows_takes_whole_episodes() -> None:
    cluster = np.repeat(np.arange(50), 20)
    picked = pick_rows(cluster, 500, seed=0)
    assert len(picked) == len(np.unique(picked)) == 500
    counts = np.bincount(cluster[picked], minlength=50)
    assert set(counts) == {0, 20}
    ends = np.flatnonzero(np.diff(cluster[picked])) + 1
    assert (ends % 20 == 0).all()  # rows of one episode stay together, in order
    assert (np.diff(picked.reshape(25, 20), axis=1) == 1).all()
    assert np.array_equal(picked, pick_rows(cluster, 500, seed=0))
    assert not np.array_equal(picked, pick_rows(cluster, 500, seed=1))
    everything = pick_rows(cluster, 10**6, seed=0)
    assert np.array_equal(np.sort(everything), np.arange(1000))


def test_episode_numbers_may_be_any_and_rows_in_any_order() -> None:
    rng = np.random.default_rng(5)
    number = np.array([900, -3, 17, 40])[np.repeat(np.arange(4), 25)]
    cluster = number[rng.permutation(100)]
    picked = pick_rows(cluster, 50, seed=0)
    assert set(np.unique(cluster[picked], return_counts=True)[1]) == {25}


def test_at_most_the_rows_asked_for() -> None:
    cluster = np.repeat(np.arange(100), 10)
    model = Known(_values(np.random.default_rng(6), cluster))
    heard: list[float] = []
    measure_cmi(model, _rows(cluster), INPUTS, REAL, 300, row_size=1, progress=heard.append)
    assert sum(n for j, n, _ in model.asked if j == 0) == 300
    assert heard == sorted(heard) and heard[-1] == pytest.approx(1)


class Expecting(Known):
    """Also says what it expects: `values` are outcomes, `expected` the same for every row."""

    def __init__(self, values: np.ndarray, expected: np.ndarray):
        super().__init__(values)
        self.expected = torch.from_numpy(expected)

    def evidence(self, batch: Batch) -> Pointwise:
        outcomes = super().evidence(batch)

        def pointwise(j: int, targets: Tensor | None) -> Tensor:
            outcome = outcomes(j, targets)[0]
            expected = self.expected[:, j] if targets is None else self.expected[targets, j]
            return torch.stack([outcome, expected[:, None].expand_as(outcome)])

        return pointwise


def test_expectations_decide_and_sharp_outcomes_are_reported() -> None:
    """Noise of 1 in 400 rows, one episode each: a standard error of 0.05."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, TARGETS, INPUTS))
    values -= values.mean(0)
    values[:, :2, 0] += 1.0  # sharp, and more than expected
    values[:, 1, 1] -= 0.5  # believed to matter, and better left out
    values[:, 2, 2] -= 0.1  # within the noise
    expected = np.full((TARGETS, INPUTS), 0.02)
    found = measure_cmi(Expecting(values, expected), _rows(np.arange(400)), INPUTS, REAL, 400, 1)
    refuted, sharp = np.zeros((2, TARGETS, INPUTS), bool)
    refuted[1, 1], sharp[:2, 0] = True, True
    assert found.cmi[refuted] == pytest.approx(-0.5) and found.stderr[refuted] == pytest.approx(0.05, rel=0.1)
    assert found.cmi[2] == pytest.approx([0, 0, -0.1, 0, 0], abs=1e-9), "nothing is known of this target"
    believed = ~refuted & [[True], [True], [False]]
    assert found.cmi[believed] == pytest.approx(0.02) and found.stderr[believed] == pytest.approx(0, abs=1e-9)
    told = found.reported
    assert told.cmi[sharp] == pytest.approx(1.0) and told.stderr[sharp] == pytest.approx(0.05, rel=0.1)
    assert np.array_equal(told.cmi[~sharp], found.cmi[~sharp])


def test_what_is_decided_on_is_reported_where_nothing_is_expected() -> None:
    found = measure_cmi(Known(np.ones((50, TARGETS, INPUTS))), _rows(np.arange(50)), INPUTS, REAL, 50, 1)
    assert found.reported is found
