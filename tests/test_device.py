"""Nothing in the networks insists on the CPU: everything is made where its inputs are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cbm.agents.base import MaskedAgent, Sample, Shape, make_agent
from cbm.agents.settings import AGENTS, AgentSettings, SacSettings, Td3Settings
from cbm.device import check_device, find_device
from cbm.discovery.cmi import measure_cmi
from cbm.discovery.models.base import Batch, MaskedModel
from cbm.discovery.models.candidates import CandidateSets
from cbm.discovery.models.implicit import _CrossEntropy, _LogDensity
from cbm.discovery.models.registry import build_model, numbers_per_row
from cbm.discovery.predict import Predictor
from cbm.discovery.refine import build_candidate_networks
from cbm.discovery.settings import Settings, preset
from cbm.discovery.tensor_dataset import Dynamics, dynamics_dataset
from cbm.discovery.train import Trainer
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.errors import DataError
from fake_gpu import GPU, fake_gpu  # type: ignore[import-not-found]

SMALL: dict[str, Any] = {"width": 8, "code": 4, "knots": 5, "batch": 16, "candidates": 3, "evaluation_rows": 60}
MODELS = {
    "implicit": replace(preset("debug"), **SMALL),
    "explicit": replace(preset("debug", "explicit"), **SMALL, expected=True),
    "demi": replace(preset("debug", "demi"), **SMALL),
    "pairwise": replace(preset("paper"), **SMALL),
}
AGENT = {"hidden": (8, 8), "batch": 16}
SETTINGS: dict[str, AgentSettings] = {
    "sac": SacSettings(**AGENT),  # type: ignore[arg-type]
    "td3": Td3Settings(**AGENT, policy_delay=1),  # type: ignore[arg-type]
}


@pytest.fixture(scope="module")
def dynamics() -> Dynamics:
    """A world with a contact, angles left out, binary and continuous targets, and differences."""
    data = collect(make_world("contact", blocks=2, distractors=1), 400, seed=0)
    return dynamics_dataset(*data.split(0.3, seed=0), 2, 0, differences=True)


def on_gpu(tensor: Tensor) -> None:
    assert tensor.device == GPU


def train_on_gpu(model: MaskedModel, dynamics: Dynamics, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every phase of training, the loss, an update, averages, evidence, and a state that is on the CPU."""
    with fake_gpu(monkeypatch):
        model.to(GPU)
        dataset = dynamics.dataset.to(GPU)
        trainer = Trainer(model, dataset, settings, 0)
        for progress in (0.0, 0.6, 0.9):
            for number in trainer.update(progress).values():
                on_gpu(number)
        trainer.watch()
        every = torch.arange(8, device=GPU)
        batch = Batch.of(dataset.held, every, torch.Generator())
        assert trainer.focus.device.type == "cpu"
        pointwise = model.evidence(batch)
        some = torch.arange(2, device=GPU)
        for values in (pointwise(0, None), pointwise(1, some)):
            on_gpu(values)
        size = numbers_per_row(dataset, settings)
        measure_cmi(model, dataset.held, 2, 2, settings.evaluation_rows, size)
        assert {tensor.device.type for tensor in trainer.state().values()} == {"cpu"}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, dynamics: Dynamics, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = MODELS[name]
    train_on_gpu(build_model(dynamics.dataset, settings, 0), dynamics, settings, monkeypatch)


def slots(dynamics: Dynamics) -> CandidateSets:
    rows = [[*range(dynamics.dataset.variables), -1]] * len(dynamics.dataset.targets)
    return CandidateSets(np.array(rows, dtype=np.int64), dynamics.dataset.action_input)


@pytest.mark.parametrize("name", ["implicit", "explicit"])
def test_candidates_and_the_predictor(name: str, dynamics: Dynamics, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = MODELS[name]
    model = build_candidate_networks(dynamics.dataset, slots(dynamics), settings, 0)
    assert model.pairs.shape[1] > 0, "no difference is seen"
    factors = make_world("contact", blocks=2, distractors=1).factors
    train_on_gpu(model, dynamics, settings, monkeypatch)
    with fake_gpu(monkeypatch):
        model.restrict(np.ones((len(dynamics.dataset.targets), dynamics.dataset.inputs), bool))
        assert model.allowed is not None
        on_gpu(model.allowed)
        step = Predictor(factors, dynamics, model).step(np.zeros((3, len(factors))), np.zeros((3, 4)))
        assert step.shape == (3, len(factors))


def test_gradients_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of functions that have a backward pass of their own."""

    class Context:
        def save_for_backward(self, *tensors: Tensor) -> None:
            self.saved_tensors = tensors

    with fake_gpu(monkeypatch):
        scores, u = torch.zeros(2, 3, 5, device=GPU), torch.zeros(2, 3, device=GPU)
        for function, other in ((_LogDensity, u), (_CrossEntropy, scores)):
            context = Context()
            on_gpu(function.forward(context, scores, other))
            on_gpu(function.backward(context, u)[0])


def sample(rows: int = 16) -> Sample:
    parts = (torch.randn(rows, size) for size in (3, 2, 2, 3, 2))
    obs, context, action, after, ahead = parts
    return Sample(obs, context, action, torch.zeros(rows), after, ahead, torch.zeros(rows))


@pytest.mark.parametrize("name", AGENTS)
def test_agents(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch):
        agent = make_agent(SETTINGS[name], Shape(3, 2, 2, device=str(GPU)))
        assert isinstance(agent, MaskedAgent)
        agent.normaliser.update(np.random.default_rng(0).normal(size=(50, 5)))
        agent.set_mask(np.array([True, False, True]))
        on_gpu(agent.inputs(torch.zeros(4, 3, device=GPU), torch.zeros(4, 2, device=GPU)))
        for _ in range(2):
            agent.update(sample())
        for deterministic in (True, False):
            assert agent.act(np.zeros((4, 3)), np.zeros((4, 2)), deterministic).shape == (4, 2)
        assert agent.value(np.zeros((4, 3)), np.zeros((4, 2)), np.zeros((4, 2))).shape == (4,)
        assert agent.mask.shape == (3,)
        agent.reset()
        state = agent.tensors()
        assert {tensor.device.type for tensor in state.values()} == {"cpu"}
        for networks in agent.networks.values():
            for parameter in networks.parameters():
                on_gpu(parameter)


# The tests above would notice


def test_a_bare_constructor_is_noticed(dynamics: Dynamics, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = torch.zeros
    monkeypatch.setattr(Tensor, "new_zeros", lambda self, *size, **more: bare(*size))
    with pytest.raises(RuntimeError, match="same device|different devices"):
        train_on_gpu(build_model(dynamics.dataset, MODELS["pairwise"], 0), dynamics, MODELS["pairwise"], monkeypatch)


def test_noise_that_stays_behind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def noise(self: MaskedAgent, rows: int) -> Tensor:
        return torch.randn(rows, self.actions, generator=self.generator)

    monkeypatch.setattr(MaskedAgent, "noise", noise)
    for name in AGENTS:
        with pytest.raises(RuntimeError, match="same device|different devices"):
            test_agents(name, monkeypatch)


def test_a_stray_numpy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_gpu(monkeypatch):
        tensor = torch.zeros(3, device=GPU)
        assert tensor.cpu().numpy().shape == (3,)
        with pytest.raises(TypeError, match="cpu"):
            tensor.numpy()


# Names of devices


def test_names() -> None:
    assert find_device("cpu") == torch.device("cpu")
    for name in ("gpu", "cuda:", "cuda:x", "cpu:1", "", "cuda:1\n"):
        with pytest.raises(DataError, match="must be auto, cpu, cuda or cuda:N"):
            check_device(name)


def test_a_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device("auto") == torch.device("cpu")
    with pytest.raises(DataError, match="finds no GPU"):
        find_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda:0") and find_device("cuda:1").index == 1
    with pytest.raises(DataError, match="there are only 2"):
        find_device("cuda:2")


def test_commands_refuse_a_gpu_that_is_not_there(run: Any, refused: Any, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    for device, said in (("cuda", "no GPU"), ("gpu", "must be auto")):
        refused(run("learn", "light", "--out", tmp_path / "run", "--device", device), said)
    assert list(tmp_path.iterdir()) == []
