"""AbstractionWrapper: what is shown, what is hidden, and graphs that belong to something else."""

from __future__ import annotations

import importlib.util
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from cbm.abstraction.wrapper import AbstractionWrapper, Mode
from cbm.data.factors import Factors, Variable
from cbm.envs.gym import GymWorld
from cbm.envs.world import Policy, Rng, WorldBase
from cbm.errors import DataError
from cbm.graph import ActionEffect, CausalGraph, RewardGraph

needs_mujoco = pytest.mark.skipif(importlib.util.find_spec("mujoco") is None, reason="needs mujoco")


def graph_of(names: tuple[str, ...], adjacency: np.ndarray, rewards: dict[str, np.ndarray]) -> CausalGraph:
    """A graph without doubt."""

    def reward_graph(parents: np.ndarray) -> RewardGraph:
        kept = tuple(name for name, keep in zip(names, parents) if keep)
        verdict = np.where(parents, "edge", "none")
        return RewardGraph(kept, parents * 1.0, parents * 0.0, verdict, np.full(len(names), 0.5))

    return CausalGraph(
        variables=names,
        adjacency=adjacency,
        cmi=adjacency * 1.0,
        stderr=adjacency * 0.0,
        verdict=np.where(adjacency, "edge", "none"),
        threshold=0.5,
        rewards={name: reward_graph(parents) for name, parents in rewards.items()},
    )


def true_graph(env: GymWorld) -> CausalGraph:
    return graph_of(env.factors.names, env.true_graph, env.true_rewards)


class Plain(gymnasium.Env[Any, Any]):
    """An environment that says nothing about its columns."""

    def __init__(self, space: spaces.Space[Any]):
        self.observation_space = space
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return self.observation_space.sample(), 0.0, False, False, {}


THREE = spaces.Box(np.array([1, -2, 3], np.float32), np.array([4, 5, 6], np.float32))
SELF_LOOPS = np.eye(3, 4, dtype=bool)
ABC = graph_of(("a", "b", "c"), SELF_LOOPS, {"r": np.array([True, False, True])})


def test_drop_shows_the_minimal_state_of_the_reward() -> None:
    env = GymWorld("contact")
    wrapped = AbstractionWrapper(env, true_graph(env), reward="pick")
    assert wrapped.kept == ("hand_x", "hand_y", "hand_z", "gripper", "block0_x", "block0_y", "block0_z")
    np.testing.assert_array_equal(wrapped.mask, np.arange(36) < 7)
    assert wrapped.observation_space == spaces.Box(-np.inf, np.inf, (7,), np.float64)
    shown, _ = wrapped.reset(seed=0)
    np.testing.assert_array_equal(shown, env.state[:7])
    shown, *_ = wrapped.step(np.zeros(4))
    np.testing.assert_array_equal(shown, env.state[:7])
    assert shown in wrapped.observation_space


def test_mask_keeps_the_shape() -> None:
    env = GymWorld("light")
    wrapped = AbstractionWrapper(env, true_graph(env), reward="cross", mode="mask")
    assert wrapped.kept == ("speed", "light", "countdown")
    assert wrapped.observation_space == env.observation_space
    shown, _ = wrapped.reset(seed=0)
    np.testing.assert_array_equal(shown, np.where([0, 1, 1, 1, 0, 0], env.state, 0))


def test_the_rule_of_cdl_drops_the_light() -> None:
    env = GymWorld("light")
    wrapped = AbstractionWrapper(env, true_graph(env), rule="cdl")
    assert wrapped.kept == ("position", "speed", "radio")


@pytest.mark.parametrize("mode", ["drop", "mask"])
@pytest.mark.parametrize("observation", ["box", "dict"])
def test_an_agent_gets_a_valid_environment(mode: Mode, observation: str) -> None:
    env = gymnasium.make("cbm/Light-v0", observation=observation).unwrapped
    assert isinstance(env, GymWorld)
    wrapped = AbstractionWrapper(env, true_graph(env), reward="park", mode=mode)
    assert wrapped.kept == ("position", "speed")
    with pytest.warns(UserWarning, match="is different from the unwrapped version"):
        check_env(wrapped)
    assert wrapped.spec is not None
    again = wrapped.spec.make()
    assert again.observation_space == wrapped.observation_space


def test_bounds_follow_the_variables() -> None:
    dropped = AbstractionWrapper(Plain(THREE), ABC, reward="r")
    assert dropped.observation_space == spaces.Box(
        np.array([1, 3], np.float32), np.array([4, 6], np.float32), dtype=np.float32
    )
    masked = AbstractionWrapper(Plain(THREE), [True, True, False], mode="mask")
    space = masked.observation_space
    assert isinstance(space, spaces.Box)
    np.testing.assert_array_equal(space.low, [1, -2, 0])  # 0 has become possible
    np.testing.assert_array_equal(space.high, [4, 5, 6])
    shown, _ = masked.reset(seed=0)
    assert shown.dtype == np.float32 and shown[2] == 0
    assert shown in space


def test_hidden_values_that_are_not_numbers_stay_hidden() -> None:
    masked = AbstractionWrapper(Plain(THREE), [1, 0, 1], mode="mask")
    shown = masked.observation(np.array([1, np.nan, 3], np.float32))
    np.testing.assert_array_equal(shown, [1, 0, 3])


def test_a_mask_instead_of_a_graph() -> None:
    assert AbstractionWrapper(Plain(THREE), np.array([0, 1, 1])).kept == ("obs_1", "obs_2")
    assert AbstractionWrapper(GymWorld("light"), [1, 0, 1, 0, 0, 0]).kept == ("position", "light")


def test_dict_observations_are_flattened() -> None:
    parts: OrderedDict[str, spaces.Space[Any]] = OrderedDict(b=spaces.Box(-1, 1, (2,)), a=spaces.Box(0, 1, (2, 1)))
    env = Plain(spaces.Dict(parts))
    wrapped = AbstractionWrapper(env, [False, True, True, False])
    observation = {"b": np.array([1, 2], np.float32), "a": np.array([[3], [4]], np.float32)}
    np.testing.assert_array_equal(wrapped.observation(observation), [2, 3])
    assert wrapped.observation_space == spaces.Box(np.array([-1, 0], np.float32), np.ones(2, np.float32))


def test_a_run_instead_of_a_graph(tmp_path: Path) -> None:
    env = GymWorld("light")
    true_graph(env).save(tmp_path / "graph.json")
    wrapped = [AbstractionWrapper(env, graph, reward="park") for graph in (tmp_path, str(tmp_path), true_graph(env))]
    assert wrapped[0].kept == wrapped[1].kept == wrapped[2].kept == ("position", "speed")
    with pytest.raises(DataError, match="nowhere"):
        AbstractionWrapper(env, tmp_path / "nowhere", reward="park")


def test_names_of_a_mask_over_a_dict_are_its_keys() -> None:
    parts: OrderedDict[str, spaces.Space[Any]] = OrderedDict(b=spaces.Box(-1, 1, (2,)), a=spaces.Box(0, 1, (2, 1)))
    env = AbstractionWrapper(Plain(spaces.Dict(parts)), [True, False, True, False])
    names = Factors.from_spaces(env.env.observation_space, spaces.Discrete(1)).names
    assert env.kept == (names[0], names[2])


@pytest.mark.parametrize("mode", ["drop", "mask"])
def test_an_observation_of_another_shape_is_refused(mode: Mode) -> None:
    env = AbstractionWrapper(Plain(spaces.Box(-1, 1, (3,))), [True, False, True], mode=mode)
    with pytest.raises(DataError, match=r"observation: shape \(1,\), expected \(3,\)"):
        env.observation(np.ones(1, np.float32))


def test_wrappers_can_be_stacked() -> None:
    env = GymWorld("light")
    inner = AbstractionWrapper(env, true_graph(env), reward="cross")
    outer = AbstractionWrapper(inner, [True, False, True])
    assert outer.kept == ("speed", "countdown")
    assert outer.factors is not None and outer.factors.names == outer.kept
    with pytest.raises(DataError, match="only in the graph: position, radio, wind$"):
        AbstractionWrapper(inner, true_graph(env), reward="cross")


def test_wrappers_in_between() -> None:
    env = GymWorld("light")
    ordered = gymnasium.wrappers.OrderEnforcing(env)
    assert AbstractionWrapper(ordered, true_graph(env), reward="park").kept == ("position", "speed")
    longer = spaces.Box(-np.inf, np.inf, (7,), np.float64)
    timed: gymnasium.Env[Any, Any] = gymnasium.wrappers.TransformObservation(
        env, lambda observed: np.append(observed, 0.0), longer
    )
    with pytest.raises(DataError, match="the graph has 6 variables, the observation 7 columns"):
        AbstractionWrapper(timed, true_graph(env), reward="park")


# Context: a goal, say, that an environment shows after its variables


class TwoAndAGoal(WorldBase):
    """A number to bring to a goal, another one that no reward needs, and the goal as context."""

    tasks: tuple[str, ...] = ("reach",)
    policies: tuple[str, ...] = ("random", "mixed")
    context_names = ("goal",)
    action_size, horizon, state_size = 1, 20, 3

    def __init__(self) -> None:
        self.factors = Factors((Variable("x", low=-10, high=10), Variable("y", low=2)), ("push",))
        self.truth = np.array([[True, False, True], [False, True, False]])
        self.truth_rewards = {"reach": np.array([True, False])}

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        return rng.uniform(2, 3, (n, 3))

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        return state + np.array([1, 0, 0]) * 0.1 * action

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state[:, :2]

    def context(self, state: np.ndarray) -> np.ndarray:
        return state[:, 2:]

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"reach": -np.abs(state[:, 0] - state[:, 2])}

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        return lambda state, rng: rng.uniform(-1, 1, (len(state), 1))


@pytest.mark.parametrize("observation", ["box", "dict"])
def test_context_is_kept_after_the_variables(observation: Any) -> None:
    env = GymWorld(TwoAndAGoal(), observation=observation, show_context=True)
    wrapped = AbstractionWrapper(env, true_graph(env), reward="reach")
    assert (wrapped.kept, wrapped.shown_context) == (("x",), ("goal",))
    np.testing.assert_array_equal(wrapped.mask, [True, False])
    assert wrapped.factors is not None and wrapped.factors.names == ("x",)
    assert wrapped.observation_space == spaces.Box(np.array([-10, -np.inf]), np.array([10, np.inf]), dtype=np.float64)
    shown, info = wrapped.reset(seed=0)
    np.testing.assert_array_equal(shown, [env.state[0], *info["context"]])
    masked = AbstractionWrapper(env, true_graph(env), reward="reach", mode="mask")
    assert masked.factors is not None and masked.factors.names == ("x", "y")
    shown, info = masked.reset(seed=0)
    np.testing.assert_array_equal(shown, [env.state[0], 0, *info["context"]])
    assert shown in masked.observation_space, "0 has become possible for y, which is 2 or more"


@needs_mujoco
@pytest.mark.parametrize("observation", ["box", "dict"])
def test_a_robot_and_its_goal(observation: str) -> None:
    made = gymnasium.make("cbm/Block-v0", observation=observation, show_context=True, distractors=2)
    env = made.unwrapped
    assert isinstance(env, GymWorld)
    graph = graph_of(env.factors.names, env.world.truths["paper"], env.true_rewards)
    wrapped = AbstractionWrapper(made, graph, reward="pick")
    assert len(wrapped.kept) == 17 and wrapped.shown_context == ("goal_x", "goal_y", "goal_z")
    assert wrapped.observation_space.shape == (20,)
    shown, info = wrapped.reset(seed=0)
    np.testing.assert_array_equal(shown[17:], info["context"])
    np.testing.assert_array_equal(shown[:17], env.world.observe(env.state[None])[0, :17])


def test_masks_are_over_the_variables() -> None:
    env = GymWorld(TwoAndAGoal(), show_context=True)
    assert AbstractionWrapper(env, [False, True]).kept == ("y",)
    with pytest.raises(DataError, match=r"mask: shape \(3,\), expected \(2,\)"):
        AbstractionWrapper(env, [False, True, True])
    shown, info = AbstractionWrapper(env, [False, False]).reset(seed=0)
    np.testing.assert_array_equal(shown, info["context"])


def test_wrappers_with_context_can_be_stacked() -> None:
    env = GymWorld(TwoAndAGoal(), show_context=True)
    outer = AbstractionWrapper(AbstractionWrapper(env, [True, True], mode="mask"), [False, True])
    last = AbstractionWrapper(outer, [True])
    assert (last.kept, last.shown_context) == (("y",), ("goal",))
    assert last.observation_space.shape == (2,)


def test_a_wrapper_that_takes_the_context_away() -> None:
    env = GymWorld(TwoAndAGoal(), show_context=True)
    cut: gymnasium.Env[Any, Any] = gymnasium.wrappers.TransformObservation(
        env, lambda observed: observed[:2], spaces.Box(-np.inf, np.inf, (2,), np.float64)
    )
    wrapped = AbstractionWrapper(cut, true_graph(env), reward="reach")
    assert (wrapped.kept, wrapped.shown_context) == (("x",), ())
    assert wrapped.observation_space.shape == (1,)


def test_a_graph_of_another_environment_with_context() -> None:
    env = GymWorld(TwoAndAGoal(), show_context=True)
    with pytest.raises(DataError, match="only in the graph: position, .*; only in the environment: x, y$"):
        AbstractionWrapper(env, true_graph(GymWorld("light")), reward="cross")
    modelled = graph_of(("x", "y", "goal"), SELF_LOOPS, {"reach": np.array([True, False, True])})
    with pytest.raises(DataError, match="another environment; only in the graph: goal$"):
        AbstractionWrapper(env, modelled, reward="reach")


# Graphs and masks that do not fit


def test_a_graph_of_another_environment() -> None:
    graph = true_graph(GymWorld("light"))
    message = "another environment; only in the graph: position, speed, light, countdown, radio, wind; "
    message += "only in the environment: hand_x, hand_y, hand_z, gripper, block0_x, block0_y and 30 more"
    with pytest.raises(DataError, match=message):
        AbstractionWrapper(GymWorld("contact"), graph, reward="cross")


def test_a_graph_with_fewer_blocks() -> None:
    graph = true_graph(GymWorld("contact", blocks=2))
    with pytest.raises(DataError, match="another environment; only in the environment: block2_x, block2_y, block2_z$"):
        AbstractionWrapper(GymWorld("contact", blocks=3), graph, reward="pick")


def test_the_same_names_in_another_order() -> None:
    env = GymWorld("light")
    names = env.factors.names
    graph = graph_of((*names[:4], names[5], names[4]), env.true_graph, env.true_rewards)
    message = "same names in another order: column 4 is 'wind' in the graph, 'radio' in the environment"
    with pytest.raises(DataError, match=message):
        AbstractionWrapper(env, graph, reward="park")


def test_the_keys_of_a_dict_count_when_the_graph_has_them() -> None:
    one = spaces.Box(0, 1, (1,))
    right = Plain(spaces.Dict(OrderedDict(a=one, b=one, c=one)))
    assert AbstractionWrapper(right, ABC, reward="r").kept == ("a", "c")
    turned = Plain(spaces.Dict(OrderedDict(b=one, a=one, c=one)))
    with pytest.raises(DataError, match="another order: column 0 is 'a' in the graph, 'b' in the env"):
        AbstractionWrapper(turned, ABC, reward="r")
    other = Plain(spaces.Dict(OrderedDict(x=one, y=one, z=one)))  # names of its own: only the length counts
    assert AbstractionWrapper(other, ABC, reward="r").kept == ("a", "c")


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([True, False], r"mask: shape \(2,\), expected \(3,\)"),
        ([[True, False, True]], r"mask: shape \(1, 3\), expected \(3,\)"),
        ([0.5, 1, 0], r"mask\[0\] \(row 'obs_0'\): must be 0 or 1"),
        (["a", "b", "c"], "mask: must hold zeros and ones only"),
        ([0, 0, 0], "keeps no variable"),
    ],
)
def test_unusable_masks(mask: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        AbstractionWrapper(Plain(THREE), mask)


def test_a_graph_that_found_no_cause_of_the_reward() -> None:
    nothing = graph_of(("a", "b", "c"), SELF_LOOPS, {"r": np.zeros(3, bool)})
    with pytest.raises(DataError, match="keeps no variable, .*; no cause of reward 'r' was found"):
        AbstractionWrapper(Plain(THREE), nothing, reward="r")
    assert AbstractionWrapper(Plain(THREE), nothing, reward="r", mode="mask").kept == ()


def test_what_cannot_be_ruled_out_is_kept_unless_only_the_certain_is_wanted() -> None:
    graph = graph_of(("a", "b", "c"), SELF_LOOPS, {"r": np.array([True, False, False])})
    verdict = graph.verdict.copy().astype("<U9")
    verdict[0, 1] = "undecided"  # b -> a; the best guess says no
    graph = replace(graph, verdict=verdict)
    assert AbstractionWrapper(Plain(THREE), graph, reward="r").kept == ("a", "b")
    assert AbstractionWrapper(Plain(THREE), graph, reward="r", certain_only=True).kept == ("a",)
    reward = replace(graph.rewards["r"], parents=(), verdict=np.array(["none", "undecided", "none"]))
    doubtful = replace(graph, rewards={"r": reward})
    assert AbstractionWrapper(Plain(THREE), doubtful, reward="r").kept == ("b",)
    with pytest.raises(DataError, match="nothing is certain, but without certain_only it keeps 1 that cannot be ruled"):
        AbstractionWrapper(Plain(THREE), doubtful, reward="r", certain_only=True)
    with pytest.raises(DataError, match="certain_only: a mask has no verdicts"):
        AbstractionWrapper(Plain(THREE), [1, 1, 0], certain_only=True)


def test_other_mistakes() -> None:
    env = Plain(THREE)
    with pytest.raises(DataError, match="unknown reward 'q'"):
        AbstractionWrapper(env, ABC, reward="q")
    with pytest.raises(DataError, match="unknown reward: none given; there are: r"):
        AbstractionWrapper(env, ABC)
    with pytest.raises(DataError, match="unknown mode 'hide'"):
        AbstractionWrapper(env, ABC, reward="r", mode="hide")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="unknown rule 'all'"):
        AbstractionWrapper(env, ABC, reward="r", rule="all")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="reward 'r': a mask is the same for every reward"):
        AbstractionWrapper(env, [1, 1, 0], reward="r")
    with pytest.raises(DataError, match="the graph has 3 variables, the observation 2 columns"):
        AbstractionWrapper(Plain(spaces.Box(0, 1, (2,))), ABC, reward="r")


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(0, 1, (2, 3)), spaces.Text(3)])
def test_spaces_without_columns(space: spaces.Space[Any]) -> None:
    with pytest.raises(DataError, match="is not supported"):
        AbstractionWrapper(Plain(space), [1, 1, 0])


def test_factors_must_agree_with_the_order_of_a_dict() -> None:
    one = spaces.Box(-1.0, 1.0, (1,), np.float32)
    env: Any = Plain(spaces.Dict(OrderedDict(a=one, b=one)))
    env.factors = Factors((Variable("b"), Variable("a")), ("push",), None)
    with pytest.raises(DataError, match="column 0 is 'b', but its Dict has 'a' there"):
        AbstractionWrapper(env, [True, False])


def test_a_reward_of_the_action_alone_says_so() -> None:
    graph = graph_of(("a",), np.array([[True, False]]), {"r": np.array([False])})
    reward = replace(graph.rewards["r"], action=ActionEffect(1.0, 0.1, "edge", 0.05, ""))
    with pytest.raises(DataError, match="'r' depends on the action alone"):
        AbstractionWrapper(Plain(spaces.Box(-1.0, 1.0, (1,), np.float32)), replace(graph, rewards={"r": reward}), "r")
