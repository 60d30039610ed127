"""Reports of learning runs: which runs belong together, the numbers over seeds, the abstraction over time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cbm.errors import DataError
from cbm.report import write_report
from cbm.report.curves import write_curves
from cbm.report.statistics import area_under_curve, bootstrap_interval, iqm, steps_to
from learning_runs import (  # type: ignore[import-not-found]
    METHODS,
    TASKS,
    compared,
    curve_of,
    edit,
    grid,
    kept_by,
    names_of,
    oracle_of,
    write_run,
)  # fmt: skip
from test_report import payload_of  # type: ignore[import-not-found]

# numbers -------------------------------------------------------------------------------------------------


def test_grid_of_methods_tasks_and_seeds(tmp_path: Path) -> None:
    paths = grid(tmp_path / "runs", evaluation=True)
    learning = payload_of(write_report(paths, tmp_path / "report.html"))["learning"]
    assert [method["colour"] for method in learning["methods"]] == list(METHODS)
    assert [task["title"] for task in learning["tasks"]] == [f"contact \u00b7 {task}" for task in TASKS]
    assert len(learning["runs"]) == 42 and all(run["finished"] for run in learning["runs"])
    pick = learning["tasks"][0]
    assert pick["measure"] == "success" and pick["until"] == 160_000 and pick["at"] == 80_000
    for row, method in zip(pick["rows"], METHODS, strict=True):
        curves = [curve_of(tmp_path / "runs" / f"pick-{method}-{seed}") for seed in range(3)]
        finals = [values[-1] for _, values in curves]
        assert row["seeds"] == [0, 1, 2] and row["final"]["each"] == pytest.approx(finals)
        assert row["final"]["mean"] == pytest.approx(np.mean(finals), rel=1e-5)
        assert (row["final"]["low"], row["final"]["high"]) == pytest.approx((min(finals), max(finals)))
        assert row["final"]["iqm"] == pytest.approx(iqm(finals), rel=1e-5)
        areas = [area_under_curve(steps, values, 160_000) for steps, values in curves]
        assert row["area"]["mean"] == pytest.approx(np.mean(areas), rel=1e-5)
        reached = [step for steps, values in curves if np.isfinite(step := steps_to(steps, values, 0.5))]
        assert row["half"] == {"mean": pytest.approx(np.mean(reached), rel=1e-5), "reached": len(reached), "of": 3}
        names = kept_by(method, names_of(36), "pick")
        assert row["kept"] == {"mean": len(names), "low": len(names), "high": len(names)}
        assert row["exact"] == {"yes": 3 if method in ("oracle", "cbm") else 0, "of": 3}
        assert row["demonstrations"]["mean"] == 100 and row["minutes"]["mean"] == pytest.approx(160_000 / 550 / 60)
    oracle, cbm = pick["rows"][:2]
    assert oracle["relative"] == {"mean": 1, "low": None, "high": None}
    assert cbm["relative"]["mean"] == pytest.approx(cbm["area"]["mean"] / oracle["area"]["mean"], rel=1e-4)
    assert cbm["relative"]["low"] < cbm["relative"]["mean"] < cbm["relative"]["high"]


def test_lines_are_means_and_intervals_over_seeds(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{seed}", "cdl", ("stack",), seed) for seed in range(5)]
    (task,) = compared(*paths)["tasks"]
    values = np.array([curve_of(path)[1] for path in paths])
    low, high = bootstrap_interval(values)
    expected = np.stack([curve_of(paths[0])[0], values.mean(axis=0), low, high, iqm(values)], axis=1)
    np.testing.assert_allclose(task["curves"]["success"][0]["points"], expected, rtol=1e-5)
    assert [seed["seed"] for seed in task["curves"]["success"][0]["seeds"]] == [0, 1, 2, 3, 4]
    (single,) = compared(paths[0])["tasks"]
    assert all(point[2:4] == [None, None] for point in single["curves"]["success"][0]["points"])
    assert single["rows"][0]["final"]["low"] is None and single["rows"][0]["relative"] is None


def test_evaluations_at_different_steps(tmp_path: Path) -> None:
    head = "step,seconds,return,success,length,kept,seed,method,task\n"
    for seed, rows in ((0, [(0, 0.0), (100, 1.0)]), (1, [(50, 0.5), (90, 0.5)])):
        write_run(tmp_path / f"{seed}", seed=seed)
        text = "".join(f"{step},1,0,{rate},10,7,{seed},cbm,pick\n" for step, rate in rows)
        (tmp_path / f"{seed}" / "eval.csv").write_text(head + text)
    (task,) = compared(tmp_path / "0", tmp_path / "1")["tasks"]
    points = [point[:2] for point in task["curves"]["success"][0]["points"]]
    assert points == [[50, 0.5], [90, 0.7]], "where all have begun and none has ended, straight in between"
    assert task["until"] == 90


def test_chosen_steps(tmp_path: Path) -> None:
    paths = grid(tmp_path, methods=("oracle", "full"), tasks=("pick",))
    (task,) = compared(*paths, at=98_000, until=120_000)["tasks"]
    assert task["at"] == 100_000 and task["until"] == 120_000
    areas = [area_under_curve(steps, values, 120_000) for steps, values in map(curve_of, paths[3:])]
    assert task["rows"][1]["area"]["each"] == pytest.approx(areas, rel=1e-5)
    (task,) = compared(*paths, until=200_000)["tasks"]
    assert task["rows"][0]["area"] is None, "no curve is continued"


def test_task_without_success_is_compared_by_return(tmp_path: Path) -> None:
    paths = grid(tmp_path, methods=("cbm", "full"), tasks=("walk",), success=False, evaluation=True)
    (task,) = compared(*paths)["tasks"]
    assert task["measure"] == "return" and set(task["curves"]) == {"return", "kept"}
    assert task["rows"][0]["final"]["each"] == pytest.approx(
        [curve_of(p, "return")[1][-1] for p in paths[:3]], rel=1e-5
    )
    assert task["rows"][0]["half"] == {"mean": None, "reached": 0, "of": 0}
    assert task["bars"][0]["drop"]["mean"] == pytest.approx(
        task["bars"][0]["in"]["mean"] - task["bars"][0]["out"]["mean"], rel=1e-3
    )


def test_no_multiple_of_a_negative_return(tmp_path: Path) -> None:
    paths = grid(tmp_path, methods=("oracle", "cbm"), tasks=("walk",), seeds=2, success=False)
    for path in paths:
        lines = (path / "eval.csv").read_text().splitlines()
        rows = [line.split(",") for line in lines[1:]]
        text = "".join(",".join([*row[:2], str(float(row[2]) - 200), *row[3:]]) + "\n" for row in rows)
        (path / "eval.csv").write_text(lines[0] + "\n" + text)
    (task,) = compared(*paths)["tasks"]
    assert [row["relative"] for row in task["rows"]] == [None, None] and task["rows"][0]["area"]["mean"] < 0


# which runs belong together ------------------------------------------------------------------------------


def test_settings_that_differ_make_two_lines(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in range(2)]
    paths += [write_run(tmp_path / f"b{seed}", seed=seed, config={"model": "explicit"}) for seed in range(2)]
    learning = compared(*paths)
    assert [method["label"] for method in learning["methods"]] == ["CBM (model implicit)", "CBM (model explicit)"]
    assert [method["colour"] for method in learning["methods"]] == ["cbm", "other-1"]
    assert [row["seeds"] for row in learning["tasks"][0]["rows"]] == [[0, 1], [0, 1]]


def test_labels_of_runs_with_company(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / "a"), write_run(tmp_path / "b", tasks=TASKS, config={"together": True})]
    learning = compared(*paths)
    labels = [method["label"] for method in learning["methods"]]
    assert labels == ["CBM (alone)", "CBM (with stack at once)", "CBM"]
    many = {"model": "explicit", "preset": "paper", "steps": 7, "rewards": "learned"}
    learning = compared(paths[0], write_run(tmp_path / "c", config=many))
    assert [method["label"] for method in learning["methods"]] == ["CBM (variant 1)", "CBM (variant 2)"]


def test_every_seed_may_have_dynamics_of_its_own(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{k}", seed=k, config={"dynamics": f"runs/{k}"}) for k in range(2)]
    assert [method["label"] for method in compared(*paths)["methods"]] == ["CBM"]
    paths.append(write_run(tmp_path / "again", seed=0, config={"dynamics": "runs/9"}))
    labels = [method["label"] for method in compared(*paths)["methods"]]
    assert labels == ["CBM (dynamics runs/0)", "CBM (dynamics runs/1)", "CBM (dynamics runs/9)"]


def test_one_seed_twice_is_refused(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / name) for name in "ab"]
    with pytest.raises(DataError, match="b: the same method, task, settings and seed as .*a"):
        compared(*paths)


def test_worlds_and_options_make_panels(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{k}", config={"options": {"distractors": k}}) for k in (0, 20)]
    paths.append(write_run(tmp_path / "c", config={"world": "block"}))
    titles = [task["title"] for task in compared(*paths)["tasks"]]
    assert titles == [
        "contact \u00b7 pick (distractors 0)",
        "contact \u00b7 pick (distractors 20)",
        "block \u00b7 pick",
    ]


def test_same_task_with_other_variables_is_refused(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{n}", seed=n, names=names_of(n)) for n in (12, 14)]
    with pytest.raises(DataError, match="14: its variables are not those of .*12"):
        compared(*paths)


def test_two_tasks_of_one_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", tasks=TASKS, config={"together": True})
    learning = compared(path)
    assert [task["task"] for task in learning["tasks"]] == list(TASKS)
    for task, name in zip(learning["tasks"], TASKS, strict=True):
        steps, values = curve_of(path, task=name)
        assert [point[:2] for point in task["curves"]["success"][0]["points"]] == [list(p) for p in zip(steps, values)]
        assert task["rows"][0]["tasks"] == 2 and task["rows"][0]["kept"]["mean"] == len(oracle_of(names_of(36), name))


# abstraction ---------------------------------------------------------------------------------------------


def test_masks_over_time(tmp_path: Path) -> None:
    names = names_of(4)
    path = write_run(tmp_path / "run", names=names)
    lines = [
        (2, names, {"changed": False}),
        (4, names[:2], {"changed": True}),  # as older versions wrote it: every change began anew
        (6, names[:2], {"changed": False, "reset": True}),  # the first decision may keep what it kept
        (8, names[:1], {"changed": True, "reset": False}),
    ]
    text = "".join(
        json.dumps({"step": step, "task": "pick", "kept": list(kept)} | told) + "\n" for step, kept, told in lines
    )
    (path / "abstraction.jsonl").write_text(text + '{"step": 9, "ta')  # killed while writing
    (strip,) = compared(path)["tasks"][0]["strips"]
    assert strip["masks"] == [[0, None], [2, "1111"], [4, "1100"], [8, "1000"]]
    assert strip["resets"] == [4, 6] and strip["decisions"] == 4 and strip["end"] == 160_000


def test_who_kept_which(tmp_path: Path) -> None:
    paths = grid(tmp_path, tasks=("pick",), seeds=2)
    task = compared(*paths)["tasks"][0]
    assert [task["variables"][k] for k in task["oracle"]] == oracle_of(names_of(36), "pick")
    for row, method in zip(task["kept"], METHODS, strict=True):
        kept = kept_by(method, names_of(36), "pick")
        assert row["of"] == 2 and row["count"] == [2 if name in kept else 0 for name in task["variables"]]


def test_without_an_oracle(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", config={"oracle": {"pick": None}})
    (task,) = compared(path)["tasks"]
    assert task["oracle"] is None and task["rows"][0]["exact"] is None and task["rows"][0]["kept"]["mean"] == 7


def test_in_and_out_of_distribution(tmp_path: Path) -> None:
    paths = grid(tmp_path, methods=("oracle", "cbm", "full"), tasks=("pick",), evaluation=True)
    edit(paths[0] / "evaluation.json", tasks={"pick": {"in": {"return": 1.0, "success": 0.5}, "out": None}})
    task = compared(*paths)["tasks"][0]
    entries = [json.loads((path / "evaluation.json").read_text())["tasks"]["pick"] for path in paths[3:6]]
    drops = [entry["in"]["success"] - entry["out"]["success"] for entry in entries]
    assert task["bars"][1]["drop"]["mean"] == pytest.approx(np.mean(drops), rel=1e-4)
    assert len(task["bars"][0]["in"]["each"]) == 3 and len(task["bars"][0]["out"]["each"]) == 2
    lines = {(line["model"], line["place"]): line["points"] for line in task["prediction"]}
    assert set(lines) == {(m, p) for m in ("implicit", "explicit") for p in ("in", "out")} | {("", "still")}
    assert lines["implicit", "in"][1] == [2, pytest.approx(0.03 * 2**0.8, rel=1e-4)]


# unfinished ----------------------------------------------------------------------------------------------


def test_unfinished_runs_do_not_count_beside_finished_ones(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{seed}", seed=seed) for seed in range(2)]
    paths.append(write_run(tmp_path / "2", seed=2, finished=False, until=40_000))
    learning = compared(*paths)
    (task,) = learning["tasks"]
    (row,) = task["rows"]
    assert row["seeds"] == [0, 1] and row["unfinished"] == [{"seed": 2, "step": 40_000}] and row["finished"]
    assert task["until"] == 160_000
    assert [seed["counted"] for seed in task["curves"]["success"][0]["seeds"]] == [True, True, False]
    assert [run["last_step"] for run in learning["runs"]] == [160_000, 160_000, 40_000]


def test_only_unfinished_runs(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{k}", seed=k, finished=False, until=20_000 * (k + 1)) for k in range(2)]
    with (paths[0] / "eval.csv").open("a") as file:
        file.write("30000,1,2")  # cut short
    (task,) = compared(*paths)["tasks"]
    assert not task["rows"][0]["finished"] and task["rows"][0]["seeds"] == [0, 1] and task["until"] == 20_000


def test_run_that_has_only_begun(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", finished=False, until=1)
    for stem in ("eval.csv", "abstraction.jsonl"):
        (path / stem).unlink()
    learning = compared(path)
    assert learning["runs"][0]["last_step"] is None and learning["tasks"][0]["rows"][0]["final"] is None
    write_report([path], tmp_path / "report.html")
    with pytest.raises(DataError, match="none of these is a learning run that has been evaluated"):
        write_curves([path], tmp_path / "curves.png")
