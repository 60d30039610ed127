"""The one line at the end: what is needed, what may be, and whether doubt matters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cbm.cli.console import so_far
from cbm.graph.summary import in_short
from test_report import NAMES, make_doubtful_graph, make_graph  # type: ignore[import-not-found]


def test_doubt_that_matters_is_counted_with_the_reward() -> None:
    text = in_short(make_doubtful_graph(NAMES))
    assert text.startswith("near needs 2 of 5 variables and perhaps 3 more.")
    assert "Nothing is known yet about far." in text and text.endswith("in doubt.")


def test_doubt_that_does_not_matter_is_said_to_be_so() -> None:
    graph = make_graph(NAMES)
    words = "1 link is in doubt; the answer does not depend on it."
    assert in_short(graph) == f"near needs 2 of 5 variables, far 4. {words}"
    decided = replace(graph, verdict=np.where(graph.verdict == "undecided", "none", graph.verdict))
    assert in_short(decided).endswith("Nothing is in doubt.")
    assert in_short(replace(decided, rewards={})) == "10 edges among 5 variables. Nothing is in doubt."


@pytest.mark.parametrize(
    ("done", "rest", "words"),
    [(0.0, 1.0, "2 min so far"), (0.25, 0.75, "2 min so far, about 3 min left of this")],
)
def test_remaining_time(done: float, rest: float, words: str) -> None:
    assert so_far(120.0, 60.0, done, rest) == words
