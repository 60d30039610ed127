"""The benchmark of the worlds: what it measures, and what it says when a simulator is missing."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import worlds
from benchmarks.worlds import Options, Runner, System

Run = Callable[..., tuple[int, str, str]]


class Sleepless(Runner):
    """Takes a known number of turns for a step."""

    def __init__(self, turns: int):
        self.turns, self.begun = turns, 0

    def begin(self) -> None:
        self.begun += 1

    def run(self, steps: int) -> None:
        sum(range(steps * self.turns))


def missing(seed: int) -> Runner:
    importlib.import_module("a_simulator_that_is_not_there")
    return Sleepless(1)


def test_rows_have_rates_ratios_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    systems = (
        System("slow", lambda seed: Sleepless(40_000)),
        System("fast", lambda seed: Sleepless(10_000), "slow"),
        System("gone", missing),
        System("beside the gone", lambda seed: Sleepless(10_000), "gone"),
    )
    monkeypatch.setattr(worlds, "SYSTEMS", systems)
    slow, fast, gone, beside = worlds.measure(0, quick=True)
    assert 2 < fast["ratio"] < 8 and fast["against"] == "slow"
    assert slow["ratio"] is None and slow["low"] <= slow["steps_per_second"] <= slow["high"]
    assert gone["steps_per_second"] is None and "a_simulator_that_is_not_there" in gone["note"]
    assert beside["ratio"] is None and beside["steps_per_second"] > 0


@pytest.mark.parametrize("name", ["contact", "chemical"])
def test_vectorised_worlds_are_fast(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(worlds, "SYSTEMS", tuple(s for s in worlds.SYSTEMS if s.name == name))
    (row,) = worlds.measure(0, quick=True)
    assert row["copies"] == 1000 and row["steps_per_second"] > 100_000


def test_the_table_and_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    row: dict[str, Any] = {"system": "ours", "copies": 64, "steps_per_second": 5000.0, "low": 4000.0, "high": 6000.0}
    row |= {"against": "theirs", "ratio": 40.0, "note": ""}
    gone = dict.fromkeys(row) | {"system": "theirs", "against": "", "note": "pip install theirs"}
    monkeypatch.setattr(worlds.json, "loads", lambda text: [row, gone])  # type: ignore[attr-defined]
    monkeypatch.setattr(worlds.subprocess, "run", lambda *a, **k: _Done())  # type: ignore[attr-defined]
    result = worlds.main(Options(out=tmp_path / "worlds.csv"))
    assert result["rows"] == [row, gone] and "numpy" in result["versions"]
    out = capsys.readouterr().out
    assert "5,000" in out and "not installed" in out and "theirs: pip install theirs" in out
    first, *lines = (tmp_path / "worlds.csv").read_text().splitlines()
    assert first.startswith("# ") and "numpy" in first
    assert [line["steps_per_second"] for line in csv.DictReader(lines)] == ["5000.0", ""]


class _Done:
    returncode, stdout, stderr = 0, "[]\n", ""


@pytest.mark.slow
def test_the_whole_benchmark_runs(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("bench", "worlds", "--quick", "--out", tmp_path / "worlds.csv")
    assert code == 0 and "contact" in out
    with open(tmp_path / "worlds.csv") as lines:
        next(lines)
        assert len(list(csv.DictReader(lines))) == len(worlds.SYSTEMS)
