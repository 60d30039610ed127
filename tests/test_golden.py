"""Small runs give the numbers they always gave, to the last digit on a machine like the one they come from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from golden_runs import HERE, RUNS, machine  # type: ignore[import-not-found]

SLOW = ("contact", "chemical", "tia")
DECIDED = ("variables", "adjacency", "verdict", "reason", "settled", "parents", "abstraction", "certain", "possible")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """With more, torch adds in another order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RUNS])
def test_the_same_numbers_as_ever(name: str) -> None:
    found = RUNS[name]()
    stored = {file: (HERE / file).read_text() for file in found}
    if machine() == (HERE / "machine.txt").read_text():
        assert found == stored
        return
    assert found == RUNS[name]()  # on any machine, two equal runs are equal
    for file, text in found.items():
        if file.endswith("graph.json"):
            assert _decided(json.loads(text)) == _decided(json.loads(stored[file])), file
        else:
            assert len(text.splitlines()) == len(stored[file].splitlines()), file


def _decided(content: dict[str, Any]) -> dict[str, Any]:
    """What was decided, without the numbers behind it."""
    rewards = {name: _decided(reward) for name, reward in content.get("rewards", {}).items()}
    return {key: content[key] for key in DECIDED if key in content} | ({"rewards": rewards} if rewards else {})
