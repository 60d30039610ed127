"""Numbers of policy learning: presets, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any, get_args

import pytest

from cbm.abstraction.table import IcpSettings, PartitionSettings
from cbm.agents.settings import AgentSettings, SacSettings, Td3Settings
from cbm.errors import DataError
from cbm.learning.settings import LearnSettings, Preset, preset


@pytest.mark.parametrize("name", get_args(Preset))
@pytest.mark.parametrize(("world", "task"), [("block", "stack"), ("contact", "pick"), ("mine", "own")])
def test_presets_survive_json(name: Preset, world: str, task: str) -> None:
    settings = preset(name, world, task)
    assert LearnSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


@pytest.mark.parametrize(
    ("world", "task", "start", "finish", "decay"),
    [
        ("block", "pick", 0.9, 0.1, 6.66),
        ("block", "stack", 0.9, 0.05, 33.33),
        ("tool", "series", 0.9, 0.1, 50.0),
        ("cheetah", "run", 0.5, 0.1, 10.0),
        ("walker", "walk", 0.5, 0.1, 10.0),
        ("block", "reach", 0.9, 0.1, 6.66),  # not in the table: its world's first task
        ("contact", "stack", 0.9, 0.1, 6.66),  # not in the table: Pick
    ],
)
def test_the_paper_table(world: str, task: str, start: float, finish: float, decay: float) -> None:
    settings = preset("paper", world, task)
    sac = settings.agent
    assert isinstance(sac, SacSettings)
    assert (sac.alpha, sac.alpha_start, sac.alpha_finish) == ("schedule", start, finish)
    assert math.isclose(sac.alpha_decay, decay)
    assert (sac.hidden, sac.batch, sac.learning_rate, sac.gamma, sac.tau) == ((256, 256), 256, 1e-4, 0.99, 5e-3)
    assert (sac.grad_clip, settings.capacity, settings.warm_up) == (10, 5_000_000, 100_000)
    assert (settings.abstraction_every, settings.abstraction_until) == (50_000, 1_000_000)


def test_laptop_is_what_was_measured() -> None:
    settings = preset("laptop", "block", "pick")
    sac = settings.agent
    assert isinstance(sac, SacSettings)
    assert (sac.hidden, sac.batch, sac.learning_rate, sac.gamma) == ((128, 128), 256, 1e-3, 0.98)
    assert sac.layer_norm
    assert (sac.alpha, sac.alpha_start, sac.target_entropy, sac.clip_inputs) == ("auto", 0.05, None, 5.0)
    assert (settings.copies, settings.updates_per_step, settings.demonstrations) == (8, 0.25, 100)


def test_every_field_is_explained() -> None:
    from inspect import getsource

    for record in (AgentSettings, SacSettings, Td3Settings, LearnSettings, PartitionSettings, IcpSettings):
        bodies = getsource(record).partition("def ")[0]
        assert bodies.count('"""') == 2 * (1 + len(record.__annotations__))


def test_unknown_names() -> None:
    with pytest.raises(DataError, match="unknown preset 'labtop'; did you mean 'laptop'"):
        preset("labtop")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="unknown settings: colour"):
        SacSettings.from_json({"colour": 1})
    with pytest.raises(DataError, match="unknown settings: gama"):
        LearnSettings.from_json({"sac": {"gama": 0.9}})
    with pytest.raises(DataError, match="JSON object"):
        LearnSettings.from_json([])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden", (), "hidden must be a list of positive whole numbers"),
        ("hidden", (64, 0), "hidden"),
        ("batch", 0, "batch must be a whole number of at least 1, got 0"),
        ("batch", 2.5, "batch"),
        ("learning_rate", 0, "learning_rate must be a number above 0"),
        ("gamma", 1.1, "gamma must be a number at least 0 and at most 1"),
        ("tau", math.nan, "tau"),
        ("alpha", "fixed", "alpha must be one of auto, schedule"),
        ("alpha_start", -1.0, "alpha_start"),
        ("target_entropy", "low", "target_entropy must be a number, got 'low'"),
        ("grad_clip", 0.0, "grad_clip"),
        ("layer_norm", 1, "layer_norm must be true or false"),
    ],
)
def test_agents_refuse(field: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        SacSettings.from_json({field: value})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("copies", 0, "copies must be a whole number of at least 1"),
        ("warm_up", -1, "warm_up"),
        ("on", 0.5, "on must be a number at least 0.6"),  # below `off`
        ("abstraction_until", "never", "abstraction_until"),
        ("reset_on_change", 1, "reset_on_change must be true or false"),
        ("sac", 3, "sac must hold the settings of an agent"),
    ],
)
def test_learning_refuses(field: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        LearnSettings.from_json({field: value})


def test_settings_need_no_torch() -> None:
    code = "import sys, cbm.learning.settings; print('torch' in sys.modules or 'tianshou' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
