"""Simple pictures of the worlds that have no physics engine to draw them. Needs Pillow, which comes with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

PAPER, INK, GREY = (250, 250, 247), (60, 60, 65), (150, 150, 155)
BLOCKS = ((204, 51, 46), (230, 126, 34), (142, 68, 173), (41, 128, 185), (22, 160, 133))
FIXED, GOAL = (90, 140, 90), (39, 174, 96)


def table_top(
    hand: np.ndarray,
    closed: bool,
    blocks: np.ndarray,
    fixed: np.ndarray,
    goal: np.ndarray,
    edge: float,
    width: int,
    height: int,
) -> np.ndarray:
    """The contact world, seen from above and, on the right, from the side. The hand is full when it is closed."""
    picture, pen = _sheet(width, height)
    side = min(width // 2, height) * 0.9
    for k, (up, title) in enumerate(((1, "from above"), (2, "from the side"))):
        middle = np.array([width * (0.25 + 0.5 * k), height / 2])

        def at(point: np.ndarray, up: int = up, middle: np.ndarray = middle) -> np.ndarray:
            return middle + np.array([point[0], -point[up]]) / (2 * edge) * side

        _square(pen, middle, side / 2, outline=GREY)
        pen.text(tuple(middle - side / 2 + 3), title, fill=GREY)
        for colour, block in zip((*BLOCKS[: len(blocks)], FIXED), (*blocks, fixed)):
            _square(pen, at(block), 0.045 * side, fill=colour)
        _circle(pen, at(goal), 0.02 * side, outline=GOAL, width=2)
        _circle(pen, at(hand), 0.06 * side, outline=INK, width=2)
        if closed:
            _circle(pen, at(hand), 0.025 * side, fill=INK)
    return np.asarray(picture)


def crossing(position: float, speed: float, green: bool, countdown: float, width: int, height: int) -> np.ndarray:
    """The car at the traffic light; the line ahead of it is its speed, the bar under the light its countdown."""
    picture, pen = _sheet(width, height)
    road, unit = 0.72 * height, width / 5.4
    pen.line((0, road, width, road), fill=GREY, width=2)
    pen.line((width / 2, road, width / 2, road + 0.06 * height), fill=GREY, width=2)  # the origin, where to park
    x, size = width / 2 + position * unit, 0.05 * height
    pen.rectangle((x - 2 * size, road - 2 * size, x + 2 * size, road - 0.4 * size), fill=BLOCKS[3])
    for wheel in (-1, 1):
        _circle(pen, np.array([x + wheel * 1.2 * size, road - 0.4 * size]), 0.5 * size, fill=INK)
    pen.line((x, road - 2.6 * size, x + speed * unit, road - 2.6 * size), fill=BLOCKS[3], width=3)
    lamp = np.array([width / 2, 0.2 * height])
    _circle(pen, lamp, 0.09 * height, fill=GOAL if green else BLOCKS[0])
    left, top = lamp + np.array([-0.1, 0.12]) * height
    pen.rectangle((left, top, left + 0.2 * height * float(np.clip(countdown, 0, 1)), top + 0.02 * height), fill=INK)
    return np.asarray(picture)


def _sheet(width: int, height: int) -> tuple[Any, ImageDraw]:
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (width, height), PAPER)
    return picture, ImageDraw.Draw(picture)


def _square(pen: ImageDraw, centre: np.ndarray, half: float, **style: Any) -> None:
    pen.rectangle((*(centre - half), *(centre + half)), **style)


def _circle(pen: ImageDraw, centre: np.ndarray, radius: float, **style: Any) -> None:
    pen.ellipse((*(centre - radius), *(centre + radius)), **style)
