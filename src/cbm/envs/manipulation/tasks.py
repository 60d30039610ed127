"""Rewards and success of every task, as functions of named physical quantities of the state after the step.

Distances are in metres. `near(k, d)` is 1 at no distance and falls to 0, the faster the larger k.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from cbm.envs.manipulation.backend import TABLE
from cbm.envs.manipulation.layout import View

BlockFormula = Literal["code", "paper"]
ToolFormula = Literal["markov", "staged", "paper"]
CLOSE = 0.05  # as near to the goal counts as success
LIFTED = TABLE + 0.025  # a cube's centre above this: 5 mm over where it is when it rests
STACKED = TABLE + 0.04
HEAD = (0.22, 0.08, 0.0)  # centre of the tool's head, in the frame of the tool
HANDLES = ((0.0, 0.06, 0.045), (0.0, -0.06, 0.045))  # of the pot, in its frame
BEFORE_PULL = np.array([0.1, -0.1, 0.0])  # where the head goes, seen from the cube, before it hooks it
STAGES = 6
TOOL_GRASPING, TOOL_MOVING, PUSHING, CUBE_PICKING, CUBE_MOVING, POT_PICKING = range(STAGES)


def near(steepness: float, distance: np.ndarray) -> np.ndarray:
    return 1 - np.tanh(steepness * distance)


def l1(difference: np.ndarray) -> np.ndarray:
    return np.abs(difference).sum(axis=1)


def l2(difference: np.ndarray) -> np.ndarray:
    return np.linalg.norm(difference, axis=1)


# Tasks that both worlds have


def reach(view: View) -> np.ndarray:
    return near(5, l1(view.hand - view["goal"]))


def pick(view: View, thing: str, bonus_needs_grasp: bool = True) -> np.ndarray:
    """Hand at the thing; while it is grasped, the thing at the goal; and a bonus for being there."""
    at = view.position(thing)
    held = view.grasped(thing)
    to_goal = l2(at - view["goal"])
    bonus = to_goal < CLOSE
    if bonus_needs_grasp:
        bonus &= held
    return 0.2 * near(2, l2(view.hand - at)) + held * (0.4 + 0.5 * near(5, to_goal)) + bonus


def at_goal(view: View, thing: str) -> np.ndarray:
    return l2(view.position(thing) - view["goal"]) < CLOSE


# Block


def block_rewards(view: View, formula: BlockFormula, half_open: float) -> dict[str, np.ndarray]:
    """Tasks of the block world; `half_open` is the left finger's position half way between closed and open."""
    mov, to_goal = view.position("mov0"), view.position("mov0") - view["goal"]
    gap = l2(view.hand - mov)
    held = view.grasped("mov0")
    is_open = (view["finger_pos"] * (1, -1)).mean(axis=1) > half_open
    return {
        "pick": pick(view, "mov0", bonus_needs_grasp=formula == "code"),
        "stack": _stack(view, formula),
        "reach": reach(view),
        "push": (0.5 * near(3, gap) + (gap < CLOSE) * near(5, l2(to_goal[:, :2]))) / 1.5,
        "grasp": np.where(held, 1.0, is_open * 0.5 * near(10, l1(view.hand - mov))),
    }


def _stack(view: View, formula: BlockFormula) -> np.ndarray:
    mov, base, held = view.position("mov0"), view.position("unmov0"), view.grasped("mov0")
    lifted = mov[:, 2] > LIFTED
    aside = l1(mov[:, :2] - base[:, :2])
    if formula == "paper":
        approach, align = near(2, l2(view.hand - mov)), 0.5 * near(5, aside)
        done = _stacked(view)
    else:
        approach = near(2, l1(view.hand - mov))
        align = 0.5 + 0.5 * near(5, aside + np.abs(mov[:, 2] - (TABLE + 0.1)))
        done = ~held & lifted & view.hit("mov0", "unmov0")
    return 0.2 * approach + 0.4 * held + lifted * align + 2.0 * done


def _stacked(view: View) -> np.ndarray:
    high = view.position("mov0")[:, 2] > STACKED
    return high & ~view.grasped("mov0") & view.hit("mov0", "unmov0")


def block_success(view: View) -> dict[str, np.ndarray]:
    return {
        "pick": at_goal(view, "mov0"),
        "stack": _stacked(view),
        "reach": l2(view.hand - view["goal"]) < CLOSE,
        "push": l2((view.position("mov0") - view["goal"])[:, :2]) < CLOSE,
        "grasp": view.grasped("mov0"),
    }


# Tool-use


def tool_rewards(view: View, formula: ToolFormula) -> dict[str, np.ndarray]:
    return {
        "series": _staged(view) if formula == "staged" else _series(view, literal=formula == "paper"),
        "reach": reach(view),
        "picktool": pick(view, "tool"),
        "pickcube": pick(view, "cube"),
        "pickplace": _place(view),
    }


def tool_success(view: View) -> dict[str, np.ndarray]:
    return {
        "series": in_pot(view),
        "reach": l2(view.hand - view["goal"]) < CLOSE,
        "picktool": at_goal(view, "tool"),
        "pickcube": at_goal(view, "cube"),
        "pickplace": in_pot(view),
    }


def in_pot(view: View) -> np.ndarray:
    """The cube is let go, touches the pot and does not stand on the table beside it."""
    return ~view.grasped("cube") & view.hit("cube", "pot") & (view.position("cube")[:, 2] > LIFTED)


def over_pot(view: View) -> np.ndarray:
    """(n,) horizontal distance of the cube from the pot's middle."""
    return l2((view.position("cube") - view.position("pot"))[:, :2])


def head(view: View) -> np.ndarray:
    return view.point("tool", HEAD)


def _place(view: View) -> np.ndarray:
    held = view.grasped("cube")
    approach = 0.2 * near(2, l2(view.hand - view.position("cube")))
    return approach + held * (0.4 + 0.5 * near(5, over_pot(view))) + 2.0 * in_pot(view)


def _series(view: View, literal: bool) -> np.ndarray:
    """The closed formula of the paper; `literal` as printed, else with three terms as they must be meant.

    Printed, the tool's grip point (which cannot get to the cube) is drawn to the cube instead of the head that
    hooks it; the pull is rewarded by max(-x, 0), which is 0 until the cube has arrived and punishes going on; and
    once it has, the hand is drawn to the tool, not to the cube that it is to grasp next.
    """
    hand, cube, tool = view.hand, view.position("cube"), view.position("tool")
    tool_held, held, here = view.grasped("tool"), view.grasped("cube"), cube[:, 0] < 0
    hook = tool if literal else head(view)
    still_to_pull = np.maximum(-cube[:, 0] if literal else cube[:, 0], 0)
    wanted_next = tool if literal else cube
    return (
        0.2 * near(2, l2(hand - tool))
        + 0.2 * tool_held
        + 0.2 * near(5, l2(hook - cube)) * tool_held
        + 0.2 * near(5, still_to_pull) * tool_held
        + 0.4 * (~tool_held & here)
        + 0.4 * near(5, l2(hand - wanted_next)) * here
        + 0.6 * held
        + 0.5 * near(5, over_pot(view)) * held
        + 2.0 * in_pot(view)
    )


def next_stage(view: View, stage: np.ndarray) -> np.ndarray:
    """The stage (n,) of `series` after a step to the state in `view`, from the one before."""
    cube_x, tool_held, held = view.position("cube")[:, 0], view.grasped("tool"), view.grasped("cube")
    ready = l2(head(view) - view.position("cube") - BEFORE_PULL) < CLOSE
    moving = np.where((stage == PUSHING) | ((stage == TOOL_MOVING) & ready), PUSHING, TOOL_MOVING)
    with_tool = np.where(tool_held, moving, TOOL_GRASPING)
    with_tool = np.where(cube_x < 0, CUBE_PICKING, with_tool)
    dropped = np.where(over_pot(view) < 0.02, POT_PICKING, CUBE_PICKING)
    return np.select(
        [stage <= PUSHING, stage == CUBE_PICKING, stage == CUBE_MOVING],
        [with_tool, np.where(held, CUBE_MOVING, CUBE_PICKING), np.where(held, CUBE_MOVING, dropped)],
        stage,
    )


def _staged(view: View) -> np.ndarray:
    """What each stage pays; a later one starts at the most an earlier one can give."""
    hand, cube, tool, pot = view.hand, view.position("cube"), view.position("tool"), view.position("pot")
    hook, stage = head(view), view["stage"][:, 0]
    released = ~view.grasped("tool")
    to_handle = np.minimum(*(l2(hand - view.point("pot", handle)) for handle in HANDLES))
    too_low = np.maximum(pot[:, 2] + 0.15 - cube[:, 2], 0)
    pays = [
        0.2 * near(3, l2(hand - tool)),
        0.4 + 0.2 * near(5, l2(hook - cube - BEFORE_PULL)),
        0.6 + 0.2 * near(5, l2(hook - cube)) + 0.2 * view.hit("tool", "cube"),
        1.0 + released * (0.4 + 0.4 * near(5, l2(hand - cube))),
        2.4 + 0.5 * near(5, over_pot(view)) + 0.5 * near(5, too_low),
        4.4 + 0.4 * near(5, to_handle),
    ]
    return np.choose(stage.astype(int), pays)
