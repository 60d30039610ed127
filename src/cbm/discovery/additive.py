"""A first look for systems whose trunk has few hidden units for each target: additive regressions in closed form.

A trunk of a few hundred units cannot hold a function of its own for each of a thousand targets. A sum of functions,
one of every input, can be fitted to all targets at once: they share one Gram matrix of the encoded inputs, and what
target i loses without input j follows from its inverse (a Wald test of j's features given those of everything else).
It sees no effect that is a pure interaction; those are left to the trunk. What it sees is only a candidate: the
second look decides.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cbm.discovery.evidence import Evidence
from cbm.discovery.problem import Problem, Rows

ROWS = 4096  # encoded at a time
RIDGE = 1e-6  # of the mean diagonal: features that repeat each other do not make the Gram matrix singular
ROWS_PER_FEATURE = 2.0  # fewer leave too little to tell noise from effects


def additive_evidence(problem: Problem) -> Evidence | None:
    """(K, inputs) nats that each input explains beyond all others, in the best sum of functions of the inputs.

    The mean and the spread of a target are looked at, as the first two Legendre polynomials of its coordinate; the
    clearer of the two counts. None where there are too few rows for so many features.
    """
    rows, features = problem.train, problem.encoder.features
    if len(rows) < ROWS_PER_FEATURE * features:
        return None
    gram, products, squares = (part.double() for part in _moments(problem, rows))
    gram.diagonal().add_(RIDGE * gram.diagonal().mean())
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    weights = inverse @ products
    free = len(rows) - features - 1
    noise = (squares - (weights * products).sum(0)).clamp(min=1e-9) / free
    best, error = np.full((2, len(problem.targets), problem.inputs), -np.inf)
    for j in range(problem.inputs):
        own = problem.encoder.of_input(j)
        block = torch.linalg.solve(inverse[own[:, None], own], weights[own])
        explained = ((weights[own] * block).sum(0) / noise).view(2, -1).amax(0).numpy()
        excess = explained - len(own)  # of a chi-square with so many degrees of freedom
        best[:, j] = 0.5 * np.log1p(np.clip(excess, -len(own), None) / len(rows))
        error[:, j] = np.sqrt(2 * len(own) + 4 * np.clip(excess, 0, None)) / (2 * len(rows))
    return Evidence(best, error)


def _moments(problem: Problem, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """Centred sums over rows: features with features, features with target functions, and the latter squared."""
    size, count = problem.encoder.features, 2 * len(problem.targets)
    gram, products = torch.zeros(size, size), torch.zeros(size, count)
    squares, sums = torch.zeros(count), torch.zeros(count)
    mean = torch.zeros(size)
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        features = problem.encoder(rows.x[part])
        u = 2 * (rows.u[part] + 0.5 * rows.width[part]) - 1
        targets = torch.cat([u, 1.5 * u.square() - 0.5], 1)
        gram.addmm_(features.T, features)
        products.addmm_(features.T, targets)
        squares += targets.square().sum(0)
        sums += targets.sum(0)
        mean += features.sum(0)
    gram -= torch.outer(mean, mean) / len(rows)
    products -= torch.outer(mean, sums) / len(rows)
    return gram, products, squares - sums.square() / len(rows)
