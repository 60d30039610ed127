"""CDL's chemical world: objects change the colours of the objects that depend on them.

An action sets the colour of one object. Every object that can be reached from it in a directed acyclic
graph then gets a new colour, in the order of the objects, drawn from a fixed random network that reads
the *new* colours of its parents. Positions are pure noise. No simulator is needed. `chemical_graphs.py`
has the named graphs and the causal graph of one step, which is not the graph above.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.data.factors import Factors, Kind, Variable
from cbm.envs.chemical_graphs import GRAPHS, ancestry, named_graph, one_step_graph
from cbm.envs.world import Policy, Rng, WorldBase, check_policy, whole_number, yes_or_no
from cbm.errors import DataError, unknown_name

GAIN = 3.0  # of the networks' orthogonal weights
BIAS = 0.2  # their biases are uniform in [-BIAS, BIAS]
TARGET_STEPS = 10  # the target is what so many random actions make of the start
EXPLORE = {"random": 1.0, "scripted": 0.0, "mixed": 0.7}  # share of random actions


@dataclass(frozen=True)
class Network:
    """One hidden layer from the colours of an object's parents to the chances of its own."""

    parents: tuple[int, ...]
    first: np.ndarray  # (objects, colours, hidden)
    first_bias: np.ndarray  # (hidden,)
    second: np.ndarray  # (hidden, colours)
    second_bias: np.ndarray  # (colours,)

    @classmethod
    def draw(cls, parents: tuple[int, ...], objects: int, colours: int, rng: Rng) -> Network:
        hidden = 4 * objects
        first = GAIN * _orthogonal(hidden, objects * colours, rng).T
        first_bias = rng.uniform(-BIAS, BIAS, hidden)
        second = GAIN * _orthogonal(colours, hidden, rng).T
        return cls(
            parents, first.reshape(objects, colours, hidden), first_bias, second, rng.uniform(-BIAS, BIAS, colours)
        )

    def chances(self, colours: np.ndarray) -> np.ndarray:
        """(n, colours) of the object, given the colours (n, objects) of all; only its parents are read."""
        hidden = np.tile(self.first_bias, (len(colours), 1))
        for parent in self.parents:  # the one-hot code of a colour picks one row of the weights
            hidden += self.first[parent][colours[:, parent]]
        logits = np.maximum(hidden, 0) @ self.second + self.second_bias
        weights = np.exp(logits - logits.max(1, keepdims=True))
        return weights / weights.sum(1, keepdims=True)

    def sample(self, colours: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """One colour for each row, by the inverse of the cumulative chances at `uniform` (n,) in [0, 1)."""
        below = self.chances(colours)[:, :-1].cumsum(1)
        return (uniform[:, None] >= below).sum(1)


class ChemicalWorld(WorldBase):
    """15 variables by default: the colour, x and y of five objects. Action k * colours + c gives object k colour c.

    Task `match`: the share of objects that have their target colour; success when all have. The targets
    are context, a one-hot code for each object. `world_seed` draws the networks.
    """

    tasks: tuple[str, ...] = ("match",)
    policies: tuple[str, ...] = ("random", "scripted", "mixed")
    action_size = 1
    horizon = 50
    frames_per_second = 2

    def __init__(
        self,
        objects: int = 5,
        colours: int = 5,
        graph: str = "collider",
        world_seed: int = 0,
        positions: bool = True,
    ):
        self.objects = whole_number("chemical", "objects", objects, at_least=2)
        self.colours = whole_number("chemical", "colours", colours, at_least=2)
        world_seed = whole_number("chemical", "world_seed", world_seed, at_least=0)
        self.positions = yes_or_no("chemical", "positions", positions)
        if graph not in GRAPHS:
            raise unknown_name("chemical: unknown graph", graph, GRAPHS)
        self.graph = named_graph(graph, self.objects)  # (objects, objects): [k, j] true when j depends on k
        self.reached = ancestry(self.graph)  # [k, j] true when setting k resamples j
        rng = np.random.default_rng([world_seed, 20241])
        self.networks = [
            Network.draw(tuple(np.flatnonzero(self.graph[:, j]).tolist()), self.objects, self.colours, rng)
            for j in range(self.objects)
        ]
        self.factors = _factors(self.objects, self.colours, self.positions)
        width = len(self.factors) // self.objects
        self.colour_columns = np.arange(0, len(self.factors), width)
        self.position_columns = np.setdiff1d(np.arange(len(self.factors)), self.colour_columns)
        self.state_size = len(self.factors) + self.objects  # the target colours come last
        self.context_names = tuple(f"target{k}_{c}" for k in range(self.objects) for c in range(self.colours))
        self.metres = np.full(len(self.factors), np.nan)  # positions are noise: no object is anywhere
        self.truths = self._truths()
        self.truth = self.truths["physical"]
        parents = np.zeros(len(self.factors), dtype=bool)
        parents[self.colour_columns] = True
        self.truth_rewards = {"match": parents}

    def _truths(self) -> dict[str, np.ndarray]:
        """The graph of one step, and the one that CDL and FCDL score against: DAG, diagonal and action."""
        d, rows = len(self.factors), self.colour_columns
        truths = {name: np.zeros((d, d + 1), dtype=bool) for name in ("physical", "paper")}
        truths["physical"][np.ix_(rows, rows)] = one_step_graph(self.graph)
        truths["paper"][np.ix_(rows, rows)] = self.graph.T
        np.fill_diagonal(truths["paper"], True)  # positions too: they get a self-loop by convention
        for truth in truths.values():
            truth[rows, -1] = True
        return truths

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        """Objects without parents start with any colour, the others with what their networks make of those."""
        state = np.empty((n, self.state_size))
        colours = rng.integers(self.colours, size=(n, self.objects))
        uniform = rng.random((n, self.objects))
        for j, network in enumerate(self.networks):
            if network.parents:
                colours[:, j] = network.sample(colours, uniform[:, j])
        state[:, self.colour_columns] = colours
        for _ in range(TARGET_STEPS):
            action = rng.integers(self.objects * self.colours, size=n)
            colours = self._react(colours, action, rng.random((n, self.objects)))
        state[:, len(self.factors) :] = colours
        self._scatter(state, rng)
        return state

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        action = self._whole(action)
        after = state.copy()
        colours = self.colours_of(state)
        after[:, self.colour_columns] = self._react(colours, action, rng.random(colours.shape))
        self._scatter(after, rng)
        return after

    def _react(self, colours: np.ndarray, action: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Set one object a copy, then resample what can be reached from it, parents before children."""
        target, colour = np.divmod(action, self.colours)
        colours = colours.copy()
        colours[np.arange(len(colours)), target] = colour
        resample = self.reached[target]  # (n, objects)
        for j, network in enumerate(self.networks):
            rows = np.flatnonzero(resample[:, j])
            if len(rows):
                colours[rows, j] = network.sample(colours[rows], uniform[rows, j])
        return colours

    def _scatter(self, state: np.ndarray, rng: Rng) -> None:
        state[:, self.position_columns] = rng.normal(size=(len(state), len(self.position_columns)))

    def _whole(self, action: np.ndarray) -> np.ndarray:
        """(n,) action numbers."""
        number = np.asarray(action)[:, 0].astype(np.int64)
        last = self.objects * self.colours - 1
        if len(number) and (number.min() < 0 or number.max() > last):
            raise DataError(f"chemical: actions are whole numbers from 0 to {last}")
        return number

    def colours_of(self, state: np.ndarray) -> np.ndarray:
        """(n, objects) integers."""
        return state[:, self.colour_columns].astype(np.int64)

    def targets_of(self, state: np.ndarray) -> np.ndarray:
        """(n, objects) integers."""
        return state[:, len(self.factors) :].astype(np.int64)

    def check_hidden(self, state: np.ndarray) -> None:
        targets = state[:, len(self.factors) :]
        if not np.isin(targets, np.arange(self.colours)).all():
            raise DataError(f"chemical: a target colour is not a whole number from 0 to {self.colours - 1}")

    def _matching(self, state: np.ndarray) -> np.ndarray:
        """(n, objects) booleans."""
        return np.equal(self.colours_of(state), self.targets_of(state))

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"match": self._matching(state).mean(1)}

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {"match": np.asarray(self._matching(state).all(axis=1))}

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state[:, : len(self.factors)]

    def context(self, state: np.ndarray) -> np.ndarray:
        return np.eye(self.colours)[self.targets_of(state)].reshape(len(state), -1)

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        """`scripted` gives the first object that is wrong its target: no later action disturbs an earlier object."""
        check_policy("chemical", name, self.policies)
        explore = EXPLORE[name]

        def act(state: np.ndarray, rng: Rng) -> np.ndarray:
            wrong = ~self._matching(state)
            wrong[:, -1] = True  # all is well: set the last object, on which none depends, to what it is
            first = wrong.argmax(1)
            wish = first * self.colours + self.targets_of(state)[np.arange(len(state)), first]
            anything = rng.integers(self.objects * self.colours, size=len(state))
            return np.where(rng.random(len(state)) < explore, anything, wish)[:, None]

        return act

    def render(self, state: np.ndarray, width: int, height: int) -> np.ndarray:
        from cbm.envs.chemical_graphs import picture  # needs matplotlib

        return picture(self.graph, self.colours_of(state[None])[0], self.targets_of(state[None])[0], width, height)


def _orthogonal(rows: int, columns: int, rng: Rng) -> np.ndarray:
    """A random matrix whose rows or columns, whichever are fewer, are orthonormal."""
    tall = rng.normal(size=(max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(tall)
    q = q * np.sign(np.diag(r))  # makes it uniform over such matrices, and the same on every machine
    return q if rows >= columns else q.T


def _factors(objects: int, colours: int, positions: bool) -> Factors:
    kind: Kind = "binary" if colours == 2 else "categorical"
    variables = []
    for k in range(objects):
        group = f"object{k}"
        variables.append(Variable(f"{group}_colour", kind, group, 0, colours - 1))
        if positions:
            variables += [Variable(f"{group}_{axis}", group=group) for axis in "xy"]
    return Factors(tuple(variables), ("set",), discrete_actions=objects * colours)
