"""Graphs found by intervention: on a small world whose every edge is known, and on the built-in ones."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.data.factors import Factors, Kind, Variable
from cbm.envs import make_world
from cbm.envs.changes import Changes
from cbm.envs.verify import difference, quaternions, verify
from cbm.envs.visits import Visits, visit
from cbm.envs.world import Policy, Rng, World, WorldBase
from cbm.errors import DataError

Run = Callable[..., tuple[int, str, str]]
Refused = Callable[..., None]
RARE = 0.99  # the edges into `b` act only when `gate` is above this


class Small(WorldBase):
    """Edges of every kind.

    a: a walk that the action moves. gate: drawn anew at each step. b: a walk that a pushes, rarely: when the
    gate is open. still: constant in an episode. switch: flips when a is positive. block_x/z: x is blown about
    when 0.1 < z < 0.3, where the block never is: it lies at 0, or is held between 0.5 and 1.
    """

    names: tuple[str, ...] = ("a", "gate", "b", "still", "switch", "block_x", "block_z")
    edges: dict[str, tuple[str, ...]] = {
        "a": ("a", "action"), "gate": (), "b": ("a", "gate", "b"), "still": ("still",),
        "switch": ("a", "switch"), "block_x": ("block_x",), "block_z": ("block_z",),
    }  # fmt: skip
    tasks: tuple[str, ...] = ("go",)
    policies: tuple[str, ...] = ("random", "mixed")
    action_size = 1
    horizon = 40

    def __init__(self) -> None:
        kinds: dict[str, Kind] = {"switch": "binary"}
        groups = {"block_x": "block", "block_z": "block"}
        variables = [Variable(n, kinds.get(n, "continuous"), groups.get(n, "")) for n in self.names]
        self.factors = Factors(tuple(variables), ("push",))
        d = len(self.names)
        self.truth = np.zeros((d, d + 1), dtype=bool)
        columns = {name: j for j, name in enumerate((*self.names, "action"))}
        for effect, causes in self.edges.items():
            self.truth[columns[effect], [columns[cause] for cause in causes]] = True
        self.truth_rewards = {"go": np.arange(d) == 0}

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        state = rng.normal(size=(n, len(self.names)))
        state[:, 1] = rng.uniform(0, 1, n)
        state[:, 4] = 0
        state[:, 6] = np.where(rng.random(n) < 0.3, rng.uniform(0.5, 1, n), 0)
        return state

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        a, gate, b, still, switch, x, z = state.T
        noise = rng.normal(0, 0.1, (4, len(state)))
        blown = np.where((z > 0.1) & (z < 0.3), 5.0, 0.0)
        held = rng.uniform(0.5, 1, len(state))
        return np.stack(
            [
                0.9 * a + 0.3 * np.clip(action[:, 0], -1, 1) + noise[0],
                rng.uniform(0, 1, len(state)),
                0.9 * b + noise[1] + np.where(gate > RARE, a, 0),
                still,
                np.where(a > 0, 1 - switch, switch),
                0.95 * x + noise[2] + blown,
                np.where(z > 0.4, 0.9 * z + 0.1 * held, z),
            ],
            axis=1,
        )

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"go": state[:, 0]}

    def events(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"gate open": state[:, 1] > RARE, "block held": state[:, 6] > 0.4}

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        return lambda state, rng: rng.uniform(-1, 1, (len(state), 1))


class Spinning(Small):
    """Nothing but a quaternion that turns about z, in a step by an angle that the action chooses.

    It is reported with either sign, and one of its numbers cannot be set alone.
    """

    names: tuple[str, ...] = ("top_qx", "top_qy", "top_qz", "top_qw")
    edges = {
        "top_qx": (), "top_qy": (), "top_qz": ("top_qz", "top_qw", "action"), "top_qw": ("top_qz", "top_qw", "action"),
    }  # fmt: skip

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        return self._turned(np.tile([0.0, 0, 0, 1], (n, 1)), rng.uniform(-3, 3, n))

    def _turned(self, state: np.ndarray, angle: np.ndarray) -> np.ndarray:
        half = np.arctan2(state[:, 2], state[:, 3]) + angle / 2
        zero = np.zeros(len(state))
        turned = np.stack([zero, zero, np.sin(half), np.cos(half)], axis=1)
        return np.where(turned[:, 2:3] < 0, -turned, turned)  # the same rotation, another sign

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        return self._turned(state, 0.5 * action[:, 0] + rng.normal(0, 0.1, len(state)))

    def events(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {}

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        changed, other = state.copy(), {2: 3, 3: 2}.get(variable)
        if other is None:
            return changed  # the axis stays upright
        changed[:, variable] = np.clip(value, -1, 1)
        side = np.where(state[:, other] < 0, -1, 1)
        changed[:, other] = side * np.sqrt(1 - changed[:, variable] ** 2)
        return changed


def wrong(found: np.ndarray, world: World) -> list[str]:
    columns = (*world.factors.names, "action")
    return [f"{columns[j]} -> {columns[i]}: found {found[i, j]}" for i, j in np.argwhere(found != world.truth)]


# A small world


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_edge_of_a_small_world_and_no_other(seed: int) -> None:
    world = Small()
    result = verify(world, 1000, seed=seed)
    assert wrong(result.found, world) == []
    assert result.agrees and result.tested.all()
    rare = result.share[2, 0]
    assert 0.005 < rare < 0.03, "a acts on b where the gate is open: in one state of a hundred, whatever was picked"
    assert result.count[2, 0] > 5 * rare * result.states, "such states are picked more often"
    assert result.share[0, 0] > 0.95
    assert result.share[4, 4] == pytest.approx(1)


def test_strength_is_in_units_of_the_usual_change() -> None:
    """gate' is a fresh number, so its change has a known spread; a' takes over 0.9 of a change of a."""
    result = verify(Small(), 1000)
    usual = 0.9 * np.exp(np.mean(np.log([0.1, 1.5])))  # the nudge at the middle of its range
    assert 0.5 * usual < result.median[0, 0] < 4 * usual
    assert result.strong[0, 0] > result.median[0, 0]
    assert (result.median[~result.found] == 0).all()
    assert result.median[4, 0] == result.strong[4, 0] == 1, "a category differs or does not"


def test_the_support_of_the_data_is_not_left() -> None:
    """Between the table and the hand there is a height at which something happens, but no block is ever there."""
    world = Small()
    result = verify(world, 1000)
    x, z = (world.names.index(name) for name in ("block_x", "block_z"))
    assert result.count[x, z] == 0
    rng = np.random.default_rng(0)
    visits = visit(world, ("random",), 4000, rng)
    rows = np.arange(0, len(visits), 7)
    new = Changes(world, visits, rows, rng).propose("nudge", z, rng)
    assert ((new.value == 0) | (new.value > 0.4)).all()
    assert new.changed[visits.obs[rows, z] > 0.4].mean() > 0.9
    moved = Changes(world, visits, rows, rng).propose("nudge", x, rng)
    assert moved.changed.mean() > 0.9


def test_thresholds_decide() -> None:
    world = Small()
    assert not verify(world, 500, min_share=0.05).found[2, 0]
    assert verify(world, 500, min_states=10**6).found.sum() == 0
    assert verify(world, 500, tolerance=1e3).found.sum() == 0


def test_a_wrong_graph_is_told() -> None:
    world = Small()
    declared = world.truth.copy()
    declared[0, 0], declared[3, 1] = False, True
    result = verify(world, 500, declared=declared)
    assert np.argwhere(result.undeclared).tolist() == [[0, 0]]
    assert np.argwhere(result.unseen).tolist() == [[3, 1]]
    assert not result.agrees


def test_what_cannot_be_set_is_not_tested() -> None:
    world = Small()
    world.settable = np.array([name != "b" for name in world.names])
    result = verify(world, 300)
    assert result.changed[2] == 0 and not result.tested[:, 2].any()
    assert not result.unseen.any() and result.tested[:, [0, 1, 3, 4, 5, 6, 7]].all()


def test_the_same_seed_gives_the_same_result() -> None:
    first, again, other = (verify(Small(), 200, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.share, again.share)
    assert not np.array_equal(first.share, other.share)


def test_unknown_policies_and_impossible_numbers() -> None:
    with pytest.raises(DataError, match="unknown policy 'magic'; choose one of random, mixed"):
        verify(Small(), 10, policies=["magic"])
    with pytest.raises(DataError, match="needs states"):
        verify(Small(), 0)


# Quaternions, angles


def test_a_quaternion_is_compared_as_a_rotation() -> None:
    assert quaternions(("x", "a_qx", "a_qy", "a_qz", "a_qw", "b_qx", "b_q")) == [[1, 2, 3, 4]]
    world = Spinning()
    result = verify(world, 500)
    q = result.found[2:, 2:]
    assert q[0, 0] and q[1, 1] and result.found[2:, 4].all()
    assert not result.tested[:, :2].any(), "these never vary"
    assert result.strong[2, 4] < 5, "the jump from q to -q is not an effect"
    assert result.moves_others == {"top_qz": ("top_qw",), "top_qw": ("top_qz",)}


def test_angles_are_compared_the_shorter_way_round() -> None:
    world = Small()
    world.factors = Factors((Variable("turn", "angle"), Variable("x")), ("push",))
    apart = difference(world, np.array([[3.1, 3.1]]), np.array([[-3.1, -3.1]]))
    np.testing.assert_allclose(np.abs(apart), [[2 * np.pi - 6.2, 6.2]])


# Which states


def test_picked_states_stand_for_all_visited_ones() -> None:
    rng = np.random.default_rng(0)
    m = 20_000
    events = np.stack([rng.random(m) < 0.01, rng.random(m) < 0.2], 1)
    none = np.zeros((m, 1))
    visits = Visits(none, none, none, none, np.zeros(m, int), events, ("rare", "common"))
    rows, weights = visits.pick(1000, rng)
    assert len(rows) == len(np.unique(rows)) and 900 < len(rows) <= 1000
    assert weights.sum() == pytest.approx(1)
    assert events[rows, 0].sum() > 100, "rare ones are picked ten times as often as they come"
    assert (weights * events[rows, 0]).sum() == pytest.approx(events[:, 0].mean(), rel=0.15)
    assert (weights * events[rows, 1]).sum() == pytest.approx(events[:, 1].mean(), rel=0.15)
    everything, even = visits.pick(10**6, rng)
    assert len(everything) == m and np.ptp(even) == 0


# Built-in worlds


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("contact", {}),
        ("contact", {"blocks": 4, "distractors": 12, "rescale": True}),
        ("contact", {"world_seed": 7, "distractors": 0}),
        ("light", {}),
        ("light", {"distractors": 3}),
        ("chemical", {}),
        ("chemical", {"graph": "chain"}),
        ("chemical", {"graph": "full", "positions": False}),
    ],
)
def test_built_in_worlds_declare_what_interventions_show(name: str, options: dict[str, Any]) -> None:
    world = make_world(name, **options)
    result = verify(world, 1000)
    assert wrong(result.found, world) == []
    assert not result.moves_others and result.tested.all()
    assert result.share[world.truth].min() > 0.01


# The command


@pytest.fixture
def small_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cbm.envs.registry.make_world", lambda name, **options: Small())


def test_the_command_prints_agreement(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sub" / "light.csv"
    code, out, err = run("verify", "light", "--states", 400, "--out", path, "--strict", "--quiet")
    assert (code, err) == (0, "")
    assert "9 edges found by intervention" in out
    assert "declared graph 'physical': 9 edges; agrees in all of 42 tested cells" in out
    with open(path, newline="") as lines:
        cells = list(csv.DictReader(lines))
    assert len(cells) == 42
    light = {cell["cause"]: cell for cell in cells if cell["effect"] == "light"}
    assert light["countdown"]["found"] == light["countdown"]["declared"] == "1"
    assert 0 < float(light["countdown"]["share"]) < 1 and float(light["countdown"]["median"]) == 1
    assert light["wind"]["found"] == light["wind"]["states"] == "0"


def test_the_command_as_json(run: Run, tmp_path: Path, small_world: None) -> None:
    path = tmp_path / "cells.json"
    code, out, _ = run("verify", "contact", "--states", 300, "--json", "--out", path, "--policy", "mixed", "--quiet")
    assert code == 0
    result = json.loads(out)
    assert result["agrees"] is True and result["policies"] == ["mixed"]
    assert result["edges"] == {"found": 10, "declared": 10}
    assert result["cells"] == {"all": 56, "tested": 56}
    assert result["undeclared"] == result["unseen"] == result["untested"] == []
    assert len(json.loads(path.read_text())["every"]) == 56


def test_differences_are_listed_and_strict_says_so(
    run: Run, small_world: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_less, one_more = Small().truth, Small().truth
    one_less[2, 0], one_more[3, 1] = False, True

    monkeypatch.setattr(Small, "truths", {"physical": one_less, "paper": one_more})
    code, out, _ = run("verify", "contact", "--states", 300, "--quiet")
    assert code == 0
    assert "found and not declared: 1 edge" in out and "declared and not seen" not in out
    assert "declared graph 'paper': 11 edges; differs in 1 of 56 tested cells" in out
    code, out, _ = run("verify", "contact", "--states", 300, "--quiet", "--strict", "--truth", "paper")
    assert code == 1 and "declared and not seen acting: 1 edge" in out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["verify", "contct"], ["unknown world 'contct'", "contact"]),
        (["verify", "light", "--policy", "hold"], ["unknown policy 'hold'", "random, scripted, mixed"]),
        (["verify", "light", "--backend", "mujoco"], ["light", "backend", "'mujoco'", "numpy"]),
        (["verify", "light", "--truth", "paper"], ["light", "'paper'", "physical"]),
        (["verify", "light", "--states", "0"], ["--states", "at least 1"]),
        (["verify", "light", "--tolerance", "-1"], ["--tolerance"]),
        (["verify", "light", "--out", "a.txt"], ["a.txt", ".csv"]),
        (["verify", "light", "--option", "blocks"], ["--option", "KEY=VALUE"]),
        (["verify", "light", "--option", "blocks=3"], ["light", "'blocks'"]),
    ],
)
def test_bad_input(run: Run, refused: Refused, arguments: list[str], parts: list[str]) -> None:
    refused(run(*arguments), *parts)


def test_a_published_graph_that_differs_is_explained(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("verify", "chemical", "--option", "graph=chain", "--states", 300, "--quiet")
    assert code == 0 and "declared graph 'physical': 9 edges; agrees in all" in out
    said = " ".join(out.split())
    assert said.count("lead from one step to the next") == 1 and "docs/concepts/one-step-graphs.md" in said
