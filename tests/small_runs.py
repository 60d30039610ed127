"""Runs of `cbm learn` that take a second, and how to read and compare what they wrote."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from cbm.agents.settings import SacSettings
from cbm.learning.plan import Plan
from cbm.learning.settings import LearnSettings, preset


def small_settings(**changes: Any) -> LearnSettings:
    sac = SacSettings(hidden=(8, 8), batch=16)
    base = replace(preset("debug"), agent=sac, warm_up=100, evaluate_every=200, episodes=3, checkpoint_every=120)
    return replace(base, **changes)


def small_plan(**changes: Any) -> Plan:
    settings = changes.pop("settings", small_settings())
    return replace(Plan("light", ("cross",), "full", 600, settings, preset="debug"), **changes)


def rows_of(run: Path) -> list[dict[str, str]]:
    """eval.csv without what differs between equal runs."""
    with (run / "eval.csv").open() as file:
        return [{key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)]


def lines_of(run: Path, name: str) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / name).read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def assert_same(run: Path, reference: Path) -> None:
    assert rows_of(run) == rows_of(reference)
    for name in ("abstraction.jsonl", "metrics.jsonl"):
        assert lines_of(run, name) == lines_of(reference, name)
