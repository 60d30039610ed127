"""Pages, pictures, tables and commands made of learning runs."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from cbm.agents.settings import Td3Settings
from cbm.cli.arguments import parse
from cbm.errors import DataError
from cbm.report import write_report
from cbm.report.curves import write_curves
from cbm.report.statistics import iqm
from cbm.report.table import write_table
from learning_runs import TASKS, compared, curve_of, grid, write_run  # type: ignore[import-not-found]
from test_report import NAMES, make_graph, payload_of, save_run  # type: ignore[import-not-found]

Run = Callable[..., tuple[int, str, str]]
Refused = Callable[..., None]


def test_learning_and_discovery_on_one_page(tmp_path: Path) -> None:
    discovered = save_run(tmp_path / "graph", make_graph(NAMES), config={"command": "discover"})
    learned = [write_run(tmp_path / f"{seed}", seed=seed) for seed in range(2)]
    payload = payload_of(write_report([learned[0], discovered, learned[1]], tmp_path / "report.html"))
    assert [run["name"] for run in payload["runs"]] == ["graph"] and payload["runs"][0]["index"] == 0
    assert [run["name"] for run in payload["learning"]["runs"]] == ["0", "1"]
    make_graph(NAMES).save(learned[0])
    alone = payload_of(write_report([learned[0]], tmp_path / "report.html"))
    assert len(alone["runs"]) == 1 and alone["runs"][0]["variables"] == list(NAMES), "why its variables were kept"
    both = payload_of(write_report(learned, tmp_path / "report.html"))
    assert both["runs"] == []


def test_same_runs_same_page(tmp_path: Path) -> None:
    paths = grid(tmp_path / "runs", methods=("oracle", "cbm"), tasks=("pick",))
    pages = [write_report(paths, tmp_path / name).read_bytes() for name in ("a.html", "b.html")]
    assert pages[0] == pages[1]


def test_picture_and_its_numbers(tmp_path: Path) -> None:
    paths = grid(tmp_path / "runs", methods=("oracle", "cbm", "full"))
    paths.append(write_run(tmp_path / "$x_{y$", "icp", ("pick",), config={"world": "a$b_{c$"}))
    picture, numbers = write_curves(paths, tmp_path / "curves.png")
    assert picture.read_bytes().startswith(b"\x89PNG") and numbers == tmp_path / "curves.csv"
    with numbers.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    values = np.array([curve_of(tmp_path / "runs" / f"stack-cbm-{seed}")[1] for seed in range(3)])
    drawn = [row for row in rows if (row["task"], row["method"]) == ("stack", "CBM")]
    assert [int(row["step"]) for row in drawn] == list(range(10_000, 160_001, 10_000))
    np.testing.assert_allclose([float(row["mean"]) for row in drawn], values.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose([float(row["low"]) for row in drawn], values.min(axis=0), rtol=1e-5)
    np.testing.assert_allclose([float(row["iqm"]) for row in drawn], iqm(values), rtol=1e-5, atol=1e-9)
    assert {row["seeds"] for row in drawn} == {"3"} and {row["measure"] for row in rows} == {"success"}
    alone = [row for row in rows if row["world"] == "a$b_{c$"]
    assert alone and all(row["low"] == row["high"] == "" for row in alone), "one seed has no interval"


def test_table_as_csv(tmp_path: Path) -> None:
    paths = grid(tmp_path / "runs", methods=("oracle", "cbm", "full"), evaluation=True)
    with write_table(paths, tmp_path / "table.csv", at=100_000).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["method"]) for row in rows] == [
        (task, method) for task in TASKS for method in ("Oracle", "CBM", "Full")
    ]
    row, task = rows[1], compared(*paths, at=100_000)["tasks"][0]
    assert (row["seeds"], row["exact"], row["kept"], row["variables"], row["demonstrations"]) == (
        "3",
        "3",
        "7",
        "36",
        "100",
    )
    assert (
        float(row["at"]) == pytest.approx(task["curves"]["success"][1]["points"][9][1]) and row["at_step"] == "100000"
    )
    assert float(row["area_of_oracle"]) == pytest.approx(task["rows"][1]["relative"]["mean"])
    assert float(row["drop"]) == pytest.approx(task["bars"][1]["drop"]["mean"])
    assert rows[2]["seeds_to_half"] == str(task["rows"][2]["half"]["reached"])
    with pytest.raises(DataError, match="none of these is a learning run"):
        write_table([save_run(tmp_path / "graph", make_graph(NAMES))], tmp_path / "other.csv")


def test_command(run: Run, refused: Refused, tmp_path: Path) -> None:
    paths = grid(tmp_path / "runs", methods=("oracle", "cbm"), tasks=("pick",))
    out, picture = tmp_path / "new" / "all.html", tmp_path / "pictures" / "curves.png"
    code, said, _ = run("report", *paths, "--out", out, "--curves", picture, "--at", 100_000, "--json")
    numbers = picture.with_suffix(".csv")
    assert code == 0 and json.loads(said) == {
        "report": str(out), "runs": [str(path) for path in paths], "curves": str(picture), "numbers": str(numbers)
    }  # fmt: skip
    assert payload_of(out)["learning"]["tasks"][0]["at"] == 100_000 and numbers.is_file()
    code, said, _ = run("report", *paths, "--curves", picture)
    assert code == 0 and said.split() == [str(picture), str(numbers)]
    code, said, _ = run("report", paths[0])
    assert code == 0 and said.strip() == str(paths[0] / "report.html")
    code, said, _ = run("report", *paths, "--table", tmp_path / "t.csv", "--json")
    assert code == 0 and json.loads(said)["table"] == str(tmp_path / "t.csv") and json.loads(said)["report"] is None
    refused(run("report", *paths, "--table", numbers, "--curves", picture), "curves.csv", "--table")
    refused(run("report", *paths), "--out")
    refused(run("report", *paths, "--curves", tmp_path / "a.pdf"), "a.pdf", ".png")
    refused(run("report", *paths, "--out", out, "--until", 0), "--until", "at least 1")
    (paths[0] / "eval.csv").write_text("step\n")
    refused(run("report", *paths, "--out", tmp_path / "other.html"), "eval.csv", "the first line must be")
    assert not (tmp_path / "other.html").exists()


def test_commands_can_be_run_again(tmp_path: Path) -> None:
    from cbm.cli.learn import Options

    settings = json.loads((write_run(tmp_path / "x") / "config.json").read_text())["settings"]
    settings |= {"episodes": 20, "sac": settings["sac"] | {"gamma": 0.9}}
    more = {"method_options": {"inner": 3}, "settings": settings, "model": "explicit", "together": True}
    path = write_run(tmp_path / "a run", "tia", TASKS, 4, config=more)
    text = compared(path)["runs"][0]["command"]
    options = parse(Options, shlex.split(text)[2:], "learn")
    assert options.env == "contact" and options.task == TASKS and options.method == "tia" and options.together
    assert options.steps == 160_000 and options.seed == 4 and options.out == path and options.model == "explicit"
    assert options.dynamics == Path("runs/contact") and options.rewards is None and options.distractors == 20
    assert options.demonstrations is None and set(options.set) == {"episodes=20", "gamma=0.9"}
    assert options.option == ("horizon=100",) and options.method_option == ("inner=3",)


def test_the_command_names_the_agent_and_what_it_left_out(tmp_path: Path) -> None:
    from cbm.cli.learn import Options

    settings = json.loads((write_run(tmp_path / "x") / "config.json").read_text())["settings"]
    shared = {key: value for key, value in settings.pop("sac").items() if key in Td3Settings.__dataclass_fields__}
    settings |= {"agent": "td3", "td3": {**asdict(Td3Settings()), **shared, "action_noise": 0.3}}
    path = write_run(tmp_path / "run", config={"settings": settings, "certain_only": True})
    words = shlex.split(compared(path)["runs"][0]["command"])[2:]
    options = parse(Options, words, "learn")
    assert options.agent == "td3" and options.certain_only and "action_noise=0.3" in options.set
    assert not any(change.startswith("agent=") for change in options.set)
