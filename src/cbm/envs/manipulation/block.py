"""The block world: three blocks to move, one that cannot be moved, and markers that wander about."""

from __future__ import annotations

from typing import cast

import numpy as np

from cbm.envs.manipulation import scripts, tasks
from cbm.envs.manipulation.backend import TABLE, Box, SceneSpec, Thing
from cbm.envs.manipulation.graphs import ACTION
from cbm.envs.manipulation.repertoire import block_skills
from cbm.envs.manipulation.skills import Mixed
from cbm.envs.manipulation.world import ManipulationWorld, as_choice, separate, upright
from cbm.envs.world import Policy, Rng, real_number

HALF = 0.02
MOVABLE = ("mov0", "mov1", "mov2")
SPREAD, FIXED_SPREAD = 0.25, 0.27  # blocks, and the fixed one, start within so much of the middle of the table
GOAL_SPREAD = np.array([0.25, 0.3])  # and the goal, along x and y
REACH = 0.3  # the hand gets so far along x: a block is never stacked beyond
APART = 0.06  # centres of blocks start so far apart, whatever their yaw
REDS = ("0.82 0.16 0.14 1", "0.93 0.45 0.12 1", "0.75 0.2 0.45 1")


def _cube(name: str, rgba: str, movable: bool = True) -> Thing:
    return Thing(name, (Box((HALF, HALF, HALF)),), 1000.0, rgba, movable)


class BlockWorld(ManipulationWorld):
    """47 variables: hand, fingers, blocks `mov0`, `mov1`, `mov2`, the fixed block `unmov0`, three markers.

    `formula` is that of the rewards of pick and stack: "code" as the authors' program computes them, "paper" as
    their paper prints them. `spread` is how far from the middle of the table, in metres along x and y, movable
    blocks start; the ranges of the fixed block and of the goal shrink and grow with it. `threads` copies are
    simulated at the same time; results do not depend on it.
    """

    name = "block"
    tasks: tuple[str, ...] = ("pick", "stack", "reach", "push", "grasp")
    policies: tuple[str, ...] = ("mixed", "skills", "random", "pick", "stack")
    horizon = 250
    spec = SceneSpec(
        (*(_cube(name, red) for name, red in zip(MOVABLE, REDS)), _cube("unmov0", "0.2 0.62 0.3 1", movable=False)),
        table=(0.4, 0.6, 0.025),
        low=(-0.3, -0.4, 0.81),
        high=(0.3, 0.4, 1.0),
    )
    centre = (0.0, 0.0, 0.9)
    unit = (0.5, 0.5, 0.2)

    def __init__(self, formula: str = "code", backend: str = "mujoco", threads: int = 1, spread: float = SPREAD):
        self.formula = cast(tasks.BlockFormula, as_choice("block", "formula", formula, ("code", "paper")))
        self.spread = real_number("block", "spread", spread, above=0.05, at_most=0.3)  # less has no room for four
        goal = GOAL_SPREAD * (self.spread / SPREAD)
        self.goal_low, self.goal_high = np.append(-goal, TABLE + 0.1), np.append(goal, TABLE + 0.2)
        super().__init__(backend, threads)
        robot = ("eef", "gripper")
        everything = (*robot, *MOVABLE, "unmov0", ACTION)
        held = ("eef_pos", "finger_pos", "mov0_pos", "mov0_quat")
        self.declare(
            physical={group: everything for group in (*robot, *MOVABLE)},
            paper={
                "eef": ("eef", ACTION),
                "gripper": (*robot, ACTION),
                **{block: (*robot, block, ACTION) for block in MOVABLE},
            },
            read={
                "pick": held,
                "stack": (*held, "unmov0_pos", "unmov0_quat"),
                "reach": ("eef_pos",),
                "push": ("eef_pos", "mov0_pos"),
                "grasp": held,
            },
            constant=(
                "unmov0_z",
                "unmov0_qx",
                "unmov0_qy",
            ),  # it stands upright on the table, turned about the vertical
        )

    def placements(self, n: int, rng: Rng) -> np.ndarray:
        count = len(self.spec.things)
        fixed = min(FIXED_SPREAD * (self.spread / SPREAD), REACH)
        spread = np.array([self.spread if thing.movable else fixed for thing in self.spec.things])

        def draw(n: int) -> np.ndarray:
            xy = rng.uniform(-1, 1, (n, count, 2)) * spread[:, None]
            yaw = rng.uniform(-np.pi, np.pi, (n, count))
            heights = [TABLE + HALF + (0.01 if thing.movable else 0.0) for thing in self.spec.things]
            return np.stack([upright(xy[:, k], heights[k], yaw[:, k]) for k in range(count)], axis=1)

        def apart(poses: np.ndarray) -> np.ndarray:
            gaps = [np.linalg.norm(poses[:, a, :2] - poses[:, b, :2], axis=1) for a, b in self.spec.pairs]
            return np.min(gaps, axis=0) > APART

        return separate(draw, apart, n)

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return tasks.block_rewards(self.view(state), self.formula, self.backend.half_open)

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return tasks.block_success(self.view(state))

    def acting(self, name: str, n: int, rng: Rng) -> Policy:
        if name == "skills":
            return block_skills(self, n)
        if name == "mixed":
            made = [script(self, n) for script in scripts.BLOCK_SCRIPTS.values()]
            return Mixed(self, block_skills(self, n, collisions=True), made, n)
        return scripts.BLOCK_SCRIPTS[name](self, n)
