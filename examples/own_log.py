"""Your own data: a log of any Gymnasium environment, its causal graph, the minimal state.

    python examples/own_log.py

Here the environment is a pendulum with two more sensors, a thermometer and a meter of the last torque. Both change
all the time, the torque moves one of them, and no reward needs either: the graph shows it. Nothing in the code below
`log` knows about pendulums.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from gymnasium import spaces

import cbm
from cbm.discovery.settings import Preset, preset

NAMES = ("cos", "sin", "speed", "temperature", "torque_meter")


@dataclass(frozen=True)
class Args:
    """From a log of one's own to the state that its reward needs."""

    transitions: int = 20_000
    """Steps of the log."""
    minutes: float | None = None
    """Ceiling for finding the graph; what is not settled by then is undecided. Default: none."""
    preset: Preset = "fast"
    """How large the models are; `debug` is for a quick try."""
    seed: int = 0
    """Of the log and of the models."""
    out: Path = Path("runs/own_log")
    """Where the log (`log.npz`) and the run with its `graph.json` go."""


class MoreSensors(gymnasium.Wrapper[np.ndarray, np.ndarray, np.ndarray, np.ndarray]):
    """A pendulum beside a thermometer that drifts, and with a meter of the torque that was applied."""

    def __init__(self, env: gymnasium.Env[np.ndarray, np.ndarray]):
        super().__init__(env)
        self.observation_space = spaces.Box(-np.inf, np.inf, (len(NAMES),), np.float64)
        self.temperature = 20.0

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        observed, info = super().reset(**kwargs)
        return np.append(observed, [self.temperature, 0.0]), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observed, reward, terminated, truncated, info = super().step(action)
        self.temperature += 0.05 * (20 - self.temperature) + 0.2 * self.np_random.normal()
        return np.append(observed, [self.temperature, float(action[0])]), reward, terminated, truncated, info


def log(env: gymnasium.Env[Any, Any], steps: int, seed: int) -> cbm.Transitions:
    """What an agent of yours writes down while it acts; this one acts at random.

    One row is one step: what was observed before it, the action, the reward, what was observed after it. After an
    episode's last step comes a reset, and no row joins the two.
    """
    rows: dict[str, list[Any]] = {name: [] for name in ("obs", "action", "next_obs", "reward", "end")}
    observed, _ = env.reset(seed=seed)
    env.action_space.seed(seed)
    for _ in range(steps):
        action = env.action_space.sample()
        after, reward, terminated, truncated, _ = env.step(action)
        for name, value in zip(rows, (observed, action, after, reward, (terminated, truncated)), strict=True):
            rows[name].append(value)
        observed = env.reset()[0] if terminated or truncated else after
    terminated_rows, truncated_rows = np.array(rows["end"]).T
    return cbm.Transitions(
        obs=np.array(rows["obs"]),
        action=np.array(rows["action"]),
        next_obs=np.array(rows["next_obs"]),
        factors=cbm.Factors.from_spaces(env.observation_space, env.action_space, names=NAMES),
        rewards={"upright": np.array(rows["reward"])},  # any number of rewards, each by its name
        terminated=terminated_rows,
        truncated=truncated_rows,
    )


def main(args: Args) -> None:
    env = MoreSensors(gymnasium.make("Pendulum-v1"))
    data = log(env, args.transitions, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    data.save(args.out / "log.npz")  # `cbm discover` reads this file as well
    print(f"{data}, saved as {args.out / 'log.npz'}")

    # This reward is paid for the state before the step and for the action; built-in worlds pay for the state after it.
    settings = replace(preset(args.preset), reward_inputs="state-action")
    run = args.out / "run"  # `cbm report` makes a page of it; the same call again goes on with it or is done at once
    graph = cbm.discover(data, minutes=args.minutes, settings=settings, seed=args.seed, run=run)
    for name in graph.variables:
        print(f"{name} <- {', '.join(graph.parents(name)) or 'nothing'}")
    print(f"upright needs {', '.join(graph.abstraction('upright'))}")

    wrapped = cbm.AbstractionWrapper(env, graph, reward="upright")
    observed, _ = wrapped.reset(seed=args.seed)
    print(f"an agent sees {dict(zip(wrapped.kept, observed.round(2).tolist(), strict=True))}")


if __name__ == "__main__":
    main(tyro.cli(Args))
