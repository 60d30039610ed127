"""Machines: a vehicle, a building under its thermostats, a plant with rare events, a factory with queues."""

from __future__ import annotations

import numpy as np
from scipy import stats

from benchmarks.calibration.system import (
    Reward,
    Rng,
    System,
    graph,
    memories,
    named,
    uniform_actions,
)
from cbm.data.factors import Factors, Variable


def vehicle(seed: int) -> System:
    """A bicycle model whose heading wraps; a battery, a gyroscope and an echo of the action; wind, drift and noise."""
    rng = np.random.default_rng([seed, 51])
    wheelbase, drag, pull = rng.uniform(1.5, 3), rng.uniform(0.1, 0.3), rng.uniform(2, 4)
    turn, draw = rng.uniform(0.2, 0.5), rng.uniform(0.02, 0.05)
    mixing = rng.normal(size=2)
    mixing /= np.linalg.norm(mixing)
    names = ["x", "y", "heading", "speed", "steering", "throttle", "battery", "gyro", "echo", "wind", "drift", "white"]

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        x, y, heading, speed, steering, throttle, battery, _, _, wind, drift, _ = state.T
        turning = speed * np.tan(steering) / wheelbase
        after = [
            x + 0.1 * speed * np.cos(heading),
            y + 0.1 * speed * np.sin(heading),
            heading + 0.1 * turning,
            speed + 0.1 * (pull * throttle - drag * speed * np.abs(speed)),
            steering + turn * (0.6 * action[:, 0] - steering),
            throttle + 0.2 * (action[:, 1] - throttle),
            0.97 * battery - draw * throttle**2,
            turning,
            np.tanh(action @ mixing),
            0.98 * wind,
            0.9 * drift,
            np.zeros(len(state)),
        ]
        scale = np.array([0.02, 0.02, 0.01, 0.05, 0.02, 0.05, 0.01, 0.1, 0.1, 0.1, 0.3, 1.0])
        following = np.stack(after, 1) + scale * rng.normal(size=state.shape)
        following[:, 2] = (following[:, 2] + np.pi) % (2 * np.pi) - np.pi
        return following

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = rng.normal(0, [2, 2, 1, 1, 0.2, 0.3, 0.2, 0.5, 0.5, 0.5, 0.7, 1.0], (copies, 12))
        state[:, 2] = rng.uniform(-np.pi, np.pi, copies)
        return state

    parents = {
        "x": "x heading speed", "y": "y heading speed", "heading": "heading speed steering",
        "speed": "speed throttle", "steering": "steering action", "throttle": "throttle action",
        "battery": "battery throttle", "gyro": "speed steering", "echo": "action", "wind": "wind", "drift": "drift",
    }  # fmt: skip
    rewards = {
        "eastward": Reward((2, 3), lambda s: s[:, 3] * np.cos(s[:, 2]), 0.1),
        "home": Reward((0, 1), lambda s: -np.hypot(s[:, 0], s[:, 1]), 0.1),
    }
    factors = named(names, 2, heading="angle")
    return System(factors, graph(names, parents), step, uniform_actions(2), start, 200, rewards)


def building(seed: int) -> System:
    """Six rooms that exchange heat, under one logged controller: the heaters are the action.

    Each of three thermostats heats when its room is below the set point; in 6 % of the rows it does the opposite,
    so a room's temperature and its heater's command are nearly one thing. Meters follow the commands.
    """
    return _building(seed, commanded=True)


def building_states(seed: int) -> System:
    """The same building, with the commands among the variables; the action is a ventilator with its own rule."""
    return _building(seed, commanded=False)


def _building(seed: int, commanded: bool) -> System:
    rng = np.random.default_rng([seed, 52, commanded])
    walls = np.zeros((6, 6))
    for i in range(6):
        walls[i, (i + 1) % 6] = walls[(i + 1) % 6, i] = rng.uniform(0.04, 0.1)
    leak = rng.uniform(0.02, 0.05, 6) * np.isin(np.arange(6), rng.choice(6, 3, replace=False))
    sunny, heated = rng.choice(6, 2, replace=False), np.sort(rng.choice(6, 3, replace=False))
    power, light = rng.uniform(0.5, 0.9, 3), rng.uniform(0.1, 0.2, 2)
    usual = _usual_warmth(walls, leak, (heated, power), (sunny, light))
    set_point = usual[heated] + rng.uniform(-0.3, 0.3, 3)
    rooms = [f"room{i}" for i in range(6)]
    rest = ["outside", "sun", "meter0", "meter1", "meter2", "co2", "lift"]
    names = [*rooms, *rest, *([] if commanded else ["heater0", "heater1", "heater2"])]
    d = len(names)

    def rule(state: np.ndarray, rng: Rng) -> np.ndarray:
        opposite = rng.random((len(state), 3)) < 0.06
        return ((state[:, heated] < set_point) ^ opposite).astype(float)

    def ventilate(state: np.ndarray, rng: Rng) -> np.ndarray:
        usual = np.clip((state[:, 11:12] - 0.5) / 1.5, 0, 1)  # opens with the CO2 of the air
        return np.where(rng.random(usual.shape) < 0.06, rng.random(usual.shape), usual)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        warmth, outside, sun, co2, lift = state[:, :6], state[:, 6], state[:, 7], state[:, 11], state[:, 12]
        heat = action if commanded else state[:, 13:16]
        change = warmth @ walls.T - warmth * walls.sum(1) + leak * (outside[:, None] - warmth)
        change[:, heated] += power * heat
        change[:, sunny] += light * sun[:, None]
        meters = 0.3 * state[:, 8:11] + heat + 0.1 * rng.normal(size=heat.shape)
        air = 0.1 + 0.9 * co2 + 0.2 * rng.normal(size=len(state))
        if not commanded:
            air = air - 0.4 * action[:, 0]
        parts = [
            warmth + change + 0.05 * rng.normal(size=warmth.shape),
            (0.1 + 0.99 * outside + 0.3 * rng.normal(size=len(state)))[:, None],
            np.maximum(0.95 * sun + 0.3 * rng.normal(size=len(state)), 0)[:, None],
            meters,
            air[:, None],
            (0.5 * lift + rng.normal(size=len(state)))[:, None],
        ]
        following = np.concatenate(parts, 1)
        return following if commanded else np.concatenate([following, rule(state, rng)], 1)

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = rng.normal(0, 1, (copies, d))
        state[:, :6] = usual + state[:, :6]
        state[:, 6] = 10 + 3 * state[:, 6]
        state[:, 7] = np.abs(state[:, 7])
        state[:, 13:] = state[:, 13:] > 0
        return state

    truth = np.eye(d, d + 1, dtype=bool)
    truth[:6, :6] |= walls > 0
    truth[:6, 6] = leak > 0
    truth[sunny, 7] = True
    if commanded:
        truth[heated, d] = truth[8:11, d] = True
    else:
        truth[11, d] = True
        for k in range(3):
            truth[[heated[k], 8 + k], 13 + k] = True
            truth[13 + k, 13 + k], truth[13 + k, heated[k]] = False, True
    room = int(heated[0])
    comfort = Reward((room,), lambda s: -np.abs(s[:, room] - set_point[0]), 0.05)
    bill = Reward((8, 9, 10), lambda s: -s[:, 8:11].sum(1), 0.05)
    factors = named(names, 3) if commanded else named(names, heater0="binary", heater1="binary", heater2="binary")
    act = rule if commanded else ventilate
    return System(factors, truth, step, act, start, 300, {"comfort": comfort, "bill": bill}, warm_up=100)


def _usual_warmth(
    walls: np.ndarray, leak: np.ndarray, heat: tuple[np.ndarray, np.ndarray], sun: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """(6,) where the rooms settle with every heater on half of the time: there all thermostats keep switching."""
    gain = 10.0 * leak  # of the mean temperature outside
    gain[heat[0]] += 0.5 * heat[1]
    gain[sun[0]] += 0.6 * sun[1]  # the mean of the sun
    return np.asarray(np.linalg.solve(np.diag(walls.sum(1) + leak) - walls, gain))


def rare_events(seed: int) -> System:
    """A valve that opens when pressure and temperature are both high, a breaker that trips: below 1 % of the rows."""
    rng = np.random.default_rng([seed, 53])
    names = [
        "pressure",
        "temperature",
        "valve",
        "tank",
        "load",
        "breaker",
        "pump",
        "echo",
        "n0",
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
    ]
    share, trips = rng.uniform(0.003, 0.01, 2)
    keep, push = rng.uniform(0.6, 0.9, 3), rng.uniform(0.3, 0.6, 2)
    spread = np.sqrt((np.array([push[0] ** 2, 0, push[1] ** 2]) / 3 + 0.3**2) / (1 - keep**2))
    high = stats.norm.isf(np.sqrt(share)) * spread[:2]  # both at once in that share of the rows
    overload = stats.norm.isf(trips) * spread[2]
    noises = memories(rng, 6)
    jump, trip = rng.uniform(1.5, 3, 2)

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        pressure, temperature, valve, tank, load, breaker, pump, _ = state[:, :8].T
        noise = rng.normal(size=state.shape)
        after = [
            keep[0] * pressure + push[0] * action[:, 0] + 0.3 * noise[:, 0],
            keep[1] * temperature + 0.3 * noise[:, 1],
            (pressure > high[0]) & (temperature > high[1]),
            0.8 * tank + jump * valve + 0.2 * noise[:, 3],
            keep[2] * load + push[1] * action[:, 1] + 0.3 * noise[:, 4],
            0.7 * breaker + trip * (load > overload) + 0.1 * noise[:, 5],
            0.5 * pump + 0.5 * action[:, 0] + 0.2 * noise[:, 6],
            action[:, 1] + 0.2 * noise[:, 7],
        ]
        return np.concatenate([np.stack(after, 1), noises * state[:, 8:] + noise[:, 8:]], 1)

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = rng.normal(0, 0.3, (copies, 14))
        state[:, 2] = 0
        return state

    parents = {
        "pressure": "pressure action", "temperature": "temperature", "valve": "pressure temperature",
        "tank": "tank valve", "load": "load action", "breaker": "breaker load", "pump": "pump action",
        "echo": "action",
    }  # fmt: skip
    truth = graph(names, parents | {f"n{k}": f"n{k}" for k in range(6) if noises[k]})
    rewards = {
        "level": Reward((3,), lambda s: -np.abs(s[:, 3]), 0.05),
        "calm": Reward((5, 6), lambda s: np.tanh(s[:, 6]) - s[:, 5], 0.05),
    }
    factors = named(names, 2, valve="binary")
    return System(factors, truth, step, uniform_actions(2), start, 200, rewards, warm_up=30)


def factory(seed: int) -> System:
    """Six queues of whole pieces; the action sends a worker to one of four machines; two machines break down.

    What a machine serves is a function of the present, and pieces are lost on the way to each queue independently,
    so that the next values are independent given the present, as the method assumes.
    """
    rng = np.random.default_rng([seed, 54])
    names = [*(f"queue{k}" for k in range(6)), "down4", "down5", "stock", "energy", "heat", "orders"]
    goes = np.array([*rng.permutation([2, 3]), *rng.permutation([4, 5]), 6, 6])  # 6: finished
    arrivals, base = np.zeros(6), np.zeros(6)
    arrivals[:2] = rng.uniform(2.0, 3.0, 2)
    good = rng.uniform(0.8, 0.95, 7)
    flow = arrivals.copy()
    for k in range(6):
        base[k] = max(np.round(flow[k] * (1.0 if k < 4 else 1.4)), 1)
        if goes[k] < 6:
            flow[goes[k]] += flow[k] * good[goes[k]]
    onto = np.eye(7)[goes]  # (6, 7)
    most = int(2 * (base.max() + 2))

    def step(state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        queues, down, stock = state[:, :6], state[:, 6:8], state[:, 8]
        capacity = base + 2.0 * (action[:, :1] == np.arange(6))
        capacity[:, 4:] = np.where(down == 1, 0, capacity[:, 4:])
        served = np.minimum(queues, capacity)
        sent = served @ onto  # (n, 7)
        kept = rng.random((len(state), 7, most)) < good[:, None]
        arrived = (kept & (np.arange(most) < sent[:, :, None])).sum(2)
        new = rng.poisson(arrivals, queues.shape)
        draws = rng.random((len(state), 2))
        demand, called = rng.poisson(3.0, len(state)), rng.poisson(2.0, len(state))
        noise = rng.normal(size=(len(state), 2))
        parts = [
            np.minimum(queues - served + arrived[:, :6] + new, 30),
            np.where(down == 1, draws < 0.7, draws < 0.1),
            np.clip(stock - demand + arrived[:, 6], 0, 40)[:, None],
            (served[:, :2].sum(1) + np.round(noise[:, 0]))[:, None],
            (0.9 * state[:, 10] + noise[:, 1])[:, None],
            called[:, None],
        ]
        return np.concatenate(parts, 1).astype(float)

    def start(copies: int, rng: Rng) -> np.ndarray:
        state = rng.poisson(6.0, (copies, 12)).astype(float)
        state[:, 6:8] = rng.random((copies, 2)) < 0.25
        state[:, 10] = rng.normal(0, 2, copies)
        return state

    truth = np.zeros((12, 13), bool)
    for k in range(6):
        effects = [k] + [int(goes[k]) if goes[k] < 6 else 8]
        truth[effects, k] = True
        if k < 4:
            truth[effects, 12] = True
        else:
            truth[effects, 2 + k] = True  # down4, down5
    truth[[6, 7, 8, 10], [6, 7, 8, 10]] = True
    truth[9, [0, 1, 12]] = True
    factors = Factors(
        tuple(Variable(name, "binary" if name.startswith("down") else "continuous") for name in names), ("worker",), 4
    )
    rewards = {
        "delivery": Reward((8,), lambda s: np.minimum(s[:, 8], 10), 0.1),
        "waiting": Reward((2, 4), lambda s: -(s[:, 2] + s[:, 4]), 0.5),
    }
    return System(
        factors, truth, step, lambda state, rng: rng.integers(0, 4, (len(state), 1)), start, 150, rewards, warm_up=30
    )
