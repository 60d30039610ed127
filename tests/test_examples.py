"""The examples run, and Stable-Baselines3's SAC learns from the minimal state and from nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import cbm
from cbm.data.transitions import Transitions
from cbm.envs.collect import collect
from cbm.envs.gym import GymWorld
from cbm.graph import CausalGraph

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDED = {"sb3_sac": "stable_baselines3", "tianshou_sac": "tianshou"}
AGENTS = ["sb3_sac", "cleanrl_sac", "tianshou_sac"]
KEPT = ("hand_x", "hand_y", "hand_z", "gripper", "block0_x", "block0_y", "block0_z")


def needs(name: str) -> None:
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])


@pytest.fixture
def contact_run(tmp_path: Path, graph_of: Callable[[Transitions], CausalGraph]) -> Path:
    """A run directory with the true graph of the contact world."""
    run = tmp_path / "contact"
    run.mkdir()
    graph_of(collect(cbm.make_world("contact"), 300)).save(run)
    return run


def run_example(name: str, *arguments: object) -> str:
    """What it prints, as a command of its own."""
    needs(name)
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *(str(argument) for argument in arguments)]
    # Tianshou's buffers compile themselves when they are first used, which takes longer than all of this.
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(name: str) -> ModuleType:
    """An example as a module."""
    needs(name)
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


# As commands


def test_sb3(contact_run: Path, tmp_path: Path) -> None:
    demos = ("--demonstrations", 2)
    out = run_example("sb3_sac", "--graph", contact_run, "--steps", 120, "--episodes", 1, *demos, "--out", tmp_path)
    assert f"pick needs 7 of 36 variables: {', '.join(KEPT)}\n" in out
    assert (tmp_path / "agent.zip").exists()


def test_cleanrl(contact_run: Path, tmp_path: Path) -> None:
    budget = ("--steps", 120, "--random-steps", 100, "--every", 1, "--demonstrations", 2, "--mode", "mask")
    out = run_example("cleanrl_sac", "--graph", contact_run, *budget, "--out", tmp_path)
    assert "the networks see 36 numbers (mask)\n" in out
    assert "step 100: return" in out and "% of the last 1 episodes" in out
    assert load_file(tmp_path / "actor.safetensors")["body.0.weight"].shape == (128, 36)


def test_cleanrl_with_fewer_inputs(
    contact_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded("cleanrl_sac")
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    with torch.random.fork_rng():
        arguments = {"graph": contact_run, "steps": 110, "demonstrations": 0, "batch": 16, "out": tmp_path}
        example.main(example.Args(**arguments))
    assert "the networks see 7 numbers (drop)\n" in capsys.readouterr().out
    assert load_file(tmp_path / "actor.safetensors")["body.0.weight"].shape == (128, 7)


@pytest.mark.slow
def test_tianshou(contact_run: Path, tmp_path: Path) -> None:
    budget = ("--steps", 64, "--demonstrations", 4, "--epochs", 1, "--episodes", 2, "--copies", 2)
    out = run_example("tianshou_sac", "--graph", contact_run, *budget, "--out", tmp_path)
    assert "pick needs 7 of 36 variables" in out and "Epoch #1: test_reward" in out
    assert "64 steps in" in out and "of 2 episodes" in out
    assert (tmp_path / "policy.safetensors").exists()


@pytest.mark.slow
def test_a_log_of_ones_own(tmp_path: Path) -> None:
    budget = ("--transitions", 4000, "--preset", "debug")
    out = run_example("own_log", *budget, "--out", tmp_path)
    assert "4000 rows, 20 episodes, 5 variables, rewards: upright" in out
    assert "torque_meter <- action\n" in out and "temperature <- temperature\n" in out
    assert "upright needs cos, sin, speed\n" in out
    assert "an agent sees {'cos': " in out
    assert len(Transitions.load(tmp_path / "log.npz")) == 4000
    assert CausalGraph.load(tmp_path / "run").abstraction("upright") == ("cos", "sin", "speed")


@pytest.mark.parametrize("name", AGENTS)
def test_without_a_graph_they_look_for_one(
    name: str, contact_run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example = loaded(name)
    asked: dict[str, Any] = {}

    def discover(data: Transitions, *, minutes: float) -> CausalGraph:
        asked.update(names=data.factors.names, rows=len(data), minutes=minutes)
        return CausalGraph.load(contact_run)

    monkeypatch.setattr(cbm, "discover", discover)
    monkeypatch.setattr(example, "collect", lambda world, steps: collect(world, steps // 100))
    graph = example.find_graph(example.Args(minutes=0.5))
    assert graph.abstraction("pick") == KEPT
    assert asked == {"names": cbm.make_world("contact").factors.names, "rows": 600, "minutes": 0.5}
    assert "looking for their causes" in capsys.readouterr().out


# Stable-Baselines3 on the wrapper


def test_sac_of_stable_baselines_sees_the_minimal_state_only(contact_run: Path, tmp_path: Path) -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    made = gymnasium.make("cbm/Contact-v0", task="pick")
    raw = made.unwrapped
    assert isinstance(raw, GymWorld)
    env = cbm.AbstractionWrapper(made, CausalGraph.load(contact_run), reward="pick")
    assert env.kept == KEPT
    assert env.factors is not None and env.factors.names == KEPT

    small: dict[str, Any] = {"learning_starts": 100, "batch_size": 64, "policy_kwargs": {"net_arch": [32, 32]}}
    agent = sb3.SAC("MlpPolicy", env, seed=0, device="cpu", **small)
    first = agent.actor.latent_pi[0]
    assert agent.observation_space.shape == (7,) and first.in_features == 7, "the networks have no more inputs"
    before = first.weight.detach().clone()
    agent.learn(300)
    assert agent.num_timesteps == 300 and agent._n_updates == 200
    assert agent.replay_buffer.observations.shape[-1] == 7
    assert (first.weight != before).any() and np.isfinite(first.weight.detach().numpy()).all()

    observed, _ = env.reset(seed=3)
    action, _ = agent.predict(observed, deterministic=True)
    assert action in env.action_space
    state = raw.state
    state[7:] = np.random.default_rng(0).uniform(-0.4, 0.4, len(state) - 7)  # other blocks and all distractors
    same, _ = env.reset(seed=3, options={"state": state})
    np.testing.assert_array_equal(agent.predict(same, deterministic=True)[0], action)

    agent.save(tmp_path / "agent.zip")
    again = sb3.SAC.load(tmp_path / "agent.zip", env=env, device="cpu")
    np.testing.assert_array_equal(again.predict(observed, deterministic=True)[0], action)
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        sb3.SAC.load(tmp_path / "agent.zip", env=made, device="cpu")
