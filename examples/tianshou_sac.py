"""Tianshou's SAC, collectors and trainer on the minimal state: `python examples/tianshou_sac.py --help`.

    python examples/tianshou_sac.py                            # finds the graph first, in a few minutes
    python examples/tianshou_sac.py --graph runs/contact       # takes that of a `cbm discover` run

Needs Tianshou 2: `pip install 'tianshou>=2.0.1,<3'`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import tyro
from gymnasium import spaces
from safetensors.torch import save_file
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic

import cbm
from cbm.envs.collect import collect


@dataclass(frozen=True)
class Args:
    """SAC of Tianshou in front of the variables that one reward needs."""

    graph: Path | None = None
    """A `graph.json`, or the run directory of `cbm discover` that has one; without it the graph is found first."""
    task: str = "pick"
    """The task of the contact world, and the reward that decides what is kept."""
    steps: int = 30_000
    """Steps of training, all copies together."""
    demonstrations: int = 100
    """Scripted episodes that are in the replay buffer before training; without any, grasping is found late."""
    copies: int = 4
    """Environments that are stepped together."""
    epochs: int = 5
    """Training is divided into so many parts with a test after each."""
    episodes: int = 50
    """Episodes of a test."""
    minutes: float | None = None
    """Ceiling for finding the graph; what is not settled by then is undecided. Default: none."""
    seed: int = 0
    """Of the networks and the environments."""
    out: Path = Path("runs/tianshou_sac")
    """Where the weights of the policy go."""


def find_graph(args: Args) -> cbm.CausalGraph:
    if args.graph is not None:
        return cbm.CausalGraph.load(args.graph)
    print("collecting transitions and looking for their causes; this takes a few minutes")
    return cbm.discover(collect(cbm.make_world("contact"), 60_000), minutes=args.minutes)


def make_algorithm(env: cbm.AbstractionWrapper) -> SAC:
    """Tianshou's SAC with its own networks; they see what the wrapper shows."""
    observed, actions = spaces.flatdim(env.observation_space), spaces.flatdim(env.action_space)
    body = Net(state_shape=observed, hidden_sizes=(128, 128))
    actor = ContinuousActorProbabilistic(
        preprocess_net=body, action_shape=actions, unbounded=True, conditioned_sigma=True
    )
    critics = []
    for _ in range(2):
        body = Net(state_shape=observed, action_shape=actions, hidden_sizes=(128, 128), concat=True)
        critics.append(ContinuousCritic(preprocess_net=body))
    adam = AdamOptimizerFactory(lr=1e-3)
    return SAC(
        policy=SACPolicy(actor=actor, action_space=env.action_space, observation_space=env.observation_space),
        policy_optim=adam,
        critic=critics[0],
        critic_optim=adam,
        critic2=critics[1],
        critic2_optim=adam,
        gamma=0.95,
        alpha=AutoAlpha(-float(actions), math.log(0.05), adam),
    )


def demonstrate(buffer: VectorReplayBuffer, env: cbm.AbstractionWrapper, args: Args) -> None:
    """A log is good for more than its graph: rows of it in the buffer, seen through the same wrapper."""
    world = cbm.make_world("contact")
    each = args.demonstrations // args.copies * world.horizon  # rows for every copy's part of the buffer
    data = collect(world, args.copies * each, seed=args.seed)
    ends = np.diff(data.episode, append=-1) != 0
    rows = {
        "obs": np.array([env.observation(row) for row in data.obs]),
        "act": data.action.astype(np.float32),
        "rew": data.rewards[args.task],
        "obs_next": np.array([env.observation(row) for row in data.next_obs]),
        "terminated": np.zeros_like(ends),
        "truncated": ends,
        "done": ends,
    }
    parts = {name: values.reshape(args.copies, each, *values.shape[1:]) for name, values in rows.items()}
    for t in range(each):
        buffer.add(Batch({name: part[:, t] for name, part in parts.items()}, info={}), np.arange(args.copies))


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # small networks
    graph = find_graph(args)

    def make_env() -> cbm.AbstractionWrapper:
        return cbm.AbstractionWrapper(gymnasium.make("cbm/Contact-v0", task=args.task), graph, reward=args.task)

    first = make_env()
    print(f"{args.task} needs {len(first.kept)} of {len(first.mask)} variables: {', '.join(first.kept)}")
    algorithm = make_algorithm(first)

    # Tianshou's own vector environments, not Gymnasium's: these never reset by themselves, the collector does it, so
    # that no stored row joins two episodes. The buffer keeps `terminated` and `truncated` apart, and the value of the
    # state after a truncation counts.
    training, test = DummyVectorEnv([make_env] * args.copies), DummyVectorEnv([make_env] * args.copies)
    training.seed(args.seed)
    test.seed(args.seed + 1000)
    reached: list[bool] = []  # of the episodes of tests

    def note(episode_batch: Any) -> None:
        reached.append(bool(episode_batch.info.success[args.task][-1]))

    buffer = VectorReplayBuffer(args.steps + 50 * args.demonstrations + 50 * args.copies, args.copies)
    collector = Collector[CollectStats](algorithm, training, buffer)
    collector.reset()
    if args.demonstrations >= args.copies:
        demonstrate(buffer, first, args)
    collector.collect(n_step=25 * args.copies, random=True)
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=collector,
            test_collector=Collector[CollectStats](algorithm, test, on_episode_done_hook=note),
            max_epochs=args.epochs,
            epoch_num_steps=args.steps // args.epochs,
            collection_step_num_env_steps=4 * args.copies,
            update_step_num_gradient_steps_per_sample=0.25,
            batch_size=256,
            test_step_num_episodes=args.episodes,
            show_progress=False,
        )
    )
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(algorithm.policy.state_dict(), args.out / "policy.safetensors")
    success = np.mean(reached[-args.episodes :])
    print(f"{args.steps} steps in {result.timing.train_time:.0f} s: success {success:.0%} of {args.episodes} episodes")


if __name__ == "__main__":
    main(tyro.cli(Args))
