"""The simulation of nodes, and the parts of a map that have known answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.nodes import LINK, OVERHEAD, Work, makespan, simulate, stage_seconds
from cbm.data.npy import NpyWriter, median


def test_jobs_go_to_the_node_that_is_free_first() -> None:
    times = [4.0, 1.0, 1.0, 1.0, 1.0]
    assert stage_seconds(times, 1) == pytest.approx(8 + 5 * OVERHEAD)
    assert stage_seconds(times, 2) == pytest.approx(4 + 4 * OVERHEAD)
    assert stage_seconds(times, 100) == pytest.approx(4 + OVERHEAD)
    assert stage_seconds([], 3) == 0


def test_stages_wait_for_each_other_and_for_the_shared_arrays() -> None:
    work = Work("a", [[1.0], [2.0, 2.0]], 3 * LINK)
    assert makespan(work, 1) == pytest.approx(5 + 3 * OVERHEAD)
    assert makespan(work, 4) == pytest.approx(2 * 3 + 3 + 2 * OVERHEAD)  # two rounds of sending


def test_a_larger_system_has_as_many_jobs_as_variables() -> None:
    rows = [
        {"system": f"sparse-{d}-100", "variables": d, "rows": 100, "shared_mb": 1.0 * d, "stage": stage, "seconds": s}
        for d in (10, 20)
        for stage, s in [("screening", d / 10), *[("measuring", 2.0)] * d]
    ]
    table = {(row["system"], row["nodes"]): row for row in simulate(rows, [200])}
    alone = table["sparse-200-100 (extrapolated)", 1]["minutes"] * 60
    assert alone == pytest.approx(20 + 200 * 2 + 201 * OVERHEAD, abs=0.1)


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_the_median_of_a_file_is_exact(count: int, tmp_path: Path) -> None:
    values = np.random.default_rng(count).lognormal(0, 5, count)
    values[: count // 3] = 0.02
    with NpyWriter(tmp_path / "values.npy", np.float64) as writer:
        for part in np.array_split(values, 3):
            writer.add(part)
    assert np.array_equal(np.load(tmp_path / "values.npy"), values)
    assert median(writer.mapped()) == np.median(values)
