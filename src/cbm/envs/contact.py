"""A hand, a gripper, blocks that move only while grasped, one fixed block, and distractors.

Everything that makes manipulation hard for causal discovery, without physics: an effect (the block
moves) that exists only in a small region of the state space (gripper closed, hand around the block),
variables that never change, and variables that correlate with everything the action does without
mattering to any task. Next-step variables are independent given the present state and action, as the
method assumes, so the graph in `_truth` is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.data.factors import Factors, Variable
from cbm.envs.world import Policy, Rng, WorldBase, check_policy, check_values, whole_number, yes_or_no

REACH = 0.12  # the hand holds a block when it is closer than this along every axis
STEP = 0.06  # largest displacement of the hand in one step
EDGE = 0.5  # the workspace is [-EDGE, EDGE]^3
SLIP = 0.003  # standard deviation of the noise on every position that moves
CLOSED = 0.5  # the gripper holds when its opening, in [0, 1], is below this
GOAL = np.array([0.2, -0.2, 0.3])  # where task `pick` wants block 0
ABOVE = np.array([0.0, 0.0, 0.1])  # where task `stack` wants block 1, relative to the fixed block
ARRIVED = 0.05  # a task has succeeded when its block is closer than this to where it is wanted
NOISE = {"scripted": 0.3, "mixed": 0.3, "hold": 0.1}  # exploration noise of each policy that fetches


@dataclass(frozen=True)
class Layout:
    """Where each object's variables sit in the state vector."""

    blocks: int
    distractors: int
    """So many controllable ones (`cd`), and as many uncontrollable ones (`ud`)."""

    @property
    def hand(self) -> slice:
        return slice(0, 3)

    @property
    def gripper(self) -> int:
        return 3

    def block(self, k: int) -> slice:
        return slice(4 + 3 * k, 7 + 3 * k)

    @property
    def fixed(self) -> slice:
        return self.block(self.blocks)  # sits where one more block would

    def positions(self, state: np.ndarray) -> np.ndarray:
        """(n, blocks, 3) of the blocks that can be moved."""
        return state[:, 4 : self.fixed.start].reshape(len(state), self.blocks, 3)

    @property
    def cd(self) -> slice:
        return slice(self.fixed.stop, self.fixed.stop + self.distractors)

    @property
    def ud(self) -> slice:
        return slice(self.cd.stop, self.cd.stop + self.distractors)

    @property
    def size(self) -> int:
        return self.ud.stop


class ContactWorld(WorldBase):
    """36 variables by default; `blocks=4, distractors=12, rescale=True` is the harder one with 43.

    `rescale` reports every variable in a unit and from an origin of its own, over six orders of
    magnitude; `world_seed` draws those and how the action drives the controllable distractors.
    """

    tasks: tuple[str, ...] = ("pick", "stack")
    policies: tuple[str, ...] = ("scripted", "random", "mixed", "hold")
    action_size = 4
    horizon = 50

    def __init__(self, blocks: int = 3, distractors: int = 10, rescale: bool = False, world_seed: int = 0):
        blocks = whole_number("contact", "blocks", blocks, at_least=2)  # each task has a block of its own
        distractors = whole_number("contact", "distractors", distractors, at_least=0)
        rescale = yes_or_no("contact", "rescale", rescale)
        world_seed = whole_number("contact", "world_seed", world_seed, at_least=0)
        self.layout = Layout(blocks, distractors)
        self.factors = _factors(self.layout)
        self.truth, self.truth_rewards = _truth(self.layout)
        rng = np.random.default_rng([world_seed, 20240])
        weights = rng.normal(size=(self.action_size, distractors))
        self.projection = weights / np.abs(weights).sum(0, keepdims=True)  # |W^T a| <= 1
        d = self.layout.size
        self.scale = 10.0 ** rng.uniform(-3, 3, d) if rescale else np.ones(d)
        self.offset = self.scale * rng.normal(0, 5, d) if rescale else np.zeros(d)
        low, high = np.full(d, -EDGE), np.full(d, EDGE)
        low[self.layout.gripper], high[self.layout.gripper] = 0, 1
        low[self.layout.cd.start :], high[self.layout.cd.start :] = -1, 1
        self.bounds = self.observe(low), self.observe(high)
        self.metres = 1 / self.scale
        self.metres[[self.layout.gripper, *range(self.layout.cd.start, d)]] = np.nan

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        lay = self.layout
        state = np.zeros((n, lay.size))
        state[:, : lay.cd.start] = rng.uniform(-0.4, 0.4, (n, lay.cd.start))
        state[:, lay.gripper] = rng.uniform(0, 1, n)
        state[:, lay.ud] = rng.uniform(-1, 1, (n, lay.distractors))
        return state

    def held(self, state: np.ndarray) -> np.ndarray:
        """(n, blocks) booleans: the gripper is closed around the block."""
        lay = self.layout
        near = np.abs(lay.positions(state) - state[:, None, lay.hand]).max(-1) < REACH
        return near & (state[:, lay.gripper, None] < CLOSED)

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        # Noise is drawn whether or not it is used, so that two states stepped with the same random
        # numbers differ only by what the difference of the states causes.
        lay, n = self.layout, len(state)
        action = np.clip(action, -1, 1)
        after = state.copy()  # the fixed block stays where it is
        move, grip = STEP * action[:, :3], 0.3 * action[:, 3]
        after[:, lay.hand] = _carried(state[:, lay.hand], move, rng)
        after[:, lay.gripper] = np.clip(state[:, lay.gripper] + grip + rng.normal(0, 0.01, n), 0, 1)
        held = self.held(state)
        for k in range(lay.blocks):
            before = state[:, lay.block(k)]
            after[:, lay.block(k)] = np.where(held[:, k, None], _carried(before, move, rng), before)
        after[:, lay.cd] = action @ self.projection
        after[:, lay.ud] = rng.uniform(-1, 1, (n, lay.distractors))
        return after

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        """The hand at the task's block, and twice as much for the block at its goal; at most 3."""
        lay = self.layout
        hand, first, second = state[:, lay.hand], state[:, lay.block(0)], state[:, lay.block(1)]
        return {
            "pick": _closeness(hand - first) + 2 * _closeness(first - GOAL),
            "stack": _closeness(hand - second) + 2 * _closeness(second - state[:, lay.fixed] - ABOVE),
        }

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        lay = self.layout
        gaps = {
            "pick": state[:, lay.block(0)] - GOAL,
            "stack": state[:, lay.block(1)] - state[:, lay.fixed] - ABOVE,
        }
        return {task: np.linalg.norm(gap, axis=1) < ARRIVED for task, gap in gaps.items()}

    def events(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return {f"block{k} held": held for k, held in enumerate(self.held(state).T)}

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state * self.scale + self.offset

    def intervene(self, state: np.ndarray, variable: int, value: np.ndarray) -> np.ndarray:
        check_values(self.factors, self.bounds, variable, value)
        changed = state.copy()
        changed[:, variable] = (value - self.offset[variable]) / self.scale[variable]
        return changed

    def render(self, state: np.ndarray, width: int, height: int) -> np.ndarray:
        from cbm.envs.sketches import table_top

        lay = self.layout
        blocks = lay.positions(state[None])[0]
        closed = bool(state[lay.gripper] < CLOSED)
        return table_top(state[lay.hand], closed, blocks, state[lay.fixed], GOAL, EDGE, width, height)

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        check_policy("contact", name, self.policies)
        if name == "random":
            return lambda state, rng: rng.uniform(-1, 1, (len(state), self.action_size))
        return _Fetch(self, n, rng, noise=NOISE[name], kind=name)


class _Fetch:
    """Go to a block, close, carry it somewhere, open, choose again; `mixed` also wanders at random.

    `hold` never lets go of its block: the hand is within reach of one in nine rows of ten, so their
    positions nearly agree, which misleads whatever looks at one variable at a time.
    """

    def __init__(self, world: ContactWorld, n: int, rng: Rng, noise: float, kind: str):
        self.world, self.noise, self.kind = world, noise, kind
        self.block = rng.integers(world.layout.blocks, size=n)
        self.goal = rng.uniform(-0.4, 0.4, (n, 3))
        self.wander = np.zeros(n, dtype=bool)

    def __call__(self, state: np.ndarray, rng: Rng) -> np.ndarray:
        lay, n = self.world.layout, len(state)
        rows = np.arange(n)
        target = lay.positions(state)[rows, self.block]
        held = self.world.held(state)[rows, self.block]
        to_block, to_goal = target - state[:, lay.hand], self.goal - target
        near = np.abs(to_block).max(-1) < 0.6 * REACH
        arrived = held & (np.abs(to_goal).max(-1) < 0.06)
        action = np.empty((n, 4))
        action[:, :3] = np.where(held[:, None], to_goal, to_block) / STEP
        action[:, 3] = np.where(held | near, -1.0, 1.0)
        self._choose_again(arrived, action, rng)
        action = np.clip(action, -1, 1) + self.noise * rng.normal(size=(n, 4))
        action[self.wander] = rng.uniform(-1, 1, (int(self.wander.sum()), 4))
        return np.clip(action, -1, 1)

    def _choose_again(self, arrived: np.ndarray, action: np.ndarray, rng: Rng) -> None:
        """Where a block has arrived, or now and then anywhere: open, and take another block and goal."""
        n = len(arrived)
        new_goal = rng.uniform(-0.4, 0.4, (n, 3))
        bored = rng.random(n) < 0.02
        self.goal = np.where((arrived | bored)[:, None], new_goal, self.goal)
        if self.kind == "hold":
            return
        action[arrived, 3] = 1.0
        other = rng.integers(self.world.layout.blocks, size=n)
        self.block = np.where(arrived | bored, other, self.block)
        if self.kind == "mixed":
            flip = rng.random(n) < np.where(self.wander, 0.1, 0.03)
            self.wander = self.wander ^ flip


def _carried(position: np.ndarray, move: np.ndarray, rng: Rng) -> np.ndarray:
    return np.clip(position + move + rng.normal(0, SLIP, position.shape), -EDGE, EDGE)


def _closeness(difference: np.ndarray) -> np.ndarray:
    """1 at no distance, falling to 0 far away."""
    return 1 - np.tanh(3 * np.linalg.norm(difference, axis=-1))


def _factors(lay: Layout) -> Factors:
    objects = ["hand", *(f"block{k}" for k in range(lay.blocks)), "fixed"]
    variables = [Variable(f"{name}_{axis}", group=name) for name in objects for axis in "xyz"]
    variables.insert(lay.gripper, Variable("gripper", group="gripper"))
    variables += [Variable(f"cd{k}", group="controllable distractor") for k in range(lay.distractors)]
    variables += [Variable(f"ud{k}", group="uncontrollable distractor") for k in range(lay.distractors)]
    return Factors(tuple(variables), ("move_x", "move_y", "move_z", "grip"))


def _truth(lay: Layout) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The true graph (d, d+1), and for each task the variables its reward is computed from."""
    truth = np.zeros((lay.size, lay.size + 1), dtype=bool)
    action = lay.size
    for i in (0, 1, 2, lay.gripper):
        truth[i, [i, action]] = True
    for k in range(lay.blocks):  # whether a block is held depends on every axis of hand and block
        for parent in (lay.hand, lay.gripper, lay.block(k), action):
            truth[lay.block(k), parent] = True
    for i in range(lay.fixed.start, lay.fixed.stop):
        truth[i, i] = True
    truth[lay.cd, action] = True
    parts = {"pick": (lay.hand, lay.block(0)), "stack": (lay.hand, lay.block(1), lay.fixed)}
    rewards = {task: np.zeros(lay.size, dtype=bool) for task in parts}
    for task, slices in parts.items():
        for part in slices:
            rewards[task][part] = True
    return truth, rewards
