"""Stable-Baselines3's SAC on the minimal state: `python examples/sb3_sac.py --help`.

    python examples/sb3_sac.py                                       # finds the graph first, in a few minutes
    python examples/sb3_sac.py --graph runs/contact                  # takes that of a `cbm discover` run
    python examples/sb3_sac.py --graph runs/contact --everything     # for comparison: all 36 variables

Needs Stable-Baselines3: `pip install stable-baselines3`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from stable_baselines3 import SAC

import cbm
from cbm.envs.collect import collect


@dataclass(frozen=True)
class Args:
    """SAC of Stable-Baselines3 in front of the variables that one reward needs."""

    graph: Path | None = None
    """A `graph.json`, or the run directory of `cbm discover` that has one; without it the graph is found first."""
    task: str = "pick"
    """The task of the contact world, and the reward that decides what is kept."""
    everything: bool = False
    """Show the agent all variables."""
    steps: int = 30_000
    """Steps of training."""
    demonstrations: int = 100
    """Scripted episodes that are in the replay buffer before training; without any, grasping is found late."""
    episodes: int = 50
    """Episodes of the evaluation at the end."""
    minutes: float | None = None
    """Ceiling for finding the graph; what is not settled by then is undecided. Default: none."""
    seed: int = 0
    """Of the networks, the actions and the environment."""
    out: Path = Path("runs/sb3_sac")
    """Where the trained agent goes."""


def find_graph(args: Args) -> cbm.CausalGraph:
    if args.graph is not None:
        return cbm.CausalGraph.load(args.graph)
    print("collecting transitions and looking for their causes; this takes a few minutes")
    return cbm.discover(collect(cbm.make_world("contact"), 60_000), minutes=args.minutes)


def make_env(args: Args, graph: cbm.CausalGraph) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("cbm/Contact-v0", task=args.task)
    if args.everything:
        return env
    wrapped = cbm.AbstractionWrapper(env, graph, reward=args.task)  # the only line that is about causes
    print(f"{args.task} needs {len(wrapped.kept)} of {len(wrapped.mask)} variables: {', '.join(wrapped.kept)}")
    return wrapped


def demonstrate(agent: SAC, env: gymnasium.Env[Any, Any], args: Args) -> None:
    """A log is good for more than its graph: rows of it in the buffer, seen through the same wrapper."""
    world = cbm.make_world("contact")
    data = collect(world, args.demonstrations * world.horizon, seed=args.seed)
    show = env.observation if isinstance(env, cbm.AbstractionWrapper) else np.asarray
    assert agent.replay_buffer is not None
    for before, action, after, paid in zip(data.obs, data.action, data.next_obs, data.rewards[args.task]):
        agent.replay_buffer.add(show(before), show(after), action, paid, np.array([False]), [{}])


def evaluate(agent: SAC, env: gymnasium.Env[Any, Any], task: str, episodes: int) -> tuple[float, float]:
    """Mean return, and the share of episodes that end in success."""
    returns, successes = [], []
    for episode in range(episodes):
        observed, _ = env.reset(seed=100_000 + episode)
        total, over = 0.0, False
        while not over:
            action, _ = agent.predict(observed, deterministic=True)
            observed, reward, terminated, truncated, info = env.step(action)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
        successes.append(info["success"][task])
    return float(np.mean(returns)), float(np.mean(successes))


def main(args: Args) -> None:
    env = make_env(args, find_graph(args))
    # Small networks, a short view and one update in four steps: the state is small and episodes have 50 steps. They end
    # by truncation only, and SB3 looks beyond a truncation by itself.
    agent = SAC(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        gamma=0.95,
        train_freq=4,
        ent_coef="auto_0.05",
        buffer_size=args.steps + 50 * args.demonstrations,
        policy_kwargs={"net_arch": [128, 128]},
        seed=args.seed,
        device="cpu",
    )
    if args.demonstrations:
        demonstrate(agent, env, args)
    began = time.perf_counter()
    agent.learn(args.steps)
    spent = time.perf_counter() - began
    args.out.mkdir(parents=True, exist_ok=True)
    agent.save(args.out / "agent.zip")  # later: SAC.load(path, env=env), with the same wrapper in front of the agent
    mean, success = evaluate(agent, env, args.task, args.episodes)
    print(f"{args.steps} steps in {spent:.0f} s: return {mean:.1f}, success {success:.0%} of {args.episodes} episodes")


if __name__ == "__main__":
    main(tyro.cli(Args))
