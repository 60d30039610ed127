"""SAC in one file, to be read from top to bottom, on the minimal state: `python examples/cleanrl_sac.py --help`.

    python examples/cleanrl_sac.py --graph runs/contact                  # the observation shrinks to what is needed
    python examples/cleanrl_sac.py --graph runs/contact --mode mask      # it keeps its shape, with zeros for the rest

Without `--graph` the graph is found first, in a few minutes. The style is CleanRL's, the code is our own.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
import tyro
from gymnasium import spaces
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import mse_loss, softplus

import cbm
from cbm.envs.collect import collect


@dataclass(frozen=True)
class Args:
    """SAC in front of the variables that one reward needs."""

    graph: Path | None = None
    """A `graph.json`, or the run directory of `cbm discover` that has one; without it the graph is found first."""
    mode: Literal["drop", "mask"] = "drop"
    """drop: the observation has the kept variables only. mask: it has all of them, the others are 0."""
    task: str = "pick"
    """The task of the contact world, and the reward that decides what is kept."""
    steps: int = 30_000
    """Steps of training."""
    random_steps: int = 100
    """Steps with random actions, before learning starts."""
    demonstrations: int = 100
    """Scripted episodes that are in the buffer before training; without any, grasping is found late."""
    every: int = 50
    """Episodes of training between two printed lines."""
    batch: int = 256
    """Transitions in an update."""
    interval: int = 4
    """Steps between two updates."""
    gamma: float = 0.95
    """Discount."""
    tau: float = 0.005
    """How much of the critics goes into their targets in an update."""
    learning_rate: float = 1e-3
    """Of actor, critics and temperature."""
    minutes: float | None = None
    """Ceiling for finding the graph; what is not settled by then is undecided. Default: none."""
    seed: int = 0
    """Of everything."""
    out: Path = Path("runs/cleanrl_sac")
    """Where the weights of the actor go."""


def mlp(inputs: int, outputs: int, width: int = 128) -> nn.Sequential:
    hidden = (nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


class Actor(nn.Module):
    """A Gaussian, squashed into (-1, 1) by tanh."""

    def __init__(self, inputs: int, actions: int):
        super().__init__()
        self.body = mlp(inputs, 2 * actions)

    def forward(self, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """An action (B, a), its log-density (B,), and the action without noise (B, a)."""
        mean, raw = self.body(observed).chunk(2, dim=-1)
        log_std = -5 + 3.5 * (torch.tanh(raw) + 1)  # between -5 and 2
        noise = torch.randn_like(mean)
        before = mean + log_std.exp() * noise
        density = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        density = density - 2 * (math.log(2) - before - softplus(-2 * before))  # log of the slope of tanh
        return torch.tanh(before), density.sum(-1), torch.tanh(mean)


class Replay:
    """Rows of (observed, action, reward, observed next, terminated)."""

    def __init__(self, capacity: int, inputs: int, actions: int):
        self.parts = [np.zeros((capacity, size), np.float32) for size in (inputs, actions, 1, inputs, 1)]
        self.rows = 0

    def add(self, *values: Any) -> None:
        for part, value in zip(self.parts, values, strict=True):
            part[self.rows] = value
        self.rows += 1

    def sample(self, n: int, rng: np.random.Generator) -> list[Tensor]:
        rows = rng.integers(self.rows, size=n)
        return [torch.from_numpy(part[rows]) for part in self.parts]


def find_graph(args: Args) -> cbm.CausalGraph:
    if args.graph is not None:
        return cbm.CausalGraph.load(args.graph)
    print("collecting transitions and looking for their causes; this takes a few minutes")
    return cbm.discover(collect(cbm.make_world("contact"), 60_000), minutes=args.minutes)


def main(args: Args) -> None:
    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # small networks

    env = cbm.AbstractionWrapper(
        gymnasium.make("cbm/Contact-v0", task=args.task), find_graph(args), reward=args.task, mode=args.mode
    )
    inputs, actions = spaces.flatdim(env.observation_space), spaces.flatdim(env.action_space)
    print(f"{args.task} needs {', '.join(env.kept)}; the networks see {inputs} numbers ({args.mode})")

    actor = Actor(inputs, actions)
    critics, targets = (nn.ModuleList(mlp(inputs + actions, 1) for _ in range(2)) for _ in range(2))
    targets.load_state_dict(critics.state_dict())
    log_alpha = torch.tensor(math.log(0.05), requires_grad=True)
    target_entropy = -float(actions)
    actor_optimiser = torch.optim.Adam(actor.parameters(), args.learning_rate)
    critic_optimiser = torch.optim.Adam(critics.parameters(), args.learning_rate)
    alpha_optimiser = torch.optim.Adam([log_alpha], args.learning_rate)
    world = cbm.make_world("contact")
    replay = Replay(args.steps + args.demonstrations * world.horizon, inputs, actions)
    if args.demonstrations:  # a log is good for more than its graph: rows of it, seen through the same wrapper
        data = collect(world, args.demonstrations * world.horizon, seed=args.seed)
        for row, action in enumerate(data.action):
            shown = (env.observation(observed[row]) for observed in (data.obs, data.next_obs))
            replay.add(next(shown), action, data.rewards[args.task][row], next(shown), False)

    def smallest(of: nn.ModuleList, observed: Tensor, action: Tensor) -> Tensor:
        """The smaller of two values (B,)."""
        joined = torch.cat([observed, action], dim=-1)
        return torch.minimum(*(critic(joined)[:, 0] for critic in of))

    observed, _ = env.reset(seed=args.seed)
    returns, successes, total, began = [], [], 0.0, time.perf_counter()
    for step in range(1, args.steps + 1):
        # One step. The environment is reset by hand, so no row joins two episodes; only `terminated` is stored,
        # because a value goes on beyond a truncation.
        if step <= args.random_steps:
            action = rng.uniform(-1, 1, actions).astype(np.float32)
        else:
            with torch.no_grad():
                action = actor(torch.as_tensor(observed, dtype=torch.float32)[None])[0][0].numpy()
        after, reward, terminated, truncated, info = env.step(action)
        replay.add(observed, action, reward, after, terminated)
        observed, total = after, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            successes.append(info["success"][args.task])
            observed, total = env.reset()[0], 0.0
            if len(returns) % args.every == 0:
                mean, success = np.mean(returns[-args.every :]), np.mean(successes[-args.every :])
                print(f"step {step}: return {mean:.1f}, success {success:.0%}, {time.perf_counter() - began:.0f} s")
        if step <= args.random_steps or step % args.interval:
            continue

        # One update of the critics, the actor, the temperature and the targets.
        before, done, paid, later, ended = replay.sample(args.batch, rng)
        alpha = log_alpha.exp().detach()
        with torch.no_grad():
            next_action, density, _ = actor(later)
            value = smallest(targets, later, next_action) - alpha * density
            goal = paid[:, 0] + args.gamma * (1 - ended[:, 0]) * value
        joined = torch.cat([before, done], dim=-1)
        critic_loss = sum((mse_loss(critic(joined)[:, 0], goal) for critic in critics), start=torch.zeros(()))
        critic_optimiser.zero_grad()
        critic_loss.backward()
        critic_optimiser.step()

        proposed, density, _ = actor(before)
        actor_loss = (alpha * density - smallest(critics, before, proposed)).mean()
        actor_optimiser.zero_grad()
        actor_loss.backward()
        actor_optimiser.step()

        alpha_loss = -(log_alpha * (density.detach() + target_entropy)).mean()
        alpha_optimiser.zero_grad()
        alpha_loss.backward()
        alpha_optimiser.step()

        with torch.no_grad():
            for target, critic in zip(targets.parameters(), critics.parameters()):
                target.lerp_(critic, args.tau)

    args.out.mkdir(parents=True, exist_ok=True)
    save_file(actor.state_dict(), args.out / "actor.safetensors")
    last = successes[-args.every :] or [False]
    print(f"success {np.mean(last):.0%} of the last {len(last)} episodes of training")


if __name__ == "__main__":
    main(tyro.cli(Args))
