"""TIA and Denoised MDP: the right partition where their assumption holds, and what a partition is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.partitions import Options, measure
from cbm.abstraction import denoised, tia
from cbm.abstraction.method import Setup, make_method
from cbm.abstraction.partition import Partition
from cbm.abstraction.partitioned import PartitionMethod
from cbm.abstraction.restricted import RestrictedDynamics
from cbm.abstraction.table import PartitionSettings, method_options
from cbm.data.factors import Factors, Variable
from cbm.data.transitions import Transitions
from cbm.discovery.tensor_dataset import dynamics_dataset
from cbm.errors import DataError

LENGTH = 50
SMALL: dict[str, Any] = {"warm_up": 200, "anneal": 300, "width": 64, "batch": 64, "inner_steps": 2}
KINDS: dict[str, type[tia.Tia] | type[denoised.Denoised]] = {"tia": tia.Tia, "denoised": denoised.Denoised}
DEFAULTS: dict[str, Any] = {name: method_options(name, {}) for name in KINDS}


@dataclass
class Log:
    data: Transitions

    def transitions(self, held_out: bool) -> Transitions:
        return self.data


def world(seed: int, driven: bool = True, weather: bool = False, rows: int = 4000) -> Transitions:
    """Two parts without influence on each other: a0 -> a1 -> a2 -> reward, and a ring b0 -> b1 -> b2 -> b0.

    The action drives a0, and b0 if `driven`. With `weather` one more variable, that nobody influences, is rewarded.
    """
    rng = np.random.default_rng(seed)
    n = rows // LENGTH
    s, parts = rng.normal(size=(n, 7)), []
    for _ in range(LENGTH):
        a, noise = rng.uniform(-1, 1, (n, 2)), 0.15 * rng.normal(size=(n, 7))
        after = 0.5 * s + (noise if driven else 2 * noise)
        after[:, 0] += 0.8 * a[:, 0]
        after[:, 1] += 0.7 * s[:, 0]
        after[:, 2] += 0.7 * np.tanh(2 * s[:, 1])
        after[:, 3] += 0.6 * a[:, 1] * driven - 0.5 * s[:, 5]
        after[:, 4:6] += 0.7 * s[:, 3:5]
        after[:, 6] += 3 * noise[:, 6]
        parts.append((s, a, after))
        s = after
    obs, action, after = (np.stack(part, 1).reshape(n * LENGTH, -1) for part in zip(*parts))
    names = ("a0", "a1", "a2", "b0", "b1", "b2", *(["w"] if weather else []))
    return Transitions(
        obs=obs[:, : len(names)], action=action, next_obs=after[:, : len(names)],
        factors=Factors(tuple(Variable(name) for name in names), ("u", "v")),
        rewards={"go": -np.abs(after[:, 2] - 0.5) + 0.5 * weather * after[:, 6]},
        episode=np.repeat(np.arange(n), LENGTH),
    )  # fmt: skip


def learned(kind: str, data: Transitions, seed: int = 0, updates: int = 500, **changes: Any) -> PartitionMethod:
    settings = replace(DEFAULTS[kind], **{**SMALL, **changes})
    method = KINDS[kind](data.factors, "go", seed, settings)
    numbers = method.learn(Log(data), updates)
    assert numbers["kept"] == method.mask().sum() and math.isfinite(numbers["dynamics"])
    return method


@pytest.mark.parametrize("kind", ["tia", "denoised"])
@pytest.mark.parametrize(("seed", "driven"), [(0, True), pytest.param(1, False, marks=pytest.mark.slow)])
def test_the_part_that_decides_the_reward_is_kept(kind: str, seed: int, driven: bool) -> None:
    method = learned(kind, world(seed, driven), seed)
    assert method.mask().tolist() == [True, True, True, False, False, False]
    assert method.graph() is None


@pytest.mark.slow
def test_what_is_rewarded_and_cannot_be_controlled_is_y() -> None:
    """TIA keeps it, Denoised MDP sets it apart."""
    data = world(2, weather=True)
    split = learned("denoised", data, 2, updates=700, anneal=500).partition.probabilities().argmax(1)
    assert split.tolist() == [denoised.X] * 3 + [denoised.Z] * 3 + [denoised.Y]
    assert learned("tia", data, 2).mask().tolist() == [True] * 3 + [False] * 3 + [True]


@pytest.mark.slow
def test_the_last_layer_alone_is_enough_after_pretraining() -> None:
    data = world(0)
    settings = replace(DEFAULTS["tia"], **SMALL, dynamics="pretrained")
    method = tia.Tia(data.factors, "go", 0, settings)
    method.pretrain(data, 300)
    assert method.fitted is not None and method.step == SMALL["warm_up"] and method.mask().all()
    before = {name: p.detach().clone() for name, p in method.fitted.parameters().items()}
    method.learn(Log(data), 250)
    changed = {name for name, p in method.fitted.parameters().items() if not torch.equal(p, before[name])}
    own = {name for name in changed if name.startswith("dynamics")}
    assert own == {f"dynamics.{name}" for name in ("critic.trunk.last.weight", "critic.trunk.last.bias", "own.to_code")}
    assert method.mask().tolist() == [True, True, True, False, False, False]


def test_the_partition_rests_during_the_warm_up() -> None:
    data = world(0, rows=500)
    method = tia.Tia(data.factors, "go", 0, replace(DEFAULTS["tia"], **SMALL))
    method.learn(Log(data), 3)
    assert not method.partition.logits.detach().any() and method.mask().all()


def test_samples_are_partitions_drawn_with_their_probabilities() -> None:
    start = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]).log()
    for temperature in (5.0, 0.1):
        members = Partition(start, 0).sample(20_000, temperature).detach()
        assert torch.equal(members.sum(-1), torch.ones(20_000, 2))
        assert torch.allclose(members.round(), members, atol=1e-6)
        assert torch.allclose(members.mean(0), start.exp(), atol=0.015)


def test_a_straight_through_gradient_points_to_the_cheaper_class() -> None:
    partition = Partition(torch.zeros(3, 2), 0)
    cost = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    (partition.sample(512, 2.0) * cost).sum().backward()
    slope = partition.logits.grad
    assert slope is not None
    assert slope[0, 0] > 0 > slope[0, 1] and slope[1, 0] < 0 < slope[1, 1]
    assert slope[2].abs().max() < 1e-3 * slope[0].abs().min()


def test_a_tie_keeps_the_variable() -> None:
    partition = Partition(torch.tensor([[0.0, 0.0], [1.0, 1.5], [1.5, 1.0]]), 0)
    assert (partition.lead() >= 1).tolist() == [True, False, True]


def test_two_thresholds_keep_a_close_call_as_it_was() -> None:
    data = world(0, rows=500)
    settings = replace(DEFAULTS["tia"], **SMALL)
    method = tia.Tia(data.factors, "go", 0, settings, on=1.0, off=0.6)
    ratios = torch.tensor([0.7, 0.5, 1.1, 0.7, 1.0, 0.1])
    with torch.no_grad():
        method.partition.logits[:, 0] = ratios.log()
    method.learn(Log(data), 1)
    assert method.mask().tolist() == [True, False, True, True, True, False]
    with torch.no_grad():
        method.partition.logits[:, 0] = torch.tensor([0.5, 0.7, 0.7, 0.7, 1.1, 1.2]).log()
    method.learn(Log(data), 1)
    assert method.mask().tolist() == [False, False, True, True, True, True]


def test_the_temperature_falls_in_a_straight_line() -> None:
    settings = PartitionSettings(warm_up=100, anneal=200, start_temperature=5.0, final_temperature=1.0)
    assert [settings.temperature(step) for step in (0, 100, 200, 300, 900)] == [5.0, 5.0, 3.0, 1.0, 1.0]


@pytest.mark.parametrize("kind", ["tia", "denoised"])
def test_a_density_sees_its_class_itself_and_nothing_else(kind: str) -> None:
    """Change one input: only densities that may see it change."""
    data = world(0, rows=1000)
    dataset = dynamics_dataset(data, data.head(10), 0, 0).dataset
    views = tia.VIEWS if kind == "tia" else denoised.VIEWS["original"]
    torch.manual_seed(0)
    network = RestrictedDynamics(dataset, views, 32)
    with torch.no_grad():
        network.own.to_code.normal_()
    rows, classes = dataset.train, len(views.sees)
    where = torch.tensor([0, 0, 1, 1, classes - 1, classes - 1])  # of each variable
    members = torch.nn.functional.one_hot(where, classes).float().expand(8, -1, -1)
    x, u = rows.x[:8], rows.u[:8]
    before = network.nll(x, u, members)
    for j in range(7):  # the sixth and seventh column are the action
        changed = x.clone()
        changed[:, [j] if j < 6 else [6, 7]] *= -1
        moved = (network.nll(changed, u, members) != before).any(2)  # (T, K)
        for i in range(6):
            for c in range(classes):
                allowed = views.acts[c] if j == 6 else (int(where[j]) in views.sees[c] or i == j)
                assert bool(moved[i, c]) <= allowed, (i, j, c)
        assert moved.any()


def test_the_adversary_counts_for_no_more_than_a_constant() -> None:
    data = world(0, rows=1000)
    method = tia.Tia(data.factors, "go", 0, replace(DEFAULTS["tia"], **SMALL))
    method.learn(Log(data), 1)
    assert method.fitted is not None
    pool = method._pool(method.fitted, data, 2, np.random.default_rng(0))
    with torch.no_grad():
        for parameter in method.fitted.heads[tia.IRRELEVANT].parameters():
            parameter.fill_(10.0)  # as wrong as can be
    index = torch.arange(128)
    terms = method.reward_terms(method.fitted, pool, index, method.partition.sample(128, 1.0))
    assert float(terms["adversary"].detach()) == pytest.approx(float(pool.constant_error))
    assert 0.5 < float(pool.constant_error) < 1.1


@pytest.mark.parametrize("kind", ["tia", "denoised"])
def test_resume_is_exact(kind: str) -> None:
    """Also over a new fit, which growing data brings about."""
    data = world(0, rows=2000)
    settings = replace(DEFAULTS[kind], **{**SMALL, "warm_up": 20, "width": 16})
    first, second = (KINDS[kind](data.factors, "go", 3, settings) for _ in range(2))
    first.learn(Log(data.head(800)), 30)
    stored = first.tensors()
    frozen = {name: value.clone() for name, value in stored.items()}
    numbers = [first.learn(Log(data.head(rows)), 25) for rows in (900, 2000)]
    assert all(torch.equal(stored[name], frozen[name]) for name in stored)
    second.restore(stored)
    assert [second.learn(Log(data.head(rows)), 25) for rows in (900, 2000)] == numbers
    one, other = first.tensors(), second.tensors()
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_before_anything_is_learned_there_is_little_to_store() -> None:
    data = world(0, rows=500)
    method, other = (tia.Tia(data.factors, "go", 0, PartitionSettings()) for _ in range(2))
    other.restore(method.tensors())
    assert other.mask().all() and other.fitted is None


def test_a_world_that_has_not_moved_yet_is_waited_for() -> None:
    data = world(0, rows=500)
    still = Transitions(
        obs=data.obs, action=data.action, next_obs=data.obs, factors=data.factors, rewards=data.rewards,
        episode=data.episode,
    )  # fmt: skip
    method = tia.Tia(data.factors, "go", 0, replace(DEFAULTS["tia"], **SMALL))
    assert method.learn(Log(still), 2)["kept"] == 6 and method.fitted is None


def test_context_and_discrete_actions_are_understood() -> None:
    data = world(0, rows=500)
    discrete = Transitions(
        obs=data.obs, action=(data.action[:, :1] > 0).astype(np.int64), next_obs=data.next_obs,
        factors=replace(data.factors, action_names=("u",), discrete_actions=2), rewards=data.rewards,
        context={"goal": data.obs[:, 0]}, episode=data.episode,
    )  # fmt: skip
    for kind in KINDS:
        assert learned(kind, discrete, updates=2).mask().all()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("tia", {"size_penalti": 1.0}, "did you mean 'size_penalty'"),
        ("tia", {"selector": "loose"}, "selector must be one of attached, detached, got 'loose'"),
        ("tia", {"final_temperature": 0.0}, "final_temperature must be a number above 0, got 0.0"),
        ("denoised", {"batch": 1.5}, "method 'denoised': setting batch must be a whole number"),
        ("denoised", {"z_inputs": "all"}, "z_inputs must be one of original, own"),
    ],
)
def test_bad_options(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_method(name, Setup(world(0, rows=500).factors, "go"), options)


def test_a_missing_reward_is_named() -> None:
    data = world(0, rows=500)
    with pytest.raises(DataError, match="no reward 'stop'"):
        tia.Tia(data.factors, "stop", 0, PartitionSettings()).learn(Log(data), 1)


def test_the_measurement_on_the_contact_world_runs() -> None:
    rows = list(measure(Options(quick=True, variants=("tia", "denoised, authors' code"))))
    assert [row["variant"] for row in rows] == ["tia", "denoised, authors' code"]
    assert all(0 < row["kept"] <= 17 for row in rows)
