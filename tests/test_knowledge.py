"""Prior knowledge: what it says, what it does to a graph, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.errors import DataError
from cbm.graph import CausalGraph, RewardGraph
from cbm.graph.knowledge import Knowledge

NAMES = ("hand", "block", "marker")
REWARDS = ("pick", "push")


def make_graph() -> CausalGraph:
    """Everything that could be an edge is one, except block <- hand; the rewards see only the marker."""
    adjacency = np.ones((3, 4), dtype=bool)
    adjacency[1, 0] = False
    verdict = np.where(adjacency, "edge", "undecided")
    reward = RewardGraph(
        ("marker",), np.full(3, 0.1), np.zeros(3), np.array(["none", "undecided", "edge"]), np.full(3, 0.2)
    )
    return CausalGraph(
        NAMES,
        adjacency,
        np.full((3, 4), 0.5),
        np.zeros((3, 4)),
        verdict,
        0.02,
        rewards=dict.fromkeys(REWARDS, reward),
    )


def knowledge(required: Any = (), forbidden: Any = ()) -> Knowledge:
    return Knowledge.from_json({"required": [list(p) for p in required], "forbidden": [list(p) for p in forbidden]})


def test_apply_enforces_edges_and_verdicts() -> None:
    prior = knowledge(
        [("hand", "block"), ("block", "reward:pick")],
        [("marker", "hand"), ("action", "marker"), ("marker", "reward:pick")],
    )
    before = make_graph()
    after = prior.apply(before)
    expected = before.adjacency.copy()
    expected[1, 0], expected[0, 2], expected[2, 3] = True, False, False  # row = effect
    assert (after.adjacency == expected).all()
    assert (after.verdict[1, 0], after.verdict[0, 2], after.verdict[2, 3]) == ("edge", "none", "none")
    assert after.rewards["pick"].parents == ("block",)
    assert after.rewards["pick"].verdict.tolist() == ["none", "edge", "none"]
    assert after.rewards["push"].parents == ("marker",)
    assert (after.cmi == before.cmi).all()
    assert before.verdict[1, 0] == "undecided", "the graph it was given is as it was"
    assert prior.apply(after).to_json() == after.to_json()
    assert Knowledge().apply(before).to_json() == before.to_json()


def test_masks() -> None:
    prior = knowledge([("action", "hand"), ("hand", "reward:push")], [("marker", "block")])
    masks = prior.masks(NAMES, REWARDS)
    assert np.argwhere(masks.required).tolist() == [[0, 3]]
    assert np.argwhere(masks.forbidden).tolist() == [[1, 2]]
    assert masks.required.shape == masks.forbidden.shape == (3, 4)
    assert masks.required_rewards["push"].tolist() == [True, False, False]
    assert masks.required_rewards["pick"].tolist() == [False, False, False]
    assert not masks.forbidden_rewards["push"].any()


def test_wildcards_never_cover_the_own_past() -> None:
    masks = knowledge((), [("marker", "*")]).masks(NAMES, REWARDS)
    assert np.argwhere(masks.forbidden).tolist() == [[0, 2], [1, 2]]
    assert masks.forbidden_rewards["pick"].tolist() == [False, False, True]

    masks = knowledge((), [("*", "marker")]).masks(NAMES, REWARDS)
    assert np.argwhere(masks.forbidden).tolist() == [[2, 0], [2, 1], [2, 3]]
    assert not masks.forbidden_rewards["pick"].any()

    masks = knowledge((), [("*", "*")]).masks(NAMES, REWARDS)
    assert (masks.forbidden == ~np.eye(3, 4, dtype=bool)).all()
    assert all(vector.all() for vector in masks.forbidden_rewards.values())

    masks = knowledge((), [("hand", "reward:*")]).masks(NAMES, REWARDS)
    assert not masks.forbidden.any()
    assert masks.forbidden_rewards["push"].tolist() == [True, False, False]

    masks = knowledge((), [("marker", "marker")]).masks(NAMES)
    assert np.argwhere(masks.forbidden).tolist() == [[2, 2]]


@pytest.mark.parametrize(
    ("required", "forbidden", "message"),
    [
        (("hand", "block"), ("hand", "block"), "hand -> block is both required and forbidden$"),
        (("hand", "block"), ("*", "block"), r"hand -> block is both required and forbidden by \* -> block"),
        (("hand", "block"), ("hand", "*"), r"hand -> block is both .* by hand -> \*"),
        (("action", "block"), ("*", "*"), r"action -> block is both .* by \* -> \*"),
        (("hand", "reward:pick"), ("hand", "reward:*"), "hand -> reward:pick is both"),
        (("hand", "hand"), ("hand", "hand"), "hand -> hand is both"),
    ],
)
def test_contradictions(required: Any, forbidden: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        knowledge([required], [forbidden])


def test_a_required_self_edge_and_a_wildcard_agree() -> None:
    knowledge([("marker", "marker")], [("*", "marker"), ("marker", "*")])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "expected an object"),
        ({"require": []}, "unknown key 'require'; did you mean 'required'"),
        ({"required": {}}, "^required: expected a list"),
        ({"required": [["a"]]}, r"^required\[0\]: expected \[cause, effect\]"),
        ({"forbidden": [["a", "b"], ["a", 1]]}, r"^forbidden\[1\]"),
        ({"forbidden": ["ab"]}, r"^forbidden\[0\]"),
        ({"required": [["*", "b"]]}, r"required \* -> b: only a forbidden"),
        ({"required": [["b", "reward:*"]]}, "only a forbidden"),
        ({"required": [["b", "action"]]}, "required b -> action: the action is chosen"),
        ({"forbidden": [["reward:x", "b"]]}, "forbidden reward:x -> b: a reward causes nothing"),
        ({"required": [["action", "reward:x"]]}, "state variables only"),
    ],
)
def test_broken_knowledge(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Knowledge.from_json(data)


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        (("hnad", "block"), "required hnad -> block: unknown cause 'hnad'; did you mean 'hand'"),
        (("hand", "blok"), "required hand -> blok: unknown effect 'blok'; did you mean 'block'"),
        (("hand", "reward:pik"), "unknown effect 'reward:pik'; did you mean 'reward:pick'"),
    ],
)
def test_unknown_names(pair: tuple[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        knowledge([pair]).apply(make_graph())
    with pytest.raises(DataError, match="unknown"):
        knowledge((), [pair]).masks(NAMES, REWARDS)


def test_file_round_trip(tmp_path: Path) -> None:
    prior = knowledge([("hand", "block")], [("*", "marker"), ("marker", "*")])
    path = tmp_path / "prior.json"
    path.write_text(json.dumps(prior.to_json()), encoding="utf-8")
    assert Knowledge.load(path) == prior
    path.write_text('{"required": 3}', encoding="utf-8")
    with pytest.raises(DataError, match=r"prior\.json: required"):
        Knowledge.load(path)
    with pytest.raises(DataError, match="cannot read"):
        Knowledge.load(tmp_path / "nothing.json")
