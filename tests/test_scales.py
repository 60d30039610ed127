"""The scale of a variable: logarithmic where its scatter grows with it, its own otherwise; the graph is the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.scales import logarithmic, on_even_scales

ROWS = 4000


def _log(seed: int = 0) -> Transitions:
    """even: additive noise far from zero. grows: noise in proportion. signed: both signs. count: a few levels."""
    rng = np.random.default_rng(seed)
    even, grows, signed, kind = (
        rng.normal(10, 1, ROWS),
        rng.lognormal(0, 1, ROWS),
        rng.normal(size=ROWS),
        rng.integers(1, 4, ROWS),
    )
    after = [
        10 + 0.8 * (even - 10) + 0.5 * rng.normal(size=ROWS),
        grows**0.7 * np.exp(0.5 * rng.normal(size=ROWS)),
        0.5 * signed + np.log(grows) + rng.normal(size=ROWS),
        np.where(rng.random(ROWS) < 0.5, kind, rng.integers(1, 4, ROWS)),
    ]
    names = Factors(
        (Variable("even"), Variable("grows"), Variable("signed"), Variable("kind", "categorical")), ("push",)
    )
    return Transitions(
        factors=names, obs=np.stack([even, grows, signed, kind], 1).astype(float), action=rng.normal(size=(ROWS, 1)),
        next_obs=np.stack(after, 1).astype(float), episode=np.arange(ROWS) // 50,
    )  # fmt: skip


def test_only_what_scatters_in_proportion() -> None:
    assert logarithmic(_log()).tolist() == [False, True, False, False]


def test_units_do_not_matter() -> None:
    data = _log()
    unit = np.array([1e6, 1e-6, 3.0, 1.0])
    assert (logarithmic(replace(data, obs=data.obs * unit, next_obs=data.next_obs * unit)) == logarithmic(data)).all()


def test_the_log_itself_is_left_alone() -> None:
    data = _log()
    before = data.obs.copy()
    scaled = on_even_scales(data)
    assert (data.obs == before).all()
    np.testing.assert_array_equal(scaled.obs[:, 1], np.log(before[:, 1]))
    np.testing.assert_array_equal(scaled.obs[:, [0, 2, 3]], before[:, [0, 2, 3]])


def test_nothing_positive_nothing_copied() -> None:
    data = _log()
    centred = replace(data, obs=data.obs - 20, next_obs=data.next_obs - 20)
    assert on_even_scales(centred) is centred
