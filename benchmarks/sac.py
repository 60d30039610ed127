"""One update of our SAC compared with Tianshou's, and returns on Pendulum compared with Stable-Baselines3's.

Both sides run in one process and one thread, in turns: a round times each of them once, in CPU seconds, so that a busy
machine slows both alike. Times are medians over rounds, ratios medians of the ratios within rounds. Ours includes
normalising and masking the inputs, which the other side does not do. `learn` is an update on a given batch; `sample +
learn` also draws the batch, on the other side from its own buffer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from tianshou.algorithm.modelfree.sac import SAC, Alpha, AutoAlpha, SACPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from torch import Tensor, nn

from benchmarks import pendulum
from benchmarks.store import Columns, Row, Store
from cbm.agents.base import Sample, Shape
from cbm.agents.networks import Networks
from cbm.agents.sac import Sac, ScheduledAlpha
from cbm.agents.settings import SacSettings

VARIABLES, CONTEXT, ACTIONS = 87, 3, 4
"""The block world with 20 + 20 distractors and a goal."""
ROWS = 20_000
"""Transitions to draw from."""
UPDATES = 10
"""Updates of each side per round."""
COLUMNS = Columns(
    key=("hidden", "measured", "variables", "context", "actions", "batch", "rounds"),
    numbers=("ours_ms", "tianshou_ms", "ratio"),
    text=("hidden", "measured"),
    whole=("variables", "context", "actions", "batch", "rounds"),
)


@dataclass(frozen=True)
class Options:
    """CPU time of one SAC update, ours and stock Tianshou's, in one run."""

    seed: int = 0
    """Seed of the weights and the batches."""
    quick: bool = False
    """Few and short rounds, to check that everything works; not a measurement."""
    out: Path | None = None
    """CSV file for the numbers; rows that it already contains are not measured again."""
    pendulum: bool = False
    """Measure returns on Pendulum-v1 instead, ours and those of Stable-Baselines3's SAC, three seeds each (minutes)."""


def main(options: Options) -> dict[str, Any]:
    if options.pendulum:
        return pendulum.main(options.seed, options.quick, options.out)
    store = Store(options.out, COLUMNS)
    rounds = 3 if options.quick else 25
    plain = SacSettings(hidden=(128, 128))
    agents = (plain, replace(plain, layer_norm=True), replace(plain, hidden=(256, 256)))
    rows = [row for settings in agents for row in _measure(settings, rounds, options.seed, store)]
    table = Table(title=f"One SAC update, {VARIABLES} + {CONTEXT} inputs, one thread", title_justify="left")
    for column in ("hidden", "", "ours, ms", "Tianshou, ms", "ours / Tianshou"):
        table.add_column(column, justify="right")
    for row in rows:
        times = (f"{row[name]:.3g}" for name in ("ours_ms", "tianshou_ms"))
        table.add_row(row["hidden"], row["measured"], *times, f"{row['ratio']:.2f}")
    Console().print(table)
    return {"updates": rows}


def _measure(settings: SacSettings, rounds: int, seed: int, store: Store) -> list[Row]:
    name = " x ".join(map(str, settings.hidden)) + (", layer norm" if settings.layer_norm else "")
    agent = Sac(settings, Shape(VARIABLES, CONTEXT, ACTIONS, seed, total_updates=1_000_000))
    sac = stock_sac(agent)
    data = _random_rows(ROWS, torch.Generator().manual_seed(seed))
    buffer, rng = _stock_buffer(data), np.random.default_rng(seed)
    fixed = _take(data, np.arange(settings.batch))
    inputs = torch.cat((fixed.obs, fixed.context), 1), torch.cat((fixed.next_obs, fixed.next_context), 1)

    def with_sampling() -> None:
        agent.update(_take(data, rng.integers(ROWS, size=settings.batch)))

    sides: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "learn": (lambda: agent.update(fixed), lambda: stock_update(sac, fixed, *inputs)),
        "sample + learn": (with_sampling, lambda: sac.update(buffer, settings.batch)),
    }
    rows = []
    for measured, (ours, theirs) in sides.items():
        key: Row = dict(zip(COLUMNS.key, (name, measured, VARIABLES, CONTEXT, ACTIONS)))
        key |= {"batch": settings.batch, "rounds": rounds}
        row = store.find(key)
        if row is None:
            row = key | _in_turns(ours, theirs, rounds)
            store.add(row)
        rows.append(row)
    return rows


def _in_turns(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> Row:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        times = np.array([[_seconds(side) for side in (ours, theirs)] for _ in range(rounds + 1)])[1:]
    finally:
        torch.set_num_threads(threads)
    mine, stock = 1000 * np.median(times, 0)
    ratio = np.median(times[:, 0] / times[:, 1])
    return {"ours_ms": float(mine), "tianshou_ms": float(stock), "ratio": float(ratio)}


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    for _ in range(UPDATES):
        work()
    return (time.process_time() - start) / UPDATES


# The other side


class Scheduled(Alpha):
    """Our schedule with Tianshou's interface."""

    def __init__(self, schedule: ScheduledAlpha):
        self.schedule = schedule

    @property
    def value(self) -> float:
        return self.schedule.value

    def update(self, entropy: Tensor) -> None:
        self.schedule.update(entropy)


def stock_sac(agent: Sac, alpha: Alpha | None = None) -> SAC:
    """Tianshou's SAC as its documentation builds it, with the weights and settings of an agent.

    Its entropy weight is tuned unless another `alpha` is given; it clips no gradients.
    """
    settings, inputs, actions = agent.settings, agent.variables + agent.context, agent.actions
    with torch.random.fork_rng(devices=[]):  # its constructors draw weights that are replaced below
        net = Net(state_shape=inputs, hidden_sizes=settings.hidden)
        actor = ContinuousActorProbabilistic(
            preprocess_net=net, action_shape=actions, unbounded=True, conditioned_sigma=True
        )
        critics = [_stock_critic(inputs, actions, settings) for _ in range(2)]
    _copy(agent.actor, 0, _linear(actor))
    for which, critic in enumerate(critics):
        _copy(agent.critics, which, _linear(critic))
    box = gymnasium.spaces.Box(-1.0, 1.0, (actions,))
    adam = AdamOptimizerFactory(lr=settings.learning_rate)
    target = -float(actions) if settings.target_entropy is None else settings.target_entropy
    sac: SAC = SAC(
        policy=SACPolicy(actor=actor, action_space=box, action_scaling=False),
        policy_optim=adam,
        critic=critics[0],
        critic_optim=adam,
        critic2=critics[1],
        critic2_optim=adam,
        tau=settings.tau,
        gamma=settings.gamma,
        alpha=alpha or AutoAlpha(target, float(np.log(settings.alpha_start)), adam),
    )
    sac.policy.is_within_training_step = True  # what its trainer sets, so that actions are drawn
    return sac


def _stock_critic(inputs: int, actions: int, settings: SacSettings) -> ContinuousCritic:
    norm: dict[str, Any] = {"norm_layer": nn.LayerNorm, "norm_args": {"elementwise_affine": False}}
    net = Net(
        state_shape=inputs,
        action_shape=actions,
        hidden_sizes=settings.hidden,
        concat=True,
        **(norm if settings.layer_norm else {}),
    )
    return ContinuousCritic(preprocess_net=net)


def stock_update(sac: SAC, sample: Sample, state: Tensor, following: Tensor) -> Any:
    """What Tianshou's `update` does after drawing a batch, with states as the networks see them."""
    ahead = Batch(obs=following, info=None)
    with torch.no_grad():
        value = sac._target_q_compute_value(ahead, sac._target_q_compute_action(ahead)).flatten()
    returns = sample.reward + sac.gamma * (1 - sample.terminated) * value
    return sac._update_with_batch(Batch(obs=state, act=sample.action, returns=returns, info=None))


def _linear(network: nn.Module) -> list[nn.Linear]:
    """Its layers from inputs to outputs; an actor's last two are mean and spread, side by side."""
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


@torch.no_grad()
def _copy(networks: Networks, which: int, layers: list[nn.Linear]) -> None:
    for depth, (weight, bias) in enumerate(zip(networks.weights, networks.biases)):
        heads = layers[depth:] if depth == len(networks.weights) - 1 else [layers[depth]]
        sizes = [head.out_features for head in heads]
        for head, w, b in zip(heads, weight[which].split(sizes, 1), bias[which, 0].split(sizes)):
            head.weight.copy_(w.T)
            head.bias.copy_(b)


# Data


def _random_rows(rows: int, generator: torch.Generator) -> Sample:
    def normal(*size: int) -> Tensor:
        return torch.randn(rows, *size, generator=generator)

    return Sample(
        obs=normal(VARIABLES),
        context=normal(CONTEXT),
        action=normal(ACTIONS).tanh(),
        reward=normal(),
        next_obs=normal(VARIABLES),
        next_context=normal(CONTEXT),
        terminated=torch.zeros(rows),
    )


def _take(data: Sample, rows: np.ndarray) -> Sample:
    index = torch.from_numpy(rows)
    return Sample(**{name: tensor[index] for name, tensor in vars(data).items()})


def _stock_buffer(data: Sample) -> ReplayBuffer:
    buffer = ReplayBuffer(size=len(data.reward))
    obs = torch.cat((data.obs, data.context), 1).numpy()
    obs_next = torch.cat((data.next_obs, data.next_context), 1).numpy()
    no = np.zeros(len(obs), dtype=bool)
    act, rew = data.action.numpy(), data.reward.numpy().astype(np.float64)
    for row in Batch(obs=obs, act=act, rew=rew, terminated=no, truncated=no, obs_next=obs_next):
        buffer.add(row)
    return buffer
