"""Exceptions to a law: rows in which something happens that the law says nothing of, and what these depend on."""

from __future__ import annotations

import numpy as np
import pytest

from cbm.discovery.evidence import Evidence
from cbm.discovery.exceptions import exceptions
from cbm.discovery.measure import clearer
from cbm.discovery.refit import Refits
from cbm.discovery.split import Rows

ROWS = 6000


@pytest.fixture(scope="module")
def walled() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns, an outcome that follows the first but where the second is large, and whether that is so."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, 4))
    happens = x[:, 1] > 1.6
    y = 2 * x[:, 0] + np.where(happens, rng.normal(scale=3.0, size=ROWS), 0.001 * rng.normal(size=ROWS))
    return x, y[:, None] / y.std(), happens


def _refits(x: np.ndarray, y: np.ndarray) -> Refits:
    cuts = np.split(np.arange(len(x)), [len(x) // 2, 4 * len(x) // 6])
    return Refits(x, np.stack([np.arange(4)] * 2, 1), y, [0, 2, 3], Rows(*cuts))


def test_rows_in_which_the_law_does_not_hold(walled: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, y, happens = walled
    refits = _refits(x, y)
    assert refits.structure.tails
    rows = Rows(refits.fit, refits.kept, refits.test)
    found = exceptions(refits, rows, np.arange(ROWS) // 20)
    assert found is not None and set(np.unique(found)) == {0.0, 1.0}
    assert (found[happens] > 0).mean() > 0.8 and (found[~happens] > 0).mean() < 0.01


def test_noise_has_no_exceptions(walled: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    x, _, _ = walled
    y = x[:, :1] + np.random.default_rng(1).normal(size=(ROWS, 1))
    refits = _refits(x, y)
    assert exceptions(refits, Rows(refits.fit, refits.kept, refits.test), np.arange(ROWS) // 20) is None


def test_exceptions_speak_where_they_are_clearer_and_leave_what_holds_by_construction() -> None:
    def evidence(delta: list[float], stderr: float, tested: list[int]) -> Evidence:
        J = len(delta)
        return Evidence(np.array(delta), np.full(J, stderr), np.array(tested), np.zeros(J), np.zeros(J))

    law = evidence([0.0, 0.01, 0.5, 0.01, 0.01], 0.01, [0, 2, 2, 3, 2])
    answer = evidence([0.2, 0.2, 0.2, 0.2, 0.001], 0.01, [2, 2, 2, 2, 2])
    stderr = np.full(5, 0.01)
    assert clearer(law, answer, stderr, -1) == [0, 1], "not what is sure, shown by the spread, or weak"
    assert clearer(law, answer, stderr, 0) == [1], "a self-edge that was not tested holds by construction"
    assert clearer(law, answer, stderr, 1) == [0, 1], "one that was tested is an input like any other"
