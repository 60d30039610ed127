"""From run directories to one HTML file: `collect_run` gathers what the page shows, `render` fills it in.

The page loads nothing from anywhere. Style and scripts are package data, inlined; numbers and names travel as
JSON in a block that no browser executes, and the scripts put them on the page as text only. How things look
and are drawn is in the .js and .css files next to this one.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cbm.checks import is_number
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.checks import zeros_and_ones
from cbm.graph.summary import in_short
from cbm.report.comparison import compare
from cbm.report.graph_payload import bits, matrix_payload, name_groups, reward_payload
from cbm.report.learning import is_learning_run, read_learning_run
from cbm.report.palette import style_sheet
from cbm.runs.files import atomic_write_text, parse_json, read_json

# In the order in which they are joined: later files use what earlier ones define.
SCRIPTS = (
    *("dom.js", "heatmap.js", "heatpaint.js", "layout.js", "drawing.js", "charts.js"),
    *("curves.js", "strips.js", "outcomes.js", "learning.js", "doubt.js", "report.js"),
)
STYLES = ("report.css", "learning.css")
CURVE_POINTS = 400
"""A training curve with more points than this is thinned evenly; the page says so."""

BoolArray = NDArray[np.bool_]


def write_report(run_dirs: list[Path], out: Path, *, at: int | None = None, until: int | None = None) -> Path:
    """Write one self-contained page about these runs of `cbm discover`, `cbm learn`, or both.

    Several runs begin with a comparison. `at` and `until` are steps: of the column "success at" of learning runs, and
    the end of the areas under their curves.
    """
    if not run_dirs:
        raise DataError("report: no run directory given")
    learned = [Path(run_dir) for run_dir in run_dirs if is_learning_run(Path(run_dir))]
    discovered = [Path(run_dir) for run_dir in run_dirs if Path(run_dir) not in learned]
    learning = compare([read_learning_run(run_dir) for run_dir in learned], at, until) if learned else None
    if learned == [Path(run_dir) for run_dir in run_dirs] and len(learned) == 1 and _has_graph(learned[0]):
        discovered = learned  # with one run there is room to show why its variables were kept
    runs = [collect_run(run_dir, index) for index, run_dir in enumerate(discovered)]
    for entries, places in ((runs, discovered), (learning["runs"] if learning else [], learned)):
        names = [entry["name"] for entry in entries]
        for entry, run_dir in zip(entries, places, strict=True):
            if names.count(entry["name"]) > 1:  # two runs called "run" in different places
                entry["name"] = _printable(str(run_dir))
    atomic_write_text(out, render({"schema": 2, "runs": runs, "learning": _finite(learning)}))
    return Path(out)


def _has_graph(run_dir: Path) -> bool:
    return (run_dir / "graph.json").is_file()


# Collecting


def collect_run(run_dir: Path, index: int = 0) -> dict[str, Any]:
    """Everything the page says about one run, ready for JSON."""
    if not _has_graph(run_dir):
        raise DataError(f"{run_dir}: no graph.json, so this is not a run that a report can be made of")
    graph = CausalGraph.load(run_dir)
    as_guessed = is_learning_run(run_dir)  # its policies saw what the best guess says
    truth = _read_truth(run_dir / "truth.json", graph)
    training, training_note = read_training(run_dir / "metrics.jsonl")
    result = _optional(run_dir / "result.json")
    run: dict[str, Any] = {
        "index": index,
        "name": _printable(run_dir.resolve().name),
        "finished": result is not None,
        "model": graph.model,
        "version": graph.version,
        "transitions": graph.transitions,
        "seconds": graph.seconds,
        "variables": list(graph.variables),
        "groups": name_groups(graph.variables),
        "in_short": "" if as_guessed else in_short(graph),
        "as_guessed": as_guessed,
        **matrix_payload(graph, as_guessed),
        "rewards": [reward_payload(graph, name, truth, as_guessed) for name in graph.rewards],
        "cdl": int((graph.guessed_mask(rule="cdl") if as_guessed else graph.mask(rule="cdl")).sum()),
        "truth": None,
        "score": None,
        "prediction": _read_prediction(run_dir / "prediction.json"),
        "training": training,
        "training_note": training_note,
        "config": _optional(run_dir / "config.json"),
        "result": result,
    }
    if truth is not None:
        score = graph.compare(truth[0]).to_json()
        run["truth"] = {"edges": [bits(row) for row in truth[0]]}
        run["score"] = {key: score[key] for key in ("accuracy", "precision", "recall", "f1", "shd", "auroc")}
        run["score"]["self_loop_accuracy"] = score["self_loops"]["accuracy"]
    return run


def _read_truth(path: Path, graph: CausalGraph) -> tuple[BoolArray, dict[str, BoolArray]] | None:
    """True adjacency and reward parents in the variable order of the graph."""
    data = _optional(path)
    if data is None:
        return None
    names = data.get("variables") if isinstance(data, dict) else None
    if not isinstance(names, list) or sorted(map(str, names)) != sorted(graph.variables):
        raise DataError(f"{path}: variables: not the ones of graph.json")
    d = len(graph)
    adjacency = zeros_and_ones(data.get("adjacency"), (d, d + 1), f"{path}: adjacency", tuple(names))
    order = [names.index(name) for name in graph.variables]
    rewards = data.get("rewards") or {}
    if not isinstance(rewards, dict) or not all(isinstance(parents, list) for parents in rewards.values()):
        raise DataError(f"{path}: rewards: expected an object with a list of names for each reward")
    for reward, parents in rewards.items():
        for parent in parents:
            if parent not in graph.variables:
                raise DataError(f"{path}: rewards.{reward}: unknown variable {parent!r}")
    masks = {name: np.array([v in parents for v in graph.variables]) for name, parents in rewards.items()}
    return adjacency[order][:, [*order, d]], masks


def _read_prediction(path: Path) -> dict[str, Any] | None:
    data = _optional(path)
    if data is None:
        return None
    try:
        prediction: dict[str, list[Any]] = {
            "variables": [str(name) for name in data["variables"]],
            "error": [_number(value) for value in data["error"]],
            "baseline": [_number(value) for value in data["baseline"]],
            "rollout": [
                {
                    "steps": int(point["steps"]),
                    "error": _number(point["error"]),
                    "baseline": _number(point["baseline"]),
                }
                for point in data.get("rollout") or []
            ],
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not a prediction file ({type(error).__name__}: {error})") from error
    if not len(prediction["variables"]) == len(prediction["error"]) == len(prediction["baseline"]):
        raise DataError(f"{path}: variables, error and baseline differ in length")
    return prediction if prediction["variables"] else None


def read_training(path: Path) -> tuple[list[dict[str, Any]], str]:
    """Loss curves by phase, and a remark on what was left out. A line cut short by a crash is skipped."""
    if not path.is_file():
        return [], ""
    phases: dict[str, dict[str, list[list[float]]]] = {}
    unreadable = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = parse_json(line) if line.strip() else {}
            step = float(entry.get("step", math.nan))
        except (ValueError, TypeError, AttributeError, RecursionError):
            unreadable += 1
            continue
        for key, value in entry.items():
            y = _number(value)
            if key.startswith(("loss", "held_out")) and y is not None and math.isfinite(step):
                curves = phases.setdefault(str(entry.get("phase", "training")), {})
                curves.setdefault(key, []).append([step, y])
    thinned = any(len(points) > CURVE_POINTS for curves in phases.values() for points in curves.values())
    training = [
        {"phase": phase, "series": [[key, _thin(points)] for key, points in curves.items()]}
        for phase, curves in phases.items()
    ]
    remarks = [f"Long curves are drawn with {CURVE_POINTS} points."] if thinned else []
    remarks += [f"Unreadable lines of metrics.jsonl left out: {unreadable}."] if unreadable else []
    return training, " ".join(remarks)


def _thin(points: list[list[float]]) -> list[list[float]]:
    if len(points) <= CURVE_POINTS:
        return points
    return [points[k] for k in np.linspace(0, len(points) - 1, CURVE_POINTS).astype(int)]


def _optional(path: Path) -> Any:
    return _finite(read_json(path)) if path.is_file() else None


def _finite(value: Any) -> Any:
    """NaN and infinities become null: Python's JSON reader accepts them, the one of the browser does not."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: Any) -> float | None:
    if not is_number(value):
        return None
    return float(f"{value:.5g}")


def _printable(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")  # a path may hold bytes that are no text


# Rendering


def render(payload: dict[str, Any]) -> str:
    """The page of a report as text."""
    learning = payload.get("learning") or {"runs": []}
    names = ", ".join(dict.fromkeys(run["name"] for run in (*learning["runs"], *payload["runs"])))
    return page(payload, f"cbm report: {names if len(names) <= 200 else names[:199] + '…'}", SCRIPTS)


def page(payload: dict[str, Any], title: str, scripts: Sequence[str]) -> str:
    """A page with its data. One pass fills the template, so a name such as {{script}} stays a name."""
    style = "\n".join([*(_asset(name) for name in STYLES), style_sheet()])
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in scripts) + "})();\n"
    parts = {
        "csp": html.escape(_content_policy(script, style)),
        "title": html.escape(title),
        "style": style,
        "script": script,
        "payload": embed_json(payload),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("template.html"))


def embed_json(payload: Any) -> str:
    """JSON that cannot end its script block or open a comment: ASCII only, without < > and &."""
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _content_policy(script: str, style: str) -> str:
    """Only exactly this script and this style may act, and nothing may be loaded from anywhere."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return resources.files("cbm.report").joinpath(name).read_text(encoding="utf-8")
