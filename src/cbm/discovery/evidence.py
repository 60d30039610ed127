"""What was measured of one part of a target on one fold, and the errors that belong to it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cbm.discovery.settings import FLOOR


@dataclass
class Evidence:
    """What was measured of one part of a target on one fold; arrays over all real inputs."""

    delta: np.ndarray
    """(J,) nats that a refit without the input loses on new episodes."""
    stderr: np.ndarray
    """(J,) its standard error over episodes."""
    tested: np.ndarray
    """(J,) 0: not a candidate. 2: tested alone. 3: tested alone, for the spread of the target."""
    bundled: np.ndarray
    """(J,) nats that a refit loses without all inputs of its bundle (0 where there is none), and its error."""
    bundled_stderr: np.ndarray
    given_all: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(J,) the same given every other input, not only the candidates, where a sum of functions says all; else as
    `delta`."""
    shadows: np.ndarray = field(default_factory=lambda: np.zeros((0, 2)))
    """(controls, 2) the same of shadows."""
    planted: np.ndarray = field(default_factory=lambda: np.zeros(2))
    """Nats found of a planted effect, and their error."""
    loss: np.ndarray = field(default_factory=lambda: np.zeros(3))
    """Squared error of the model, of a constant, and how many rows were tested."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(value) for name, value in vars(self).items()}


def nats_lost(full: np.ndarray, without: np.ndarray, cluster: np.ndarray) -> tuple[float, float]:
    """Nats lost without an input, from squared errors (T,) with and without it, and the standard error.

    A log-ratio of two means over rows that are independent between clusters only, to first order.
    """
    a, b = full.mean() + FLOOR, without.mean() + FLOOR
    terms = 0.5 * (without / b - full / a)
    sums, sizes = np.bincount(cluster, terms), np.bincount(cluster)
    left, count = sums - terms.mean() * sizes, len(sums)
    stderr = np.sqrt((left**2).sum() * count / max(count - 1, 1)) / len(terms)
    return 0.5 * float(np.log(b / a)), float(stderr)
