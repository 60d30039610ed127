"""The tool-use world: variables, the cube out of reach, the tool's head, rewards of every formula, stages."""

from __future__ import annotations

from functools import cache

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from cbm.envs.manipulation import tasks
from cbm.envs.manipulation.tool import CLEAR, TOOL, ToolWorld
from cbm.errors import DataError
from manipulation_states import Actions, placed_in, stepped  # type: ignore[import-not-found]

pytest.importorskip("mujoco")

UPRIGHT = (0.0, 0.0, 0.0, 1.0)


@cache
def world(formula: str = "markov") -> ToolWorld:
    return ToolWorld(formula=formula)


def start(n: int = 1, seed: int = 0) -> np.ndarray:
    return world().reset(n, np.random.default_rng(seed))


def placed(state: np.ndarray, **quantities: tuple[float, ...]) -> np.ndarray:
    return placed_in(world(), state, **quantities)


def arranged(**changes: tuple[float, ...]) -> np.ndarray:
    """One copy with everything at a known place."""
    return placed(
        start(),
        **{
            "eef_pos": (0.0, 0.0, 0.9),
            "cube_pos": (0.18, -0.15, 0.82),
            "cube_quat": UPRIGHT,
            "tool_pos": (-0.1, -0.25, 0.82),
            "tool_quat": UPRIGHT,
            "pot_pos": (-0.1, 0.1, 0.83),
            "pot_quat": UPRIGHT,
        }
        | changes,
    )


def run(state: np.ndarray, *actions: Actions) -> np.ndarray:
    return stepped(world(), state, *actions)


def holding(thing: str) -> np.ndarray:
    """The tool or the cube between the fingers, the cube near."""
    near_by = arranged(cube_pos=(-0.15, -0.1, 0.82))
    where = tuple(world().view(near_by).position(thing)[0])
    state = run(placed(near_by, eef_pos=where), ((0, 0, 0, 1), 12))
    assert world().view(state).grasped(thing)[0]
    return state


# Variables and starts


def test_the_40_variables_of_the_paper_in_their_order() -> None:
    names = world().factors.names
    assert len(names) == 40
    firsts = ("eef_x", "eef_vx", "gripper_left", "gripper_left_v", "cube_x", "cube_qx", "tool_x", "tool_qx", "pot_x")
    assert [names.index(name) for name in firsts] == [0, 3, 6, 8, 10, 13, 17, 20, 24]
    assert [names.index(name) for name in ("pot_qx", "marker0_x", "marker2_z")] == [27, 31, 39]
    assert world().horizon == 400


def test_normalisation() -> None:
    state = arranged(eef_pos=(0.05, -0.07, 1.0), goal=(0.0, 0.35, 1.2))
    seen = dict(zip(world().factors.names, world().observe(state)[0]))
    for name, value in {
        "eef_x": 0.1,
        "eef_y": -0.1,
        "eef_z": 0.2,
        "cube_x": 0.36,
        "tool_qw": 1.0,
        "pot_z": -0.48,
    }.items():
        assert seen[name] == pytest.approx(value), name
    np.testing.assert_allclose(world().context(state), [[0, 0.5, 1.0]])


def test_the_cube_starts_where_the_hand_cannot_touch_it() -> None:
    state = start(200)
    view = world().view(state)
    cube, tool = view.position("cube"), view.position("tool")
    assert (cube[:, 0] >= 0.1).all() and (cube[:, 0] <= 0.2).all()
    assert world().spec.high[0] + 0.01 < 0.1 - 0.02 * np.sqrt(2), "pads end a centimetre from the hand's middle"
    for box in TOOL.boxes:
        outside = np.maximum(np.abs((cube - tool)[:, :2] - box.centre[:2]) - box.half[:2], 0)
        assert (np.linalg.norm(outside, axis=1) > CLEAR).all()
    far = placed(state[:20], eef_pos=(0.06, 0.0, 0.82))
    for k in range(20):
        far[k] = world().intervene(far[k : k + 1], 1, world().observe(state[k : k + 1])[:, 11])[0]
    assert not world().view(far).touched("cube").any()
    assert not view["hits"].any()


def test_the_head_is_in_reach_behind_every_cube() -> None:
    behind = 0.2 + 0.02 * np.sqrt(2) + 0.01  # of the farthest cube, turned by 45 degrees
    assert world().spec.high[0] + tasks.HEAD[0] > behind + 0.02


def test_masses() -> None:
    model = world().backend.model  # type: ignore[attr-defined]
    assert model.body("cube").mass[0] == pytest.approx(0.032)
    assert model.body("tool").mass[0] == pytest.approx(0.464, abs=0.005)
    assert model.body("pot").mass[0] == pytest.approx(0.84, abs=0.005)


# Physics


def test_the_tool_pulls_the_cube() -> None:
    """The head is behind the cube; the hand holds the handle and goes back."""
    state = arranged(tool_pos=(0.03, -0.23, 0.82), eef_pos=(0.03, -0.23, 0.82))
    state = run(state, ((0, 0, 0, 1), 12), ((-1, 0, 0, 1), 22))
    view = world().view(state)
    assert view.grasped("tool")[0] and view.hit("tool", "cube")[0]
    assert view.position("cube")[0, 0] < 0.0
    assert view.position("tool")[0, 0] == pytest.approx(view.hand[0, 0], abs=0.01)


def test_a_cube_dropped_over_the_pot_stays_in_it() -> None:
    state = run(arranged(cube_pos=(-0.1, 0.1, 0.95)), ((0, 0, 0, 0), 20))
    view = world().view(state)
    np.testing.assert_allclose(view.position("cube"), [(-0.1, 0.1, 0.83)], atol=2e-3)
    assert view.hit("cube", "pot")[0] and tasks.in_pot(view)[0]
    beside = run(arranged(cube_pos=(-0.1, 0.1901, 0.82)), ((0, 0, 0, 0), 3))
    assert not tasks.in_pot(world().view(beside))[0]


def test_points_of_things_turn_with_them() -> None:
    quarter = (0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5))
    view = world().view(arranged(tool_quat=quarter))
    np.testing.assert_allclose(tasks.head(view), [(-0.1 - 0.08, -0.25 + 0.22, 0.82)], atol=1e-9)
    places = dict(zip(world().places, world().points(arranged())[0]))
    np.testing.assert_allclose(places["head"], (0.12, -0.17, 0.82))
    np.testing.assert_allclose(places["handle"], (-0.1, 0.16, 0.875))


def test_an_intervention_changes_what_it_says() -> None:
    state = holding("tool")
    before = world().observe(state)
    for name in ("eef_z", "eef_vx", "gripper_right", "cube_y", "cube_qz", "tool_x", "tool_qw", "pot_z", "marker2_x"):
        k = world().factors.index(name)
        value = before[:, k] - 0.1
        seen = world().observe(world().intervene(state, k, value))
        np.testing.assert_allclose(seen[:, k], value, atol=1e-12)
        others = [i for i, other in enumerate(world().factors.names) if other[:6] != name[:6]]
        np.testing.assert_array_equal(seen[:, others], before[:, others])


# Rewards


def near(steepness: float, distance: float) -> float:
    return float(1 - np.tanh(steepness * distance))


def gap(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b))


def read(state: np.ndarray) -> dict[str, np.ndarray]:
    view = world().view(state)
    found = {name: view.position(name)[0] for name in ("cube", "tool", "pot")}
    return found | {"hand": view.hand[0], "head": tasks.head(view)[0], "goal": view["goal"][0]}


def series(state: np.ndarray, formula: str = "markov") -> float:
    return float(world(formula).rewards(state)["series"][0])


def test_series_while_nothing_is_held() -> None:
    state = arranged()
    at = read(state)
    assert series(state) == series(state, "paper") == pytest.approx(0.2 * near(2, gap(at["hand"], at["tool"])))


def test_series_with_the_tool_in_the_hand() -> None:
    state = placed(holding("tool"), cube_pos=(0.15, -0.15, 0.82))
    at = read(state)
    both = 0.2 * near(2, gap(at["hand"], at["tool"])) + 0.2
    assert series(state) == pytest.approx(both + 0.2 * near(5, gap(at["head"], at["cube"])) + 0.2 * near(5, 0.15))
    assert series(state, "paper") == pytest.approx(both + 0.2 * near(5, gap(at["tool"], at["cube"])) + 0.2)


def test_series_with_the_cube_in_the_hand() -> None:
    state = holding("cube")
    at = read(state)
    aside = float(np.hypot(*(at["cube"] - at["pot"])[:2]))
    shared = 0.2 * near(2, gap(at["hand"], at["tool"])) + 0.4 + 0.6 + 0.5 * near(5, aside)
    assert series(state) == pytest.approx(shared + 0.4 * near(5, gap(at["hand"], at["cube"])))
    assert series(state, "paper") == pytest.approx(shared + 0.4 * near(5, gap(at["hand"], at["tool"])))


def test_series_with_the_cube_in_the_pot() -> None:
    state = run(arranged(cube_pos=(-0.1, 0.1, 0.85)), ((0, 0, 0, 0), 8))
    at = read(state)
    expected = 0.2 * near(2, gap(at["hand"], at["tool"])) + 0.4 + 0.4 * near(5, gap(at["hand"], at["cube"])) + 2
    assert series(state) == pytest.approx(expected)
    success = world().success(state)
    assert success["series"][0] and success["pickplace"][0] and not success["pickcube"][0]


def test_the_other_tasks() -> None:
    state = placed(holding("tool"), cube_pos=(0.15, -0.15, 0.82), goal=(-0.1, -0.2, 0.85))
    at = read(state)
    rewards = {task: float(value[0]) for task, value in world().rewards(state).items()}
    assert rewards["reach"] == pytest.approx(near(5, float(np.abs(at["hand"] - at["goal"]).sum())))
    picked = 0.2 * near(2, gap(at["hand"], at["tool"])) + 0.4 + 0.5 * near(5, gap(at["tool"], at["goal"]))
    assert rewards["picktool"] == pytest.approx(picked)
    assert rewards["pickcube"] == rewards["pickplace"] == pytest.approx(0.2 * near(2, gap(at["hand"], at["cube"])))
    state = holding("cube")
    at = read(state)
    aside = float(np.hypot(*(at["cube"] - at["pot"])[:2]))
    placing = 0.2 * near(2, gap(at["hand"], at["cube"])) + 0.4 + 0.5 * near(5, aside)
    assert float(world().rewards(state)["pickplace"][0]) == pytest.approx(placing)


# Stages


def staged(state: np.ndarray, stage: int) -> float:
    return series(placed(state, stage=(float(stage),)), "staged")


def test_what_each_stage_pays() -> None:
    state = arranged()
    at = read(state)
    to_ready = gap(at["head"], at["cube"] + (0.1, -0.1, 0))
    assert staged(state, 0) == pytest.approx(0.2 * near(3, gap(at["hand"], at["tool"])))
    assert staged(state, 1) == pytest.approx(0.4 + 0.2 * near(5, to_ready))
    assert staged(state, 2) == pytest.approx(0.6 + 0.2 * near(5, gap(at["head"], at["cube"])))
    assert staged(state, 3) == pytest.approx(1.4 + 0.4 * near(5, gap(at["hand"], at["cube"])))
    aside = float(np.hypot(*(at["cube"] - at["pot"])[:2]))
    assert staged(state, 4) == pytest.approx(2.4 + 0.5 * near(5, aside) + 0.5 * near(5, 0.83 + 0.15 - 0.82))
    assert staged(state, 5) == pytest.approx(4.4 + 0.4 * near(5, gap(at["hand"], np.array((-0.1, 0.04, 0.875)))))
    with_tool = placed(holding("tool"), cube_pos=(0.15, -0.15, 0.82))
    assert staged(with_tool, 3) == 1.0, "the tool must be let go first"


@pytest.mark.parametrize(
    ("stage", "then", "changes"),
    [
        (0, 0, {}),
        (1, 0, {}),  # the tool was lost
        (2, 0, {}),
        (0, 3, {"cube_pos": (-0.01, -0.15, 0.82)}),
        (2, 3, {"cube_pos": (-0.01, -0.15, 0.82)}),
        (3, 3, {}),
        (4, 3, {}),  # the cube was dropped beside the pot
        (4, 5, {"cube_pos": (-0.11, 0.1, 0.95)}),
        (5, 5, {}),
    ],
)
def test_stages_without_anything_in_the_hand(stage: int, then: int, changes: dict[str, tuple[float, ...]]) -> None:
    view = world().view(arranged(**changes))
    assert tasks.next_stage(view, np.array([float(stage)])).tolist() == [then]


def test_stages_with_something_in_the_hand() -> None:
    far = placed(holding("tool"), cube_pos=(0.15, -0.15, 0.82))
    head = read(far)["head"]
    ready = placed(far, cube_pos=(head[0] - 0.08, head[1] + 0.1, 0.82))
    for state, stage, then in (
        (far, 0, 1),
        (far, 1, 1),
        (ready, 1, 2),
        (far, 2, 2),
        (holding("cube"), 3, 4),
        (holding("cube"), 4, 4),
    ):
        assert tasks.next_stage(world().view(state), np.array([float(stage)])).tolist() == [then]


def test_the_stage_goes_on_with_the_steps_and_shows_in_no_variable() -> None:
    state = placed(holding("tool"), cube_pos=(0.15, -0.15, 0.82), stage=(0.0,))
    after = run(state, ((0, 0, 0, 1), 1))
    assert world().view(after)["stage"].tolist() == [[1.0]]
    other = placed(after, stage=(3.0,))
    np.testing.assert_array_equal(world().observe(other), world().observe(after))
    assert series(other, "staged") != series(after, "staged")


# Gymnasium, graphs, options


def test_gymnasium_finds_nothing_to_complain_about() -> None:
    check_env(gymnasium.make("cbm/Tool-v0", task="series").unwrapped)


def test_the_graphs() -> None:
    tool = world()
    paper, groups = tool.truths["paper"], tool.factors.groups()
    assert paper.shape == tool.truth.shape == (40, 41)
    cause = {
        effect: {name for name, members in groups.items() if paper[np.ix_(groups[effect], members)].any()}
        for effect in groups
    }
    robot = {"eef", "gripper"}
    assert cause["eef"] == {"eef"}
    assert cause["gripper"] == robot | {"cube", "tool"}
    assert cause["cube"] == robot | {"cube", "tool", "pot"}
    assert cause["tool"] == robot | {"tool"}
    assert cause["pot"] == robot | {"tool", "pot"}
    assert not paper[np.ix_(groups["gripper"], [tool.factors.index("tool_qz")])].any()
    assert paper[: groups["marker0"][0], 40].all() and not paper[groups["marker0"], 40].any()
    read_by_series = {name for name, on in zip(tool.factors.names, tool.truth_rewards["series"]) if on}
    assert len(read_by_series) == 3 + 2 + 3 * 7


def test_wrong_options() -> None:
    with pytest.raises(DataError, match="tool: unknown formula 'code'"):
        ToolWorld(formula="code")
    with pytest.raises(DataError, match="unknown policy 'pick'"):
        world().policy("pick", 1, np.random.default_rng(0))
