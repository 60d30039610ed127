"""The peer PCMCI: the series it is given, what is made of its answers, and what is said without tigramite."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import calibration, discovery
from benchmarks import pcmci as peer
from benchmarks.calibration import run as calibration_run
from benchmarks.systems import linear_gaussian
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.errors import DataError


def log(discrete: int | None = None) -> Transitions:
    """Two episodes of three and four steps, the second with a gap after its second step; `fixed` never changes."""
    rng = np.random.default_rng(0)
    obs, after = rng.normal(size=(7, 3)), rng.normal(size=(7, 3))
    for row in (0, 1, 3, 5):
        after[row] = obs[row + 1]
    obs[:, 2] = after[:, 2] = 5.0
    action = np.arange(7)[:, None] % 3 if discrete else rng.normal(size=(7, 2))
    names = ("choice",) if discrete else ("a0", "a1")
    factors = Factors(tuple(map(Variable, ("x", "y", "fixed"))), names, discrete_actions=discrete)
    return Transitions(
        obs=obs, action=action, next_obs=after, factors=factors, rewards={}, episode=np.array([0, 0, 0, 1, 1, 1, 1])
    )


def test_series_end_where_rows_do_not_follow() -> None:
    data = log()
    values, series = peer.series_of(data, data.action)
    assert np.bincount(series).tolist() == [4, 3, 3]
    np.testing.assert_array_equal(values[:4, :3], [*data.obs[:3], data.next_obs[2]])
    np.testing.assert_array_equal(values[4:6, 3:], data.action[3:5])
    assert np.isnan(values[[3, 6, 9], 3:]).all() and np.isnan(values).sum() == 6


def test_too_short_series_and_too_many_rows_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = log().select(np.array([0, 1, 3, 5, 6]))
    assert np.bincount(peer.series_of(data, data.action)[1]).tolist() == [3, 3]
    monkeypatch.setattr(peer, "MOST_ROWS", 1)
    assert np.bincount(peer.series_of(data, data.action)[1]).tolist() == [3]
    alone = data.select(np.array([0, 2]))
    assert peer.series_of(alone, alone.action)[0].shape == (0, 5)


def test_answers_become_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns x, y, a0, a1: `fixed` is not asked about, and the larger of the action's two numbers counts."""
    p = np.ones((4, 4))
    value = np.zeros((4, 4))
    p[0, 0], p[0, 3], p[1, 0], p[2, 1] = 0.0, 0.001, 0.02, 0.0
    value[0, 2], value[0, 3], value[1, 0] = -0.1, -0.4, 0.05
    monkeypatch.setattr(peer, "missing", lambda: None)
    monkeypatch.setattr(peer, "_run_program", lambda values, series: (p, value))
    result = peer.pcmci(log())
    expected = np.array([[1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 1, 0]], bool)
    np.testing.assert_array_equal(result.found, expected)
    np.testing.assert_array_equal(result.scores, [[0, 0, 0, 0.4], [0.05, 0, 0, 0], [0, 0, np.inf, 0]])


def test_of_three_choices_two_are_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []

    def program(values: np.ndarray, series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shapes.append(values.shape)
        return np.ones((4, 4)), np.zeros((4, 4))

    monkeypatch.setattr(peer, "missing", lambda: None)
    monkeypatch.setattr(peer, "_run_program", program)
    peer.pcmci(log(discrete=3))
    assert shapes == [(10, 4)]


def test_without_tigramite_a_line_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "python")
    monkeypatch.setenv(peer.INTERPRETER, nowhere)
    with pytest.raises(peer.NotRun, match="does not run"):
        peer.pcmci(log())
    options = discovery.Options(quick=True, models=(), worlds=("short",))
    result = discovery.main(options)
    assert [row["method"] for row in result["rows"]] == ["linear", "trees"]
    monkeypatch.setattr(calibration_run, "METHODS", {"pcmci": peer.pcmci})
    result = calibration.main(calibration.Options(quick=True, discovery=False))
    assert [row["method"] for row in result["rows"]] == ["self-edges"]
    assert capsys.readouterr().out.count(f"pcmci is skipped: {nowhere} does not run") == 2


def test_a_log_of_single_steps_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer, "missing", lambda: None)
    with pytest.raises(peer.NotRun, match="three states in a row"):
        peer.pcmci(log().select(np.array([0, 3])))


def test_a_program_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys; sys.exit('out of memory' if len(sys.argv) > 1 else 0)")
    monkeypatch.setattr(peer, "PROGRAM", program)
    monkeypatch.setenv(peer.INTERPRETER, sys.executable)
    peer._missing.cache_clear()
    with pytest.raises(DataError, match="PCMCI failed: out of memory"):
        peer.pcmci(log())
    peer._missing.cache_clear()


@pytest.mark.skipif(peer.missing() is not None, reason="needs an interpreter with tigramite")
def test_it_finds_a_linear_graph() -> None:
    data, _ = linear_gaussian(5, 3000, seed=1)
    assert data.truth is not None
    np.testing.assert_array_equal(peer.pcmci(data).found, data.truth)
