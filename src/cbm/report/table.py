"""The table of the page as CSV: one row for each task and method, numbers over seeds."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from cbm.errors import DataError
from cbm.report.comparison import compare
from cbm.report.learning import is_learning_run, read_learning_run
from cbm.runs.files import atomic_write_text, csv_text

COLUMNS = (
    *("world", "options", "task", "variables", "method", "seeds", "unfinished", "demonstrations", "measure"),
    *("final", "final_low", "final_high", "final_iqm", "at_step", "at", "at_low", "at_high"),
    *("steps_to_half", "seeds_to_half", "area_until", "area", "area_low", "area_high"),
    *("area_of_oracle", "area_of_oracle_low", "area_of_oracle_high"),
    *("kept", "kept_most", "exact", "minutes", "in", "out", "drop"),
)


def write_table(run_dirs: list[Path], out: Path, *, at: int | None = None, until: int | None = None) -> Path:
    """Write what the tables and bars of the page say about all learning runs among these."""
    runs = [read_learning_run(run_dir) for run_dir in run_dirs if is_learning_run(run_dir)]
    if not runs:
        raise DataError("table: none of these is a learning run")
    learning = compare(runs, at, until)
    labels = [method["label"] for method in learning["methods"]]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for task in learning["tasks"]:
        for row in task["rows"]:
            values = _row(task, row, labels[row["slot"]])
            writer.writerow([_cell(values.get(column)) for column in COLUMNS])
    atomic_write_text(out, text.getvalue())
    return out


def _row(task: dict[str, Any], row: dict[str, Any], label: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        "world": task["world"],
        "options": task["options"],
        "task": task["task"],
        "variables": len(task["variables"]),
        "method": label,
        "seeds": len(row["seeds"]),
        "unfinished": len(row["unfinished"]),
        "demonstrations": (row["demonstrations"] or {}).get("high"),
        "measure": task["measure"],
        "steps_to_half": row["half"]["mean"],
        "seeds_to_half": row["half"]["reached"] if row["half"]["of"] else None,
        "area_until": task["until"] if row["area"] else None,
        "kept": (row["kept"] or {}).get("low"),
        "kept_most": (row["kept"] or {}).get("high"),
        "exact": row["exact"] and row["exact"]["yes"],
        "minutes": (row["minutes"] or {}).get("mean"),
    }
    line = next((line for line in task["curves"][task["measure"]] if line["slot"] == row["slot"]), None)
    point = next((point for point in line["points"] if point[0] == task["at"]), None) if line else None
    if point:
        values |= dict(zip(("at_step", "at", "at_low", "at_high"), point, strict=False))
    for name, key in (("final", "final"), ("area", "area"), ("area_of_oracle", "relative")):
        entry = row[key] or {}
        values |= {name: entry.get("mean"), f"{name}_low": entry.get("low"), f"{name}_high": entry.get("high")}
    values["final_iqm"] = (row["final"] or {}).get("iqm")
    bars: dict[str, Any] = next((bars for bars in task["bars"] if bars["slot"] == row["slot"]), {})
    values |= {place: (bars.get(place) or {}).get("mean") for place in ("in", "out", "drop")}
    return values


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.6g}"
    return csv_text(str(value)) if isinstance(value, str) else str(value)
