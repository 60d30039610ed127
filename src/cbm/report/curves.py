"""Learning curves as a picture, with the drawn numbers as CSV next to it.

One panel for each task: mean over seeds, a band for the 95 % bootstrap interval over seeds.
"""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cbm.errors import DataError
from cbm.report.aggregate import counted, curve, measure_of
from cbm.report.learning import is_learning_run, read_learning_run
from cbm.report.palette import LIGHT, styles
from cbm.report.variants import Panel, line_labels, panels
from cbm.runs.files import atomic_write_bytes, atomic_write_text, csv_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = ("world", "options", "task", "method", "measure", "step", "mean", "low", "high", "iqm", "seeds")
SIZE = (5.2, 3.5)
"""Inches of one panel."""
MOST_IN_A_ROW = 3


def write_curves(run_dirs: list[Path], out: Path) -> tuple[Path, Path]:
    """Draw the curves of all learning runs among these; returns the picture and the CSV next to it."""
    runs = [read_learning_run(run_dir) for run_dir in run_dirs if is_learning_run(run_dir)]
    groups = [panel for panel in panels(runs) if any(counted(line, panel.task) for line in panel.lines)]
    if not groups:
        raise DataError("curves: none of these is a learning run that has been evaluated")
    numbers = out.with_suffix(".csv")
    lines = {id(panel): _lines(panel) for panel in groups}
    atomic_write_text(numbers, _table(groups, lines))
    atomic_write_bytes(out, _picture(groups, lines))
    return out, numbers


def _lines(panel: Panel) -> list[dict[str, Any]]:
    """What one panel shows: for each label the curve of the measure and the runs it is over."""
    measure = measure_of(panel)
    found = []
    for line in panel.lines:
        runs = counted(line, panel.task)
        if runs:
            values = curve(runs, panel.task, measure)
            found.append({"label": line.label, "method": line.method, "measure": measure, "runs": runs, **values})
    return found


def _table(groups: list[Panel], lines: dict[int, list[dict[str, Any]]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for panel in groups:
        for line in lines[id(panel)]:
            for k, step in enumerate(line["step"]):
                values = [_cell(line[key][k]) for key in ("mean", "low", "high", "iqm")]
                place = (panel.world, panel.options_text, panel.task, line["label"], line["measure"])
                writer.writerow(
                    [*map(csv_text, place), f"{step:g}" if step % 1 else int(step), *values, len(line["runs"])]
                )
    return text.getvalue()


def _cell(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


def _picture(groups: list[Panel], lines: dict[int, list[dict[str, Any]]]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = line_labels(groups)
    method_of = {line.label: line.method for panel in groups for line in panel.lines}
    looks = dict(zip(labels, styles([method_of[label] for label in labels]), strict=True))
    columns = min(MOST_IN_A_ROW, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure = Figure(figsize=(SIZE[0] * columns, SIZE[1] * rows + 0.5), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, groups, strict=False):
        _draw(axis, panel, lines[id(panel)], looks, labels)
    for axis in axes[len(groups) :]:
        axis.set_axis_off()
    handles = {}
    for axis in axes:
        handles.update({label: handle for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)})
    shown = [label for label in labels if label in handles]
    figure.legend(
        [handles[label] for label in shown],
        [_literal(label) for label in shown],
        loc="outside upper center",
        ncols=min(len(shown), 7 if columns > 1 else 4),
        frameon=False,
    )
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _draw(
    axis: Axes, panel: Panel, lines: list[dict[str, Any]], looks: dict[str, dict[str, str | bool]], labels: list[str]
) -> None:
    for line in lines:
        look, slot = looks[line["label"]], labels.index(line["label"])
        colour = LIGHT[str(look["colour"])]
        every = max(1, round(len(line["step"]) / 5))
        unfinished = not line["runs"][0].finished
        axis.plot(
            line["step"],
            line["mean"],
            color=colour,
            linestyle=":" if unfinished else "--" if look["dashed"] else "-",
            linewidth=1.8,
            marker=str(look["mark"]),
            markersize=5,
            markeredgecolor="white",
            markeredgewidth=0.6,
            markevery=(slot % every, every),
            label=line["label"] if not line["label"].startswith("_") else " " + line["label"],
            zorder=3 if line["method"] != "cbm" else 4,
        )
        if len(line["runs"]) > 1:
            axis.fill_between(line["step"], line["low"], line["high"], color=colour, alpha=0.14, linewidth=0)
    measure = lines[0]["measure"]
    if measure == "success":
        axis.set_ylim(-0.02, 1.03)
    axis.set_title(_literal(panel.title), fontsize=10)
    axis.set_xlabel("environment steps")
    axis.set_ylabel("success" if measure == "success" else "return")
    axis.set_xlim(0, max(line["step"][-1] for line in lines) * 1.02 or 1)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g} k" if value >= 1000 else f"{value:g}")
    axis.grid(axis="y", color="#dfe3e8", linewidth=0.8)
    axis.spines[["top", "right"]].set_visible(False)


def _literal(name: str) -> str:
    """Names as they are: a dollar sign starts no formula."""
    return name.replace("$", r"\$")
