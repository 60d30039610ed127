"""What every world offers beside steps and rewards: hidden state, context, success, interventions, ranges."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from cbm.data.factors import Factors, Variable
from cbm.envs import make_world
from cbm.envs.contact import GOAL, ContactWorld
from cbm.envs.gym import GymWorld
from cbm.envs.light import LightWorld
from cbm.envs.world import Policy, Rng, WorldBase
from cbm.errors import DataError

HARD: dict[str, Any] = {"blocks": 4, "distractors": 12, "rescale": True}


class Hidden(WorldBase):
    """One observed number, a hidden speed, a goal as context, and three discrete actions."""

    tasks: tuple[str, ...] = ("reach",)
    policies: tuple[str, ...] = ("random", "mixed")
    context_names = ("goal",)
    action_size, horizon, state_size = 1, 20, 3

    def __init__(self) -> None:
        self.factors = Factors((Variable("x", low=-10, high=10),), ("move",), discrete_actions=3)
        self.truth = np.array([[True, True]])
        self.truth_rewards = {"reach": np.array([True])}

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        return np.concatenate([np.zeros((n, 2)), rng.uniform(-1, 1, (n, 1))], axis=1)

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        assert action.shape == (len(state), 1) and np.issubdtype(action.dtype, np.integer)
        x, speed, goal = state.T
        speed = 0.5 * speed + 0.1 * (action[:, 0] - 1)
        return np.stack([np.clip(x + speed, -10, 10), speed, goal], axis=1)

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"reach": -np.abs(state[:, 0] - state[:, 2])}

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"reach": np.abs(state[:, 0] - state[:, 2]) < 0.1}

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state[:, :1]

    def context(self, state: np.ndarray) -> np.ndarray:
        return state[:, 2:]

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        return lambda state, rng: rng.integers(3, size=(len(state), 1))


# Hidden state, context, discrete actions


def test_the_observation_is_the_variables_and_the_context_is_told() -> None:
    env = GymWorld(Hidden())
    observed, info = env.reset(seed=0)
    assert env.observation_space == spaces.Box(-10, 10, (1,), np.float64)
    assert env.action_space == spaces.Discrete(3)
    assert isinstance(observed, np.ndarray) and observed.shape == (1,)
    np.testing.assert_array_equal(info["context"], env.state[2:])
    for _ in range(3):
        observed, _, _, _, info = env.step(2)  # type: ignore[arg-type]
    assert env.state[1] == pytest.approx(0.175), "the hidden speed is kept"
    assert set(info) == {"rewards", "success", "context"} and info["success"]["reach"] in (True, False)
    check_env(GymWorld(Hidden()), skip_render_check=True)


@pytest.mark.parametrize("observation", ["box", "dict"])
def test_the_context_can_be_shown(observation: Any) -> None:
    env = GymWorld(Hidden(), observation=observation, show_context=True)
    observed, info = env.reset(seed=0)
    if isinstance(observed, dict):
        assert tuple(observed) == ("x", "goal")
        np.testing.assert_array_equal(observed["goal"], info["context"])
    else:
        np.testing.assert_array_equal(observed, [0, info["context"][0]])
    assert len(env.factors) == 1
    check_env(GymWorld(Hidden(), observation=observation, show_context=True), skip_render_check=True)


def test_a_world_without_context_has_nothing_to_show() -> None:
    assert GymWorld("light", show_context=True).observation_space == GymWorld("light").observation_space
    with pytest.raises(DataError, match="'show_context' must be True or False"):
        GymWorld("light", show_context="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("action", [3, -1, 0.5, [1, 1]])
def test_bad_discrete_actions(action: Any) -> None:
    env = GymWorld(Hidden())
    env.reset(seed=0)
    with pytest.raises(DataError, match="step: action"):
        env.step(action)


def test_reset_takes_the_full_state() -> None:
    env = GymWorld(Hidden())
    observed, _ = env.reset(options={"state": [1.0, 0.5, 0.2]})
    np.testing.assert_array_equal(env.state, [1, 0.5, 0.2])
    with pytest.raises(DataError, match=r"option 'state' has shape \(1,\), expected \(3,\)"):
        env.reset(options={"state": observed})


# Success


def test_success_of_the_contact_tasks() -> None:
    world = ContactWorld()
    state = world.reset(3, np.random.default_rng(0))
    state[1, world.layout.block(0)] = GOAL + 0.01
    state[2, world.layout.block(1)] = state[2, world.layout.fixed] + [0, 0, 0.1]
    reached = world.success(state)
    assert reached["pick"].tolist() == [False, True, False]
    assert reached["stack"].tolist() == [False, False, True]


def test_success_reaches_gymnasium() -> None:
    env = gymnasium.make("cbm/Light-v0", task="park")
    env.reset(options={"state": [0, 0, 1, 0.5, 0, 0]})
    info = env.step(np.zeros(2))[-1]
    assert info["success"] == {"park": True}
    vector = gymnasium.make_vec("cbm/Light-v0", num_envs=2)
    vector.reset(seed=0)
    assert vector.step(np.zeros((2, 2), np.float32))[-1]["success"]["park"].dtype == bool


# Interventions


@pytest.mark.parametrize(("name", "options"), [("contact", {}), ("contact", HARD), ("light", {})])
def test_an_intervention_sets_one_variable(name: str, options: dict[str, Any]) -> None:
    world = make_world(name, **options)
    state, other = (world.reset(50, np.random.default_rng(seed)) for seed in (0, 1))
    kept, values = state.copy(), world.observe(other)
    assert world.settable.all() and world.state_size == state.shape[1]
    for j in range(len(world.factors)):
        changed = world.observe(world.intervene(state, j, values[:, j]))
        np.testing.assert_allclose(changed[:, j], values[:, j], rtol=1e-9)
        rest = np.delete(np.arange(len(world.factors)), j)
        np.testing.assert_array_equal(changed[:, rest], world.observe(state)[:, rest])
    np.testing.assert_array_equal(state, kept)


@pytest.mark.parametrize(
    ("name", "variable", "value", "message"),
    [
        ("contact", "hand_x", 0.7, r"intervene: variable 'hand_x', row 1: 0.7 is outside its range \[-0.5, 0.5\]"),
        ("contact", "gripper", -0.1, "variable 'gripper', row 1: -0.1 is outside"),
        ("contact", "cd3", np.nan, "variable 'cd3', row 1: nan is outside"),
        ("light", "light", 2, r"variable 'light', row 1: 2 is outside its range \[0, 1\]"),
        ("light", "light", 0.5, "variable 'light', row 1: 0.5 is not a whole number"),
    ],
)
def test_values_that_no_state_has(name: str, variable: str, value: float, message: str) -> None:
    world = make_world(name)
    state = world.reset(3, np.random.default_rng(0))
    with pytest.raises(DataError, match=message):
        world.intervene(state, world.factors.index(variable), np.array([0, value, 0]))


@pytest.mark.parametrize("variable", [-1, 6, 10])
@pytest.mark.parametrize("options", [{}, {"distractors": 2}])
def test_variables_that_there_are_not(variable: int, options: dict[str, Any]) -> None:
    world = make_world("light", **options)
    state = world.reset(1, np.random.default_rng(0))
    if variable < 0 or variable >= len(world.factors):
        with pytest.raises(DataError, match=f"intervene: there is no variable number {variable}"):
            world.intervene(state, variable, np.zeros(1))
    else:
        assert world.intervene(state, variable, np.zeros(1)).shape == state.shape


def test_a_reset_to_a_hidden_state_that_cannot_be() -> None:
    env = GymWorld("chemical", distractors=1)
    env.reset(seed=0)
    state = env.state
    env.reset(options={"state": state})
    state[-3] = 99  # the last target colour: two distractors stand behind it
    with pytest.raises(DataError, match="chemical: a target colour is not a whole number from 0 to 4"):
        env.reset(options={"state": state})


@pytest.mark.parametrize("size", [{"width": -3}, {"height": 0}, {"width": "a"}])
def test_pictures_of_no_size(size: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="must be a whole number >= 1"):
        GymWorld("light", render_mode="rgb_array", **size)


def test_too_many_distractors() -> None:
    with pytest.raises(DataError, match="at most 5000"):
        make_world("light", distractors=1_000_000_000)


def test_a_reset_to_a_state_outside_the_declared_range() -> None:
    env = GymWorld("contact", **HARD)
    env.reset(seed=0)
    state = env.state
    env.reset(options={"state": state})
    state[env.factors.index("block1_y")] = 3.0
    with pytest.raises(DataError, match="reset: option 'state': variable 'block1_y': .* is outside its range"):
        env.reset(options={"state": state})


def test_what_cannot_be_set_says_so() -> None:
    world = LightWorld()
    world.settable = np.array([True, False, True, True, True, True])
    state = world.reset(1, np.random.default_rng(0))
    with pytest.raises(DataError, match="'speed' follows from others and cannot be set"):
        world.intervene(state, 1, np.zeros(1))


@pytest.mark.parametrize(("name", "options"), [("contact", {}), ("contact", HARD), ("light", {})])
def test_states_stay_within_the_declared_ranges(name: str, options: dict[str, Any]) -> None:
    world = make_world(name, **options)
    rng = np.random.default_rng(0)
    state = world.reset(64, rng)
    act = world.policy("mixed", 64, rng)
    low, high = world.bounds
    for _ in range(world.horizon):
        state = world.step(state, act(state, rng), rng)
        observed = world.observe(state)
        assert (observed >= low - 1e-9 * np.abs(low)).all() and (observed <= high + 1e-9 * np.abs(high)).all()
