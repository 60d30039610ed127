"""Cheetah and Walker against dm_control itself, and their graphs against interventions."""

from __future__ import annotations

import hashlib
import importlib
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from cbm.envs import make_world
from cbm.envs.collect import collect
from cbm.envs.gym import GymWorld
from cbm.errors import DataError

pytest.importorskip("dm_control")
from cbm.envs.dmc import CheetahWorld, DmcWorld, WalkerWorld

BOTH = [CheetahWorld, WalkerWorld]


def reference(world: DmcWorld, seed: int) -> Any:
    """dm_control's own environment, with the start that the world draws for its first copy."""
    suite = importlib.import_module("dm_control.suite")
    drawn = int(np.random.default_rng(seed).integers(2**32, size=1)[0])
    return suite.load(world.name, world.task, task_kwargs={"random": np.random.RandomState(drawn)})


def flat(step: Any) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in step.observation.values()])


def visited(world: DmcWorld, copies: int = 6, every: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """States of the first 300 steps of the mixed policy, and the actions there."""
    rng = np.random.default_rng(0)
    state = world.reset(copies, rng)
    act = world.policy("mixed", copies, rng)
    states, actions = [], []
    for t in range(300):
        action = act(state, rng)
        if t % every == 0:
            states.append(state)
            actions.append(action)
        state = world.step(state, action, rng)
    return np.concatenate(states), np.concatenate(actions)


# The same as dm_control


@pytest.mark.parametrize("kind", BOTH)
def test_a_trajectory_is_that_of_dm_control(kind: type[DmcWorld]) -> None:
    world = kind()
    env, rng = reference(world, seed=4), np.random.default_rng(4)
    state = world.reset(1, rng)
    np.testing.assert_array_equal(world.observe(state)[0], flat(env.reset()))
    paid = 0.0
    for t in range(250):
        action = np.sin(0.05 * t + np.arange(6))  # swings, so that it moves
        state = world.step(state, action[None], rng)
        theirs = env.step(action)
        np.testing.assert_allclose(world.observe(state)[0], flat(theirs), rtol=0, atol=1e-12)
        assert world.rewards(state)[world.task][0] == pytest.approx(theirs.reward, abs=1e-12)
        paid += theirs.reward
    assert paid > 1, "the comparison is of rewards that are not all zero"


@pytest.mark.parametrize("kind", BOTH)
def test_copies_that_take_turns_do_not_disturb_each_other(kind: type[DmcWorld]) -> None:
    """To the last bit: a state holds all that its future depends on."""
    world = kind()
    rng = np.random.default_rng(0)
    together = world.reset(3, rng)
    alone = together[1:2].copy()
    actions = rng.uniform(-1, 1, (60, 3, 6))
    for action in actions:
        together = world.step(together, action, rng)
    for action in actions:
        alone = world.step(alone, action[1:2], rng)
    np.testing.assert_array_equal(together[1], alone[0])
    np.testing.assert_allclose(world.rewards(together)[world.task][1], world.rewards(alone)[world.task][0], rtol=1e-12)


@pytest.mark.parametrize("kind", BOTH)
def test_actions_are_clipped(kind: type[DmcWorld]) -> None:
    world = kind()
    rng = np.random.default_rng(0)
    state = world.reset(1, rng)
    np.testing.assert_array_equal(world.step(state, np.full((1, 6), 9.0), rng), world.step(state, np.ones((1, 6)), rng))


def test_names() -> None:
    cheetah, walker = CheetahWorld(), WalkerWorld()
    assert cheetah.factors.names[:3] == ("rootz_pos", "rooty_pos", "bthigh_pos")
    assert cheetah.factors.names[8:11] == ("rootx_vel", "rootz_vel", "rooty_vel")
    assert walker.factors.names[:2] == ("torso_xx", "torso_xz")
    assert walker.factors.names[14:17] == ("height", "rootz_vel", "rootx_vel")
    assert walker.factors.names[-1] == "left_ankle_vel"
    assert cheetah.factors.action_names == ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
    assert (len(cheetah.factors), len(walker.factors)) == (17, 24)
    assert (cheetah.tasks, walker.tasks) == (("run",), ("walk",))
    assert cheetah.horizon == walker.horizon == 1000


# Interventions and graphs


@pytest.mark.parametrize("kind", BOTH)
def test_an_intervention_changes_what_it_says_and_nothing_else(kind: type[DmcWorld]) -> None:
    world = kind()
    state, _ = visited(world, every=60)
    kept = state.copy()
    rng = np.random.default_rng(0)
    for j in np.flatnonzero(world.settable):
        value = world.observe(state)[:, j] + rng.normal(0, 0.1, len(state))
        changed = world.intervene(state, int(j), value)
        expected = world.observe(state).copy()
        expected[:, j] = value
        np.testing.assert_allclose(world.observe(changed), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(state, kept)


@pytest.mark.parametrize("kind", BOTH)
def test_setting_a_variable_to_what_it_is_changes_nothing(kind: type[DmcWorld]) -> None:
    world = kind()
    state, action = visited(world, every=100)
    rng = np.random.default_rng(0)
    after = world.observe(world.step(state, action, rng))
    for j in np.flatnonzero(world.settable):
        same = world.intervene(state, int(j), world.observe(state)[:, j])
        np.testing.assert_allclose(world.observe(world.step(same, action, rng)), after, rtol=0, atol=1e-6)


def changed_states(world: DmcWorld, state: np.ndarray, rng: np.random.Generator) -> dict[tuple[int, ...], np.ndarray]:
    """States in which one variable, or the two of an orientation, differ; the key says which."""
    observed = world.observe(state)
    changed: dict[tuple[int, ...], np.ndarray] = {
        (int(j),): world.intervene(state, int(j), rng.permutation(observed[:, j]))
        for j in np.flatnonzero(world.settable)
    }
    if isinstance(world, WalkerWorld):
        for j in range(0, 14, 2):
            body = world.factors.variables[j].group
            changed[j, j + 1] = world.turn(state, body, rng.normal(0, 0.2, len(state)))
    return changed


@pytest.mark.parametrize("kind", BOTH)
def test_every_declared_edge_acts(kind: type[DmcWorld]) -> None:
    """Of Walker's orientations it can be seen only that the two numbers of one act together."""
    world = kind()
    state, action = visited(world)
    rng = np.random.default_rng(1)
    base = world.observe(world.step(state, action, rng))
    usual = (base - world.observe(state)).std(0)
    cases = [(other, action) for other in changed_states(world, state, rng).values()]
    cases.append((state, rng.uniform(-1, 1, action.shape)))
    assert world.truth.all(), "all are declared"
    for other, act in cases:
        effect = np.abs(world.observe(world.step(other, act, rng)) - base) / usual
        assert ((effect > 1e-4).mean(0) > 0.02).all()


@pytest.mark.parametrize("kind", BOTH)
def test_declared_reward_parents_are_what_interventions_show(kind: type[DmcWorld]) -> None:
    world = kind()
    state, _ = visited(world)
    before = world.rewards(state)[world.task]
    parents = world.truth_rewards[world.task]
    for columns, other in changed_states(world, state, np.random.default_rng(1)).items():
        acts = (np.abs(world.rewards(other)[world.task] - before) > 1e-9).any()
        assert acts == parents[list(columns)].any(), [world.factors.names[j] for j in columns]


def test_walkers_speed_follows_from_the_declared_parents_of_its_reward() -> None:
    """The centre of mass moves with the torso, and each body turns what hangs on it: only one number of each
    orientation enters, which interventions cannot tell apart from the other."""
    world = WalkerWorld()
    model: Any = world._model
    state, _ = visited(world)
    read = dict(zip(world.factors.names, np.where(world.truth_rewards["walk"], world.observe(state), np.nan).T))
    names = [variable.group for variable in world.factors.variables[:14:2]]
    joints = dict(
        zip(names, ("rooty", "right_hip", "right_knee", "right_ankle", "left_hip", "left_knee", "left_ankle"))
    )
    spin, hinge, total = {}, {}, 0.0
    for number, body in enumerate(names, 1):
        parent = int(model.body_parentid[number])
        if parent == 0:
            spin[body], hinge[body] = read["rooty_vel"], read["rootx_vel"]  # speed of the joint the body hangs on
        else:
            above = names[parent - 1]
            spin[body] = spin[above] - read[f"{joints[body]}_vel"]
            arm = model.body_pos[number] + model.jnt_pos[number + 1] - anchor(model, parent)
            hinge[body] = hinge[above] + spin[above] * reach(read, above, arm)
        speed = hinge[body] + spin[body] * reach(read, body, model.body_ipos[number] - anchor(model, number))
        total = total + model.body_mass[number] * speed
    np.testing.assert_allclose(total / model.body_mass.sum(), state[:, 25], rtol=0, atol=1e-9)


def anchor(model: Any, body: int) -> np.ndarray:
    """Where a body's hinge sits in its own frame."""
    return np.asarray(model.jnt_pos[body + 1])


def reach(read: dict[str, np.ndarray], body: str, arm: np.ndarray) -> np.ndarray:
    """Height difference that an arm, given in the body's frame, makes in the world."""
    up = np.zeros(len(read["height"]))
    if abs(arm[2]) > 1e-12:
        up = up + arm[2] * read[f"{body}_xx"]
    if abs(arm[0]) > 1e-12:
        up = up - arm[0] * read[f"{body}_xz"]
    return up


def test_walkers_orientations_cannot_be_set_one_number_at_a_time() -> None:
    world = WalkerWorld()
    state = world.reset(2, np.random.default_rng(0))
    assert world.settable.tolist() == [False] * 14 + [True] * 10
    with pytest.raises(DataError, match="variable 'torso_xx' follows from others and cannot be set"):
        world.intervene(state, 0, np.zeros(2))


def test_turning_one_body_of_the_walker_leaves_the_others() -> None:
    world = WalkerWorld()
    state = world.reset(3, np.random.default_rng(0))
    before = world.observe(state)
    for j in range(0, 14, 2):
        turned = world.observe(world.turn(state, world.factors.variables[j].group, 0.3))
        angle = np.arctan2(before[:, j + 1], before[:, j])
        np.testing.assert_allclose(turned[:, j], np.cos(angle + 0.3), atol=1e-12)
        np.testing.assert_allclose(turned[:, j + 1], np.sin(angle + 0.3), atol=1e-12)
        others = np.delete(np.arange(24), [j, j + 1])
        np.testing.assert_allclose(turned[:, others], before[:, others], atol=1e-12)
    with pytest.raises(DataError, match="walker: no body 'head'"):
        world.turn(state, "head", 0.1)


# Policies, pictures


def test_mixed_actions_move_the_cheetah_further_than_random_ones() -> None:
    world = CheetahWorld()
    spread = {}
    for policy in ("random", "waves", "mixed"):
        rng = np.random.default_rng(0)
        state = world.reset(4, rng)
        act = world.policy(policy, 4, rng)
        rows = []
        for _ in range(300):
            state = world.step(state, act(state, rng), rng)
            rows.append(world.observe(state)[:, :8])
        spread[policy] = np.std(rows, axis=(0, 1)).mean()
    assert min(spread["waves"], spread["mixed"]) > 1.3 * spread["random"]


@pytest.mark.parametrize("kind", BOTH)
def test_pictures(kind: type[DmcWorld]) -> None:
    world = kind()
    state = world.reset(1, np.random.default_rng(0))[0]
    try:
        image = world.render(state, 160, 120)
    except Exception as error:  # whatever the graphics of this machine say
        pytest.skip(f"no rendering here: {error}")
    assert image.shape == (120, 160, 3) and image.dtype == np.uint8
    assert image.std() > 5


# Gymnasium, seeds, mistakes


@pytest.mark.parametrize("name", ["Cheetah", "Walker"])
def test_gymnasium_finds_nothing_to_complain_about(name: str) -> None:
    check_env(gymnasium.make(f"cbm/{name}-v0").unwrapped)


def trajectory_hash(name: str, seed: int) -> str:
    data = collect(make_world(name), 300, seed=seed, copies=2)
    return hashlib.sha256(data.next_obs.tobytes() + data.action.tobytes()).hexdigest()


@pytest.mark.parametrize("name", ["cheetah", "walker"])
def test_a_seed_gives_the_same_trajectory_here_and_in_another_process(name: str) -> None:
    here = trajectory_hash(name, 5)
    assert here != trajectory_hash(name, 6)
    folder = __file__.rsplit("/", 1)[0]
    script = f"import sys; sys.path.insert(0, {folder!r}); import test_dmc as t; print(t.trajectory_hash({name!r}, 5))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == here, done.stderr


def test_a_state_can_be_given_back() -> None:
    env = GymWorld("walker")
    env.reset(seed=0)
    for _ in range(5):
        env.step(np.ones(6))
    saved = env.state
    first, *_ = env.step(np.zeros(6))
    env.reset(seed=1, options={"state": saved})
    again, *_ = env.step(np.zeros(6))
    np.testing.assert_array_equal(first, again)


def test_an_impossible_action_is_named_and_the_world_goes_on() -> None:
    world = CheetahWorld()
    rng = np.random.default_rng(0)
    state = world.reset(1, rng)
    fine = world.step(state, np.zeros((1, 6)), rng)
    with pytest.raises(DataError, match="cheetah: the state or action is impossible for the simulator"):
        world.step(state, np.full((1, 6), np.nan), rng)
    np.testing.assert_array_equal(world.step(state, np.zeros((1, 6)), rng), fine)


def test_an_impossible_intervention_is_named_and_the_world_goes_on() -> None:
    world = CheetahWorld()
    rng = np.random.default_rng(0)
    state = world.reset(1, rng)
    with pytest.raises(DataError, match="cheetah: the state or action is impossible for the simulator"):
        world.intervene(state, 0, np.array([1e11]))
    after = world.step(state, np.zeros((1, 6)), rng)
    np.testing.assert_array_equal(after, CheetahWorld().step(state, np.zeros((1, 6)), rng))


def test_pictures_have_a_largest_size() -> None:
    world = CheetahWorld()
    state = world.reset(1, np.random.default_rng(0))[0]
    assert world.render(state, 1280, 960).shape == (960, 1280, 3)
    with pytest.raises(DataError, match="2000x100 is too large: at most 1280x960"):
        world.render(state, 2000, 100)


def test_a_missing_simulator_is_told_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dm_control.suite", None)
    with pytest.raises(DataError, match=r"cheetah: dm_control cannot be imported .*pip install 'cbm-rl\[mujoco\]'"):
        CheetahWorld()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 2}, "cheetah: unknown option 'blocks'; its options are distractors, world_seed, backend"),
        ({"backend": "robosuite"}, "cheetah: unknown backend 'robosuite'; choose one of mujoco"),
        ({"distractors": 1.5}, "cheetah: option 'distractors' must be a whole number >= 0, not 1.5"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_world("cheetah", **options)
