"""`cbm render`: pictures of a world while a policy acts in it."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from tyro.conf import Positional

from cbm.cli.arguments import Flag, MaybeInt, MaybeText, at_least, check_seed, parse
from cbm.cli.console import Stages, plural, print_json, show
from cbm.cli.pairs import Pairs
from cbm.cli.paths import check_file, made_directory
from cbm.cli.world_options import recipe
from cbm.envs.world import check_policy
from cbm.errors import DataError, unknown_name

if TYPE_CHECKING:
    from cbm.envs.world import World

SUFFIXES = (".gif", ".png")
LARGEST = 4096
FASTEST = 50  # pictures per second
COLUMNS = 4
"""Pictures per row of a sheet."""


@dataclass(frozen=True)
class Options:
    """Draw a world: an animation, a picture of the last state, or a sheet of pictures.

    Example: cbm render block --task pick --out pick.gif
    """

    env: Positional[str]
    """Name of the world; `cbm envs` lists them."""
    out: Path
    """.gif for an animation; .png for the last state or, with --every, for a sheet of all pictures drawn."""
    policy: MaybeText = None
    """The policy that acts. Default: the policy named like the task, otherwise mixed."""
    task: MaybeText = None
    """Task whose result is reported. Default: the first task of the world."""
    steps: MaybeInt = None
    """Number of steps. Default: one episode."""
    every: MaybeInt = None
    """Draw only every N-th step. Default: every step of an animation, but at most 50 pictures per second."""
    size: str = "320x240"
    """Width and height of a picture."""
    seed: int = 0
    """Seed of everything random."""
    backend: MaybeText = None
    """Simulator of the world, if there is a choice. Default: the first one."""
    option: Pairs = ()
    """Any other option of the world; may be repeated."""
    force: Flag = False
    """Overwrite the file if it exists."""
    json: Flag = False
    """Print what was drawn as JSON."""
    quiet: Flag = False
    """Show no progress, only the result."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "render")
    check_seed(options.seed)
    at_least("--steps", options.steps, 1)
    at_least("--every", options.every, 1)
    width, height = _size(options.size)
    check_file(options.out, force=options.force, suffixes=SUFFIXES)
    world = recipe(options.env, options.backend, None, options.option)()
    task = world.tasks[0] if options.task is None else options.task
    if task not in world.tasks:
        raise unknown_name(f"{options.env}: unknown task", task, world.tasks)
    policy = options.policy or (task if task in world.policies else "mixed")
    check_policy(options.env, policy, world.policies)
    with Stages({"render": f"drawing {options.env}"}, options.quiet) as stages:
        frames, outcome = film(world, options, policy, (width, height), stages)
    with made_directory(options.out.parent):
        _write(options.out, frames, (options.every or frame_steps(world)) / world.frames_per_second)
    summary = {"out": str(options.out), "env": options.env, "policy": policy, "seed": options.seed, "task": task}
    summary |= {"steps": outcome["steps"], "pictures": len(frames), "width": width, "height": height}
    summary |= {"reward": round(outcome["rewards"][task], 6), "success": outcome["success"].get(task)}
    if options.json:
        print_json(summary)
    else:
        done = {None: "", True: ", succeeded", False: ", did not succeed"}[outcome["success"].get(task)]
        pictures = plural(len(frames), "picture")
        show(f"{options.out}: {pictures}, policy {policy}; task {task}: reward {outcome['rewards'][task]:.3g}{done}")


def film(
    world: World, options: Options, policy: str, size: tuple[int, int], stages: Stages
) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Pictures of one copy of the world, the sum of rewards, and whether each task succeeded at some step."""
    from cbm.envs.world import drawn

    artist = drawn(world, options.env)
    rng = np.random.default_rng(options.seed)
    steps = options.steps or world.horizon
    every = options.every or (frame_steps(world) if options.out.suffix.lower() == ".gif" else steps)
    if every > steps:
        raise DataError(f"--every {every}: there are only {plural(steps, 'step')}")
    state = world.reset(1, rng)
    act = world.policy(policy, 1, rng)
    frames = [] if every == steps else [artist.render(state[0], *size)]
    rewards = dict.fromkeys(world.tasks, 0.0)
    success: dict[str, bool] = {}
    for t in range(1, steps + 1):
        state = world.step(state, act(state, rng), rng)
        for task, reward in world.rewards(state).items():
            rewards[task] += float(reward[0])
        for task, reached in world.success(state).items():
            success[task] = success.get(task, False) or bool(reached[0])
        if t % every == 0:
            frames.append(artist.render(state[0], *size))
        stages("render", t / steps)
    return frames, {"steps": steps, "rewards": rewards, "success": success}


def frame_steps(world: World) -> int:
    """Steps between two pictures of an animation: viewers slow down animations with more than 50 pictures per
    second."""
    return -(-world.frames_per_second // FASTEST)


def durations(pictures: int, seconds: float) -> list[int]:
    """Milliseconds of each picture. The format counts in hundredths of a second, so shorter and longer ones are
    mixed."""
    ends = np.round(100 * seconds * np.arange(pictures + 1))
    return [max(20, 10 * int(duration)) for duration in np.diff(ends)]


def _write(out: Path, frames: list[np.ndarray], seconds: float) -> None:
    """`seconds` is the world's time between two pictures."""
    from PIL import Image

    from cbm.runs.files import atomic_write_bytes

    data = io.BytesIO()
    if out.suffix.lower() == ".gif":
        pictures = [Image.fromarray(frame) for frame in frames]
        shown = durations(len(frames), seconds)
        pictures[0].save(data, "GIF", save_all=True, append_images=pictures[1:], duration=shown, loop=0)
    else:
        Image.fromarray(sheet(frames)).save(data, "PNG")
    atomic_write_bytes(out, data.getvalue())


def sheet(frames: list[np.ndarray]) -> np.ndarray:
    """All pictures in rows; the last row is filled up with white."""
    columns = min(COLUMNS, len(frames))
    missing = -len(frames) % columns
    full = frames + [np.full_like(frames[0], 255)] * missing
    rows = [np.concatenate(full[k : k + columns], axis=1) for k in range(0, len(full), columns)]
    return np.concatenate(rows)


def _size(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", text)
    if not found or not all(1 <= int(side) <= LARGEST for side in found.groups()):
        raise DataError(f"--size {text!r}: must be WIDTHxHEIGHT, such as 320x240, and at most {LARGEST}")
    return int(found[1]), int(found[2])
