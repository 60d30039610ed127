"""The table of all kinds: `KINDS[name](seed)` is the log of a fresh system, with its graph and two rewards."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.calibration import echoes, fields, gym, handling, limits, machines, statistical, vessels
from benchmarks.calibration.system import Kind, kind_of, random_rewards, with_rewards
from benchmarks.systems import linear_gaussian, sparse_nonlinear
from cbm.data.transitions import Transitions


def sparse(d: int, seed: int, rows: int) -> Transitions:
    """d variables with one to three nonlinear causes each."""
    return _rewarded(sparse_nonlinear(d, rows, seed), seed)


def linear(seed: int, rows: int) -> Transitions:
    """Twelve variables, linear and Gaussian."""
    return _rewarded(linear_gaussian(12, rows, seed)[0], seed)


def offset(seed: int, rows: int) -> Transitions:
    """Ten nonlinear variables: one at 1e9 that moves by about 1, five in units of 1e-6, the others as they are.

    A float64 at 1e9 has steps of 1e-7, far below its noise of 0.2.
    """
    data = sparse_nonlinear(10, rows, seed)
    place = np.random.default_rng([seed, 64]).permutation(10)
    unit, origin = np.where(place < 5, 1e-6, 1.0), np.where(place == 9, 1e9, 0.0)
    return _rewarded(replace(data, obs=data.obs * unit + origin, next_obs=data.next_obs * unit + origin), seed)


def contact(seed: int, rows: int) -> Transitions:
    """ContactWorld with 43 variables in units of their own; its rewards are its tasks."""
    from benchmarks.discovery import make_data  # imports all of discovery, which the other kinds do not need

    return make_data("contact-hard", seed, rows)


def _rewarded(data: Transitions, seed: int) -> Transitions:
    return with_rewards(data, random_rewards(data.factors, seed), np.random.default_rng([seed, 65]))


KINDS: dict[str, Kind] = {
    "vehicle": kind_of(machines.vehicle),
    "heavy-tails": kind_of(statistical.heavy_tails),
    "closed-loop": kind_of(machines.building),
    "closed-loop-states": kind_of(machines.building_states),
    "rare-events": kind_of(machines.rare_events),
    "counts": kind_of(machines.factory),
    "chaotic": kind_of(fields.rings),
    "multiplicative": kind_of(fields.genes),
    "twin-sensors": kind_of(statistical.twin_sensors),
    "offset": Kind(offset),
    "modes": kind_of(statistical.modes),
    "slow-fast": kind_of(statistical.slow_fast),
    "cartpole-gym": gym.gym_kind(gym.CARTPOLE),
    "pendulum-gym": gym.gym_kind(gym.PENDULUM),
    "mountaincar-gym": gym.gym_kind(gym.MOUNTAIN_CAR),
    "acrobot-gym": gym.gym_kind(gym.ACROBOT),
    "pure-noise": kind_of(statistical.pure_noise),
    "short-500": Kind(lambda seed, rows: sparse(8, seed, rows), 500),
    "short-2500": kind_of(machines.vehicle, 2500),
    "wide": Kind(lambda seed, rows: sparse(100, seed, rows), 30_000),
    "linear": Kind(linear),
    "variance": kind_of(statistical.variance),
    "xor": kind_of(statistical.interaction),
    "clipped-control": kind_of(limits.controlled_arm),
    "overflow": kind_of(limits.tanks),
    "rounded": kind_of(limits.rounded),
    "harbour": kind_of(vessels.harbour),
    "gripper": kind_of(handling.gripper),
    "rare-counts": kind_of(handling.parcels),
    "buffers": kind_of(echoes.sticky_valve),
    "distances": kind_of(echoes.rover),
    "contact": Kind(contact),
}
