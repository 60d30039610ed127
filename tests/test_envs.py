"""Built-in worlds behind Gymnasium: rules, seeds, options, mistakes. Graphs are in test_true_graphs.py."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from cbm.data.factors import Factors
from cbm.envs import list_worlds, make_world, register_envs
from cbm.envs.contact import ContactWorld
from cbm.envs.gym import GymWorld
from cbm.envs.registry import WORLDS
from cbm.errors import DataError

HARD: dict[str, Any] = {"blocks": 4, "distractors": 12, "rescale": True}
CONTACT_OPTIONS: list[dict[str, Any]] = [{}, HARD, {"blocks": 2, "distractors": 0}, {"world_seed": 7}]
EVERY_WORLD: list[tuple[str, dict[str, Any]]] = [
    *(("contact", options) for options in CONTACT_OPTIONS),
    ("light", {}),
]


def raw(env: gymnasium.Env[Any, Any]) -> GymWorld:
    assert isinstance(env.unwrapped, GymWorld)
    return env.unwrapped


# Gymnasium


@pytest.mark.parametrize("observation", ["box", "dict"])
@pytest.mark.parametrize(
    ("env_id", "options"), [("cbm/Contact-v0", {}), ("cbm/Contact-v0", HARD), ("cbm/Light-v0", {})]
)
def test_gymnasium_finds_nothing_to_complain_about(env_id: str, options: dict[str, Any], observation: str) -> None:
    check_env(gymnasium.make(env_id, observation=observation, **options).unwrapped)


def test_ids_are_registered_once() -> None:
    before = dict(gymnasium.registry)
    register_envs()
    assert gymnasium.registry == before
    assert {"cbm/Contact-v0", "cbm/Light-v0"} <= set(before)


@pytest.mark.parametrize(
    "script",
    [
        "import cbm, gymnasium; env = gymnasium.make('cbm/Contact-v0')",
        "import gymnasium; env = gymnasium.make('cbm:cbm/Contact-v0')",
        "import gymnasium; env = gymnasium.make('cbm.envs:cbm/Contact-v0')",
    ],
)
def test_make_works_in_a_fresh_process(script: str) -> None:
    assert run_python(f"{script}; env.reset(seed=0); print(len(env.unwrapped.factors))") == "36"


def test_an_environment_can_be_made_from_its_spec() -> None:
    env = gymnasium.make("cbm/Contact-v0", task="stack", blocks=4)
    assert env.spec is not None
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert raw(again).task == "stack"
    assert again.observation_space == env.observation_space


def test_properties_of_an_environment() -> None:
    env = GymWorld("contact", "stack", blocks=4)
    assert env.tasks == ("pick", "stack")
    assert env.factors.names[:5] == ("hand_x", "hand_y", "hand_z", "gripper", "block0_x")
    d = len(env.factors)
    assert env.true_graph.shape == (d, d + 1)
    assert set(env.true_rewards) == {"pick", "stack"}
    env.true_graph[:] = True
    env.true_rewards["pick"][:] = True
    assert not env.true_graph.all() and not env.true_rewards["pick"].all(), "callers get copies"
    assert env.action_space == spaces.Box(-1.0, 1.0, (4,), np.float32)
    assert env.render_mode is None


def test_the_first_task_is_the_default() -> None:
    assert raw(gymnasium.make("cbm/Contact-v0")).task == "pick"
    assert raw(gymnasium.make("cbm/Light-v0")).task == "cross"


def test_a_dict_observation_has_the_names_and_flattens_to_the_box() -> None:
    box, named = GymWorld("contact", **HARD), GymWorld("contact", observation="dict", **HARD)
    space = named.observation_space
    assert isinstance(space, spaces.Dict)
    assert tuple(space.spaces) == box.factors.names
    assert Factors.from_spaces(space, named.action_space).names == box.factors.names
    values, _ = box.reset(seed=3)
    parts, _ = named.reset(seed=3)
    np.testing.assert_array_equal(spaces.flatten(space, parts), values)


@pytest.mark.parametrize("name", WORLDS)
def test_episodes_are_truncated_and_never_terminate(name: str) -> None:
    env = GymWorld(name)
    env.action_space.seed(0)
    for _ in range(2):
        env.reset(seed=1)
        for t in range(1, env.world.horizon + 1):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            assert terminated is False
            assert truncated is (t == env.world.horizon)


@pytest.mark.parametrize(("name", "options"), EVERY_WORLD)
def test_the_environment_is_one_copy_of_the_world(name: str, options: dict[str, Any]) -> None:
    """Step by step, with the same random numbers; rewards belong to the state after the step."""
    world = make_world(name, **options)
    task = world.tasks[-1]
    env = GymWorld(name, task, **options)
    rng = np.random.default_rng(11)  # Gymnasium seeds its generators in the same way
    state = world.reset(1, rng)
    observed, info = env.reset(seed=11)
    assert info == {}
    np.testing.assert_array_equal(observed, world.observe(state)[0])
    actions = np.random.default_rng(0).uniform(-1, 1, (world.horizon, world.action_size))
    for action in actions:
        state = world.step(state, action[None], rng)
        observed, reward, _, _, info = env.step(action)
        np.testing.assert_array_equal(observed, world.observe(state)[0])
        np.testing.assert_array_equal(env.state, state[0])
        assert info["rewards"] == {key: value[0] for key, value in world.rewards(state).items()}
        assert reward == info["rewards"][task]


def test_reset_to_a_given_state() -> None:
    env = GymWorld("light")
    start = np.array([0.5, 0.1, 1.0, 0.7, 0.0, 0.2])
    observed, _ = env.reset(seed=0, options={"state": start})
    np.testing.assert_array_equal(observed, start)
    start[:] = 9  # the environment keeps its own copy
    assert env.state[0] == 0.5


def test_several_environments_at_once() -> None:
    vector = gymnasium.make_vec("cbm/Contact-v0", num_envs=3, task="stack")
    vector.reset(seed=0)
    _, reward, _, _, info = vector.step(np.zeros((3, 4), np.float32))
    np.testing.assert_array_equal(info["rewards"]["stack"], reward)


def test_a_world_of_ones_own() -> None:
    env = GymWorld(ContactWorld(blocks=2), "stack")
    assert len(env.factors) == 33
    with pytest.raises(DataError, match="options blocks are for a world that is given by its name"):
        GymWorld(ContactWorld(), blocks=2)


# Mistakes


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("contcat", {}, "unknown world 'contcat'; did you mean 'contact'?"),
        ("zzz", {}, "unknown world 'zzz'; there are: contact, light"),
        ("gymnasium:Pendulum-v1", {}, "only cbm learn takes Gymnasium environments; the worlds here are contact"),
        ("contact", {"bricks": 3}, "contact: unknown option 'bricks'; its options are blocks, distractors"),
        ("light", {"blocks": 3}, "light: unknown option 'blocks'; its options are distractors, world_seed, backend"),
        ("light", {"backend": "mujoco"}, "light: unknown backend 'mujoco'; choose one of numpy"),
        ("light", {"distractors": -1}, "light: option 'distractors' must be a whole number >= 0, not -1"),
        ("contact", {"blocks": 1}, "contact: option 'blocks' must be a whole number >= 2, not 1"),
        ("contact", {"blocks": 2.5}, "contact: option 'blocks' must be a whole number >= 2, not 2.5"),
        ("contact", {"blocks": True}, "contact: option 'blocks' must be a whole number"),
        ("contact", {"distractors": -1}, "contact: option 'distractors' must be a whole number >= 0"),
        ("contact", {"rescale": "yes"}, "contact: option 'rescale' must be True or False, not 'yes'"),
        ("contact", {"world_seed": -1}, "contact: option 'world_seed' must be a whole number >= 0"),
        ("contact", {"task": "pikc"}, "unknown task 'pikc'; did you mean 'pick'?"),
        ("contact", {"observation": "dictionary"}, "unknown kind of observation"),
        ("contact", {"render_mode": "human"}, "render_mode 'human'"),
    ],
)
def test_mistakes_are_named(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message.replace("?", r"\?")):
        GymWorld(name, **options)


def test_mistakes_reach_the_user_through_gymnasium() -> None:
    with pytest.raises(DataError, match="unknown option 'bricks'"):
        gymnasium.make("cbm/Contact-v0", bricks=3)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ([0.0], r"step: action has shape \(1,\), expected \(2,\)"),
        ([0.0, np.nan], "step: action is not finite at position 1"),
        (["a", "b"], "step: action must hold 2 numbers"),
    ],
)
def test_bad_actions(action: Any, message: str) -> None:
    env = GymWorld("light")
    env.reset(seed=0)
    with pytest.raises(DataError, match=message):
        env.step(action)


def test_bad_resets() -> None:
    env = GymWorld("light")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2))
    with pytest.raises(DataError, match="unknown option 'start'"):
        env.reset(options={"start": 0})
    with pytest.raises(DataError, match=r"option 'state' has shape \(3,\), expected \(6,\)"):
        env.reset(options={"state": np.zeros(3)})


@pytest.mark.parametrize("name", WORLDS)
def test_unknown_policies(name: str) -> None:
    with pytest.raises(DataError, match=f"{name}: unknown policy 'magic'; choose one of"):
        make_world(name).policy("magic", 1, np.random.default_rng(0))


# The list


def test_list_of_worlds() -> None:
    listed = {entry["name"]: entry for entry in list_worlds()}
    assert list(listed) == list(WORLDS)
    assert listed["contact"] == {
        "name": "contact",
        "id": "cbm/Contact-v0",
        "variables": 36,
        "tasks": ["pick", "stack"],
        "backends": ["numpy"],
        "true_graph": True,
    }


@pytest.mark.parametrize("name", WORLDS)
def test_the_list_says_what_the_worlds_are(name: str) -> None:
    """It is made without making them, so it could be wrong."""
    world, entry = make_world(name), WORLDS[name]
    assert (len(world.factors), world.tasks) == (entry.variables, entry.tasks)


def test_worlds_whose_simulator_is_missing_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    listed = {entry["name"]: entry for entry in list_worlds()}
    assert listed["cheetah"]["missing"] == {"mujoco": "pip install 'cbm-rl[mujoco]'"}
    assert "missing" not in listed["contact"]


# Seeds


def trajectory_hash(env_id: str, seed: int) -> str:
    env = gymnasium.make(env_id)
    env.action_space.seed(seed)
    observed, _ = env.reset(seed=seed)
    digest = hashlib.sha256(observed.tobytes())
    for _ in range(40):
        observed, reward, *_ = env.step(env.action_space.sample())
        digest.update(observed.tobytes() + np.float64(reward).tobytes())
    return digest.hexdigest()


def run_python(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("env_id", ["cbm/Contact-v0", "cbm/Light-v0"])
def test_a_seed_gives_the_same_trajectory_here_and_in_another_process(env_id: str) -> None:
    here = trajectory_hash(env_id, 5)
    assert here == trajectory_hash(env_id, 5)
    assert here != trajectory_hash(env_id, 6)
    folder = __file__.rsplit("/", 1)[0]
    script = f"import sys; sys.path.insert(0, {folder!r}); import test_envs; "
    assert run_python(script + f"print(test_envs.trajectory_hash({env_id!r}, 5))") == here
