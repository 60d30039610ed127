"""Trackers that can receive the numbers of a run: TensorBoard, MLflow, Weights & Biases, Trackio.

Each is a small class with the same three methods, in one table; a new one is one more class and one more row. None is
imported before it is used, and none is a dependency of the package.
"""

from __future__ import annotations

import importlib.util
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from cbm.errors import DataError

TrackerName = Literal["tensorboard", "wandb", "mlflow", "trackio"]
PROJECT = "cbm"
"""Name of the project (W&B, Trackio) or experiment (MLflow) in which runs appear."""


class Tracker(Protocol):
    """Receives the numbers of a run."""

    key: str
    """Identifies this run when it is resumed."""

    def log(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Values by name at a step, `seconds` after the start of the run."""

    def close(self, finished: bool) -> None:
        """Send the rest; `finished` says whether the run was completed."""


class TensorBoard:
    """Event files in RUN/tensorboard: `tensorboard --logdir RUN`."""

    def __init__(self, run: Path, config: Mapping[str, Any], key: str | None):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.key = key or repr(time.time())
        self._event, self._summary = Event, Summary
        self._writer = EventFileWriter(str(run / "tensorboard"))

    def log(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        entries = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        event = self._event(wall_time=float(self.key) + seconds, step=step, summary=self._summary(value=entries))
        self._writer.add_event(event)
        self._writer.flush()

    def close(self, finished: bool) -> None:
        self._writer.close()


class MLflow:
    """A run of the experiment `cbm` at MLFLOW_TRACKING_URI, or at MLflow's default location."""

    def __init__(self, run: Path, config: Mapping[str, Any], key: str | None):
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        if key is None:
            experiment = self._client.get_experiment_by_name(PROJECT)
            number = self._client.create_experiment(PROJECT) if experiment is None else experiment.experiment_id
            started = self._client.create_run(number, run_name=run.name, tags={"run": str(run.resolve())})
            key = str(started.info.run_id)
            for name, value in flat(config).items():
                self._client.log_param(key, name, str(value)[:500])
        else:
            self._client.update_run(key, status="RUNNING")
        self.key = key

    def log(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        for name, value in values.items():
            self._client.log_metric(self.key, name, value, timestamp=now, step=step)

    def close(self, finished: bool) -> None:
        self._client.set_terminated(self.key, status="FINISHED" if finished else "KILLED")


class WandB:
    """A run of the project `cbm`; WANDB_MODE=offline keeps it in RUN/wandb."""

    def __init__(self, run: Path, config: Mapping[str, Any], key: str | None):
        import wandb

        options = {"project": os.environ.get("WANDB_PROJECT", PROJECT), "name": run.name, "dir": str(run)}
        self._run = wandb.init(id=key, resume="allow", config=dict(flat(config)), **options)
        self._run.define_metric("*", step_metric="step")  # each task in turn begins at step 0 again
        self.key = str(self._run.id)

    def log(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        self._run.log({**values, "step": step, "seconds": seconds})

    def close(self, finished: bool) -> None:
        self._run.finish(exit_code=0 if finished else 1)


class Trackio:
    """A run of the project `cbm` on this machine: `trackio show --project cbm`."""

    def __init__(self, run: Path, config: Mapping[str, Any], key: str | None):
        import trackio

        self.key = key or f"{run.name}-{int(time.time())}"
        self._run = trackio.init(project=PROJECT, name=self.key, resume="allow", config=dict(flat(config)))

    def log(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        self._run.log({**values, "seconds": seconds}, step=step)

    def close(self, finished: bool) -> None:
        self._run.finish()


TRACKERS: dict[str, tuple[str, type[Any]]] = {
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WandB),
    "mlflow": ("mlflow", MLflow),
    "trackio": ("trackio", Trackio),
}
"""By name: the required package, and the class."""


def check_tracker(name: str | None) -> None:
    """Refuse a tracker that is not installed, before any work is done."""
    if name is not None and importlib.util.find_spec(TRACKERS[name][0]) is None:
        raise DataError(f"--track {name}: {name} is not installed: pip install 'cbm-rl[{name}]'")


def open_tracker(name: str, run: Path, config: Mapping[str, Any], key: str | None) -> Tracker:
    """A tracker for a run directory; with the key of an earlier part of the run, the same curve continues."""
    check_tracker(name)
    try:
        tracker: Tracker = TRACKERS[name][1](run, config, key)
    except Exception as error:  # whatever the library raises: no server, no permission, no account
        raise DataError(f"--track {name}: cannot begin: {first_line(error)}") from error
    return tracker


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """settings.sac.gamma and so on; lists as JSON."""
    entries: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            entries |= flat(value, f"{name}.")
        elif value is not None:
            entries[name] = json.dumps(value) if isinstance(value, list) else value
    return entries


def first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
