"""Differences of two objects' quantities as inputs: which ones are chosen, and when they are hidden."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cbm.data.factors import Kind
from cbm.discovery.models.base import Batch
from cbm.discovery.models.candidates import CandidateNetworks, CandidateSets
from cbm.discovery.models.differences import related_pairs, same_quantity
from cbm.discovery.models.encoder import Encoder
from cbm.discovery.models.trunk import NOTHING, Trunk
from cbm.discovery.settings import ModelName, Settings
from cbm.discovery.tensor_dataset import TensorDataset, dynamics_dataset, reward_dataset
from cbm.envs.collect import collect
from cbm.envs.contact import ContactWorld
from cbm.envs.manipulation.block import BlockWorld


def _pairs(columns: np.ndarray, names: list[str]) -> set[tuple[str, str]]:
    kinds: list[Kind] = ["continuous"] * len(names)
    found = related_pairs(columns, names, kinds, np.random.default_rng(0))
    return {(names[a], names[b]) for a, b in found}


def test_only_the_same_quantity_of_two_objects_is_compared() -> None:
    names = ["hand_x", "hand_y", "block_x", "gripper", "light_x", "_x", "block_"]
    kinds: list[Kind] = ["continuous", "continuous", "continuous", "continuous", "binary", "continuous", "continuous"]
    assert same_quantity(names, kinds) == [(0, 2)]


def test_things_that_sometimes_stick_together_are_related() -> None:
    rng = np.random.default_rng(1)
    hand, block, other = rng.uniform(-1, 1, (3, 5000))
    held = rng.random(5000) < 0.15
    block = np.where(held, hand + 0.01 * rng.normal(size=5000), block)
    columns = np.stack([hand, block, other], 1)
    assert _pairs(columns, ["hand_x", "block_x", "other_x"]) == {("hand_x", "block_x")}
    assert not _pairs(np.stack([hand, other, other[::-1]], 1), ["hand_x", "block_x", "other_x"])


def test_things_that_rest_are_not_related() -> None:
    """Both nearly always have one value: their difference has a peak, but no more than chance gives it."""
    rng = np.random.default_rng(1)
    resting = np.where(rng.random((4000, 2)) < 0.9, 0.0, rng.normal(size=(4000, 2)))
    assert not _pairs(resting, ["a_z", "b_z"])


def test_the_hand_and_the_blocks_of_the_contact_world() -> None:
    data = collect(ContactWorld(), 8000, seed=0)
    hand_and_block = {(f"hand_{axis}", f"block{k}_{axis}") for axis in "xyz" for k in range(3)}
    assert hand_and_block <= _pairs(data.obs, list(data.factors.names))


def _encoder() -> tuple[Encoder, torch.Tensor]:
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(500, 4))
    columns[:, 1] = columns[:, 0] + 0.1 * columns[:, 1]
    kinds: list[Kind] = ["continuous"] * 4
    units = np.array([2.0, 2.0, 1.0, 1.0])
    encoder = Encoder.fit(columns, kinds, [0, 1, 2, 3], np.array([[0, 1], [1, 2]]), units)
    return encoder, torch.from_numpy(columns.astype(np.float32))


def test_a_difference_is_that_of_the_raw_numbers() -> None:
    encoder, x = _encoder()
    moved = x.clone()
    moved[:, :2] += 0.25  # both by the same: their difference stays
    own = (encoder.source == encoder.columns).nonzero()[:, 0]
    assert torch.allclose(encoder(moved)[:, own], encoder(x)[:, own], atol=1e-2)
    assert not torch.allclose(encoder(moved), encoder(x))


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_a_difference_is_hidden_with_either_of_its_ends(dropped: int) -> None:
    encoder, x = _encoder()
    trunk = Trunk(encoder, 16, 2, 3, 2)
    torch.nn.init.normal_(trunk.by_absence)
    features, index = encoder(x), torch.full((len(x),), dropped)
    changed = x.clone()
    changed[:, dropped] += 1.0
    first = trunk.first_layer(features, index)
    assert torch.equal(first, trunk.first_layer(encoder(changed), index))
    everything = trunk.first_layer(features, torch.full((len(x),), NOTHING))
    assert torch.allclose(trunk.without(everything, features, dropped), first, atol=1e-5)
    assert not torch.allclose(everything, trunk.first_layer(encoder(changed), torch.full((len(x),), NOTHING)))


@pytest.fixture(scope="module")
def dataset() -> TensorDataset:
    data = collect(ContactWorld(), 4000, seed=0)
    return dynamics_dataset(*data.split(0.2), shadows=2, seed=0, differences=True).dataset


def test_local_networks_see_differences_of_what_they_see(dataset: TensorDataset) -> None:
    inputs = np.tile(np.array([0, 4, 1, 5, 20]), (len(dataset.targets), 1))  # hand_x, block0_x, hand_y, block0_y, cd
    local = CandidateNetworks(dataset, CandidateSets(inputs, dataset.action_input), Settings(shadows=2))
    assert local.pairs.shape[1] == 2 and {tuple(ends) for ends in local.ends[0].tolist()} == {(0, 1), (2, 3)}
    x = dataset.held.x[:50]
    for slot, column in ((0, 0), (1, 4)):
        changed = x.clone()
        changed[:, column] += 1.0
        dropped = torch.full((len(dataset.targets), 50), slot)
        before, after = (local.heads(local.encoder(rows), dropped) for rows in (x, changed))
        assert torch.allclose(before, after, atol=1e-6)


def test_local_networks_encode_no_more_than_they_see(dataset: TensorDataset) -> None:
    inputs = np.tile(np.array([0, 4, 1, 5, 20, -1]), (len(dataset.targets), 1))
    inputs[3, 1] = 8
    encoder, local = (
        dataset.encoder,
        CandidateNetworks(dataset, CandidateSets(inputs, dataset.action_input), Settings(shadows=2)),
    )
    seen = {0, 1, 4, 5, 8, 20, dataset.action_input}
    assert set(local.encoder.groups.tolist()) == seen
    differences = set(local.pairs.flatten().tolist()) - {len(encoder.pairs)}
    assert len(local.encoder.pairs) == len(differences) > 2
    assert local.encoder.features < encoder.features / 2
    x = dataset.held.x[:30]
    some = torch.tensor([encoder.features - 1, 3, 40, 3])
    assert torch.equal(encoder.only(some)(x), encoder(x)[:, some])


def test_rows_are_seen_twice_without_encoding_them_twice(dataset: TensorDataset) -> None:
    inputs = np.tile(np.array([0, 4, 1]), (len(dataset.targets), 1))
    local = CandidateNetworks(dataset, CandidateSets(inputs, dataset.action_input), Settings(shadows=2))
    features = local.encoder(dataset.held.x[:30])
    nothing, first = (torch.full((len(dataset.targets), 30), slot) for slot in (NOTHING, 0))
    both = local.heads(features, torch.cat([nothing, first], 1))
    torch.testing.assert_close(both, torch.cat([local.heads(features, slot) for slot in (nothing, first)], 1))


@pytest.mark.parametrize("model", ["implicit", "explicit"])
def test_evidence_of_local_networks_equals_two_passes_through_them(dataset: TensorDataset, model: ModelName) -> None:
    """Estimate takes one slot out of the first layer's sums instead of running the networks without it."""
    inputs = np.tile(np.array([0, 4, 1, 5, 20, -1]), (len(dataset.targets), 1))
    inputs[3, 1] = 8  # another pair for one target: block1_x beside hand_x
    local = CandidateNetworks(dataset, CandidateSets(inputs, dataset.action_input), Settings(model=model, shadows=2))
    torch.nn.init.normal_(local.absent)
    batch = Batch.of(dataset.held, torch.arange(40), torch.Generator().manual_seed(0))
    pointwise, features = local.evidence(batch), local.encoder(batch.x)
    nothing = torch.full((len(dataset.targets), 40), NOTHING)
    with torch.no_grad():
        full = local.outputs(features, nothing)
        for slot in range(7):  # the action is the last
            without = local.outputs(features, torch.full_like(nothing, slot))
            outcome = local.log_density(full, batch) - local.log_density(without, batch)
            expected = local.lesson(without, full) - local.lesson(full, full)
            torch.testing.assert_close(pointwise(slot, None), torch.stack([outcome, expected]), atol=1e-4, rtol=1e-3)
            some = torch.tensor([3, 0])
            torch.testing.assert_close(pointwise(slot, some), pointwise(slot, None)[:, some])


def test_a_goal_is_compared_with_what_has_to_reach_it() -> None:
    data = collect(BlockWorld(), 3000, "pick", seed=0)
    found = reward_dataset(*data.split(0.2), ["pick"], shadows=2, seed=0, differences=True)
    encoder, context = found.encoder, found.action_input
    ends = {(data.factors.names[a], b) for a, b in encoder.pairs.tolist() if b >= len(data.factors)}
    goal = len(data.factors)  # goal_x is the first column after the variables
    assert ("mov0_x", goal) in ends and context == len(data.factors)
    assert (encoder.pairs.max(1).values >= goal).all(), "variables of the state are not compared with each other"
    assert (encoder.partners[encoder.source >= encoder.columns] == context).any()
