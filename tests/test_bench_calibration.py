"""The calibration benchmark counts rightly, goes on where it was stopped, and its baselines find what they can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.calibration import Options, main, run
from benchmarks.calibration.baselines import METHODS, Hats, Regression
from benchmarks.calibration.counts import count_edges, count_states, self_edges, state_bounds
from benchmarks.calibration.kinds import KINDS
from benchmarks.pcmci import missing
from benchmarks.systems import linear_gaussian
from cbm.data.transitions import Transitions
from cbm.errors import DataError

E, N, U = "edge", "none", "undecided"
TRUTH = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]], bool)  # 1 -> 0, the action -> 0
REWARD = {"r": np.array([True, False, False])}  # needs 0 and 1


def edges_as(truth: np.ndarray) -> np.ndarray:
    return np.where(truth, E, N).astype("<U9")


def test_edges_are_counted() -> None:
    verdict = edges_as(TRUTH)
    verdict[0, 1], verdict[0, 3], verdict[2, 0], verdict[2, 2] = U, N, E, U
    counts = count_edges(verdict, TRUTH)
    assert counts["f1"] == pytest.approx(2 * 2 / (3 + 4))
    assert (counts["claimed_edges"], counts["false_edges"]) == (3, 1)
    assert (counts["claimed_nones"], counts["wrong_nones"]) == (7, 1)
    assert (counts["undecided_true"], counts["undecided_false"]) == (1, 1)
    assert counts["undecided_share"] == pytest.approx(2 / 12)
    assert count_edges(verdict, TRUTH, TRUTH)["f1"] == 1 and count_edges(verdict, TRUTH, TRUTH)["f1_claimed"] < 1
    assert count_edges(self_edges(3), TRUTH)["f1"] == pytest.approx(2 * 2 / (3 + 4))


def test_bounds_of_a_state_follow_certain_and_possible_edges() -> None:
    verdict = edges_as(TRUTH)
    verdict[0, 1] = U
    certain, possible = state_bounds(verdict, np.array([E, N, U]))
    assert certain.tolist() == [True, False, False] and possible.tolist() == [True, True, True]


@pytest.mark.parametrize(
    ("cell", "verdict", "reward", "outcome", "lacking"),
    [
        ((0, 1), E, [E, N, N], "right", 0),
        ((0, 1), U, [E, N, N], "undecided", 0),
        ((0, 1), E, [E, N, U], "undecided", 0),
        ((0, 1), N, [E, N, N], "wrong", 1),  # a needed variable is missing, and nothing says so
        ((0, 1), N, [N, N, N], "wrong", 1),
        ((0, 2), E, [E, N, N], "wrong", 0),  # a variable that is not needed is certain
        ((0, 2), U, [E, N, N], "undecided", 0),
    ],
)
def test_states_are_counted(cell: tuple[int, int], verdict: str, reward: list[str], outcome: str, lacking: int) -> None:
    verdicts = edges_as(TRUTH)
    verdicts[cell] = verdict
    counts = count_states(verdicts, {"r": np.array(reward)}, TRUTH, REWARD)
    assert counts[f"states_{outcome}"] == 1 and counts["states_lacking"] == lacking
    assert sum(counts[f"states_{name}"] for name in ("right", "wrong", "undecided")) == 1


def oracle(calls: list[Any]) -> Callable[..., Any]:
    """A discovery that knows the truth of vehicles and is undecided about everything else that it is asked."""

    def fake(data: Transitions, *, settings: Any, seed: int, workers: int = 1) -> Any:
        assert data.truth is None and not data.truth_rewards, "the truth is not shown"
        calls.append((seed, workers))
        d = len(data.factors)
        known = KINDS["vehicle"](seed, 200) if "heading" in data.factors.names else None
        if known is None or known.truth is None:
            rewards = {name: SimpleNamespace(verdict=np.full(d, U)) for name in data.rewards}
            nothing = np.zeros((d, d + 1), bool)
            return SimpleNamespace(verdict=np.full((d, d + 1), U), adjacency=nothing, rewards=rewards)
        rewards = {name: SimpleNamespace(verdict=edges_as(parents)) for name, parents in known.truth_rewards.items()}
        return SimpleNamespace(verdict=edges_as(known.truth), adjacency=known.truth, rewards=rewards)

    return fake


def test_rows_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(run, "discover", oracle(calls))
    options = Options(
        kinds=("vehicle", "xor"), seeds=(0, 1), seed=2, rows_scale=0.01, baselines=False, workers=2,
        out=tmp_path / "calibration.csv",
    )  # fmt: skip
    first, again = main(options), main(options)
    assert calls == [(2, 2), (3, 2)] * 2 and first["rows"] == again["rows"] and len(first["rows"]) == 8
    vehicle, xor = (next(row for row in first["rows"] if row["kind"] == kind) for kind in options.kinds)
    assert vehicle["f1"] == 1 and vehicle["states_right"] == 2 and vehicle["transitions"] == 600
    assert xor["undecided_share"] == 1 and xor["states_undecided"] == 2 and xor["claimed_edges"] == 0
    ours, trivial = first["totals"]
    assert ours["method"] == "cbm" and ours["mean_f1"] == 0.5 and ours["states_right"] == 0.5
    assert ours["false_among_edges"] == ours["wrong_among_nones"] == ours["states_lacking"] == 0
    assert trivial["method"] == "self-edges" and trivial["states_right"] is None
    assert {(mean["kind"], mean["method"], mean["seeds"]) for mean in first["means"]} == {
        (kind, method, 2) for kind in options.kinds for method in ("cbm", "self-edges")
    }


def test_discovery_without_workers_is_called_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(data: Transitions, *, settings: Any, seed: int) -> Any:
        return oracle([])(data, settings=settings, seed=seed)

    monkeypatch.setattr(run, "discover", fake)
    result = main(Options(quick=True, baselines=False, workers=3))
    assert [row["kind"] for row in result["rows"]] == ["short-500"] * 2


@pytest.mark.parametrize(
    "options", [Options(kinds=("nonsense",)), Options(rows_scale=0), Options(workers=0, kinds=("xor",))]
)
def test_nonsense_is_refused(options: Options) -> None:
    with pytest.raises(DataError):
        main(options)


@pytest.mark.parametrize("method", METHODS)
def test_baselines_find_a_linear_graph(method: str) -> None:
    data, _ = linear_gaussian(5, 3000, seed=1)
    assert data.truth is not None
    if method == "pcmci" and missing():
        pytest.skip("needs an interpreter with tigramite")
    result = METHODS[method](data, 0)
    assert result.found.shape == data.truth.shape
    counts = count_edges(np.where(result.found, E, N), data.truth)
    assert counts["f1"] > 0.9


def test_leaving_out_an_input_equals_a_fit_without_it() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 6))
    owner = np.array([0, 0, 1, 1, 2, 2])
    targets = features @ rng.normal(size=(6, 2)) + rng.normal(size=(500, 2))
    targets -= targets.mean(0)
    less = Regression.fit(features, owner, targets).without(1)
    kept = owner != 1
    direct = Regression.fit(features[:, kept], owner[kept], targets)
    np.testing.assert_allclose(less.weights[kept], direct.weights, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(less.deviation, direct.deviation, rtol=1e-6)
    assert (less.weights[~kept] == 0).all()


def test_hats_follow_any_line_and_its_ends() -> None:
    column = np.random.default_rng(0).normal(size=400)
    hats = Hats.fit(column)
    features = hats(column)
    assert features.shape == (400, hats.size)
    design = np.concatenate([features, np.ones((400, 1))], 1)
    fitted = design @ np.linalg.lstsq(design, 3 * column - 1, rcond=None)[0]
    np.testing.assert_allclose(fitted, 3 * column - 1, atol=1e-9)
    assert Hats.fit(np.zeros(50))(np.zeros(50)).shape == (50, 1)
