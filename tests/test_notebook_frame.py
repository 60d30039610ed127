"""The frame of a graph in a notebook shows all of it, whatever its cards say and however wide the notebook is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.graph import CausalGraph
from test_report import NAMES, make_doubtful_graph, make_graph  # type: ignore[import-not-found]
from test_report_browser import browser, open_page, pytestmark  # type: ignore[import-not-found]  # noqa: F401


def coarse_graph(names: tuple[str, ...]) -> CausalGraph:
    """Only strong effects would have been seen, and the page says so."""
    graph = make_doubtful_graph(names)
    limits = np.full(len(graph), 1.1)
    rewards = {name: replace(reward, limit_of_detection=0.9) for name, reward in graph.rewards.items()}
    return replace(graph, limit_of_detection=limits, rewards=rewards)


LONG = tuple(f"left_arm_joint_{k}_position_filtered" for k in range(12))
ONE = {"near": make_graph(("a", "b", "c")).rewards["near"]}
GRAPHS = {
    "small": make_graph(("a", "b", "c")),
    "one reward": replace(make_graph(("a", "b", "c")), rewards=ONE),
    "no reward": replace(make_graph(NAMES), rewards={}),
    "doubtful": make_doubtful_graph(NAMES),
    "coarse": coarse_graph(NAMES),
    "long names": coarse_graph(LONG),
    "sixty": coarse_graph(tuple(f"sensor_{k}" for k in range(60))),
}


@pytest.mark.parametrize("width", [700, 1000])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_frame_is_as_high_as_its_graph(browser: Any, tmp_path: Path, name: str, width: int) -> None:  # noqa: F811
    page = tmp_path / "notebook.html"
    html = GRAPHS[name]._repr_html_()
    page.write_text(f"<!doctype html><body><div style='width:{width}px'>{html}</div>", encoding="utf-8")
    open_page(browser, page)
    browser.switch_to.frame(browser.find_element("css selector", "iframe"))
    script = """const end = document.querySelector('.viewport').getBoundingClientRect().bottom + window.scrollY;
        return [end, document.documentElement.scrollHeight, window.innerHeight]"""
    end, content, height = browser.execute_script(script)
    browser.switch_to.default_content()
    assert content <= height and end <= height - 4
    assert height - end < 260  # not much room is left over
