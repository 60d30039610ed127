"""Coordinates of predicted variables, and the choice between predicting a value and its change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cbm.data.factors import Factors, Kind, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.settings import ATOM, SELF_MEMORY
from cbm.discovery.targets import TABLE, Coordinate, Target, action_columns, change, self_memory

Sample = Callable[[np.random.Generator, int], np.ndarray]


def _mostly_still(rng: np.random.Generator, n: int) -> np.ndarray:
    """Half the rows did not move."""
    return np.where(rng.random(n) < 0.5, 0.0, rng.normal(0, 2, n))


SAMPLES: dict[str, Sample] = {
    "normal": lambda rng, n: rng.normal(3, 0.1, n),
    "heavy tails": lambda rng, n: rng.standard_t(1.5, n),
    "lognormal": lambda rng, n: np.exp(2 * rng.normal(size=n)),
    "mostly still": _mostly_still,
    "clipped": lambda rng, n: np.clip(rng.normal(size=n), -0.5, 1.0),
    "integers": lambda rng, n: rng.poisson(20, n).astype(float),
    "constant": lambda rng, n: np.full(n, 7.0),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_coordinate_fills_the_interval_and_keeps_order(name: str) -> None:
    rng = np.random.default_rng(0)
    sample = SAMPLES[name](rng, 5000)
    coordinate = Coordinate.fit(sample)
    u, width = coordinate.forward(np.sort(sample))
    assert u.min() >= 0 and (u + width).max() <= 1
    assert (np.diff(u) >= -1e-12).all() and (np.diff(u + width) >= -1e-12).all()
    if len(np.unique(sample)) > 100:  # scale-free: whatever the tails, no part of the interval stays empty
        share = np.histogram(u + width / 2, np.linspace(u.min(), (u + width).max(), 9))[0] / len(sample)
        wide = (np.histogram(u, 8, weights=width)[0] > 0).any()
        assert wide or share[share > 0].max() < 0.6


@pytest.mark.parametrize("name", SAMPLES)
def test_coordinate_keeps_order_of_values_it_was_not_fitted_on(name: str) -> None:
    """Held-out values fall between the support points, right beside an atom too."""
    rng = np.random.default_rng(0)
    sample = SAMPLES[name](rng, 300)
    low, high = sample.min(), sample.max()
    grid = np.unique(np.concatenate([np.linspace(low, high, 3001), sample, (sample + 1e-9).clip(max=high)]))
    u, width = Coordinate.fit(sample).forward(grid)
    assert u.min() >= 0 and (u + width).max() <= 1
    assert (np.diff(u) >= -1e-12).all()
    assert (u[1:] >= (u + width)[:-1] - 1e-12).all()  # nothing lands inside the interval of an atom


def test_atoms_get_intervals_of_half_their_share() -> None:
    rng = np.random.default_rng(1)
    sample = np.concatenate([np.zeros(3000), np.ones(1000), rng.normal(5, 1, 6000)])
    u, width = Coordinate.fit(sample).forward(np.array([0.0, 1.0, 5.0]))
    assert width[0] == pytest.approx(0.15) and width[1] == pytest.approx(0.05) and width[2] == 0
    assert u[0] + width[0] <= u[1] and u[1] + width[1] <= u[2]
    rare = np.concatenate([np.zeros(int(ATOM * 10_000)), rng.normal(5, 1, 10_000)])
    assert Coordinate.fit(rare).forward(np.zeros(1))[1][0] == 0  # just too rare to count as discrete


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in ("integers", "constant")])
def test_inverse_table_leads_back(name: str) -> None:
    """To the value itself for atoms, within one step of the table otherwise."""
    rng = np.random.default_rng(2)
    sample = SAMPLES[name](rng, 4000)
    coordinate = Coordinate.fit(sample)
    table = coordinate.inverse_table()
    assert table.shape == (TABLE,) and (np.diff(table) >= 0).all()
    u, width = coordinate.forward(sample)
    back = np.interp(u + width / 2, np.linspace(0, 1, TABLE), table)
    step = np.floor((u + width / 2) * (TABLE - 1)).astype(int)
    slack = 1e-9 * np.ptp(sample)
    for found in (back, sample):  # both within one step of the table
        assert (found >= table[step] - slack).all()
        assert (found <= table[np.minimum(step + 1, TABLE - 1)] + slack).all()
    atoms = width > 4 / TABLE
    assert np.array_equal(back[atoms], sample[atoms])


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(("scale", "offset"), [(1000.0, 100.0), (1e-4, 0.0), (3.0, -1e4)])
def test_scale_and_offset_change_nothing(name: str, scale: float, offset: float) -> None:
    sample = SAMPLES[name](np.random.default_rng(3), 3000)
    # a step far above rounding keeps equal values equal, and unequal ones unequal, under the map
    step = 2.0**-20 * max(np.ptp(sample), 1.0)
    sample = np.round(sample / step) * step
    moved = sample * scale + offset
    for discrete in (False, True):
        u, width = Coordinate.fit(sample, discrete).forward(sample)
        v, moved_width = Coordinate.fit(moved, discrete).forward(moved)
        assert np.abs(u - v).max() < 1e-9 and np.abs(width - moved_width).max() < 1e-9


def test_discrete_targets_share_out_the_interval() -> None:
    sample = np.repeat([2.0, 5.0, 9.0], [10, 60, 30])
    coordinate = Coordinate.fit(sample, discrete=True)
    u, width = coordinate.forward(np.array([2.0, 5.0, 9.0]))
    assert np.allclose(width, [0.05 + 1 / 6, 0.3 + 1 / 6, 0.15 + 1 / 6])
    assert np.allclose(u, [0, width[0], width[0] + width[1]]) and u[2] + width[2] == pytest.approx(1)
    target = Target(0, "categorical", False, coordinate)
    assert target.levels == 3
    assert target.level_of(np.array([2.0, 5.0, 9.0, 3.0, 8.9, -4.0, 99.0])).tolist() == [0, 1, 2, 0, 2, 0, 2]
    number = Target(0, "continuous", False, Coordinate.fit(sample))
    assert number.levels == 0 and not number.level_of(sample).any()


def test_change_of_an_angle_takes_the_short_way() -> None:
    before, after = np.array([3.1, -3.1, 0.5]), np.array([-3.1, 3.1, 0.4])
    short = 2 * np.pi - 6.2
    assert np.allclose(change(before, after, "angle"), [short, -short, -0.1])
    assert np.allclose(change(before, after, "continuous"), [-6.2, 6.2, -0.1])


def test_discrete_actions_become_indicators() -> None:
    action = np.array([[2], [0], [1]])
    assert action_columns(action, 3).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert action_columns(action.astype(float), None).tolist() == [[2], [0], [1]]


# Value or change


def _log(autocorrelated: bool, seed: int = 0, scale: float = 1.0, offset: float = 0.0) -> Transitions:
    """Names say how each variable moves; 100 episodes of 50 steps."""
    rng = np.random.default_rng(seed)
    n, names = 100, ("walk", "ar", "fresh", "copy", "obeys", "angle", "flag", "still")
    kinds: dict[str, Kind] = {"angle": "angle", "flag": "binary"}
    state = rng.normal(size=(n, len(names)))
    state[:, 6] = rng.integers(2, size=n)
    action = rng.normal(size=(n, 2))
    rows = []
    for _ in range(50):
        fresh = rng.normal(size=(n, 2))
        action = 0.95 * action + np.sqrt(1 - 0.95**2) * fresh if autocorrelated else fresh
        noise = rng.normal(size=(n, len(names)))
        after = np.stack([
            state[:, 0] + 0.3 * noise[:, 0],
            0.95 * state[:, 1] + np.sqrt(1 - 0.95**2) * noise[:, 1],
            noise[:, 2],
            state[:, 0] + noise[:, 3],
            np.tanh(action[:, 0]) + 0.1 * noise[:, 4],
            (state[:, 5] + 0.4 * action[:, 1] + 0.1 * noise[:, 5] + np.pi) % (2 * np.pi) - np.pi,
            np.where(rng.random(n) < 0.1, 1 - state[:, 6], state[:, 6]),
            state[:, 7],
        ], 1)  # fmt: skip
        rows.append((state, action, after))
        state = after
    obs, act, following = (np.stack(part, 1).reshape(n * 50, -1) for part in zip(*rows, strict=True))
    factors = Factors(tuple(Variable(name, kinds.get(name, "continuous")) for name in names), ("a0", "a1"))
    unit = np.where(np.isin(names, ["angle", "flag"]), 1.0, scale)
    shift = np.where(np.isin(names, ["angle", "flag"]), 0.0, offset)
    return Transitions(obs * unit + shift, act, following * unit + shift, factors, episode=np.repeat(np.arange(n), 50))


@pytest.mark.parametrize("autocorrelated", [False, True])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1000.0, 100.0)])
def test_change_is_predicted_where_a_variable_remembers(autocorrelated: bool, scale: float, offset: float) -> None:
    data = _log(autocorrelated, scale=scale, offset=offset)
    memory = dict(zip(data.factors.names, self_memory(data), strict=True))
    changes = {name for name, value in memory.items() if value > SELF_MEMORY}
    assert {"walk", "ar", "angle"} <= changes <= {"walk", "ar", "angle", "still"}, memory
    assert memory["flag"] == -np.inf
    assert memory["fresh"] < 0 and memory["obeys"] < SELF_MEMORY / 2


def test_self_memory_of_an_autoregression_has_the_textbook_value() -> None:
    """With no other cause: log(std of the value / std of the change) = -log(2 (1 - rho)) / 2."""
    memory = self_memory(_log(False, seed=5))
    assert memory[1] == pytest.approx(-0.5 * np.log(2 * (1 - 0.95)), abs=0.1)
    assert memory[2] == pytest.approx(-0.5 * np.log(2), abs=0.05)
