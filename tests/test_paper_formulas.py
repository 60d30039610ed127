"""The fast forms equal the formulas of the paper, written out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.literal import Literal, importance_sampled_cmi
from benchmarks.systems import sparse_nonlinear
from cbm.discovery.models.base import Batch
from cbm.discovery.models.demi import Demi
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.models.explicit import LOG_STD, explicit_cross_entropy, explicit_log_prob
from cbm.discovery.models.implicit import Implicit, cross_entropy, log_density
from cbm.discovery.models.pairwise import Pairwise, importance_sampled
from cbm.discovery.models.trunk import NOTHING, Trunk
from cbm.discovery.settings import preset
from cbm.discovery.tensor_dataset import TensorDataset, dynamics_dataset

ROWS = 24


@pytest.fixture(scope="module")
def dataset() -> TensorDataset:
    train, held = sparse_nonlinear(5, 600, seed=3, horizon=20).split(0.2)
    return dynamics_dataset(train, held, shadows=2, seed=0).dataset


def _batch(dataset: TensorDataset, seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return Batch.of(dataset.train, torch.randperm(len(dataset.train), generator=generator)[:ROWS], generator)


def _dropped(inputs: int, kind: str, seed: int) -> Tensor:
    drawn = torch.randint(inputs, (ROWS,), generator=torch.Generator().manual_seed(seed))
    if kind == "none":
        return torch.full((ROWS,), -1)
    if kind == "some":
        drawn[: ROWS // 2] = -1
    return drawn


def _negatives(dataset: TensorDataset, n: int, seed: int) -> Tensor:
    """(K, B, N), uniform over each target's range."""
    low, high = dataset.train.y.amin(0)[:, None, None], dataset.train.y.amax(0)[:, None, None]
    drawn = torch.rand(len(dataset.targets), ROWS, n, generator=torch.Generator().manual_seed(seed))
    return low + drawn * (high - low)


# Eq. 1, Eq. 5: the network of preset `paper`


@pytest.mark.parametrize("kind", ["none", "some", "all"])
@pytest.mark.parametrize(("seed", "weight"), [(0, 1e-6), (1, 1e-2), (2, 1e-3)])
def test_loss_and_gradients_of_the_paper_network(dataset: TensorDataset, kind: str, seed: int, weight: float) -> None:
    settings = replace(
        preset("paper"), width=32, code=24, candidates=40, score_penalty=weight, slope_penalty=3 * weight
    )
    torch.manual_seed(seed)
    model = Pairwise(dataset, settings)
    literal = Literal.from_pairwise(model)
    batch, dropped = _batch(dataset, seed), _dropped(dataset.inputs, kind, seed)
    negatives = _negatives(dataset, 40, seed)

    loss, _ = model.loss_on(batch, dropped, negatives)
    loss.backward()
    expected = literal.loss(batch.x, batch.y, negatives, dropped, (weight, 3 * weight))
    expected.backward()
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    for ours, theirs in (
        (model.pair_in, literal.pair_in),
        (model.pair_out, literal.pair_out),
        (model.context_out, literal.energy),
        (model.candidate_in, literal.candidate_in),
        (model.candidate_mid, literal.candidate_mid),
        (model.candidate_out, literal.candidate_out),
    ):
        assert ours.grad is not None and theirs.weight.grad is not None and theirs.bias.grad is not None
        gradient = torch.cat([theirs.weight.grad, theirs.bias.grad], -2).reshape(ours.grad.shape)
        assert float((ours.grad - gradient).norm() / gradient.norm()) < 1e-4
        assert float(gradient.norm()) > 0


def test_penalties_are_part_of_the_loss(dataset: TensorDataset) -> None:
    """Guards the comparison above: with the weights used there, both penalties can be seen."""
    batch, dropped = _batch(dataset, 0), _dropped(dataset.inputs, "some", 0)
    losses = []
    for score, slope in ((0.0, 0.0), (1e-2, 0.0), (0.0, 1e-2)):
        settings = replace(preset("paper"), width=32, code=24, candidates=40, score_penalty=score, slope_penalty=slope)
        torch.manual_seed(0)
        model = Pairwise(dataset, settings)
        negatives = _negatives(dataset, 40, 0)
        losses.append(float(model.loss_on(batch, dropped, negatives)[0].detach()))
    assert losses[1] > losses[0] * 1.0001 and losses[2] > losses[0] * 1.0001


# Eq. 3


def _eq_3(phi: Tensor, psi: Tensor) -> Tensor:
    """As printed, without a logarithm before the last step; the positive comes first."""
    n = phi.shape[-1] - 1
    w = psi[..., 1:].exp() / psi[..., 1:].exp().sum(-1, keepdim=True)
    positive = phi[..., 0].exp()
    return ((n + 1) * positive / (positive + n * (w * phi[..., 1:].exp()).sum(-1))).log()


@pytest.mark.parametrize("n", [1, 16, 512, 8192])
@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0, 15.0])
def test_closed_form_of_cmi_is_eq_3(n: int, scale: float) -> None:
    generator = torch.Generator().manual_seed(n)
    g, psi = scale * torch.randn(2, 50, n + 1, generator=generator, dtype=torch.float64)
    literal = _eq_3(g - psi, psi)
    g_density = g[:, 0] - torch.logsumexp(g[:, 1:], -1)
    psi_density = psi[:, 0] - torch.logsumexp(psi[:, 1:], -1)
    assert torch.allclose(importance_sampled(g_density - psi_density, n), literal, atol=1e-4, rtol=0)
    assert torch.allclose(importance_sampled_cmi(g - psi, psi), literal, atol=1e-8, rtol=0)
    assert bool((literal <= math.log(n + 1) + 1e-9).all())


def test_paper_evidence_is_eq_3_on_the_grid(dataset: TensorDataset) -> None:
    """The whole path: networks, dropping, closed form, chunks of rows."""
    settings = replace(preset("paper"), width=16, code=8, candidates=32)
    torch.manual_seed(4)
    model = Pairwise(dataset, settings)
    with torch.no_grad():  # sharper scores than those of fresh weights
        model.context_out.mul_(4)
    rows = torch.arange(40)
    batch = Batch.of(dataset.held, rows, torch.Generator().manual_seed(0))
    pointwise = model.evidence(batch)
    with torch.no_grad():
        ours = torch.stack([pointwise(j, None)[0] for j in range(dataset.inputs)], 1)
        grid = model.grid(4 * settings.candidates)[:, None].expand(-1, len(rows), -1)
        literal = Literal.from_pairwise(model).cmi(batch.x, batch.y, grid, dataset.inputs)
        some = torch.tensor([2, 0])
        assert torch.allclose(pointwise(1, some)[0], ours[some, 1])
    assert ours.abs().max() > 0.1
    assert torch.allclose(ours, literal, atol=1e-4)


# The fast critic: log-density by the trapezoid rule


def _plain_log_density(scores: Tensor, u: Tensor) -> Tensor:
    """score(u) - log of the trapezoid integral of e^score, in plain operations."""
    cells = scores.shape[-1] - 1
    left = (u.T * cells).floor().clamp(0, cells - 1)
    share = u.T * cells - left
    low, high = (scores.gather(-1, (left + k).long()[..., None])[..., 0] for k in (0, 1))
    integral = torch.trapezoid(scores.exp(), dx=1 / cells, dim=-1)
    return (1 - share) * low + share * high - integral.log()


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_log_density_and_its_gradient(scale: float) -> None:
    generator = torch.Generator().manual_seed(5)
    scores = scale * torch.randn(3, 7, 9, generator=generator, dtype=torch.float64)
    u = torch.rand(7, 3, generator=generator, dtype=torch.float64)
    u[0], u[1], u[2] = 0.0, 1.0, 0.5  # both ends, and exactly on a knot
    scores.requires_grad_()
    outside = torch.randn(3, 7, generator=generator, dtype=torch.float64)
    ours, plain = log_density(scores, u), _plain_log_density(scores, u)
    assert torch.allclose(ours, plain, atol=1e-12)
    (ours_gradient,) = torch.autograd.grad((outside * ours).sum(), scores)
    (plain_gradient,) = torch.autograd.grad((outside * plain).sum(), scores)
    assert torch.allclose(ours_gradient, plain_gradient, atol=1e-12)
    assert torch.autograd.gradcheck(lambda s: log_density(s, u), (scores,))


def test_log_density_integrates_to_one_and_never_to_more() -> None:
    """The trapezoid of e^score lies above e^(linear score): the more so the more jagged it is."""
    knots = torch.linspace(0, 1, 65, dtype=torch.float64)
    smooth = 4 * torch.sin(5 * knots)
    jagged = 2 * torch.randn(65, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    u = (torch.arange(50_000, dtype=torch.float64)[:, None] + 0.5) / 50_000
    mass = [float(log_density(s.expand(1, len(u), -1), u).exp().mean()) for s in (smooth, jagged)]
    assert mass[0] == pytest.approx(1.0, abs=0.01) and mass[0] <= 1
    assert mass[1] < 1


# The trunk


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    rng = np.random.default_rng(0)
    columns = np.concatenate([rng.normal(size=(500, 4)), rng.integers(3, size=(500, 1)).astype(float)], 1)
    columns[:, 2] = rng.uniform(-np.pi, np.pi, 500)
    kinds = ["continuous", "continuous", "angle", "continuous", "categorical"]
    return Encoder.fit(columns, kinds, [0, 1, 2, 3, 3])  # type: ignore[arg-type]


def _inputs(encoder: Encoder, rows: int) -> Tensor:
    return torch.randn(rows, 5, generator=torch.Generator().manual_seed(1))


def test_leaving_one_input_out_of_the_first_layer(encoder: Encoder) -> None:
    torch.manual_seed(0)
    trunk = Trunk(encoder, width=32, depth=2, targets=3, per_target=4)
    torch.nn.init.normal_(trunk.by_absence)
    features = encoder(_inputs(encoder, 11))
    first = trunk.first_layer(features, torch.full((11,), -1))
    for j in range(encoder.inputs):
        expected = trunk.first_layer(features, torch.full((11,), j))
        assert torch.allclose(trunk.without(first, features, j), expected, atol=1e-5)
        assert not torch.allclose(first, expected, atol=1e-2)
    whole = trunk.rest(first)
    assert torch.allclose(trunk.rest(first, torch.tensor([2, 0])), whole[:, [2, 0]], atol=1e-6)


def test_a_dropped_input_cannot_be_seen(encoder: Encoder) -> None:
    torch.manual_seed(0)
    trunk = Trunk(encoder, width=32, depth=2, targets=3, per_target=4)
    x = _inputs(encoder, 11)
    other = x.clone()
    other[:, 3:] += 1.0  # both columns of input 3
    hidden, named = (trunk.first_layer(encoder(x), torch.full((11,), 3), hide=hide) for hide in (True, False))
    assert torch.equal(hidden, trunk.first_layer(encoder(other), torch.full((11,), 3)))
    assert not torch.allclose(named, trunk.first_layer(encoder(other), torch.full((11,), 3), hide=False))


# The explicit model


def test_explicit_heads_are_normal_and_categorical() -> None:
    generator = torch.Generator().manual_seed(2)
    levels = torch.tensor([0, 3, 5, 0])
    heads = 3 * torch.randn(4, 30, 5, generator=generator)
    heads[0, 0, 1], heads[0, 1, 1] = -50, 50  # both ends of the allowed deviations
    y = torch.randn(30, 4, generator=generator)
    level = torch.stack([torch.randint(max(int(n), 1), (30,), generator=generator) for n in levels], 1)
    ours = explicit_log_prob(heads, y, level, levels)
    for k, n in enumerate(levels.tolist()):
        if n:
            expected = torch.distributions.Categorical(logits=heads[k, :, :n]).log_prob(level[:, k])
        else:
            std = heads[k, :, 1].clamp(*LOG_STD).exp()
            expected = torch.distributions.Normal(heads[k, :, 0], std).log_prob(y[:, k])
        assert torch.allclose(ours[k], expected, rtol=1e-4, atol=1e-4)
    continuous = explicit_log_prob(heads[[0, 3]], y[:, [0, 3]], level[:, [0, 3]], levels[[0, 3]])
    assert torch.equal(continuous, ours[[0, 3]])


# Leave-one-out models that learn from the full one


def test_lessons_are_cross_entropies() -> None:
    """Against torch.distributions: a categorical over the knots (the end ones count half), a normal, classes."""
    generator = torch.Generator().manual_seed(4)
    scores, teacher = (2 * torch.randn(3, 20, 17, generator=generator) for _ in range(2))
    half = torch.ones(17)
    half[0] = half[-1] = 0.5
    ours, theirs = (torch.distributions.Categorical(logits=s + half.log()) for s in (scores, teacher))
    literal = torch.distributions.kl_divergence(theirs, ours) + theirs.entropy()
    density = -(theirs.probs * half.log()).sum(-1) + math.log(16)  # from masses on knots to a density on [0, 1]
    assert torch.allclose(cross_entropy(scores, teacher), literal - density, atol=1e-4)
    a, b = scores.clone().requires_grad_(), scores.clone().requires_grad_()
    cross_entropy(a, teacher).mean(1).sum().backward()
    again = torch.distributions.Categorical(logits=b + half.log())
    torch.distributions.kl_divergence(theirs, again).mean(1).sum().backward()
    assert a.grad is not None and b.grad is not None and torch.allclose(a.grad, b.grad, atol=1e-6)


def test_explicit_lessons_are_cross_entropies() -> None:
    generator = torch.Generator().manual_seed(5)
    heads, teacher = (torch.randn(2, 20, 4, generator=generator) for _ in range(2))
    ours = explicit_cross_entropy(heads, teacher, torch.tensor([0, 3]))
    p, q = (torch.distributions.Normal(h[0, :, 0], h[0, :, 1].exp()) for h in (teacher, heads))
    assert torch.allclose(ours[0], torch.distributions.kl_divergence(p, q) + p.entropy(), rtol=1e-4, atol=1e-4)
    c, e = (torch.distributions.Categorical(logits=h[1, :, :3]) for h in (teacher, heads))
    assert torch.allclose(ours[1], torch.distributions.kl_divergence(c, e) + c.entropy(), rtol=1e-4, atol=1e-4)


def test_teaching_does_not_move_the_teacher(dataset: TensorDataset) -> None:
    """The full model's gradient is that of its own loss alone."""
    settings = replace(preset("debug"), width=32, code=8, knots=17, score_penalty=0.0, slope_penalty=0.0)
    torch.manual_seed(1)
    model = Implicit(dataset.encoder, len(dataset.targets), settings)
    batch, generator = _batch(dataset, 2), torch.Generator()
    nothing = torch.full((ROWS,), NOTHING)
    model.loss(batch, nothing, generator)[0].backward()
    assert model.curve.grad is not None
    taught = model.curve.grad.clone()
    model.zero_grad()
    alone = model.full_loss(batch)
    assert alone is not None
    (alone * len(dataset.targets)).backward()
    assert torch.allclose(taught, model.curve.grad, atol=1e-5)


# DEMI


def test_demi_evidence_is_eq_3_with_learned_phi(dataset: TensorDataset) -> None:
    """phi+ - log sum_n w_n e^phi_n, w = softmax(psi); candidates are the knots, the end ones count half."""
    settings = replace(preset("debug", "demi"), width=32, code=8, knots=17)
    torch.manual_seed(1)
    model = Demi(dataset.encoder, len(dataset.targets), settings)
    for absence in (model.psi.trunk.by_absence, model.phi.by_absence):
        torch.nn.init.normal_(absence)
    batch = _batch(dataset, 2)
    features = dataset.encoder(batch.x)
    half = torch.ones(17)
    half[0] = half[-1] = 0.5
    with torch.no_grad():
        pointwise = model.evidence(batch)
        for j in range(dataset.inputs):
            dropped = torch.full((ROWS,), j)
            psi = model.psi.outputs(model.psi.trunk.first_layer(features, dropped))
            phi = model.conditional(model.phi.first_layer(features, dropped, hide=False))
            w = torch.softmax(psi + half.log(), -1)
            cells = 16
            left = (batch.u.T * cells).floor().clamp(0, cells - 1)
            share = batch.u.T * cells - left
            at_left, at_right = (phi.gather(-1, (left + k).long()[..., None])[..., 0] for k in (0, 1))
            positive = (1 - share) * at_left + share * at_right
            expected = positive - (w * phi.exp()).sum(-1).log()
            assert torch.allclose(pointwise(j, None)[0], expected, atol=1e-4)
            assert torch.allclose(pointwise(j, torch.tensor([1]))[0], expected[[1]], atol=1e-4)


def test_what_the_full_model_expects_is_the_mean_over_its_own_density(dataset: TensorDataset) -> None:
    """The integral of g times what a dropped input costs there, computed on a fine grid."""
    settings = replace(preset("debug"), width=32, code=8, knots=17)
    torch.manual_seed(1)
    model = Implicit(dataset.encoder, len(dataset.targets), settings)
    torch.nn.init.normal_(model.trunk.by_absence)
    batch = _batch(dataset, 2)
    with torch.no_grad():
        features = dataset.encoder(batch.x)
        full = model.outputs(model.trunk.first_layer(features, torch.full((ROWS,), -1)))
        fine = torch.linspace(0, 1, 4001)
        everywhere = [replace(batch, u=torch.full_like(batch.u, float(u))) for u in fine]
        density = torch.stack([model.log_density(full, at) for at in everywhere])
        for j in (0, 3):
            without = model.outputs(model.trunk.first_layer(features, torch.full((ROWS,), j)))
            other = torch.stack([model.log_density(without, at) for at in everywhere])
            mean = torch.trapezoid(density.exp() * (density - other), fine, dim=0)
            mass = torch.trapezoid(density.exp(), fine, dim=0)
            found = model.evidence(batch)(j, None)
            assert found.shape == (2, len(dataset.targets), ROWS)
            assert torch.allclose(found[1], mean / mass, atol=2e-2)
            assert found[1].min() > -1e-5
