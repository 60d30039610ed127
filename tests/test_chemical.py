"""The chemical world: its rules, and its causal graph by brute force, by exact probabilities and by hand."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from typing import Any

import gymnasium
import networkx as nx
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from cbm.envs import make_world
from cbm.envs.chemical import ChemicalWorld
from cbm.envs.chemical_graphs import GRAPHS, ancestry, named_graph
from cbm.envs.collect import collect
from cbm.envs.gym import GymWorld
from cbm.errors import DataError


def colour_edges(truth: np.ndarray, world: ChemicalWorld) -> set[tuple[int, int]]:
    """(cause, effect) pairs between the colours of two different objects."""
    columns = world.colour_columns
    return {(k, j) for j, k in np.argwhere(truth[np.ix_(columns, columns)]).tolist() if j != k}


def pairs(text: str) -> set[tuple[int, int]]:
    """`04 14` are the edges from 0 to 4 and from 1 to 4."""
    return {(int(pair[0]), int(pair[1])) for pair in text.split()}


# Graphs between objects


@pytest.mark.parametrize(
    ("name", "edges"),
    [
        ("collider", "04 14 24 34"),
        ("chain", "01 12 23 34"),
        ("full", "01 02 03 04 12 13 14 23 24 34"),
        ("fork", "01 02 03 04"),
        ("jungle", "01 02 13 14 03 04"),
        ("tree", "01 02 13 14"),
        ("bidiagonal", "01 02 12 13 23 24 34"),
    ],
)
def test_named_graphs_of_five_objects(name: str, edges: str) -> None:
    assert {(k, j) for k, j in np.argwhere(named_graph(name, 5)).tolist()} == pairs(edges)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("objects", [2, 3, 8, 15])
def test_ancestors_are_those_of_networkx(name: str, objects: int) -> None:
    graph = named_graph(name, objects)
    reference = nx.from_numpy_array(graph.astype(int), create_using=nx.DiGraph)
    assert nx.is_directed_acyclic_graph(reference)
    for k in range(objects):
        assert set(np.flatnonzero(ancestry(graph)[k]).tolist()) == nx.descendants(reference, k)


# The causal graph of one step


@pytest.mark.parametrize(
    ("name", "edges", "memoryless"),
    [
        ("collider", "04 14 24 34", "4"),  # every action on a root resamples object 4 from the other roots
        ("chain", "", "4"),  # whatever is resampled has a parent that is
        ("fork", "", ""),
        ("tree", "", ""),
        ("full", "02 03 04 13 14 24", "4"),  # k -> k+1 is missing: resampling k+1 means resampling k too
        ("bidiagonal", "02 03 04 13 14 24", "4"),  # 0 -> 3 is no edge of the DAG: through the new colour of 2
        ("jungle", "03 04", ""),
    ],
)
def test_declared_graphs_by_hand(name: str, edges: str, memoryless: str) -> None:
    world = ChemicalWorld(graph=name)
    assert colour_edges(world.truth, world) == pairs(edges)
    columns = world.colour_columns
    kept = [k for k in range(5) if world.truth[columns[k], columns[k]]]
    assert kept == [k for k in range(5) if str(k) not in memoryless]


def test_the_papers_graph_is_the_dag_with_diagonal_and_action() -> None:
    world = ChemicalWorld(graph="chain")
    paper = world.truths["paper"]
    assert colour_edges(paper, world) == {(0, 1), (1, 2), (2, 3), (3, 4)}
    assert paper[:, :-1].diagonal().all()
    np.testing.assert_array_equal(np.flatnonzero(paper[:, -1]), world.colour_columns)
    assert world.truths["physical"] is world.truth


def test_positions_have_no_causes_and_no_effects() -> None:
    world = ChemicalWorld(graph="full")
    assert not world.truth[world.position_columns].any()
    assert not world.truth[:, world.position_columns].any()


@pytest.mark.parametrize("world_seed", [0, 1, 2])
@pytest.mark.parametrize("graph", GRAPHS)
def test_interventions_find_exactly_the_declared_graph(graph: str, world_seed: int) -> None:
    """Random states, every action; one variable or the action changed, the same random numbers."""
    world = ChemicalWorld(graph=graph, world_seed=world_seed)
    rng = np.random.default_rng(0)
    n, d = 25_000, len(world.factors)
    state = world.reset(n, rng)
    state[:, world.colour_columns] = rng.integers(world.colours, size=(n, world.objects))
    action = np.arange(n)[:, None] % (world.objects * world.colours)
    after = world.observe(world.step(state, action, np.random.default_rng(1)))
    found = np.zeros((d, d + 1), dtype=bool)
    for j in range(d + 1):
        other, act = state, action
        if j == d:
            act = rng.permutation(action)
        else:
            other = world.intervene(state, j, rng.permutation(state[:, j]))
        found[:, j] = (world.observe(world.step(other, act, np.random.default_rng(1))) != after).any(0)
    names = (*world.factors.names, "action")
    wrong = [f"{names[i]} <- {names[j]}: declared {world.truth[i, j]}" for i, j in np.argwhere(found != world.truth)]
    assert not wrong


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_declared_graph_is_that_of_the_distributions(graph: str) -> None:
    """Not only with common random numbers: the chances of each colour, enumerated, depend on the same colours."""
    world = ChemicalWorld(objects=4, colours=3, graph=graph, positions=False)
    states = np.array(list(itertools.product(range(3), repeat=4)))  # all 81, the last object fastest
    found = np.zeros((4, 4), dtype=bool)
    for action in range(12):
        chances = np.stack([marginals(world, colours, action) for colours in states])  # (81, object, colour)
        grid = chances.reshape(3, 3, 3, 3, 4, 3)
        for k in range(4):
            found[:, k] |= np.ptp(grid, axis=k).max((0, 1, 2, 4)) > 1e-3
    np.testing.assert_array_equal(found, world.truth[:, :-1])


def marginals(world: ChemicalWorld, colours: np.ndarray, action: int) -> np.ndarray:
    """(objects, colours) chances after an action, by summing over all that the resampled objects may become."""
    target, colour = divmod(action, world.colours)
    start = colours.copy()
    start[target] = colour
    outcomes = [(1.0, start)]
    for j in np.flatnonzero(world.reached[target]):
        grown = []
        for weight, partial in outcomes:
            for value, chance in enumerate(world.networks[j].chances(partial[None])[0]):
                child = partial.copy()
                child[j] = value
                grown.append((weight * chance, child))
        outcomes = grown
    total = np.zeros((world.objects, world.colours))
    for weight, final in outcomes:
        total[np.arange(world.objects), final] += weight
    return total


# Rules


def test_variables_and_actions() -> None:
    world = ChemicalWorld()
    assert world.factors.names[:4] == ("object0_colour", "object0_x", "object0_y", "object1_colour")
    assert world.factors.kinds[:2] == ("categorical", "continuous")
    assert (len(world.factors), world.factors.discrete_actions, world.horizon) == (15, 25, 50)
    assert len(ChemicalWorld(objects=7, positions=False).factors) == 7
    assert ChemicalWorld(colours=2).factors.kinds[0] == "binary"


def test_an_action_sets_its_object_and_leaves_what_it_cannot_reach() -> None:
    world = ChemicalWorld(graph="tree")
    rng = np.random.default_rng(0)
    state = world.reset(500, rng)
    after = world.step(state, np.full((500, 1), 1 * 5 + 3), rng)  # object 1 gets colour 3
    before, now = world.colours_of(state), world.colours_of(after)
    assert (now[:, 1] == 3).all()
    np.testing.assert_array_equal(now[:, [0, 2]], before[:, [0, 2]])
    assert (now[:, 3] != before[:, 3]).any() and (now[:, 4] != before[:, 4]).any()
    np.testing.assert_array_equal(world.targets_of(after), world.targets_of(state))


def test_children_follow_the_new_colours_of_their_parents() -> None:
    """In a chain, how often object 2 takes each colour after object 0 was set is a product of two matrices."""
    world = ChemicalWorld(objects=3, graph="chain", positions=False)
    n, colours = 200_000, np.arange(5)
    state = np.repeat(world.reset(1, np.random.default_rng(0)), n, axis=0)
    after = world.colours_of(world.step(state, np.full((n, 1), 2), np.random.default_rng(1)))
    first = world.networks[1].chances(np.array([[2, 0, 0]]))[0]
    second = world.networks[2].chances(np.stack([0 * colours, colours, 0 * colours], 1))
    np.testing.assert_allclose(np.bincount(after[:, 1], minlength=5) / n, first, atol=0.005)
    np.testing.assert_allclose(np.bincount(after[:, 2], minlength=5) / n, first @ second, atol=0.005)


def test_networks_are_orthogonal_and_read_their_parents_only() -> None:
    world = ChemicalWorld()
    network = world.networks[4]
    first = network.first.reshape(25, 20)
    np.testing.assert_allclose(first.T @ first, 9 * np.eye(20), atol=1e-9)
    np.testing.assert_allclose(network.second.T @ network.second, 9 * np.eye(5), atol=1e-9)
    assert max(np.abs(network.first_bias).max(), np.abs(network.second_bias).max()) <= 0.2
    colours = np.array([[0, 1, 2, 3, 0], [0, 1, 2, 3, 4]])
    chances = network.chances(colours)
    np.testing.assert_array_equal(chances[0], chances[1])
    np.testing.assert_allclose(chances.sum(1), 1)


def test_reward_success_and_context_know_the_target() -> None:
    world = ChemicalWorld()
    state = world.reset(2, np.random.default_rng(0))
    state[:, world.colour_columns] = world.targets_of(state)
    state[1, world.colour_columns[:2]] = (state[1, world.colour_columns[:2]] + 1) % 5
    np.testing.assert_allclose(world.rewards(state)["match"], [1.0, 0.6])
    np.testing.assert_array_equal(world.success(state)["match"], [True, False])
    context = world.context(state).reshape(2, 5, 5)
    np.testing.assert_array_equal(context.argmax(2), world.targets_of(state))
    np.testing.assert_array_equal(context.sum(2), 1)
    assert world.context_names[:6] == ("target0_0", "target0_1", "target0_2", "target0_3", "target0_4", "target1_0")


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_script_succeeds_within_as_many_steps_as_there_are_objects(graph: str) -> None:
    world = ChemicalWorld(graph=graph)
    rng = np.random.default_rng(0)
    state = world.reset(200, rng)
    act = world.policy("scripted", 200, rng)
    for _ in range(world.objects):
        state = world.step(state, act(state, rng), rng)
    assert world.success(state)["match"].all()
    assert world.success(world.step(state, act(state, rng), rng))["match"].all(), "and stays there"


def test_every_action_occurs_in_the_data() -> None:
    data = collect(ChemicalWorld(), 20_000, seed=0)
    assert data.action.dtype == np.int64 and data.action.shape == (20_000, 1)
    assert np.bincount(data.action[:, 0], minlength=25).min() > 200
    assert data.truth is not None and data.rewards["match"].max() == 1


@pytest.mark.parametrize("options", [{}, {"graph": "full", "objects": 15, "colours": 3}])
def test_pictures(options: dict[str, Any]) -> None:
    world = ChemicalWorld(**options)
    image = world.render(world.reset(1, np.random.default_rng(0))[0], 200, 150)
    assert image.shape == (150, 200, 3) and image.dtype == np.uint8
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 10


# Gymnasium, seeds, mistakes


@pytest.mark.parametrize("observation", ["box", "dict"])
def test_gymnasium_finds_nothing_to_complain_about(observation: str) -> None:
    check_env(gymnasium.make("cbm/Chemical-v0", observation=observation, graph="jungle").unwrapped)


def test_discrete_actions_in_gymnasium() -> None:
    env = GymWorld("chemical")
    assert env.action_space == spaces.Discrete(25)
    env.reset(seed=0)
    observed, *_ = env.step(np.int64(7))  # type: ignore[arg-type]
    assert np.asarray(observed)[env.factors.index("object1_colour")] == 2


def trajectory_hash(seed: int) -> str:
    data = collect(make_world("chemical", graph="full", world_seed=3), 500, seed=seed)
    return hashlib.sha256(data.next_obs.tobytes() + data.action.tobytes()).hexdigest()


def test_a_seed_gives_the_same_trajectory_here_and_in_another_process() -> None:
    here = trajectory_hash(5)
    assert here != trajectory_hash(6)
    folder = __file__.rsplit("/", 1)[0]
    script = f"import sys; sys.path.insert(0, {folder!r}); import test_chemical as t; print(t.trajectory_hash(5))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == here, done.stderr


def test_the_world_seed_changes_the_networks_only() -> None:
    one, other = ChemicalWorld(world_seed=1), ChemicalWorld(world_seed=2)
    assert not np.allclose(one.networks[4].first, other.networks[4].first)
    np.testing.assert_array_equal(one.truth, other.truth)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objects": 1}, "chemical: option 'objects' must be a whole number >= 2, not 1"),
        ({"colours": 1.5}, "chemical: option 'colours' must be a whole number >= 2, not 1.5"),
        ({"graph": "colider"}, "chemical: unknown graph 'colider'; did you mean 'collider'?"),
        ({"positions": 1}, "chemical: option 'positions' must be True or False, not 1"),
        ({"world_seed": -1}, "chemical: option 'world_seed' must be a whole number >= 0, not -1"),
        ({"backend": "mujoco"}, "chemical: unknown backend 'mujoco'; choose one of numpy"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as error:
        make_world("chemical", **options)
    assert message in str(error.value)


@pytest.mark.parametrize("action", [-1, 25])
def test_actions_out_of_range(action: int) -> None:
    world = ChemicalWorld()
    rng = np.random.default_rng(0)
    with pytest.raises(DataError, match="actions are whole numbers from 0 to 24"):
        world.step(world.reset(1, rng), np.array([[action]]), rng)


@pytest.mark.parametrize(("value", "message"), [(5, "outside its range"), (1.5, "not a whole number")])
def test_colours_that_do_not_exist(value: float, message: str) -> None:
    world = ChemicalWorld()
    state = world.reset(2, np.random.default_rng(0))
    with pytest.raises(DataError, match=message):
        world.intervene(state, 0, np.array([0, value]))
