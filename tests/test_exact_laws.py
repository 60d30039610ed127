"""Laws without noise: what models have not fitted must not look like an effect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.calibration import limits
from benchmarks.calibration.system import simulate
from cbm.discovery.discover import discover


@pytest.mark.slow
@pytest.mark.parametrize(("system", "seed"), [(limits.controlled_arm, 1), (limits.tanks, 3)])
def test_no_false_edge_into_an_exact_law_with_limits(system: limits.Maker, seed: int) -> None:
    """An integrator that is rarely clipped, tanks that overflow: speeds and meters go with what they really need."""
    data = simulate(system(seed), 12_000, seed)
    graph = discover(replace(data, truth=None, truth_rewards={}), seed=seed, workers=0)
    assert data.truth is not None
    claimed = np.array(graph.verdict) == "edge"
    assert not (claimed & ~data.truth).any()
    assert (claimed & data.truth).sum() >= 0.75 * data.truth.sum()
    lost = (np.array(graph.verdict) == "none") & data.truth
    assert not lost.any()
