"""How often discovery is right, wrong and undecided, on many kinds of systems with known graphs.

`kinds` is the table of systems, `baselines` the other methods, `counts` what is counted, `run` the benchmark. The
options are here, so that the systems can be used without importing all of discovery.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Options:
    """Which systems, how much data, and which methods."""

    seed: int = 0
    """Added to every one of `seeds`."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """Each draws its own system, data and split."""
    kinds: tuple[str, ...] = ()
    """Kinds of systems, such as vehicle heavy-tails pendulum-gym. Default: all."""
    rows_scale: float = 1.0
    """Factor on the usual number of rows of each kind; at least 200 rows are used."""
    baselines: bool = True
    """Whether to run linear regression, additive regression, boosted trees, and refits without each input (the slowest
    by far)."""
    discovery: bool = True
    """Whether to run our own method."""
    workers: int = 1
    """Processes that discovery may use; data sets and baselines are computed one after the other."""
    quick: bool = False
    """One small data set, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the rows; rows that it already contains are not computed again."""


def main(options: Options) -> dict[str, Any]:
    """One row per kind, method and seed; their means over the seeds; the totals of each method."""
    from benchmarks.calibration.run import run

    return run(options)
