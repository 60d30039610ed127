"""Discovery on resampled episodes: which edges and minimal states another log of the same system would give.

Each replicate is one job. It draws as many episodes as the log has, with replacement, and runs the whole of discovery
on them. Copies of an episode keep its number, so that they are always in the same fold, never fitted in one and tested
in another.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cbm.data.transitions import Transitions
from cbm.discovery.dataset import _units as units
from cbm.discovery.rows import affordable, sample
from cbm.discovery.settings import Settings
from cbm.graph import CausalGraph
from cbm.graph.bootstrap import Bootstrap
from cbm.graph.knowledge import Knowledge
from cbm.jobs import Job, Shared

if TYPE_CHECKING:
    from cbm.discovery.pipeline import Runner

Arrays = dict[str, np.ndarray]
_STREAM = 77  # stream of random numbers derived from the seed; rows and folds have others


def resampled_rows(episode: np.ndarray, seed: int, replicate: int) -> np.ndarray:
    """Rows of as many episodes as there are (or blocks, if episodes are few), drawn with replacement."""
    unit = units(episode)
    rows = [np.flatnonzero(unit == k) for k in range(int(unit.max()) + 1)]
    drawn = np.random.default_rng([seed, _STREAM, replicate]).integers(len(rows), size=len(rows))
    return np.concatenate([rows[k] for k in np.sort(drawn)])


def share(folder: Path, data: Transitions, settings: Settings, seed: int) -> Path:
    """Write what the replicates read: only the rows that discovery uses."""
    part = sample(data, affordable(data, settings), seed)
    log = {name: array for name, array in part.to_arrays().items() if not name.startswith("truth")}
    arrays = {f"log-{k}": array for k, array in enumerate(log.values())}  # rewards may have names that no file can have
    about = {"names": list(log), "settings": settings.to_json()}
    return Shared.write(folder, arrays | {"about": np.array(json.dumps(about))}).path


def jobs_of(replicates: int, seed: int, knowledge: Knowledge | None) -> list[Job]:
    known = knowledge.to_json() if knowledge else None
    options: dict[str, Any] = {"seed": seed, "knowledge": known}
    return [
        Job(f"bootstrap-{k}", "cbm.discovery.bootstrap:bootstrap_job", {"replicate": k, **options})
        for k in range(replicates)
    ]


def bootstrap_job(shared: Shared, replicate: int, seed: int, knowledge: Any) -> Arrays:
    """Edges, and the certain and possible variables of each reward's minimal state, on one resampled log."""
    from cbm.discovery.discover import discover

    about = json.loads(str(shared["about"]))
    data = Transitions.from_arrays({name: shared[f"log-{k}"] for k, name in enumerate(about["names"])})
    data = data.select(resampled_rows(data.episode, seed, replicate))
    settings = Settings.from_json(about["settings"])
    known = None if knowledge is None else Knowledge.from_json(knowledge)
    graph = discover(data, settings=settings, seed=seed, knowledge=known, workers=0)
    masks = [graph.mask(name) for name in graph.rewards]
    certain = [graph.mask(name, certain_only=True) for name in graph.rewards]
    d = len(graph)
    return {
        "edges": graph.certain_edges,
        "abstraction": np.array(masks, bool).reshape(-1, d),
        "certain": np.array(certain, bool).reshape(-1, d),
        "rewards": np.array(list(graph.rewards), dtype=np.str_),
    }


def add_bootstrap(
    graph: CausalGraph,
    data: Transitions,
    settings: Settings,
    seed: int,
    knowledge: Knowledge | None,
    runner: Runner,
    replicates: int,
) -> CausalGraph:
    """The graph with shares over the replicates that finished before the ceiling."""
    share(runner.folder, data, settings, seed)
    found = runner.run(jobs_of(replicates, seed, knowledge), "bootstrap", 0.0, 1.0, counted=False)
    return replace(graph, bootstrap=summarise(list(found.values()))) if found else graph


def summarise(results: list[Arrays]) -> Bootstrap:
    """Shares over the replicates."""
    names = [str(name) for name in results[0]["rewards"]]
    mean = {key: np.mean([result[key] for result in results], 0) for key in ("edges", "certain", "abstraction")}
    return Bootstrap(
        len(results),
        mean["edges"],
        {name: mean["certain"][k] for k, name in enumerate(names)},
        {name: mean["abstraction"][k] for k, name in enumerate(names)},
    )
