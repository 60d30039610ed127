"""The skills themselves, and which of them each world's data is made with."""

from __future__ import annotations

from typing import Any

import numpy as np

from cbm.envs.manipulation.legs import CLOSE, OPEN, Leg, grasp_legs, pause, rise
from cbm.envs.manipulation.skills import Moment, Skill, Skills

HOVER = 0.9
SWING = np.array([0.15, 0.15, 0.02])  # a push with parameter 1 begins and ends so far from the thing
ROOM = ("room", "room", "room")
DESCEND, AFTER_GRASP = 2, 5  # legs of `grasp_legs`


def lift(thing: str, share: float, at: str = "", instead: str = "") -> Skill:
    """Grasp and carry to a random place; disturbed, 5 to 8 cm beside it and half of the time too high."""

    def fill(moment: Moment, shift: np.ndarray) -> None:
        _miss(moment, shift, 0.05, 0.08)
        low, high = np.array(moment.world.spec.low), np.array(moment.world.spec.high)
        shift[:, AFTER_GRASP] = low + (high - low) * moment.draws[:, 4:7]

    legs = [*grasp_legs(thing, HOVER, at), Leg(ROOM, CLOSE, stay=2)]
    return Skill(f"lift {thing}", legs, fill, share, 100, needs=thing if instead else "", instead=instead)


def _miss(moment: Moment, shift: np.ndarray, nearest: float, farthest: float) -> None:
    """Where the execution is disturbed, the grasp is so far beside its thing, and half of the time above it."""
    draws = moment.draws
    angle, length = 2 * np.pi * draws[:, 0], nearest + (farthest - nearest) * draws[:, 1]
    beside = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (length * moment.disturbed)[:, None]
    shift[:, 1 : DESCEND + 1, :2] = beside[:, None]
    shift[:, DESCEND, 2] = (0.03 + 0.03 * draws[:, 2]) * (draws[:, 3] < 0.5) * moment.disturbed


def push(thing: str, share: float) -> Skill:
    """Sweep through where the thing is now, with closed fingers; disturbed, past it or over it."""

    def fill(moment: Moment, shift: np.ndarray) -> None:
        draws, rows = moment.draws, np.arange(len(moment.draws))
        half = SWING * (2 * draws[:, :3] - 1)
        side = np.zeros_like(half)
        side[rows, np.where(np.abs(half[:, 0]) > np.abs(half[:, 1]), 1, 0)] = 0.2 * draws[:, 5] - 0.1
        side[:, 2] = 0.08 * draws[:, 6] * (draws[:, 7] < 1 / 3)
        middle = moment.at(thing) + side * moment.disturbed[:, None]
        shift[:, 1] = shift[:, 2] = moment.inside(middle - half)
        shift[:, 1, 2] = HOVER
        shift[:, 3] = moment.inside(middle + half)

    legs = [rise(HOVER, CLOSE), Leg(ROOM, CLOSE), Leg(ROOM, CLOSE, limit=25), Leg(ROOM, CLOSE)]
    return Skill(f"push {thing}", legs, fill, share, 150)


def ram(thing: str, others: tuple[str, ...], share: float) -> Skill:
    """Grasp a thing and drive it along the table into another one."""

    def fill(moment: Moment, shift: np.ndarray) -> None:
        way = (moment.among(others, moment.draws[:, 4]) - moment.at(thing)) * (1, 1, 0)
        length = np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-6)
        beyond = way * (1 + (0.02 + 0.08 * moment.draws[:, 5:6]) / length)
        shift[:, AFTER_GRASP] = moment.inside(moment.at(thing) + beyond + (0.0, 0.0, 0.005))

    return Skill(f"ram {thing}", [*grasp_legs(thing, HOVER), Leg(ROOM, CLOSE)], fill, share, 100)


def heap(thing: str, others: tuple[str, ...], share: float) -> Skill:
    """Grasp a thing and put it down on another one, more or less in its middle."""

    def fill(moment: Moment, shift: np.ndarray) -> None:
        off = 0.04 * moment.draws[:, 5:8] - 0.02
        shift[:, AFTER_GRASP + 1 : AFTER_GRASP + 3] = (moment.among(others, moment.draws[:, 4]) + off)[:, None]
        shift[:, AFTER_GRASP + 1, 2] = HOVER
        shift[:, AFTER_GRASP + 2, 2] += 0.035

    legs = [rise(HOVER, CLOSE), Leg(ROOM, CLOSE), Leg(ROOM, CLOSE, limit=20), pause(5, OPEN)]
    return Skill(f"heap {thing}", [*grasp_legs(thing, HOVER), *legs], fill, share, 100)


def pick_place(share: float) -> Skill:
    """Put the cube into the pot; disturbed, up to 10 cm beside its middle. The pot is lifted next."""

    def fill(moment: Moment, shift: np.ndarray) -> None:
        off = (0.2 * moment.draws[:, 5:7] - 0.1) * moment.disturbed[:, None]
        shift[:, AFTER_GRASP + 1, :2] = off

    over = Leg(("pot", "pot", "room"), CLOSE, (0.0, 0.0, 0.96), tolerance=0.015)
    legs = [*grasp_legs("cube", HOVER), rise(0.97, CLOSE), over, pause(5, OPEN)]
    return Skill("pick_place", legs, fill, share, 120, then="lift pot", needs="cube", instead="hook")


def hook(share: float) -> Skill:
    """Grasp the tool, bring its head behind the cube, pull, and go back; disturbed, grasp 5 to 10 cm beside it."""

    def fill(moment: Moment, shift: np.ndarray) -> None:
        _miss(moment, shift, 0.05, 0.10)
        pull = AFTER_GRASP + 3
        shift[:, pull, 0] = -0.15 * moment.draws[:, 4] - 0.02
        shift[:, pull + 1, 0] = 0.1 * moment.draws[:, 5]

    legs = [
        *grasp_legs("tool", HOVER, lift=-0.005),
        Leg(("head", "cube", "head"), CLOSE, (0.0, -0.09, 0.0), moved="head", tolerance=0.02, limit=25),
        Leg(("cube", "cube", "head"), CLOSE, (0.07, -0.09, 0.0), moved="head", tolerance=0.02, limit=30),
        Leg(("cube", "cube", "head"), CLOSE, (0.05, 0.0, 0.0), moved="head", tolerance=0.02, limit=20),
        Leg(("room", "head", "head"), CLOSE, moved="head", tolerance=0.02, limit=40),
        Leg(("room", "hand", "hand"), CLOSE, tolerance=0.02, limit=10),
    ]
    return Skill("hook", legs, fill, share, 130)


def block_skills(world: Any, n: int, collisions: bool = False) -> Skills:
    """Half of the time lift one of the movable blocks, half of the time push any block.

    With `collisions` a third of the executions drive a held block into another one or put it on top of it, which
    by chance alone happens in one step of a hundred.
    """
    names = world.spec.names
    movable = [thing.name for thing in world.spec.things if thing.movable]
    skills = [lift(name, 0.5 / len(movable)) for name in movable] + [push(name, 0.5 / len(names)) for name in names]
    if collisions:
        for name in movable:
            others = tuple(other for other in names if other != name)
            skills += [ram(name, others, 0.3 / len(movable)), heap(name, others, 0.2 / len(movable))]
    return Skills(world, skills, n)


def tool_skills(world: Any, n: int) -> Skills:
    """The authors' shares: lift 0.6, push 0.1, pick and place 0.15, hook 0.15; hook while the cube is out of reach."""
    lifts = [lift("cube", 0.2, instead="hook"), lift("tool", 0.2), lift("pot", 0.2, at="handle")]
    pushes = [push(name, 0.1 / 3) for name in world.spec.names]
    return Skills(world, [*lifts, *pushes, pick_place(0.15), hook(0.15)], n)
