"""`cbm evaluate`: how good a learned policy is, in and out of distribution."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from cbm.cli.arguments import Device, Flag, MaybeInt, MaybePath, at_least, check_seed, parse
from cbm.cli.console import heading, print_json, show, show_table
from cbm.cli.paths import check_file, made_directory
from cbm.device import check_device, find_device
from cbm.errors import DataError
from cbm.runs.files import atomic_write_text, read_json

SHOWN = (1, 2, 5, 10, 20)


@dataclass(frozen=True)
class Options:
    """Measure the policies of a run of `cbm learn`, and the multi-step prediction error of models of the dynamics.

    Example: cbm evaluate runs/pick --ood

    Writes evaluation.json into the run, where `cbm report` finds it.
    """

    run: Positional[Path]
    """Run directory of `cbm learn`, finished or not; its last checkpoint is used."""
    ood: Flag = False
    """Also evaluate with N(0, 1) noise, at every step, in place of each variable that the true graph says is not
    needed."""
    episodes: int = 50
    """Number of episodes for each measurement."""
    prediction: Flag = False
    """Also measure the errors of the implicit and the explicit model over 1 to 20 steps, on usual states and with N(0,
    100²) noise in place of the distractors."""
    data: MaybePath = None
    """Log for --prediction. The log that the run's --dynamics were found on saves training one of the models again.
    Default: 60,000 new transitions."""
    updates: MaybeInt = None
    """Updates of each model for --prediction. Default: as many as `cbm discover` makes."""
    seed: MaybeInt = None
    """Seed of the episodes. Default: the run's own seed, which repeats its own evaluations."""
    threads: int = 1
    """Processor threads."""
    trust_world: Flag = False
    """Create the environment of a run whose config.json names it as gymnasium:MODULE:ID. That imports the module and so
    runs its code: use it only for runs that you made yourself or trust."""
    device: Device = "cpu"
    out: MaybePath = None
    """File to write. Default: evaluation.json in the run directory."""
    json: Flag = False
    """Print the result as one JSON object."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "evaluate")
    at_least("--episodes", options.episodes, 1)
    at_least("--updates", options.updates, 1)
    at_least("--threads", options.threads, 1)
    check_seed(options.seed)
    if not options.run.is_dir():
        raise DataError(f"{options.run}: {'is not a' if options.run.exists() else 'no such'} run directory")
    out = options.out or options.run / "evaluation.json"
    check_file(out, force=True)
    check_device(options.device)
    result = _with_earlier(_measured(options), out)
    with made_directory(out.parent):
        atomic_write_text(out, json.dumps(result, indent=1, allow_nan=False) + "\n")
    if options.json:
        print_json({"run": str(options.run), "out": str(out), **result})
    else:
        _show(options, result, out)


def _measured(options: Options) -> dict[str, Any]:
    import torch

    from cbm.data.transitions import Transitions
    from cbm.learning.assess import assess, policies, predictions

    torch.set_num_threads(options.threads)
    found = policies(options.run, options.trust_world, str(find_device(options.device)))
    seed = found.plan.seed if options.seed is None else options.seed
    rows = None
    tasks = assess(found, options.episodes, seed, options.ood)
    if options.prediction or options.data is not None:
        log = None if options.data is None else Transitions.load(options.data, allow_constant=True)
        rows = predictions(found, log, options.updates, seed)
    return {"episodes": options.episodes, "seed": seed, "tasks": tasks, "prediction": rows}


def _with_earlier(result: dict[str, Any], out: Path) -> dict[str, Any]:
    """With what an earlier call measured on the same episodes and this one did not."""
    earlier = read_json(out) if out.is_file() else None
    if not isinstance(earlier, dict) or any(earlier.get(key) != result[key] for key in ("episodes", "seed")):
        return result
    tasks, same = {}, True
    for name, now in result["tasks"].items():
        found = earlier["tasks"].get(name) if isinstance(earlier.get("tasks"), dict) else None
        before: dict[str, Any] = found if isinstance(found, dict) and found.get("in") == now["in"] else {}
        kept = {key: before[key] for key in ("out", "replaced") if key in before and now["out"] is None}
        tasks[name], same = {**now, **kept}, same and bool(before)
    prediction = result["prediction"] or (earlier.get("prediction") if same else None)  # of the same policies
    return {**result, "tasks": tasks, "prediction": prediction}


def _show(options: Options, result: dict[str, Any], out: Path) -> None:
    heading(f"{options.run}: {options.episodes} episodes with the policy's most likely actions")
    rows = []
    for task, found in result["tasks"].items():
        rows.append((task, "as usual", *_outcome(found["in"])))
        if found["out"] is not None:
            rows.append((task, f"noise for {found['replaced']} variables not needed", *_outcome(found["out"])))
    show_table(("task", "states", "success", "return"), rows, right=("success", "return"))
    show()
    if result["prediction"]:
        _show_prediction(result["prediction"])
    show(f"written to {out}")


def _outcome(numbers: dict[str, Any]) -> tuple[str, str]:
    success = numbers["success"]
    return "-" if success is None else f"{100 * success:.0f} %", f"{numbers['return']:.4g}"


def _show_prediction(rows: list[dict[str, Any]]) -> None:
    heading("error of prediction, in units of each variable's typical change in a step")
    table = [
        (row["model"], str(row["steps"]), f"{row['in']:.3f}", f"{row['out']:.3f}", f"{row['still']:.3f}")
        for row in rows
        if row["steps"] in SHOWN
    ]
    titles = ("model", "steps", "usual states", "noise for distractors", "if nothing changed")
    show_table(titles, table, right=titles[1:])
    show()
