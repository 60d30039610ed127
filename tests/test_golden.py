"""Small runs give the numbers they always gave, to the last digit."""

from __future__ import annotations

import pytest
import torch

from golden_runs import HERE, RUNS  # type: ignore[import-not-found]

SLOW = ("contact",)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RUNS])
def test_the_same_numbers_as_ever(name: str) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, torch adds in another order
    try:
        for file, text in RUNS[name]().items():
            assert text == (HERE / file).read_text(), file
    finally:
        torch.set_num_threads(threads)
