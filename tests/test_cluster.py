"""A sweep on a cluster that loses nodes: complete, the same results, each once. All of it is slow."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("ray", exc_type=ImportError)

from benchmarks.cluster import Bench, under_fire
from benchmarks.cluster_nodes import Namespaces, Nodes, Raylets

JOBS = 8
ROOT = os.name == "posix" and os.geteuid() == 0 and shutil.which("ip") is not None


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")  # Ray's own test cluster leaves pipes open
@pytest.mark.parametrize(
    ("part", "start"),
    [
        ("kills", lambda work: Raylets(2)),
        pytest.param(
            "links",
            lambda work: Namespaces(3, work),
            marks=pytest.mark.skipif(not ROOT, reason="network namespaces need root and iproute2"),
        ),
    ],
)
def test_a_sweep_survives_the_loss_of_two_nodes(part: str, start: Callable[[Path], Nodes], tmp_path: Path) -> None:
    bench = Bench(["collect", "block", "--steps", "600"], JOBS, tmp_path)
    local = bench.sweep("local", "--workers", "1")
    local.start()
    bench.row("local", local, local.finish(), "")
    row = under_fire(part, bench, start(tmp_path))
    assert row["done"] == JOBS and row["retried"] >= 2
    assert row["twice"] == 0 and row["lost"] == 0 and row["identical"] == "yes"
