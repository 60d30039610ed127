"""The robosuite backend: its controller beside robosuite's own, the seam, interventions, scripts, what it refuses."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from cbm.envs import make_world
from cbm.envs.manipulation.block import BlockWorld
from cbm.envs.manipulation.tool import ToolWorld
from cbm.errors import DataError

mujoco = pytest.importorskip("mujoco")
pytest.importorskip("numba")

from cbm.envs.manipulation.robosuite_scene import import_robosuite, quiet, scene_model  # noqa: E402

try:
    import_robosuite()
except DataError as missing:
    pytest.skip(str(missing), allow_module_level=True)

from cbm.envs.manipulation.osc import Arm, turn  # noqa: E402
from cbm.envs.manipulation.robosuite_backend import (  # noqa: E402
    DOWN,
    FINGER_OPEN,
    FINGER_STEP,
    RobosuiteBackend,
)

OPEN, CLOSE = -1.0, 1.0


@cache
def world() -> BlockWorld:
    return BlockWorld(backend="robosuite")


def backend() -> RobosuiteBackend:
    found = world().backend
    assert isinstance(found, RobosuiteBackend)
    return found


def start(n: int = 1, seed: int = 0) -> np.ndarray:
    """States of the backend, without what the world adds."""
    return world().reset(n, np.random.default_rng(seed))[:, : backend().size]


def read(state: np.ndarray, quantity: str) -> np.ndarray:
    return np.asarray(state[:, backend().columns[quantity]])


def tilt(state: np.ndarray) -> float:
    """How far the hand of the first copy is turned from pointing straight down."""
    arm = Arm(mujoco, backend().model, mujoco.MjData(backend().model))
    arm.data.qpos[:] = state[0, : backend().model.nq]
    mujoco.mj_kinematics(backend().model, arm.data)
    return float(np.linalg.norm(turn(DOWN, arm.orientation)))


# Beside robosuite's own controller


@pytest.fixture(scope="module")
def stock() -> Any:
    """robosuite's Stack with the arm, gripper and controller of this backend."""
    with quiet():
        import robosuite
        from robosuite import controllers

        config = controllers.load_composite_controller_config(controller="BASIC", robot="UR5e")
        arm = controllers.load_part_controller_config(default_controller="OSC_POSITION")
        arm["gripper"] = config["body_parts"]["right"]["gripper"]
        config["body_parts"] = {"right": arm}
        return robosuite.make(
            "Stack", robots="UR5e", gripper_types="RethinkGripper", controller_configs=config, control_freq=20,
            has_renderer=False, has_offscreen_renderer=False, use_camera_obs=False, ignore_done=True,
            hard_reset=False, seed=0,
        )  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
def test_the_arm_moves_as_with_robosuites_own_controller(stock: Any, seed: int) -> None:
    stock.reset()
    model, theirs = stock.sim.model._model, stock.sim.data._data
    ours = mujoco.MjData(model)
    ours.qpos[:], ours.qvel[:] = theirs.qpos, theirs.qvel
    arm, rng = Arm(mujoco, model, ours), np.random.default_rng(seed)
    hand = model.site("gripper0_right_grip_site").id
    target, way = 0.0, 0.0
    for _ in range(60):
        action = rng.uniform(-1, 1, 4)
        before = theirs.site_xpos[hand].copy()
        stock.step(action)
        mujoco.mj_kinematics(model, ours)
        target = float(np.clip(target + FINGER_STEP * np.sign(action[3]), -1, 1))
        ours.qacc_warmstart[:] = 0
        arm.run(25, arm.position + 0.05 * action[:3], None, target)
        assert np.abs(ours.site_xpos[hand] - theirs.site_xpos[hand]).max() < 1e-6
        assert np.abs(ours.qpos[:8] - theirs.qpos[:8]).max() < 1e-6  # arm and fingers
        way += float(np.linalg.norm(theirs.site_xpos[hand] - before))
    assert way > 0.2


# The seam


def test_a_start_is_what_was_asked_for() -> None:
    hand = np.array([[-0.1, 0.0, 0.97], [0.25, -0.25, 0.85]])
    poses = world().placements(2, np.random.default_rng(3))
    state = backend().start(hand, poses)
    assert state.shape == (2, backend().size)
    assert np.allclose(read(state, "eef_pos"), hand, atol=1e-9) and np.all(read(state, "eef_vel") == 0)
    assert np.allclose(read(state, "finger_pos"), (FINGER_OPEN, -FINGER_OPEN)) and tilt(state) < 1e-9
    for k, name in enumerate(world().spec.names):
        assert np.array_equal(read(state, f"{name}_pos"), poses[:, k, :3])
        assert np.array_equal(read(state, f"{name}_quat"), poses[:, k, 3:])


def test_the_hand_goes_where_it_is_sent_and_stays_in_its_room() -> None:
    state = start()
    for action, axis in (([1, 0, 0], 0), ([0, -1, 0], 1), ([0, 0, -1], 2)):
        after = backend().step(state, np.array([[*action, OPEN]], dtype=float))
        moved = read(after, "eef_pos") - read(state, "eef_pos")
        assert 0.003 < moved[0] @ action < 0.05 and np.abs(moved[0]).argmax() == axis
        assert read(after, "eef_vel")[0] @ action > 0.05
    for _ in range(60):
        state = backend().step(state, np.array([[0.0, 1.0, 1.0, OPEN]]))
    assert np.allclose(read(state, "eef_pos")[0, 1:], world().spec.high[1:], atol=0.02)
    assert tilt(state) < 0.1


def test_fingers_follow_the_sign_of_the_command_over_many_steps() -> None:
    state = start()
    widths = []
    for _ in range(16):
        state = backend().step(state, np.array([[0.0, 0.0, 0.0, 0.1]]))
        left, right = read(state, "finger_pos")[0]
        widths.append(left - right)
        assert abs(left + right) < 1e-3
    assert widths[0] > 0.02 > widths[8] > widths[12] and widths[-1] < -0.02


def test_a_step_depends_on_the_state_and_the_action_alone() -> None:
    rng = np.random.default_rng(1)
    state = start(3)
    action = rng.uniform(-1, 1, (3, 4))
    for _ in range(3):
        state = backend().step(state, action)
    together = backend().step(state, action)
    alone = np.concatenate([backend().step(state[[k]], action[[k]]) for k in (2, 0, 1)])
    assert np.array_equal(together[[2, 0, 1]], alone)
    threads = RobosuiteBackend(world().spec, threads=2)
    assert np.array_equal(threads.step(state, action), together)


def test_contacts_are_those_of_the_state() -> None:
    state = start()
    place = read(state, "eef_pos")
    away = np.array([[0.25, 0.25, 0.82]])
    for name in world().spec.names:
        state = backend().write(state, f"{name}_pos", away)
        away = away - (0.0, 0.1, 0.0)
    assert not read(state, "touched").any() and not read(state, "hits").any()
    held = backend().write(backend().write(state, "mov0_pos", place), "finger_pos", np.array([[0.001, -0.001]]))
    held = backend().write(held, "mov0_quat", np.array([[0.0, 0.0, 0.0, 1.0]]))
    assert read(held, "grasped")[0].tolist() == [1, 0, 0, 0] and read(held, "touched")[0].tolist() == [1, 0, 0, 0]
    on = backend().write(state, "mov1_pos", read(state, "unmov0_pos") + (0.0, 0.0, 0.039))
    pairs = [(world().spec.names[a], world().spec.names[b]) for a, b in world().spec.pairs]
    assert [pair for pair, hit in zip(pairs, read(on, "hits")[0]) if hit] == [("mov1", "unmov0")]


def test_nothing_moves_the_fixed_block() -> None:
    state = start()
    place = np.array([[0.0, 0.0, 0.82]])
    state = backend().write(state, "unmov0_pos", place)
    state = backend().write(state, "eef_pos", place + (0.0, -0.08, 0.0))
    for _ in range(12):
        state = backend().step(state, np.array([[0.0, 1.0, 0.0, CLOSE]]))
    assert read(state, "touched")[0, 3] and np.array_equal(read(state, "unmov0_pos"), place)
    assert read(state, "eef_pos")[0, 1] < 0.0


# Interventions


def test_setting_the_hand_moves_the_arm_and_nothing_else() -> None:
    state = backend().step(start(2), np.array([[0.5, -0.5, 0.3, CLOSE], [-1.0, 0.2, 0.0, OPEN]]))
    goal = read(state, "eef_pos") + [[0.05, -0.03, -0.02], [-0.02, 0.1, 0.01]]
    moved = backend().write(state, "eef_pos", goal)
    assert np.allclose(read(moved, "eef_pos"), goal, atol=1e-9)
    assert np.allclose(read(moved, "eef_vel"), read(state, "eef_vel"), atol=1e-9)
    assert abs(tilt(moved) - tilt(state)) < 1e-9
    speed = np.array([[0.2, 0.0, -0.3], [0.0, 0.1, 0.0]])
    faster = backend().write(state, "eef_vel", speed)
    assert np.allclose(read(faster, "eef_vel"), speed, atol=1e-9)
    assert np.allclose(read(faster, "eef_pos"), read(state, "eef_pos"), atol=1e-12)
    for after in (moved, faster):
        for quantity in ("finger_pos", "finger_vel", "mov0_pos", "mov0_quat", "unmov0_pos"):
            assert np.array_equal(read(after, quantity), read(state, quantity)), quantity


def test_out_of_reach_the_hand_is_set_as_near_as_the_arm_gets() -> None:
    state = start()
    far = backend().write(state, "eef_pos", np.array([[1.5, 0.0, 0.9]]))
    reached = read(far, "eef_pos")[0]
    assert np.isfinite(far).all() and 0.3 < reached[0] < 1.0 and abs(reached[1]) < 0.1


def test_every_variable_can_be_set_through_the_world() -> None:
    rng = np.random.default_rng(0)
    state = world().reset(2, rng)
    observed = world().observe(state)
    for variable, name in enumerate(world().factors.names):
        value = 0.97 * observed[:, variable] + (0.0 if "_q" in name else 0.01)
        after = world().observe(world().intervene(state, variable, value))
        assert np.allclose(after[:, variable], value, atol=1e-6), name


# The worlds on it


@pytest.mark.parametrize("name", ["block", "tool"])
def test_worlds_are_those_of_the_other_backend(name: str) -> None:
    robosuite, other = make_world(name, backend="robosuite"), make_world(name)
    assert robosuite.factors == other.factors and robosuite.tasks == other.tasks
    rng = np.random.default_rng(0)
    state = robosuite.reset(2, rng)
    for policy in robosuite.policies:
        after = robosuite.step(state, robosuite.policy(policy, 2, rng)(state, rng), rng)
        assert np.isfinite(robosuite.observe(after)).all()
        assert all(np.isfinite(reward).all() for reward in robosuite.rewards(after).values())


def successes(world: Any, task: str, n: int, seed: int) -> int:
    rng = np.random.default_rng(seed)
    state, act, done = world.reset(n, rng), world.policy(task, n, rng), np.zeros(n, dtype=bool)
    for _ in range(world.horizon):
        state = world.step(state, act(state, rng), rng)
        done |= world.success(state)[task]
        if done.all():
            break
    return int(done.sum())


@pytest.mark.slow
def test_the_script_picks_a_block() -> None:
    assert successes(world(), "pick", 4, seed=0) >= 3


@pytest.mark.slow
def test_scripts_do_their_tasks() -> None:
    assert successes(world(), "pick", 40, seed=1) >= 36
    assert successes(world(), "stack", 40, seed=2) >= 34
    assert successes(ToolWorld(backend="robosuite"), "series", 30, seed=3) >= 22


@pytest.mark.slow
def test_what_is_only_seen_does_not_matter_to_physics() -> None:
    bare, full = (scene_model(mujoco, world().spec, 0.002, looks) for looks in (False, True))
    assert bare.ngeom < full.ngeom and bare.nq == full.nq
    assert np.array_equal(bare.body_mass, full.body_mass) and np.array_equal(bare.body_inertia, full.body_inertia)
    touching = [(model.geom_contype > 0) | (model.geom_conaffinity > 0) for model in (bare, full)]
    assert touching[0].sum() == touching[1].sum()
    picture = world().render(world().reset(1, np.random.default_rng(0))[0], 160, 120)
    assert picture.shape == (120, 160, 3) and picture.std() > 10


# What it refuses


def test_without_robosuite_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "robosuite", None)
    with pytest.raises(DataError, match="pip install 'cbm-rl\\[robosuite\\]'"):
        BlockWorld(backend="robosuite")


@pytest.mark.parametrize("timestep", [0.004, 0.1, 0.0031, 0.0, -0.002])
def test_a_timestep_must_fit(timestep: float) -> None:
    with pytest.raises(DataError, match="timestep"):
        RobosuiteBackend(world().spec, timestep=timestep)


def test_a_longer_timestep_is_an_option() -> None:
    quick = RobosuiteBackend(world().spec, timestep=0.005)
    state = start()
    action = np.array([[1.0, 0.0, 0.0, OPEN]])
    slow, fast = backend().step(state, action), quick.step(state, action)
    assert np.allclose(read(slow, "eef_pos"), read(fast, "eef_pos"), atol=2e-3)
