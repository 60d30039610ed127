"""The comparison of methods: real runs end in rows, finished rows need no runs, means are relative to the oracle."""

from __future__ import annotations

import contextlib
import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tianshou")

from benchmarks import tasks
from cbm.cli.main import main
from cbm.errors import DataError


def called_here(arguments: list[str]) -> None:
    """A command in this process: each one of its own would load torch again."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    if code:
        raise DataError(errors.getvalue())


def test_rows_of_a_quick_comparison_and_what_is_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "_call", called_here)
    options = tasks.Options(quick=True, workers=1, runs=tmp_path / "runs", out=tmp_path / "rows.csv")
    made = tasks.main(options)
    assert [(row["task"], row["method"]) for row in made["rows"]] == [("pick", "oracle"), ("pick", "full")]
    oracle, full = made["rows"]
    assert oracle["kept"] == oracle["oracle"] == 7 and oracle["missing"] == oracle["extra"] == 0
    assert full["kept"] == 36 and full["extra"] == 29 and full["distractors_kept"] == 20
    assert all(0 <= row["success_out"] <= 1 and row["minutes"] > 0 for row in made["rows"])
    other = replace(options, set=("gamma=0.9",), out=None)
    with pytest.raises(DataError, match=r"holds another run \(settings.sac.gamma"):
        tasks.main(other)

    def never(arguments: list[str]) -> None:
        raise AssertionError(f"{arguments} was called although its row is there")

    monkeypatch.setattr(tasks, "_call", never)
    shutil.rmtree(tmp_path / "runs")
    again = tasks.main(options)
    assert again["rows"] == made["rows"] and again["means"] == made["means"]


def test_areas_are_told_relative_to_the_oracle() -> None:
    def row(method: str, seed: int, area: float, extra: int) -> dict[str, Any]:
        return {
            **dict.fromkeys(tasks.COLUMNS.all), "task": "pick", "method": method, "seed": seed, "area": area,
            "missing": 0, "extra": extra,
        }  # fmt: skip

    means = tasks._means([row("oracle", 0, 0.5, 0), row("oracle", 1, 0.7, 0), row("full", 0, 0.3, 9)])
    assert [mean["relative"] for mean in means] == pytest.approx([1.0, 0.5])
    assert [mean["exact"] for mean in means] == [2, 0]


def test_an_unknown_method_and_a_failing_run_are_told() -> None:
    with pytest.raises(DataError, match="unknown method 'best'; there are: cbm"):
        tasks.main(tasks.Options(methods=("best",)))
    with pytest.raises(DataError, match="cbm learn nowhere .*unknown"):
        tasks._call(["learn", "nowhere", "--task", "pick", "--steps", "100", "--out", "never"])
