"""What discovery writes into its run directory, and how it recognises a directory of the same call."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cbm.checks import is_number
from cbm.data.mapped import blocks_of
from cbm.data.transitions import Transitions
from cbm.discovery.checkpoint import Checkpoint
from cbm.discovery.settings import Settings
from cbm.graph import CausalGraph
from cbm.graph.knowledge import Knowledge
from cbm.runs.directory import RESULT, RunDirectory
from cbm.runs.files import parse_json

if TYPE_CHECKING:
    from cbm.discovery.network_pipeline import Report
    from cbm.discovery.pipeline import Progress
    from cbm.discovery.predict import Predictor

HORIZONS = (1, 2, 5, 10, 20)  # steps of the rollouts whose error is reported
METRICS = "metrics.jsonl"
STAGES = {"dynamics: evidence": "dynamics", "rewards: evidence": "rewards"}


class RunFiles:
    """The run directory of one call, or none."""

    def __init__(self, run: Path | None, data: Transitions, settings: Settings, seed: int, knowledge: Knowledge | None):
        self.data = data
        self.directory: RunDirectory | None = None
        if run is not None:
            config = {
                "settings": settings.to_json(), "seed": seed,
                "knowledge": knowledge.to_json() if knowledge else None, "factors": data.factors.to_json(),
                "transitions": len(data), "data": fingerprint(data),
            }  # fmt: skip
            self.directory = RunDirectory(run, "discover", config)

    @property
    def jobs(self) -> Path | None:
        """Where finished jobs are kept."""
        return None if self.directory is None else self.directory.checkpoint

    def finished(self) -> CausalGraph | None:
        """The graph, if the same call has finished and settled; a directory of another call is refused."""
        if self.directory is None or not self.directory.is_finished():
            return None
        graph = CausalGraph.load(self.directory.path)
        return graph if graph.is_settled else None

    def owned(self) -> AbstractContextManager[None]:
        """The directory, created if need be, locked for this call."""
        return nullcontext() if self.directory is None else self.directory.owned()

    def checkpoint(self) -> Checkpoint:
        """What an earlier call left, or an empty one."""
        if self.directory is None:
            return Checkpoint(None)
        return Checkpoint(self.directory.checkpoint, self.directory.lock.check)

    def begin(self) -> None:
        if self.directory is not None and self.data.truth is not None:
            names = self.data.factors.names
            rewards = {
                k: [n for n, yes in zip(names, v, strict=True) if yes] for k, v in self.data.truth_rewards.items()
            }
            truth = {
                "variables": list(names),
                "adjacency": self.data.truth.astype(int).tolist(),
                "rewards": rewards,
            }
            self.directory.write_json("truth.json", truth)

    def reporter(self, checkpoint: Checkpoint, progress: Progress | None, started: float) -> Report:
        """Writes metrics (from the last checkpointed step on) and passes progress on."""
        self._cut_metrics(checkpoint)

        def report(stage: str, done: float, numbers: dict[str, float]) -> None:
            checkpoint.notes["elapsed"] = time.perf_counter() - started
            if numbers and self.directory is not None:
                row = {"phase": stage, **{k: round(v, 5) for k, v in numbers.items()}}
                self.directory.append(METRICS, json.dumps(row))
            if progress:
                progress(STAGES.get(stage, stage), min(done, 1.0))

        return report

    def _cut_metrics(self, checkpoint: Checkpoint) -> None:
        """A resumed run repeats the steps after its last checkpoint: remove their old lines, and damaged ones."""
        if self.directory is None:
            return
        path = self.directory.path / METRICS
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        kept = [line for line in lines if _still_true(line, checkpoint)]
        self.directory.write_text(METRICS, "".join(line + "\n" for line in kept))

    def finish(
        self,
        graph: CausalGraph,
        predictor: Predictor | None,
        held: Transitions,
        seconds: float,
        updates: dict[str, int],
    ) -> None:
        if self.directory is None:
            return
        if predictor is not None:
            self.directory.write_json("prediction.json", prediction_errors(predictor, held))
        self.directory.lock.check()
        graph.save(self.directory.path / "graph.json")
        result: dict[str, Any] = {
            "seconds": round(seconds, 2),
            "updates": updates,
            "edges": int(graph.adjacency.sum()),
            "undecided": int((graph.verdict == "undecided").sum()),
            "settled": graph.is_settled,
            "abstractions": {name: list(graph.abstraction(name)) for name in graph.rewards},
        }
        if self.data.truth is not None:
            result["score"] = graph.compare(self.data.truth).to_json()
        self.directory.write_json(RESULT, result)
        if graph.is_settled:  # shared arrays can be recomputed from the log
            shutil.rmtree(self.directory.checkpoint / "shared", ignore_errors=True)
            shutil.rmtree(self.directory.checkpoint / "jobs", ignore_errors=True)

    def save(self, graph: CausalGraph) -> None:
        """Write a graph that was extended after `finish`."""
        if self.directory is not None:
            self.directory.lock.check()
            graph.save(self.directory.path / "graph.json")


def _still_true(line: str, checkpoint: Checkpoint) -> bool:
    """Whether a logged line belongs to a finished stage, or to the running one up to its checkpoint."""
    try:
        row = parse_json(line)
        phase, step = row["phase"], row["step"]
        if not isinstance(phase, str) or not is_number(step):
            return False
    except (ValueError, KeyError, TypeError, RecursionError):  # cut off when the process was killed
        return False
    if checkpoint.has(f"{phase}.cmi") or checkpoint.has(f"{phase}.done"):
        return True
    running = phase == checkpoint.notes.get("stage") and "step" in checkpoint.running
    return running and bool(step <= int(checkpoint.running["step"][0]))


def fingerprint(data: Transitions) -> str:
    """A hash of the arrays: a run directory is resumed only with the data it was begun with."""
    digest = hashlib.sha256()
    for array in (data.obs, data.action, data.next_obs, data.episode, *data.rewards.values(), *data.context.values()):
        for block in blocks_of(array):  # a mapped array is never in memory as a whole
            digest.update(block.astype(np.float64 if block.dtype.kind == "f" else np.int64, copy=False).tobytes())
    digest.update(json.dumps([*data.rewards, *data.factors.names, *data.context]).encode())
    return digest.hexdigest()


def prediction_errors(predictor: Predictor, held: Transitions, most: int = 4000) -> dict[str, Any]:
    """One-step error per variable and rollout errors, in units of each variable's typical change."""
    rows = held.head(min(most, len(held)))
    unit = np.std(held.next_obs - held.obs, axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    error = np.abs(predictor.step(rows.obs, rows.action) - rows.next_obs) / unit
    baseline = np.abs(rows.obs - rows.next_obs) / unit
    return {
        "variables": list(held.factors.names),
        "error": [float(v) for v in error.mean(0).round(6)],
        "baseline": [float(v) for v in baseline.mean(0).round(6)],
        "rollout": _rollout_errors(predictor, held, unit),
    }


def _rollout_errors(
    predictor: Predictor, held: Transitions, unit: np.ndarray, most: int = 200
) -> list[dict[str, float]]:
    """Starts spread over the held-out data, only where the following rows belong to the same episode."""
    longest = max((h for h in HORIZONS if len(_starts(held, h)) > 0), default=0)
    if not longest:
        return []
    starts = _starts(held, longest)
    starts = starts[np.linspace(0, len(starts) - 1, min(most, len(starts))).astype(int)]
    index = starts[:, None] + np.arange(longest)
    states = predictor.rollout(held.obs[starts], held.action[index])
    result = []
    for h in (h for h in HORIZONS if h <= longest):
        target = held.next_obs[starts + h - 1]
        error = float((np.abs(states[:, h - 1] - target) / unit).mean())
        still = float((np.abs(held.obs[starts] - target) / unit).mean())
        result.append({"steps": h, "error": round(error, 6), "baseline": round(still, 6)})
    return result


def _starts(held: Transitions, steps: int) -> np.ndarray:
    """Rows from which `steps` rows follow each other in one episode."""
    n = len(held) - steps + 1
    if n <= 0:
        return np.zeros(0, dtype=int)
    varies = (held.obs != held.obs[0]).any(0)  # a variable that is always blank cannot tell which row follows which
    parted = (held.obs[1:, varies] != held.next_obs[:-1, varies]).any(1)
    joined = np.concatenate([[0], np.cumsum((held.episode[1:] != held.episode[:-1]) | parted)])
    return np.flatnonzero(joined[:n] == joined[steps - 1 : steps - 1 + n])
