"""Predictions on data the model has not seen: as good as the noise allows, and from the causes alone."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery import predict
from cbm.discovery.discover import Discovery, fit
from cbm.discovery.predict import Predictor, refine
from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)  # of a standard normal variable
NOISE = {"position": 0.01, "speed": 0.02, "radio": 0.05, "wind": 0.2}  # of the light world, standard deviations


@pytest.fixture(scope="module")
def found() -> Discovery:
    data = replace(collect(make_world("light"), 6000), rewards={}, truth_rewards={})
    return fit(data, workers=0)


@pytest.fixture(scope="module")
def predictor(found: Discovery) -> Predictor:
    assert found.predictor is not None
    return found.predictor


@pytest.fixture(scope="module")
def fresh() -> Transitions:
    return collect(make_world("light"), 4000, seed=99)


def test_error_is_close_to_the_noise(predictor: Predictor, fresh: Transitions) -> None:
    error = np.abs(predictor.step(fresh.obs, fresh.action) - fresh.next_obs).mean(0)
    still = np.abs(fresh.obs - fresh.next_obs).mean(0)
    for name, deviation in NOISE.items():
        i = fresh.factors.index(name)
        assert error[i] < 1.3 * MEAN_ABSOLUTE * deviation, (name, error[i], deviation)
        assert name == "wind" or error[i] < 0.5 * still[i], name  # the wind hardly moves but for its noise


def test_discrete_variables_are_predicted_exactly(predictor: Predictor, fresh: Transitions) -> None:
    light, countdown = fresh.factors.index("light"), fresh.factors.index("countdown")
    clear = np.abs(fresh.obs[:, countdown] - 0.1) > 0.02  # right at the edge the countdown decides by a hair
    predicted = predictor.step(fresh.obs, fresh.action)[:, light]
    assert set(np.unique(predicted)) == {0.0, 1.0}
    assert (predicted == fresh.next_obs[:, light])[clear].mean() > 0.995
    switches = clear & (fresh.obs[:, light] != fresh.next_obs[:, light])
    assert switches.sum() > 50 and (predicted == fresh.next_obs[:, light])[switches].mean() > 0.95


def test_rollout_is_step_after_step(predictor: Predictor, fresh: Transitions) -> None:
    obs, actions = fresh.obs[::100], fresh.action.reshape(-1, 100, 2)[:, :6]
    states = predictor.rollout(obs, actions)
    assert states.shape == (len(obs), 6, fresh.obs.shape[1])
    for t in range(6):
        obs = predictor.step(obs, actions[:, t])
        assert np.array_equal(states[:, t], obs)


def test_rows_are_predicted_independently_of_how_many_there_are(predictor: Predictor, fresh: Transitions) -> None:
    whole = predictor.step(fresh.obs, fresh.action)
    assert np.allclose(predictor.step(fresh.obs[2040:2060], fresh.action[2040:2060]), whole[2040:2060], atol=1e-5)
    assert predictor.step(fresh.obs[:0], fresh.action[:0]).shape == (0, fresh.obs.shape[1])


def test_input_arrays_are_left_alone(predictor: Predictor, fresh: Transitions) -> None:
    obs, action = fresh.obs.copy(), fresh.action.copy()
    predictor.step(obs, action)
    assert np.array_equal(obs, fresh.obs) and np.array_equal(action, fresh.action)


def test_irrelevant_inputs_change_nothing(found: Discovery, predictor: Predictor, fresh: Transitions) -> None:
    rng = np.random.default_rng(0)
    truth = found.graph.adjacency
    clean = predictor.step(fresh.obs, fresh.action)
    for i, name in enumerate(fresh.factors.names):
        noisy = np.where(truth[i, :-1], fresh.obs, rng.normal(0, 100, fresh.obs.shape))
        action = fresh.action if truth[i, -1] else rng.normal(0, 100, fresh.action.shape)
        assert np.array_equal(predictor.step(noisy, action)[:, i], clean[:, i]), name
        assert not truth[i].all()


def _dial(rows: int, seed: int) -> Transitions:
    """An angle turned by a discrete action (back, stay, forward), through all full turns."""
    rng = np.random.default_rng(seed)
    n = rows // 20
    angle = rng.uniform(-np.pi, np.pi, n)
    rows_of: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for _ in range(20):
        action = rng.integers(3, size=n)
        turned = angle + 0.5 * (action - 1) + rng.normal(0, 0.05, n)
        following = (turned + np.pi) % (2 * np.pi) - np.pi
        rows_of.append((angle, action, following))
        angle = following
    obs, act, after = (np.stack(part, 1).reshape(-1, 1) for part in zip(*rows_of, strict=True))
    factors = Factors((Variable("dial", "angle"),), ("turn",), discrete_actions=3)
    return Transitions(obs, act, after, factors, episode=np.repeat(np.arange(n), 20))


def test_angles_and_discrete_actions() -> None:
    predictor = fit(_dial(8000, 0), settings=preset("debug"), workers=0).predictor
    assert predictor is not None
    fresh = _dial(2000, 1)
    predicted = predictor.step(fresh.obs, fresh.action)
    error = (predicted - fresh.next_obs + np.pi) % (2 * np.pi) - np.pi
    assert np.abs(error).mean() < 1.5 * MEAN_ABSOLUTE * 0.05
    assert np.abs(predicted).max() <= np.pi + 1e-9


@pytest.mark.parametrize("width", [0.5, 0.8, 1.2])
def test_refine_finds_the_top_of_a_smooth_curve(width: float) -> None:
    """Bells of some widths, in steps of the grid, around random centres; a dense search gives the top."""
    knots = 65
    centre = torch.rand(1, 400, generator=torch.Generator().manual_seed(0)) * 50 + 7
    scores = -((torch.arange(knots) - centre[..., None]) ** 2) / (2 * width**2)
    dense = torch.linspace(0, knots - 1, 64_001)
    top = torch.stack([dense[(-((dense - c) ** 2)).argmax()] for c in centre[0]])
    refined = refine(scores)[0] * (knots - 1)
    on_grid = scores.argmax(-1)[0]
    error, coarse = (refined - top).abs(), (on_grid - top).abs()
    assert error.max() <= 0.5 and error.mean() < (0.2 if width < 1 else 0.5) * coarse.mean()


def test_refine_on_skewed_and_flat_curves_stays_near_the_winner() -> None:
    generator = torch.Generator().manual_seed(1)
    coarse = 3 * torch.randn(3, 50, 9, generator=generator)
    scores = torch.nn.functional.interpolate(coarse, 65, mode="linear", align_corners=True)
    refined = refine(scores)
    assert refined.shape == (3, 50) and float(refined.min()) >= 0 and float(refined.max()) <= 1
    assert float((refined * 64 - scores.argmax(-1)).abs().max()) <= predict.WINDOW
    assert torch.allclose(refine(scores + 7.0), refined, atol=1e-5)


def test_refine_at_the_ends_of_the_interval() -> None:
    steep = torch.linspace(0, 300, 65).expand(1, 1, 65)
    assert float(refine(steep)[0, 0]) == pytest.approx(1, abs=1e-3)
    assert float(refine(steep.flip(-1))[0, 0]) == pytest.approx(0, abs=1e-3)
