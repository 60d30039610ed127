"""Variables that wrap are angles, whatever their unit; what is reset from here and there is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cbm
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.wraps import as_angles, period_of

ROWS = 6000


def _steps(path: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return path[:-1], path[1:]


@pytest.mark.parametrize(
    "low,period", [(-np.pi, 2 * np.pi), (0.0, 2 * np.pi), (-180.0, 360.0), (0.0, 24.0), (3.0, 7.7)]
)
def test_a_heading_in_any_unit(low: float, period: float) -> None:
    rng = np.random.default_rng(0)
    turned = np.cumsum(0.02 + 0.1 * rng.normal(size=ROWS)) * period / (2 * np.pi)
    assert period_of(*_steps(low + turned % period)) == pytest.approx(period, rel=2e-3)


def test_a_clock_that_counts() -> None:
    assert period_of(*_steps(np.arange(ROWS) % 48.0)) == 48.0


@pytest.mark.parametrize("kind", ["walk", "noise", "reset", "switch"])
def test_what_does_not_wrap(kind: str) -> None:
    rng = np.random.default_rng(1)
    path = {
        "walk": np.cumsum(rng.normal(size=ROWS)),
        "noise": rng.uniform(-np.pi, np.pi, ROWS),
        "reset": _filled(rng),
        "switch": 5.0 * (rng.random(ROWS) < 0.1),
    }[kind]
    assert period_of(*_steps(path)) == 0.0


def _filled(rng: np.random.Generator) -> np.ndarray:
    """A tank that fills slowly and is emptied whenever somebody likes."""
    level = np.zeros(ROWS)
    for t in range(1, ROWS):
        level[t] = 0.0 if rng.random() < 0.02 else level[t - 1] + rng.uniform(0.5, 1.5)
    return level


def _boat(seed: int = 0) -> Transitions:
    """A wind that turns a boat by the sine of the angle between them; both are logged in degrees."""
    rng = np.random.default_rng(seed)
    copies, steps = 60, 100
    heading, wind, speed = (rng.uniform(0, 360, copies) for _ in range(3))
    rows: list[tuple[np.ndarray, ...]] = []
    for _ in range(steps):
        push = rng.normal(size=copies)
        after = (
            (heading + 20 * speed / 360 + rng.normal(size=copies)) % 360,
            (wind + 8 * rng.normal(size=copies)) % 360,
            100 * np.sin(np.deg2rad(wind - heading)) + 20 * push + 5 * rng.normal(size=copies),
        )
        rows.append((np.stack([heading, wind, speed], 1), push[:, None], np.stack(after, 1)))
        heading, wind, speed = after
    obs, action, following = (np.stack(part, 1).reshape(copies * steps, -1) for part in zip(*rows, strict=True))
    factors = Factors((Variable("heading"), Variable("wind"), Variable("speed")), ("push",))
    return Transitions(obs, action, following, factors, episode=np.repeat(np.arange(copies), steps))


def test_the_log_itself_is_left_alone() -> None:
    data = _boat()
    seen = as_angles(data)
    assert seen.factors.kinds == ("angle", "angle", "continuous") and data.factors.kinds == ("continuous",) * 3
    np.testing.assert_allclose(seen.obs[:, 0], np.deg2rad(data.obs[:, 0]))
    np.testing.assert_array_equal(seen.obs[:, 2], data.obs[:, 2])
    assert as_angles(replace(data, obs=data.obs[:50], next_obs=data.next_obs[:50], action=data.action[:50],
                             episode=data.episode[:50])).factors.kinds == data.factors.kinds  # fmt: skip


def test_what_acts_through_the_angle_between_two_is_found() -> None:
    graph = cbm.discover(_boat(), workers=1)
    assert graph.verdict.tolist() == [
        ["edge", "none", "edge", "none"], ["none", "edge", "none", "none"], ["edge", "edge", "none", "edge"],
    ]  # fmt: skip
