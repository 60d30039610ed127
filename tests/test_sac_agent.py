"""The SAC agent: Tianshou's numbers, the mask, resets, exact continuation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tianshou.algorithm.modelfree.sac import SAC, AutoAlpha
from tianshou.algorithm.optim import AdamOptimizerFactory

from benchmarks.sac import Scheduled, _linear, stock_sac, stock_update
from cbm.agents.base import Sample, Shape
from cbm.agents.networks import Networks, limit
from cbm.agents.sac import Sac, ScheduledAlpha, TunedAlpha
from cbm.agents.settings import AlphaName, SacSettings
from cbm.errors import DataError

SETTINGS = SacSettings(hidden=(16, 24), batch=32)
VARIABLES, CONTEXT, ACTIONS = 6, 2, 3


pytestmark = pytest.mark.usefixtures("one_thread")


def make(settings: SacSettings = SETTINGS, seed: int = 0) -> Sac:
    agent = Sac(settings, Shape(VARIABLES, CONTEXT, ACTIONS, seed, total_updates=20))
    agent.normaliser.update(np.random.default_rng(3).normal(1.0, 2.0, (500, VARIABLES + CONTEXT)))
    agent.normaliser.freeze()
    return agent


def draw(seed: int, rows: int = 32) -> Sample:
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> torch.Tensor:
        return 1 + 2 * torch.randn(rows, *size, generator=generator)

    ends = (torch.rand(rows, generator=generator) < 0.3).float()
    action = normal(ACTIONS).tanh()
    return Sample(normal(VARIABLES), normal(CONTEXT), action, normal(), normal(VARIABLES), normal(CONTEXT), ends)


# Tianshou's numbers


def states(agent: Sac, sample: Sample) -> tuple[torch.Tensor, torch.Tensor]:
    return agent.inputs(sample.obs, sample.context), agent.inputs(sample.next_obs, sample.next_context)


def assert_same_weights(networks: Networks, which: int, stock: torch.nn.Module) -> None:
    layers = _linear(stock)
    for depth, (weight, bias) in enumerate(zip(networks.weights, networks.biases)):
        heads = layers[depth:] if depth == len(networks.weights) - 1 else [layers[depth]]
        torch.testing.assert_close(torch.cat([h.weight for h in heads]).T, weight[which], atol=1e-5, rtol=0)
        torch.testing.assert_close(torch.cat([h.bias for h in heads]), bias[which, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("alpha", ["auto", "schedule"])
@pytest.mark.parametrize("grad_clip", [None, 0.5])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_equal_to_stock_tianshou(alpha: AlphaName, grad_clip: float | None, layer_norm: bool) -> None:
    """Losses, actor, critics, targets and alpha over ten updates on the same weights, batches and noise."""
    settings = replace(SETTINGS, alpha=alpha, alpha_start=0.3, grad_clip=grad_clip, tau=0.1, layer_norm=layer_norm)
    agent = make(settings)
    agent.set_mask(np.array([True, False, True, True, False, True]))
    schedule = ScheduledAlpha(0.3, settings.alpha_finish, settings.alpha_decay, 20)
    sac: SAC = stock_sac(agent, Scheduled(schedule) if alpha == "schedule" else None)
    for optimiser in (sac.policy_optim, sac.critic_optim, sac.critic2_optim):
        optimiser._max_grad_norm = grad_clip
    agent.generator.manual_seed(5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)  # stock Tianshou draws its noise from here
        for step in range(10):
            sample = draw(step)
            theirs, ours = stock_update(sac, sample, *states(agent, sample)), agent.update(sample)
            assert ours["actor_loss"] == pytest.approx(theirs.actor_loss, abs=1e-5)
            assert 2 * ours["critic_loss"] == pytest.approx(theirs.critic1_loss + theirs.critic2_loss, abs=1e-4)
            assert agent.alpha.value == pytest.approx(sac.alpha.value, abs=1e-6)
    assert_same_weights(agent.actor, 0, sac.policy.actor)
    for which, (critic, lagged) in enumerate(((sac.critic, sac.critic_old), (sac.critic2, sac.critic2_old))):
        assert_same_weights(agent.critics, which, critic)
        assert_same_weights(agent.targets, which, lagged)


def test_each_network_is_clipped_on_its_own() -> None:
    long, short = torch.tensor([[[3.0, 0.0]], [[0.3, 0.0]]]), torch.tensor([[[4.0]], [[0.4]]])  # norms 5 and 0.5
    limit([long, short], 1.0)
    torch.testing.assert_close(long, torch.tensor([[[0.6, 0.0]], [[0.3, 0.0]]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(short, torch.tensor([[[0.8]], [[0.4]]]), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["actor", "critics"])
def test_actor_and_critics_are_clipped(name: str) -> None:
    free, clipped = make(replace(SETTINGS, grad_clip=None)), make(replace(SETTINGS, grad_clip=1e-3))
    for agent in (free, clipped):
        agent.update(draw(0))
    for agent, long in ((free, True), (clipped, False)):
        gradients = [parameter.grad[0].norm() for parameter in getattr(agent, name).parameters()]
        assert (torch.stack(gradients).norm() > 1.001e-3) == long


def test_tuned_alpha_is_tianshous() -> None:
    ours, theirs = TunedAlpha(0.2, -3.0, 1e-2), AutoAlpha(-3.0, float(np.log(0.2)), AdamOptimizerFactory(lr=1e-2))
    entropies = torch.randn(50, 32, generator=torch.Generator().manual_seed(0)) - 2.5
    for entropy in entropies:
        assert ours.update(entropy) == pytest.approx(theirs.update(entropy), abs=1e-5)
        assert ours.value == pytest.approx(theirs.value, abs=1e-5)


def test_schedule_of_the_appendix() -> None:
    alpha = ScheduledAlpha(start=0.9, finish=0.1, decay=6.66, total=100)
    seen = []
    for _ in range(101):
        seen.append(alpha.value)
        alpha.update(torch.zeros(1))
    assert seen[0] == 0.9
    assert seen[50] == pytest.approx(0.8 * np.exp(-3.33) + 0.1)
    assert seen[100] == pytest.approx(0.8 * np.exp(-6.66) + 0.1)


# The mask


def test_masked_variables_have_no_influence() -> None:
    sample, kept = draw(0), np.array([True, True, False, True, False, False])
    wild = sample.obs.clone(), sample.next_obs.clone()
    for obs in wild:
        obs[:, ~kept] += 1e6
    other = replace(sample, obs=wild[0], next_obs=wild[1])
    quiet, loud = make(), make()
    for agent in (quiet, loud):
        agent.set_mask(kept)
    for _ in range(3):
        assert quiet.update(sample) == loud.update(other)
    for deterministic in (True, False):
        a = quiet.act(sample.obs, sample.context, deterministic)
        np.testing.assert_array_equal(a, loud.act(other.obs, other.context, deterministic))
    a = quiet.value(sample.obs, sample.context, sample.action)
    np.testing.assert_array_equal(a, loud.value(other.obs, other.context, sample.action))
    assert not np.allclose(a, quiet.value(sample.obs + 1, sample.context, sample.action))
    assert not np.allclose(a, quiet.value(sample.obs, sample.context + 1, sample.action))  # context: never masked


def test_zero_is_neutral() -> None:
    """A masked variable looks as if it had its mean."""
    agent, sample = make(), draw(0)
    mean = agent.normaliser.tensors()["mean"].numpy()[:VARIABLES]
    usual = sample.obs.numpy().astype(np.float64)
    usual[:, 2] = mean[2]
    plain = agent.value(usual, sample.context, sample.action)
    agent.set_mask(np.arange(VARIABLES) != 2)
    np.testing.assert_allclose(agent.value(sample.obs, sample.context, sample.action), plain, atol=1e-6)


@pytest.mark.parametrize(
    "mask", [np.ones(VARIABLES + CONTEXT, bool), np.ones(VARIABLES), np.ones((1, VARIABLES), bool)]
)
def test_wrong_masks(mask: np.ndarray) -> None:
    agent = make()
    with pytest.raises(DataError, match="mask: .*expected 6 booleans, one for each variable"):
        agent.set_mask(mask)
    assert agent.mask.all()


def test_wrong_inputs() -> None:
    agent = make()
    with pytest.raises(DataError, match=r"observations: shape \(1, 5\), expected \(n, 6\)"):
        agent.act(np.zeros((1, 5)), np.zeros((1, 2)))
    with pytest.raises(DataError, match=r"context: shape \(1, 0\), expected \(n, 2\)"):
        agent.act(np.zeros((1, 6)), np.zeros((1, 0)))


# Resets and randomness


def test_reset() -> None:
    agent = make()
    kept = np.arange(VARIABLES) < 4
    agent.set_mask(kept)
    for step in range(5):
        agent.update(draw(step))
    before = agent.tensors()
    agent.reset()
    after = agent.tensors()
    for name, tensor in after.items():
        if name.startswith(("actor.", "critics.")):
            assert not torch.equal(tensor, before[name])
            layer = name.split(".")[-1]
            inputs = after[f"{name.split('.')[0]}.weights.{layer}"].shape[1]
            assert 0.2 / inputs**0.5 < tensor.abs().max() <= 1 / inputs**0.5  # as drawn, not trained
        if name.startswith("targets."):
            assert torch.equal(tensor, after[name.replace("targets", "critics")])
        if "optimiser" in name:
            assert not tensor.any()
    assert agent.alpha.value == pytest.approx(SETTINGS.alpha_start)
    np.testing.assert_array_equal(agent.mask, kept)
    for name in ("mean", "squares", "count", "frozen"):
        assert torch.equal(after[f"normaliser.{name}"], before[f"normaliser.{name}"])
    assert agent.updates == 5
    agent.update(draw(9))


def test_one_seed_one_result_and_nothing_global() -> None:
    def numbers(seed: int) -> tuple[list[float], np.ndarray]:
        agent = make(seed=seed)
        losses = [agent.update(draw(step))["critic_loss"] for step in range(3)]
        agent.reset()
        losses.append(agent.update(draw(3))["actor_loss"])
        return losses, agent.act(draw(4).obs, draw(4).context)

    state, numpy_state = torch.get_rng_state(), repr(np.random.get_state())
    (first, acted), (second, acted_too), (third, _) = numbers(1), numbers(1), numbers(2)
    assert first == second != third
    np.testing.assert_array_equal(acted, acted_too)
    assert torch.equal(state, torch.get_rng_state())
    assert numpy_state == repr(np.random.get_state())


def test_actions() -> None:
    agent, sample = make(), draw(0, rows=200)
    drawn = [agent.act(sample.obs, sample.context) for _ in range(2)]
    fixed = [agent.act(sample.obs, sample.context, deterministic=True) for _ in range(2)]
    for action in (*drawn, *fixed):
        assert action.shape == (200, ACTIONS) and action.dtype == np.float64 and np.abs(action).max() <= 1
    assert not np.allclose(drawn[0], drawn[1])
    np.testing.assert_array_equal(fixed[0], fixed[1])


# Going on later


@pytest.mark.parametrize("alpha", ["auto", "schedule"])
def test_exact_continuation(tmp_path: Path, alpha: AlphaName) -> None:
    settings = replace(SETTINGS, alpha=alpha)
    agent = make(settings)
    agent.set_mask(np.arange(VARIABLES) != 1)
    for step in range(4):
        agent.update(draw(step))
    save_file(agent.tensors(), tmp_path / "agent.safetensors")
    other = Sac(settings, Shape(VARIABLES, CONTEXT, ACTIONS, 77, total_updates=20))
    other.update(draw(0))
    other.restore(load_file(tmp_path / "agent.safetensors"))
    for step in range(4, 8):
        assert agent.update(draw(step)) == other.update(draw(step))
        np.testing.assert_array_equal(agent.act(draw(0).obs, draw(0).context), other.act(draw(0).obs, draw(0).context))
    for one in (agent, other):
        one.reset()
        one.update(draw(8))
    stored, again = agent.tensors(), other.tensors()
    assert stored.keys() == again.keys()
    for name, tensor in stored.items():
        assert torch.equal(tensor, again[name]), name


def test_a_snapshot_stays_as_it_was() -> None:
    agent = make()
    agent.update(draw(0))
    snapshot = agent.tensors()
    copies = {name: tensor.clone() for name, tensor in snapshot.items()}
    agent.update(draw(1))
    agent.normaliser.restore({**agent.normaliser.tensors(), "frozen": torch.tensor(False)})
    agent.normaliser.update(np.ones((3, VARIABLES + CONTEXT)))
    assert all(torch.equal(snapshot[name], copies[name]) for name in snapshot)


def test_unusable_snapshots() -> None:
    agent = make()
    stored = agent.tensors()
    before = agent.tensors()
    missing = {name: tensor for name, tensor in stored.items() if name != "generator"}
    with pytest.raises(DataError, match="checkpoint: generator is missing"):
        agent.restore(missing)
    with pytest.raises(DataError, match=r"checkpoint: actor.weights.0 has shape \(2, 2\), expected \(1, 8, 16\)"):
        agent.restore({**stored, "actor.weights.0": torch.zeros(2, 2)})
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.tensors().items())


def test_divergence_is_said() -> None:
    agent, sample = make(), draw(0)
    with pytest.raises(FloatingPointError, match="SAC diverged at update 1"):
        agent.update(replace(sample, reward=torch.full_like(sample.reward, torch.inf)))


@pytest.mark.slow
def test_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.sac import Options, main

    monkeypatch.setattr("benchmarks.sac.ROWS", 500)
    monkeypatch.setattr("benchmarks.sac.UPDATES", 3)
    rows = main(Options(quick=True, out=tmp_path / "sac.csv"))["updates"]
    assert [row["hidden"] for row in rows] == ["128 x 128"] * 2 + ["256 x 256"] * 2
    assert all(row["ratio"] < 1 for row in rows)
    assert main(Options(quick=True, out=tmp_path / "sac.csv"))["updates"] == rows  # measured once
    returns = main(Options(quick=True, out=tmp_path / "pendulum.csv", pendulum=True))["returns"]
    assert [row["agent"] for row in returns] == ["ours", "stable-baselines3"]
