"""The tool-use world: a cube that the hand cannot reach, an L-shaped tool to pull it with, and a pot."""

from __future__ import annotations

from typing import cast

import numpy as np

from cbm.envs.manipulation import scripts, tasks
from cbm.envs.manipulation.backend import TABLE, Box, SceneSpec, Thing
from cbm.envs.manipulation.graphs import ACTION
from cbm.envs.manipulation.repertoire import tool_skills
from cbm.envs.manipulation.skills import Mixed
from cbm.envs.manipulation.world import ManipulationWorld, as_choice, separate, upright
from cbm.envs.world import Policy, Rng

# Only one box of the tool and one of the pot touch the table: fewer contacts, and a faster world.
CUBE = Thing("cube", (Box((0.02, 0.02, 0.02)),), 500.0, "0.82 0.16 0.14 1")
TOOL = Thing(
    "tool",
    (
        Box((0.14, 0.02, 0.02), (0.08, 0.0, 0.0)),  # the handle; the body's origin is where it is to be held
        Box((0.01, 0.07, 0.0195), (0.22, 0.05, 0.0005)),  # the head; its outer end hooks
    ),
    830.0,  # the handle is longer than the authors'; so that it weighs as much
    "0.2 0.35 0.8 1",
)
POT = Thing(
    "pot",
    (
        Box((0.07, 0.07, 0.005), (0.0, 0.0, -0.025)),
        *(Box((0.07, 0.01, 0.025), (0.0, y, 0.005)) for y in (0.06, -0.06)),
        *(Box((0.01, 0.05, 0.025), (x, 0.0, 0.005)) for x in (0.06, -0.06)),
        *(Box((0.03, 0.01, 0.015), handle) for handle in tasks.HANDLES),
    ),
    1120.0,
    "0.6 0.6 0.62 1",
)
STARTS = {  # x from, to, y from, to, largest yaw
    "cube": (0.1, 0.2, -0.2, -0.1, np.pi),
    "tool": (-0.2, -0.05, -0.3, -0.2, 0.0),
    "pot": (-0.2, 0.0, 0.0, 0.2, 0.0),
}
CLEAR = 0.035  # the cube's middle starts so far from the tool, whatever its yaw


class ToolWorld(ManipulationWorld):
    """40 variables: hand, fingers, `cube`, `tool`, `pot`, three markers.

    The hand gets to x = 0.06; the cube starts beyond, so that the tool is needed. `formula` is that of the reward
    of series: "markov" is the closed formula of the paper with three terms as they must be meant, "paper" as it
    is printed, "staged" the authors' program, which goes through stages that no variable shows. `threads` copies
    are simulated at the same time; results do not depend on it.
    """

    name = "tool"
    tasks: tuple[str, ...] = ("series", "reach", "picktool", "pickcube", "pickplace")
    policies: tuple[str, ...] = ("mixed", "skills", "random", "series")
    horizon = 400
    spec = SceneSpec((CUBE, TOOL, POT), table=(0.5, 0.6, 0.025), low=(-0.3, -0.4, 0.81), high=(0.06, 0.4, 1.0))
    centre = (0.0, 0.0, 0.95)
    unit = (0.5, 0.7, 0.25)
    goal_low = np.array([-0.25, -0.3, TABLE + 0.1])
    goal_high = np.array([0.05, 0.3, TABLE + 0.2])
    more_places = ("head", "handle")

    def __init__(self, formula: str = "markov", backend: str = "mujoco", threads: int = 1):
        known = ("markov", "staged", "paper")
        self.formula = cast(tasks.ToolFormula, as_choice("tool", "formula", formula, known))
        super().__init__(backend, threads)
        robot, things = ("eef", "gripper"), self.spec.names
        everything = (*robot, *things, ACTION)
        pose = {name: (f"{name}_pos", f"{name}_quat") for name in things}
        hand = ("eef_pos", "finger_pos")
        self.declare(
            physical={group: everything for group in (*robot, *things)},
            paper={
                "eef": ("eef", ACTION),
                "gripper": (*robot, "cube", "tool", ACTION),
                "cube": everything,
                "tool": (*robot, "tool", ACTION),
                "pot": (*robot, "tool", "pot", ACTION),
            },
            read={
                "series": (*hand, *pose["cube"], *pose["tool"], *pose["pot"]),
                "reach": ("eef_pos",),
                "picktool": (*hand, *pose["tool"]),
                "pickcube": (*hand, *pose["cube"]),
                "pickplace": (*hand, *pose["cube"], *pose["pot"]),
            },
        )
        turned = [self.factors.index(name) for name in self.factors.names if name.startswith("tool_q")]
        fingers = [k for k, variable in enumerate(self.factors.variables) if variable.group == "gripper"]
        self.truths["paper"][np.ix_(fingers, turned)] = False  # there, only the tool's position matters to them

    def placements(self, n: int, rng: Rng) -> np.ndarray:
        def draw(n: int) -> np.ndarray:
            poses = []
            for thing in self.spec.things:
                x0, x1, y0, y1, turn = STARTS[thing.name]
                xy, yaw = rng.uniform((x0, y0), (x1, y1), (n, 2)), rng.uniform(-turn, turn, n)
                height = TABLE + thing.rest + (0.01 if thing is CUBE else 0.001)
                poses.append(upright(xy, height, yaw))
            return np.stack(poses, axis=1)

        return separate(draw, _clear, n)

    def points(self, state: np.ndarray) -> np.ndarray:
        view = self.view(state)
        more = np.stack([tasks.head(view), view.point("pot", tasks.HANDLES[0])], axis=1)
        return np.concatenate([super().points(state), more], axis=1)

    def step(self, state: np.ndarray, action: np.ndarray, rng: Rng) -> np.ndarray:
        after = super().step(state, action, rng)
        stage = self.columns["stage"][0]
        after[:, stage] = tasks.next_stage(self.view(after), state[:, stage])
        return after

    def rewards(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return tasks.tool_rewards(self.view(state), self.formula)

    def success(self, state: np.ndarray) -> dict[str, np.ndarray]:
        return tasks.tool_success(self.view(state))

    def acting(self, name: str, n: int, rng: Rng) -> Policy:
        if name == "skills":
            return tool_skills(self, n)
        if name == "mixed":
            return Mixed(self, tool_skills(self, n), [scripts.series(self, n)], n)
        return scripts.series(self, n)


def _clear(poses: np.ndarray) -> np.ndarray:
    """(n,) booleans: the cube does not touch the tool, which starts unturned."""
    cube, tool = poses[:, 0, :2], poses[:, 1, :2]
    gaps = []
    for box in TOOL.boxes:
        outside = np.maximum(np.abs(cube - tool - box.centre[:2]) - box.half[:2], 0)
        gaps.append(np.linalg.norm(outside, axis=1))
    return np.min(gaps, axis=0) > CLEAR
