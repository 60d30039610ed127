"""A hand, a gripper, blocks that move only while grasped, one fixed block, and distractors.

Everything that makes manipulation hard for causal discovery, without physics: an effect (the block
moves) that exists only in a small region of the state space (gripper closed, hand around the block),
variables that never change, and variables that correlate with everything the action does without
mattering to any task. Next-step variables are independent given the present, as the method assumes,
so the graph below is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cbm.envs.world import Policy, Rng
from cbm.errors import DataError
from cbm.factors import Factors, Variable

REACH = 0.12  # the hand holds a block when it is closer than this along every axis
STEP = 0.06  # largest displacement of the hand in one step, workspace is [-0.5, 0.5]^3
GOAL = np.array([0.2, -0.2, 0.3])  # where task `pick` wants block 0
ABOVE = np.array([0.0, 0.0, 0.1])  # where task `stack` wants block 1, relative to the fixed block
POLICIES = ("scripted", "random", "mixed", "hold")


@dataclass(frozen=True)
class Layout:
    """Where each object's variables sit in the state vector."""

    blocks: int
    controllable: int
    uncontrollable: int

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
        return self.block(self.blocks)

    @property
    def cd(self) -> slice:
        return slice(self.fixed.stop, self.fixed.stop + self.controllable)

    @property
    def ud(self) -> slice:
        return slice(self.cd.stop, self.cd.stop + self.uncontrollable)

    @property
    def size(self) -> int:
        return self.ud.stop


class ContactWorld:
    """36 variables by default; `blocks=4, distractors=12, rescale=True` is the harder one with 43."""

    tasks = ("pick", "stack")
    action_size = 4
    horizon = 50

    def __init__(self, blocks: int = 3, distractors: int = 10, rescale: bool = False, world_seed: int = 0):
        if blocks < 2 or distractors < 0:
            raise DataError(f"contact: needs blocks >= 2 and distractors >= 0, got {blocks} and {distractors}")
        self.layout = Layout(blocks, distractors, distractors)
        self.factors = _factors(self.layout)
        self.truth, self.truth_rewards = _truth(self.layout)
        rng = np.random.default_rng([world_seed, 20240])
        weights = rng.normal(size=(self.action_size, distractors))
        self.projection = weights / np.abs(weights).sum(0, keepdims=True)  # |W^T a| <= 1
        d = self.layout.size
        self.scale = 10.0 ** rng.uniform(-3, 3, d) if rescale else np.ones(d)
        self.offset = self.scale * rng.normal(0, 5, d) if rescale else np.zeros(d)

    def reset(self, n: int, rng: Rng) -> np.ndarray:
        lay = self.layout
        state = np.zeros((n, lay.size))
        state[:, : lay.cd.start] = rng.uniform(-0.4, 0.4, (n, lay.cd.start))
        state[:, lay.gripper] = rng.uniform(0, 1, n)
        state[:, lay.ud] = rng.uniform(-1, 1, (n, lay.uncontrollable))
        return state

    def held(self, state: np.ndarray) -> np.ndarray:
        """(n, blocks) booleans: the gripper is closed around the block."""
        lay = self.layout
        positions = state[:, 4 : lay.fixed.start].reshape(len(state), lay.blocks, 3)
        near = np.abs(positions - state[:, None, lay.hand]).max(-1) < REACH
        return near & (state[:, lay.gripper, None] < 0.5)

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        lay, n = self.layout, len(state)
        action = np.clip(action, -1, 1)
        after = state.copy()  # the fixed block stays where it is
        move = STEP * action[:, :3]
        after[:, lay.hand] = np.clip(state[:, lay.hand] + move + rng.normal(0, 0.003, (n, 3)), -0.5, 0.5)
        after[:, lay.gripper] = np.clip(
            state[:, lay.gripper] + 0.3 * action[:, 3] + rng.normal(0, 0.01, n), 0, 1
        )
        held = self.held(state)
        for k in range(lay.blocks):
            moved = np.clip(state[:, lay.block(k)] + move + rng.normal(0, 0.003, (n, 3)), -0.5, 0.5)
            after[:, lay.block(k)] = np.where(held[:, k, None], moved, state[:, lay.block(k)])
        after[:, lay.cd] = action @ self.projection
        after[:, lay.ud] = rng.uniform(-1, 1, (n, lay.uncontrollable))
        return after

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        lay = self.layout
        hand, fixed = state[:, lay.hand], state[:, lay.fixed]
        return {
            "pick": _closeness(hand - state[:, lay.block(0)]) + 2 * _closeness(state[:, lay.block(0)] - GOAL),
            "stack": _closeness(hand - state[:, lay.block(1)])
            + 2 * _closeness(state[:, lay.block(1)] - fixed - ABOVE),
        }

    def observe(self, state: np.ndarray) -> np.ndarray:
        return state * self.scale + self.offset

    def policy(self, name: str, n: int, rng: Rng) -> Policy:
        if name == "random":
            return lambda state, rng: rng.uniform(-1, 1, (len(state), self.action_size))
        if name not in POLICIES:
            raise DataError(f"contact: unknown policy {name!r}; choose one of {', '.join(POLICIES)}")
        return _Fetch(self, n, rng, noise={"scripted": 0.3, "mixed": 0.3, "hold": 0.1}[name], kind=name)


class _Fetch:
    """Go to a block, close, carry it somewhere, open, choose again; `mixed` also wanders at random.

    `hold` never lets go: the hand is always at a block, so hand and block positions are almost equal
    in every row, which misleads whatever looks at one variable at a time.
    """

    def __init__(self, world: ContactWorld, n: int, rng: Rng, noise: float, kind: str):
        self.world, self.noise, self.kind = world, noise, kind
        self.block = rng.integers(world.layout.blocks, size=n)
        self.goal = rng.uniform(-0.4, 0.4, (n, 3))
        self.wander = np.zeros(n, dtype=bool)

    def __call__(self, state: np.ndarray, rng: Rng) -> np.ndarray:
        lay, n = self.world.layout, len(state)
        rows = np.arange(n)
        positions = state[:, 4 : lay.fixed.start].reshape(n, lay.blocks, 3)
        target = positions[rows, self.block]
        held = self.world.held(state)[rows, self.block]
        to_block, to_goal = target - state[:, lay.hand], self.goal - target
        near = np.abs(to_block).max(-1) < 0.6 * REACH
        arrived = held & (np.abs(to_goal).max(-1) < 0.06)
        close = held | near
        action = np.empty((n, 4))
        action[:, :3] = np.where(held[:, None], to_goal, to_block) / STEP
        action[:, 3] = np.where(close, -1.0, 1.0)
        self._choose_again(arrived, action, rng)
        action = np.clip(action, -1, 1) + self.noise * rng.normal(size=(n, 4))
        action[self.wander] = rng.uniform(-1, 1, (int(self.wander.sum()), 4))
        return np.clip(action, -1, 1)

    def _choose_again(self, arrived: np.ndarray, action: np.ndarray, rng: Rng) -> None:
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


def _closeness(difference: np.ndarray) -> np.ndarray:
    return 1 - np.tanh(3 * np.linalg.norm(difference, axis=-1))


def _factors(lay: Layout) -> Factors:
    objects = [("hand", "hand")] + [(f"block{k}", f"block{k}") for k in range(lay.blocks)] + [("fixed", "fixed")]
    variables = [Variable(f"{name}_{axis}", group=group) for name, group in objects for axis in "xyz"]
    variables.insert(3, Variable("gripper", group="gripper"))
    variables += [Variable(f"cd{k}", group="controllable distractor") for k in range(lay.controllable)]
    variables += [Variable(f"ud{k}", group="uncontrollable distractor") for k in range(lay.uncontrollable)]
    return Factors(tuple(variables), ("move_x", "move_y", "move_z", "grip"))


def _truth(lay: Layout) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    truth = np.zeros((lay.size, lay.size + 1), dtype=bool)
    action = lay.size
    for i in (*range(3), lay.gripper):
        truth[i, [i, action]] = True
    for k in range(lay.blocks):  # whether a block is held depends on all of hand, gripper and block
        for parent in (lay.hand, lay.gripper, lay.block(k), action):
            truth[lay.block(k), parent] = True
    for i in range(lay.fixed.start, lay.fixed.stop):
        truth[i, i] = True
    truth[lay.cd, action] = True
    rewards = {task: np.zeros(lay.size, dtype=bool) for task in ContactWorld.tasks}
    for task, parts in {"pick": (lay.hand, lay.block(0)), "stack": (lay.hand, lay.block(1), lay.fixed)}.items():
        for part in parts:
            rewards[task][part] = True
    return truth, rewards
