"""Small logs of the benchmark: reproducible, usable, and with the graph they say they have."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from benchmarks.baselines import linear
from benchmarks.logs import LOGS, SHORT, cartpole, mixed, rooms, short


@pytest.mark.parametrize("name", LOGS)
def test_a_seed_makes_a_log(name: str) -> None:
    one, same, other = (LOGS[name](4000, seed) for seed in (0, 0, 1))
    assert len(one) == (4000 // SHORT if name == "short" else 4000)
    np.testing.assert_array_equal(one.next_obs, same.next_obs)
    assert not np.array_equal(one.next_obs, other.next_obs)
    assert (one.obs != one.next_obs).any(0).all(), "every variable moves"
    assert one.truth is not None and one.truth.shape == (len(one.factors), len(one.factors) + 1)
    assert one.truth.any(1).all(), "every variable has a cause"


def test_cartpole_is_that_of_gymnasium() -> None:
    data = cartpole(200, seed=3)
    world = gymnasium.make("CartPole-v1").unwrapped
    world.reset(seed=0)
    for before, action, after in zip(data.obs[:40], data.action[:40], data.next_obs[:40], strict=True):
        world.state, world.steps_beyond_terminated = before, None  # type: ignore[attr-defined]
        seen, *_ = world.step(int(np.ravel(action)[0]))
        np.testing.assert_allclose(seen, after, rtol=1e-5, atol=1e-6)


def test_rooms_are_linear_in_their_causes_and_in_nothing_else() -> None:
    data = rooms(50_000, seed=1)
    assert data.truth is not None
    np.testing.assert_array_equal(linear(data).found, data.truth)


def test_switch_gates_the_load() -> None:
    data = mixed(20_000, seed=2)
    lever, load, on = data.obs[:, 0], data.obs[:, 1], data.obs[:, 2]
    for switched, slope in ((0, 0.0), (1, 0.6)):
        rows = on == switched
        rest = data.next_obs[rows, 1] - 0.7 * load[rows]
        assert np.polyfit(lever[rows], rest, 1)[0] == pytest.approx(slope, abs=0.01)


def test_short_log_is_in_many_units() -> None:
    spread = short(100_000, seed=0).obs.std(0)
    assert spread.max() / spread.min() > 1e4
