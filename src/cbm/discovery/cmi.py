"""CMI on held-out transitions: for every (target, input) its mean and standard error.

All leave-one-out models are first evaluated on some rows, which settle most cells of a sparse graph as "no effect";
only the others are evaluated on the remaining rows. Sums over rows are kept, never a (target,
input, row) array. Rows of one episode are not independent, so the standard error is computed over episodes.

The loss at the outcome of a row, log g(y|x) - log psi(y|x without j), is noisy where effects are rare. Its expectation
under g, the divergence of psi from g, has the same mean if g is right and none of that noise. Decisions use this
expected loss, with two exceptions. Where outcomes are predicted clearly better without an input, g is wrong to rely on
it. And if no input clearly helps to predict a target, g has not learnt anything about it, and its expectations are
traces of other targets. In both cases the loss at the outcomes counts. Reported values use the outcomes wherever these
are precise, since g tends to expect slightly too little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cbm.discovery.models.base import Batch, MaskedModel
from cbm.discovery.settings import KNOWN, LONGEST_CLUSTER, REFUTED, SETTLED, SHARP
from cbm.discovery.tensor_dataset import Rows

CHUNK_NUMBERS = 2_000_000  # numbers in a chunk's largest array: small enough for the processor's cache


@dataclass(frozen=True)
class Estimate:
    """CMI of every target with every input, in nats; (K, inputs)."""

    cmi: np.ndarray
    stderr: np.ndarray
    sharper: Estimate | None = None
    """The same with the loss at the outcomes wherever that is precise; None if it was used everywhere."""

    @property
    def reported(self) -> Estimate:
        """The values to report for effects that exist; `cmi` and `stderr` themselves serve to decide whether they
        do."""
        return self.sharper or self


class _Sums:
    """Running sums over clusters of rows, per (input, target)."""

    def __init__(self, inputs: int, targets: int):
        self.rows, self.rows_squared, self.clusters, self.total, self.total_squared, self.total_rows = (
            np.zeros((inputs, targets)) for _ in range(6)
        )

    def add(self, j: int, targets: np.ndarray, sums: np.ndarray, sizes: np.ndarray) -> None:
        """`sums` (clusters, targets) of the pointwise values, `sizes` (clusters,) rows in each."""
        self.rows[j, targets] += sizes.sum()
        self.rows_squared[j, targets] += (sizes**2).sum()
        self.clusters[j, targets] += len(sizes)
        self.total[j, targets] += sums.sum(0)
        self.total_squared[j, targets] += (sums**2).sum(0)
        self.total_rows[j, targets] += sizes @ sums

    def estimate(self) -> Estimate:
        rows, clusters = np.maximum(self.rows, 1), np.maximum(self.clusters, 2)
        mean = self.total / rows
        squares = self.total_squared - 2 * mean * self.total_rows + mean**2 * self.rows_squared
        stderr = np.sqrt(np.clip(squares, 0, None) * clusters / (clusters - 1)) / rows
        return Estimate(mean.T.copy(), stderr.T.copy())


class _Measured:
    """Sums of the losses without each input: at the outcomes, and as the full model expects them."""

    def __init__(self, inputs: int, targets: int):
        self.outcome, self.expected = _Sums(inputs, targets), _Sums(inputs, targets)
        self.expecting = False

    def add(self, j: int, targets: np.ndarray, values: Tensor, owner: Tensor, sizes: np.ndarray) -> None:
        """`values` (1 or 2, targets, rows) from a model's pointwise evidence."""
        sums = [_sum_by(part, owner, len(sizes)) for part in values]
        self.outcome.add(j, targets, sums[0], sizes)
        if len(sums) > 1:
            self.expecting = True
            self.expected.add(j, targets, sums[1], sizes)

    def estimate(self) -> Estimate:
        outcome = self.outcome.estimate()
        if not self.expecting:
            return outcome
        expected = self.expected.estimate()
        unknown = ~(outcome.cmi > KNOWN * outcome.stderr).any(1, keepdims=True)
        believed = mixed(outcome, expected, unknown | (outcome.cmi < -REFUTED * outcome.stderr))
        sharper = mixed(outcome, believed, outcome.cmi > SHARP * outcome.stderr)
        return Estimate(believed.cmi, believed.stderr, sharper)


def mixed(one: Estimate, other: Estimate, where: np.ndarray) -> Estimate:
    """The first estimate where `where` is true, else the second."""
    return Estimate(np.where(where, one.cmi, other.cmi), np.where(where, one.stderr, other.stderr))


@torch.no_grad()
def measure_cmi(
    model: MaskedModel,
    rows: Rows,
    inputs: int,
    real_inputs: int,
    most: int,
    row_size: int,
    progress: Callable[[float], None] | None = None,
    seed: int = 0,
) -> Estimate:
    """CMI on at most `most` rows; `row_size` is how many numbers the model computes for one row.

    After the first rows only the cells that may be effects are evaluated.
    """
    targets = rows.u.shape[1]
    sums = _Measured(inputs, targets)
    index = pick_rows(rows.cluster, most, seed)
    generator = torch.Generator().manual_seed(seed)
    chunk = int(np.clip(CHUNK_NUMBERS // max(row_size, 1), 32, 1024))
    first = min(len(index), int(np.clip(200_000 // inputs, 500, 2000)))
    everything = [np.arange(targets)] * inputs
    done = 0.0
    for part, doubtful in ((index[:first], everything), (index[first:], None)):
        if doubtful is None:
            doubtful = _unsettled(sums.estimate(), real_inputs)
            chunk = 1024
        for piece in _chunks(part, rows.cluster, chunk):
            batch = Batch.of(rows, torch.from_numpy(piece).to(rows.device), generator)
            _add(sums, model, batch, rows.cluster[piece], doubtful)
            done += len(piece)
            if progress:
                progress(done / len(index))
    return sums.estimate()


def pick_rows(cluster: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Rows of whole episodes, in random order of the episodes, at most `most` of them."""
    _, episode = np.unique(cluster, return_inverse=True)
    rank = np.random.default_rng([seed, 5]).permutation(int(episode.max()) + 1)
    return np.argsort(rank[episode], kind="stable")[:most]


def _unsettled(estimate: Estimate, real_inputs: int) -> list[np.ndarray]:
    """For every input, the targets on which it may have an effect larger than that of a typical shadow."""
    shadows = estimate.cmi[:, real_inputs:]
    usual = np.median(shadows, 1, keepdims=True) if shadows.shape[1] else 0.0
    possible = estimate.cmi - usual + 3 * estimate.stderr > SETTLED
    return [np.flatnonzero(column) for column in possible.T]


def _chunks(index: np.ndarray, cluster: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Pieces of about `size` rows that end where an episode ends, if an episode ends within them."""
    start = 0
    while start < len(index):
        stop = min(start + size, len(index))
        if stop < len(index):
            ends = np.flatnonzero(np.diff(cluster[index[start : stop + 1]])) + 1
            stop = start + int(ends[-1]) if len(ends) else stop
        yield index[start:stop]
        start = stop


def _add(sums: _Measured, model: MaskedModel, batch: Batch, cluster: np.ndarray, doubtful: list[np.ndarray]) -> None:
    owner, sizes = _clusters(cluster)
    pointwise = model.evidence(batch)
    for j, targets in enumerate(doubtful):
        if len(targets):
            whole = len(targets) == batch.u.shape[1]
            values = pointwise(j, None if whole else torch.from_numpy(targets).to(batch.x.device))
            sums.add(j, targets, values, owner, sizes)


def _clusters(cluster: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """The cluster of each row of a piece, and the number of rows of each cluster."""
    place = np.arange(len(cluster))
    start = np.flatnonzero(np.concatenate([[True], np.diff(cluster) != 0]))
    within = place - np.repeat(start, np.diff(np.append(start, len(cluster))))
    owner = np.cumsum(within % LONGEST_CLUSTER == 0) - 1
    return torch.from_numpy(owner), np.bincount(owner).astype(float)


def _sum_by(values: Tensor, owner: Tensor, clusters: int) -> np.ndarray:
    """(K, B) -> (clusters, K)."""
    result = torch.zeros(clusters, len(values), dtype=torch.float64)
    return np.asarray(result.index_add_(0, owner, values.T.double().cpu()).numpy())
