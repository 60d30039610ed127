"""Errors of prediction over many steps: known answers for simple predictors, and models from a finished discovery."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.data.transitions import Transitions
from cbm.discovery.discover import discover, fit
from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.learning.prediction import STRANGE, prediction_errors, stored


class Fake:
    """Predicts that nothing changes, but for one variable that it takes from another."""

    def __init__(self, taken: tuple[int, int] | None = None):
        self.taken = taken
        self.starts: list[np.ndarray] = []

    def rollout(self, obs: np.ndarray, actions: np.ndarray) -> np.ndarray:
        self.starts.append(obs)
        states = np.repeat(obs[:, None], actions.shape[1], axis=1)
        if self.taken is not None:
            states[:, :, self.taken[0]] = obs[:, None, self.taken[1]]
        return states


@pytest.fixture(scope="module")
def log() -> Transitions:
    return collect(make_world("contact"), 2000, seed=3)


def _errors(predictor: Any, log: Transitions, **options: Any) -> list[dict[str, Any]]:
    return prediction_errors(predictor, log, seed=0, **options)


def test_nothing_changes(log: Transitions) -> None:
    rows = _errors(Fake(), log)
    assert [row["steps"] for row in rows] == list(range(1, 21))
    assert all(row["in"] == row["out"] == row["still"] for row in rows)  # distractors do not count
    assert rows[0]["still"] < rows[4]["still"] < rows[19]["still"]  # things move on
    unit = np.std(log.next_obs - log.obs, axis=0)
    moving = [i for i, name in enumerate(log.factors.names) if unit[i] > 0 and name[:2] not in ("cd", "ud")]
    assert len(moving) == 13  # a hand, a gripper and three blocks
    every = (np.abs(log.next_obs - log.obs) / np.where(unit > 0, unit, 1))[:, moving].mean()
    assert _errors(Fake(), log, starts=10**6)[0]["still"] == pytest.approx(every, rel=0.1)


def test_only_distractors_are_replaced(log: Transitions) -> None:
    fake = Fake()
    _errors(fake, log)
    usual, strange = fake.starts
    meant = np.array([name[:2] in ("cd", "ud") for name in log.factors.names])
    assert (usual[:, ~meant] == strange[:, ~meant]).all()
    assert abs(strange[:, meant].std() / STRANGE - 1) < 0.05


def test_who_looks_at_a_distractor_pays(log: Transitions) -> None:
    hand, distractor = log.factors.index("hand_x"), log.factors.index("ud3")
    row = _errors(Fake((hand, distractor)), log)[0]
    unit = np.std(log.next_obs - log.obs, axis=0)[hand]
    # a thirteenth of the variables is off by |N(0, 100)|
    assert row["out"] == pytest.approx(STRANGE * np.sqrt(2 / np.pi) / unit / 13, rel=0.1)
    assert row["in"] < 0.05 * row["out"]


def test_rows_need_not_come_in_order(log: Transitions) -> None:
    """Copies stepped at once take turns in a replay."""
    shuffled = log.select(np.argsort(np.arange(len(log)) % 50, kind="stable"))
    one, two = Fake(), Fake()
    assert _errors(one, log) == _errors(two, shuffled)
    assert (one.starts[0] == two.starts[0]).all()


def test_short_episodes_bound_the_steps(log: Transitions) -> None:
    cut = log.select(np.arange(len(log)) % 50 < 7)
    assert [row["steps"] for row in _errors(Fake(), cut)] == list(range(1, 8))


@pytest.mark.slow
def test_the_model_of_a_finished_discovery(tmp_path: Path) -> None:
    data = collect(make_world("light"), 1000)
    settings = replace(preset("debug"), prediction_updates=40)
    discover(data, settings=settings, seed=4, run=tmp_path, workers=0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = stored(tmp_path, data)
    assert found is not None and found.model == "implicit"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    expected = fit(data, settings=settings, seed=4, workers=0).predictor
    assert expected is not None
    assert (found.predictor.step(data.obs, data.action) == expected.step(data.obs, data.action)).all()
    assert not set(found.held.episode) & set(found.train.episode)
    assert stored(tmp_path, collect(make_world("light"), 1000, seed=1)) is None  # another log
    (tmp_path / "result.json").unlink()
    assert stored(tmp_path, data) is None  # not finished


def test_a_discovery_that_is_not_settled_has_no_model(tmp_path: Path) -> None:
    data = collect(make_world("light"), 600)
    discover(data, steps=2, settings=preset("debug"), run=tmp_path, workers=0)
    assert (tmp_path / "result.json").exists() and stored(tmp_path, data) is None
