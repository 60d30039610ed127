"""The notebooks run from top to bottom, and what they show is there; a graph in a notebook is one small page."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cbm
from cbm.data.transitions import Transitions
from cbm.discovery.notebook import Line, notebook_progress
from cbm.graph import CausalGraph
from every_format import expected, recording  # type: ignore[import-not-found]

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDED = {"engineers_csv": "pandas", "lerobot_dataset": "pyarrow", "sb3_minimal_state": "stable_baselines3"}
SLOW = ("sb3_minimal_state",)  # trains an agent; tests/test_examples.py does so in a few steps
FOUND = {"engineers_csv": "('angle', 'speed')", "lerobot_dataset": "('shoulder',)",
         "sb3_minimal_state": "['cart_0', 'cart_1']"}  # fmt: skip


def executed(name: str, folder: Path) -> Any:
    """The notebook with its outputs."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(EXAMPLES / f"{name}.ipynb", 4)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    nbclient.NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NEEDED])
def test_notebooks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(NEEDED[name])
    monkeypatch.setenv("PYTHONPATH", str(Path(cbm.__file__).parent.parent))
    notebook = executed(name, tmp_path)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = [output["data"] for output in outputs if "data" in output]
    assert any(FOUND[name] in data.get("text/plain", "") for data in shown)
    assert any("<iframe" in data.get("text/html", "") for data in shown)


def test_notebooks_are_what_the_script_writes() -> None:
    scope: dict[str, Any] = {"__name__": "notebooks", "__file__": str(EXAMPLES / "make_notebooks.py")}
    exec((EXAMPLES / "make_notebooks.py").read_text(encoding="utf-8"), scope)
    for name, cells in (("engineers_csv", "ENGINEER"), ("lerobot_dataset", "LEROBOT"), ("sb3_minimal_state", "SB3")):
        assert (EXAMPLES / f"{name}.ipynb").read_text(encoding="utf-8") == scope["notebook"](scope[cells])


def test_a_graph_in_a_notebook(graph_of: Callable[[Transitions], CausalGraph]) -> None:
    graph = graph_of(expected(recording()))
    assert repr(graph) == (
        "CausalGraph(3 variables, 3 edges, 0 undecided, implicit model, 96 transitions)\n  reward needs 1 of 3: cos"
    )
    html = graph._repr_html_()
    assert html.startswith('<iframe sandbox="allow-scripts"') and len(html) < 100_000
    assert "&quot;cos&quot;" in html and not re.search(r"https?://(?!www\.w3\.org)", html)
    assert "<table>" in expected(recording())._repr_html_()


def test_names_cannot_leave_the_frame(graph_of: Callable[[Transitions], CausalGraph]) -> None:
    arrays = expected(recording()).to_arrays() | {"names": np.array(["</script><b>", '"><img src=x>', "ok"])}
    data = Transitions.from_arrays(arrays)
    html = graph_of(data)._repr_html_()
    assert html.count("<") == 2 and html.count('"') == 8  # the frame itself and nothing else
    assert "<img" not in data._repr_html_()


def test_plot(graph_of: Callable[[Transitions], CausalGraph]) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    graph = graph_of(expected(recording()))
    ax = graph.plot("reward")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["cos", "sin", "vel", "reward reward"]
    assert [label.get_text() for label in ax.get_xticklabels() if label.get_fontweight() == "bold"] == ["cos"]
    with pytest.raises(TypeError, match="ax must be matplotlib axes, not int"):
        graph.plot(ax=3)
    matplotlib.pyplot.close("all")


class Display:
    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> Display:
        self.update(data, raw)
        return self

    def update(self, data: dict[str, str], raw: bool) -> None:
        self.shown.append(data["text/plain"])


def test_progress_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display()
    line = Line(display)
    for k in range(1000):
        line("screening", k / 1000)
    line.close()
    assert display.shown[0].startswith("screening: 0 %") and display.shown[-1].startswith("done in")
    assert len(display.shown) < 10
    with notebook_progress(None) as outside:
        assert outside is None  # a script shows nothing
