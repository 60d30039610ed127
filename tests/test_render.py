"""Drawing worlds: animations, pictures, sheets, and what cannot be drawn."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import gymnasium
import numpy as np
import pytest
from PIL import Image

from cbm.cli.render import durations, frame_steps, sheet
from cbm.envs import make_world
from cbm.envs.gym import GymWorld
from cbm.envs.light import LIGHT, LightWorld
from cbm.envs.screen import draw_without_display
from cbm.envs.world import drawn
from cbm.errors import DataError

Run = Callable[..., tuple[int, str, str]]
Refused = Callable[..., None]


class Unseen(LightWorld):
    """A world that cannot draw itself."""

    render = None  # type: ignore[assignment]


@pytest.mark.parametrize("name", ["contact", "light", "chemical"])
def test_worlds_without_a_simulator_draw_themselves(name: str) -> None:
    world = make_world(name)
    states = world.reset(2, np.random.default_rng(0))
    one, other = (drawn(world).render(state, 120, 80) for state in states)
    assert one.shape == (80, 120, 3) and one.dtype == np.uint8
    assert (one != other).any() and one.std() > 5


def test_the_traffic_light_can_be_seen() -> None:
    world = LightWorld()
    state = world.reset(1, np.random.default_rng(0))[0]
    pictures = []
    for light in (0, 1):
        state[LIGHT] = light
        pictures.append(world.render(state, 320, 240)[30:66, 150:170].reshape(-1, 3).astype(int))
    red, green = (picture.mean(axis=0) for picture in pictures)
    assert red[0] > red[1] + 50 and green[1] > green[0] + 50


def test_an_animation(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sub" / "a.gif"
    code, out, err = run("render", "contact", "--steps", 12, "--out", path, "--size", "96x64", "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}: 13 pictures, policy mixed; task pick: reward ") and "succeed" in out
    with Image.open(path) as picture:
        assert picture.size == (96, 64) and getattr(picture, "n_frames", 0) == 13
        assert picture.info["duration"] == 50 and picture.info["loop"] == 0


def test_every_few_steps(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    assert run("render", "light", "--steps", 10, "--every", 5, "--out", path, "--quiet")[0] == 0
    with Image.open(path) as picture:
        assert getattr(picture, "n_frames", 0) == 3 and picture.info["duration"] == 250
    path = tmp_path / "sheet.png"
    assert run("render", "light", "--steps", 10, "--every", 2, "--out", path, "--size", "40x30", "--quiet")[0] == 0
    with Image.open(path) as picture:
        assert picture.size == (160, 60)


def test_animations_take_the_time_of_the_world() -> None:
    """Hundredths of a second are the finest that the format has, and viewers show no more than fifty pictures."""
    assert durations(4, 0.05) == [50, 50, 50, 50]
    assert sum(durations(40, 0.025)) == 1000 and set(durations(40, 0.025)) == {20, 30}
    worlds: list[Any] = [SimpleNamespace(frames_per_second=rate) for rate in (20, 40, 50, 100, 101)]
    assert [frame_steps(world) for world in worlds] == [1, 1, 1, 2, 3]


def test_a_picture_of_the_last_state(run: Run, refused: Refused, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    code, out, _ = run("render", "light", "--task", "park", "--steps", 30, "--seed", 4, "--out", path, "--json")
    told = json.loads(out)
    assert code == 0 and told["pictures"] == 1 and told["task"] == "park" and told["success"] in (True, False)
    world, rng = make_world("light"), np.random.default_rng(4)
    state = world.reset(1, rng)
    act = world.policy("mixed", 1, rng)
    for _ in range(30):
        state = world.step(state, act(state, rng), rng)
    with Image.open(path) as picture:
        np.testing.assert_array_equal(np.asarray(picture), drawn(world).render(state[0], 320, 240))
    refused(run("render", "light", "--out", path), "exists already", "--force")
    assert run("render", "light", "--steps", 5, "--out", path, "--force", "--quiet")[0] == 0


def test_sheets_fill_rows_of_four() -> None:
    frames = [np.full((2, 3, 3), k, np.uint8) for k in range(5)]
    whole = sheet(frames)
    assert whole.shape == (4, 12, 3)
    assert whole[2, 0, 0] == 4 and whole[3, -1, 0] == 255
    assert sheet(frames[:2]).shape == (2, 6, 3)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["nowhere", "--out", "a.gif"], ["unknown world 'nowhere'"]),
        (["light", "--out", "a.mp4"], ["a.mp4", ".gif, .png"]),
        (["light", "--out", "a.gif", "--size", "big"], ["--size 'big'", "320x240"]),
        (["light", "--out", "a.gif", "--size", "0x100"], ["--size '0x100'"]),
        (["light", "--out", "a.gif", "--policy", "hold"], ["unknown policy 'hold'", "random, scripted, mixed"]),
        (["light", "--out", "a.gif", "--task", "pick"], ["unknown task 'pick'", "park"]),
        (["light", "--out", "a.gif", "--steps", "0"], ["--steps", "at least 1"]),
        (["light", "--out", "a.png", "--steps", "3", "--every", "4"], ["--every 4"]),
    ],
)
def test_bad_input(
    run: Run, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], parts: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run("render", *arguments), *parts)
    assert not list(tmp_path.iterdir())


def test_a_world_that_cannot_be_drawn(
    run: Run, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbm.envs.registry.make_world", lambda name, **options: Unseen())
    refused(run("render", "light", "--out", tmp_path / "a.gif"), "light: has no picture of itself")
    with pytest.raises(DataError, match="render_mode 'rgb_array': has no picture"):
        GymWorld(Unseen(), render_mode="rgb_array")
    assert GymWorld(Unseen()).metadata["render_modes"] == []


def test_gymnasium_gets_pictures() -> None:
    env = gymnasium.make("cbm/Light-v0", render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    picture = env.render()
    assert isinstance(picture, np.ndarray) and picture.shape == (48, 64, 3)
    assert gymnasium.make("cbm/Light-v0").unwrapped.render() is None


def test_without_a_screen_mujoco_is_told_how_to_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(name: str) -> NoReturn:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setattr("ctypes.CDLL", lambda name: None)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    draw_without_display()
    assert os.environ["MUJOCO_GL"] == "osmesa", "what the user has chosen stays"
    monkeypatch.delenv("MUJOCO_GL")
    draw_without_display()
    assert os.environ["MUJOCO_GL"] == "egl"
    monkeypatch.delenv("MUJOCO_GL")
    monkeypatch.setattr("ctypes.CDLL", refused)
    draw_without_display()
    assert "MUJOCO_GL" not in os.environ, "without the library worlds still work"
    monkeypatch.setattr("ctypes.CDLL", lambda name: None)
    monkeypatch.setenv("DISPLAY", ":0")
    draw_without_display()
    assert "MUJOCO_GL" not in os.environ
