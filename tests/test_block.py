"""The block world: its variables, how the hand moves, what it can and cannot move."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from block_states import CLOSE, OPEN, clear_table, held, placed, run, start, world  # type: ignore[import-not-found]
from cbm.envs import make_world
from cbm.envs.manipulation.block import BlockWorld
from cbm.envs.manipulation.world import MARKER_HIGH, MARKER_LOW
from cbm.errors import DataError

pytest.importorskip("mujoco")


# Variables


def test_the_47_variables_of_the_paper_in_their_order() -> None:
    names = world().factors.names
    assert len(names) == 47
    assert names[:10] == (
        *("eef_x", "eef_y", "eef_z", "eef_vx", "eef_vy", "eef_vz"),
        *("gripper_left", "gripper_right", "gripper_left_v", "gripper_right_v"),
    )
    assert names[10:17] == tuple(f"mov0_{part}" for part in ("x", "y", "z", "qx", "qy", "qz", "qw"))
    assert [names.index(f"{block}_x") for block in ("mov1", "mov2", "unmov0")] == [17, 24, 31]
    assert [names.index(f"marker{k}_x") for k in range(3)] == [38, 41, 44]
    assert list(world().factors.groups()) == [
        *("eef", "gripper", "mov0", "mov1", "mov2", "unmov0", "marker0", "marker1", "marker2")
    ]


def test_normalisation() -> None:
    state = placed(
        clear_table(),
        eef_pos=(0.25, -0.1, 1.0),
        eef_vel=(0.2, 0.0, -0.4),
        finger_pos=(0.03, -0.015),
        finger_vel=(0.1, -0.1),
        mov1_quat=(0.0, 0.0, 1.0, 0.0),
        marker1_pos=(0.1, 0.2, 0.84),
        goal=(0.25, 0.0, 0.8),
    )
    seen = dict(zip(world().factors.names, world().observe(state)[0]))
    expected = {
        **{"eef_x": 0.5, "eef_y": -0.2, "eef_z": 0.5, "eef_vx": 0.1, "eef_vy": 0.0, "eef_vz": -0.2},
        **{"gripper_left": 1.0, "gripper_right": -0.5, "gripper_left_v": 0.2, "gripper_right_v": -0.2},
        **{"mov0_x": 0.0, "mov0_z": -0.4, "mov0_qw": 1.0, "mov1_qz": 1.0, "mov1_qw": 0.0, "unmov0_x": -0.4},
        **{"marker1_x": 0.2, "marker1_y": 0.4, "marker1_z": -0.3},
    }
    for name, value in expected.items():
        assert seen[name] == pytest.approx(value, abs=1e-9), name
    np.testing.assert_allclose(world().context(state), [[0.5, 0.0, -0.5]])
    assert world().context_names == ("goal_x", "goal_y", "goal_z")
    metres = world().metres
    assert metres is not None
    assert metres[[0, 12, 38]].tolist() == [0.5, 0.2, 0.5] and np.isnan(metres[[3, 6, 13]]).all()


def test_starts() -> None:
    block = world()
    view = block.view(start(200))
    positions = view.positions()
    assert (np.abs(positions[:, :3, :2]) <= 0.25).all() and (np.abs(positions[:, 3, :2]) <= 0.27).all()
    np.testing.assert_allclose(positions[:, :3, 2], 0.83)
    np.testing.assert_allclose(positions[:, 3, 2], 0.82)
    for a, b in block.spec.pairs:
        assert (np.linalg.norm((positions[:, a] - positions[:, b])[:, :2], axis=1) > 0.06).all()
    assert not view["hits"].any() and not view["touched"].any()
    yaw = 2 * np.arctan2(view["mov0_quat"][:, 2], view["mov0_quat"][:, 3])
    assert yaw.min() < -2.5 and yaw.max() > 2.5
    goal = view["goal"]
    assert (goal >= (-0.25, -0.3, 0.9)).all() and (goal <= (0.25, 0.3, 1.0)).all()
    np.testing.assert_array_equal(view["finger_pos"], np.tile((0.03, -0.03), (200, 1)))


# The hand


def test_the_hand_moves_like_a_critically_damped_unit_mass() -> None:
    """Acceleration 150 (target - position) - 2 sqrt(150) velocity, the target 5 cm ahead for the whole step."""
    state = run(clear_table(), ((0, 1, 0, 0), 1))
    omega, t = np.sqrt(150), 0.05
    exact = 0.05 * (1 - (1 + omega * t) * np.exp(-omega * t))
    moved = world().view(state).hand[0] - (0, 0, 0.9)
    assert moved[1] == pytest.approx(exact, rel=0.1)  # the simulator takes steps of 10 ms
    np.testing.assert_allclose(moved[[0, 2]], 0, atol=1e-9)
    after = [world().view(run(clear_table(), ((0, 1, 0, 0), steps))).hand[0, 1] for steps in (4, 12)]
    np.testing.assert_allclose(after, (0.045, 0.154), atol=0.002)


def test_the_hand_stays_in_its_workspace() -> None:
    state = run(clear_table(), ((1, 1, 1, 0), 60))
    np.testing.assert_allclose(world().view(state).hand, [(0.3, 0.4, 1.0)], atol=1e-3)
    state = run(clear_table(), ((-1, -1, 0, 0), 60), ((0, 0, -1, 0), 30))
    np.testing.assert_allclose(world().view(state).hand, [(-0.3, -0.4, 0.81)], atol=1e-3)


def test_actions_are_clipped() -> None:
    np.testing.assert_array_equal(run(clear_table(), ((0, 9, 0, 5), 3)), run(clear_table(), ((0, 1, 0, 1), 3)))


def test_the_fingers_follow_the_sign_of_the_command_gradually() -> None:
    state = clear_table()
    openings = [state]
    for _ in range(12):
        openings.append(run(openings[-1], ((0, 0, 0, 0.01), 1)))
    fingers = np.array([world().view(s)["finger_pos"][0] for s in openings])
    np.testing.assert_allclose(fingers[:, 0], -fingers[:, 1], atol=1e-6)
    steps = -np.diff(fingers[:, 0])
    assert (steps[:9] > 0).all() and steps.max() < 0.0048, "35 mm in eight steps, and no faster"
    assert fingers[4, 0] > 0.01 and fingers[-1, 0] == pytest.approx(-0.005, abs=5e-4)
    still = run(state, ((0, 0, 0, 0.0), 5))
    np.testing.assert_allclose(world().view(still)["finger_pos"], [(0.03, -0.03)], atol=1e-4)


def test_the_finger_target_is_hidden_state() -> None:
    """Two states with the same variables whose fingers are on their way to different targets."""
    closing, still = run(clear_table(), ((0, 0, 0, CLOSE), 3)), clear_table()
    copied = placed(
        still,
        finger_pos=tuple(world().view(closing)["finger_pos"][0]),
        finger_vel=tuple(world().view(closing)["finger_vel"][0]),
    )
    np.testing.assert_allclose(world().observe(copied)[:, 6:10], world().observe(closing)[:, 6:10])
    after = [world().view(run(state, ((0, 0, 0, 0), 1)))["finger_pos"][0, 0] for state in (closing, copied)]
    assert abs(after[0] - after[1]) > 0.002


# Blocks


def test_a_held_block_follows_the_hand() -> None:
    state = held()
    view = world().view(state)
    assert view.grasped("mov0")[0] and view.touched("mov0")[0]
    assert not view["grasped"][0, 1:].any()
    assert view.position("mov0")[0, 2] > 0.835
    offset = view.position("mov0") - view.hand
    state = run(state, ((1, 0.5, 0.5, CLOSE), 15))
    view = world().view(state)
    assert view.hand[0, 0] > 0.15 and view.grasped("mov0")[0]
    np.testing.assert_allclose(view.position("mov0") - view.hand, offset, atol=3e-3)
    dropped = world().view(run(state, ((0, 0, 0, OPEN), 20)))
    assert not dropped.touched("mov0")[0]
    assert dropped.position("mov0")[0, 2] == pytest.approx(0.82, abs=1e-3)


def test_an_open_hand_passes_over_a_block_without_moving_it() -> None:
    state = run(clear_table(), ((0, 0, -1, OPEN), 4), ((0, 0, 1, OPEN), 4))
    np.testing.assert_allclose(world().view(state).position("mov0"), [(0, 0, 0.82)], atol=1e-3)


def test_a_pushed_block_pushes_the_next_one_and_nothing_moves_the_fixed_one() -> None:
    state = placed(clear_table(), eef_pos=(-0.06, 0.0, 0.82), mov1_pos=(0.06, 0.0, 0.82), unmov0_pos=(0.15, 0.0, 0.82))
    pose = world().view(state)["unmov0_pos"], world().view(state)["unmov0_quat"]
    state = run(state, ((0, 0, 0, CLOSE), 10), ((1, 0, 0, CLOSE), 25))
    view = world().view(state)
    assert view.position("mov1")[0, 0] > 0.08
    assert view.position("mov0")[0, 0] < view.position("mov1")[0, 0] < 0.125
    np.testing.assert_array_equal(view["unmov0_pos"], pose[0])
    np.testing.assert_array_equal(view["unmov0_quat"], pose[1])
    assert view.hit("mov0", "mov1")[0] or view.hit("mov1", "unmov0")[0]


def test_events_name_what_touches_what() -> None:
    events = world().events(held())
    assert set(events) >= {"mov0 grasped", "mov2 touched", "mov0 hit mov1", "mov1 hit unmov0"}
    assert {name for name, happened in events.items() if happened[0]} == {"mov0 grasped", "mov0 touched"}
    stacked = placed(clear_table(), mov0_pos=(-0.2, -0.2, 0.8599))
    assert {name for name, happened in world().events(stacked).items() if happened[0]} == {"mov0 hit unmov0"}


def test_markers_walk_at_random_within_their_box() -> None:
    state = start(50)
    rng = np.random.default_rng(3)
    track = [state[:, world().columns["marker0_pos"]]]
    for _ in range(60):
        state = world().step(state, np.zeros((50, 4)), rng)
        track.append(state[:, world().columns["marker0_pos"]])
    path = np.array(track)
    assert (path >= MARKER_LOW).all() and (path <= MARKER_HIGH).all()
    inside = (np.abs(path[:-1, :, :2]) < 0.25).all(axis=2)
    steps = np.diff(path[..., :2], axis=0)[inside]
    assert steps.std() == pytest.approx(0.01, rel=0.05)
    assert abs(np.corrcoef(steps[:-1, 0], steps[1:, 0])[0, 1]) < 0.1


# Determinism


def digest(seed: int, threads: int = 1) -> str:
    block = BlockWorld(threads=threads)
    rng = np.random.default_rng(seed)
    state = block.reset(3, rng)
    act = block.policy("mixed", 3, rng)
    for _ in range(25):
        state = block.step(state, act(state, rng), rng)
    return hashlib.sha256(np.ascontiguousarray(state).tobytes()).hexdigest()


def test_a_seed_gives_the_same_trajectory_in_two_processes_and_with_two_threads() -> None:
    here = digest(7)
    assert digest(7, threads=2) == here
    assert digest(8) != here
    code = "import sys; sys.path.insert(0, 'tests'); from test_block import digest; print(digest(7))"
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here


def test_copies_do_not_depend_on_each_other() -> None:
    """A step is a function of a copy's state and action, whatever its neighbours do and whatever was before."""
    state = np.concatenate([start(6, seed=2), held()])
    action = np.random.default_rng(0).uniform(-1, 1, (7, 4))
    size = world().backend.size
    together = world().backend.step(state[:, :size], action)
    order = np.array([3, 6, 0, 5, 1, 2, 4])
    np.testing.assert_array_equal(world().backend.step(state[order, :size], action[order]), together[order])
    for k in (0, 6):
        alone = world().backend.step(state[k : k + 1, :size], action[k : k + 1])
        np.testing.assert_array_equal(alone[0], together[k])


# Gymnasium, graphs, options


@pytest.mark.parametrize("observation", ["box", "dict"])
def test_gymnasium_finds_nothing_to_complain_about(observation: str) -> None:
    check_env(gymnasium.make("cbm/Block-v0", task="stack", observation=observation).unwrapped)


def test_the_graphs() -> None:
    block = world()
    paper, physical = block.truths["paper"], block.truths["physical"]
    assert paper.shape == physical.shape == (47, 48)
    assert paper.sum() == 480, "of 47 x 48 pairs"
    assert physical is block.truth
    names = block.factors.names

    def closure(graph: np.ndarray, wanted: np.ndarray) -> set[str]:
        while True:
            more = wanted | graph[wanted][:, :47].any(axis=0)
            if (more == wanted).all():
                return {name for name, keep in zip(names, wanted) if keep}
            wanted = more

    pick = {name for k, name in enumerate(names) if k < 17}
    assert closure(paper, block.truth_rewards["pick"]) == pick
    stack = closure(paper, block.truth_rewards["stack"])
    assert stack == pick | {name for name in names if name.startswith("unmov0")}
    assert {name for name, on in zip(names, block.truth_rewards["reach"]) if on} == {"eef_x", "eef_y", "eef_z"}
    for graph in (paper, physical):
        for k in range(31, 47):
            assert np.flatnonzero(graph[k]).tolist() == [k]
    fixed = {name: physical[:, k].sum() for k, name in enumerate(names) if name.startswith("unmov0")}
    assert physical.sum() == 1132 and {name for name, effects in fixed.items() if effects == 1} == {
        "unmov0_z", "unmov0_qx", "unmov0_qy",
    }, "they never vary"  # fmt: skip


@pytest.mark.skipif("MUJOCO_GL" not in os.environ, reason="needs MUJOCO_GL=egl or another way to draw")
def test_a_picture_shows_the_blocks() -> None:
    picture = world().render(clear_table()[0], 160, 120)
    assert picture.shape == (120, 160, 3) and picture.dtype == np.uint8
    elsewhere = world().render(placed(clear_table(), mov0_pos=(0.1, 0.1, 0.82))[0], 160, 120)
    assert 20 < (picture != elsewhere).any(axis=2).sum() < 4000


def test_wrong_options() -> None:
    for options, message in (
        ({"formula": "pape"}, "block: unknown formula 'pape'"),
        ({"backend": "bullet"}, "block: unknown backend 'bullet'"),
        ({"threads": 0}, "threads"),
        ({"blocks": 4}, "unknown option 'blocks'"),
    ):
        with pytest.raises(DataError, match=message):
            make_world("block", **options)
    with pytest.raises(DataError, match="unknown policy 'series'"):
        world().policy("series", 1, np.random.default_rng(0))


def test_a_missing_simulator_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(DataError, match=r"pip install 'cbm-rl\[mujoco\]'"):
        BlockWorld()
