"""`cbm discover` and `cbm demo`: results, bad input that leaves nothing behind, going on, the real engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.data.transitions import Transitions
from cbm.errors import DataError
from cbm.graph import CausalGraph, RewardGraph
from cbm.runs.directory import RunDirectory

Run = Callable[..., tuple[int, str, str]]
Refused = Callable[..., None]
Saved = Callable[..., Path]
ROWS = 40


# discovery --------------------------------------------------------------------------------------------


def test_discover(run: Run, tmp_path: Path, engine: list[dict[str, Any]]) -> None:
    path, out_dir = tmp_path / "light.npz", tmp_path / "deep" / "run"
    assert run("collect", "light", "--steps", 300, "--out", path, "--quiet")[0] == 0
    options = ("--minutes", 0.5, "--seed", 4, "--model", "explicit", "--preset", "debug", "--rule",
               "threshold", "--epsilon", 0.1, "--reward-inputs", "state-action", "--workers", 1)  # fmt: skip
    code, out, err = run("discover", path, "--out", out_dir, *options, "--json")
    result = json.loads(out)
    assert code == 0 and err == ""
    assert list(result) == [
        "run", "graph", "report", "rewards", "edges", "undecided", "unsettled", "advice", "in_short", "seconds",
        "updates", "finished", "score",
    ]  # fmt: skip
    assert result["rewards"]["cross"] == {
        "parents": ["speed", "light"], "decided": True, "certain": ["speed", "light", "countdown"], "possible": [],
        "abstraction": ["speed", "light", "countdown"], "undecided_links": {}, "coarse_limits": {}, "action": None,
    }  # fmt: skip
    assert result["unsettled"] == 0 and result["advice"] == []
    assert result["finished"] is True and result["undecided"] == 0 and result["score"]["f1"] == 1.0
    assert Path(result["graph"]).is_file() and Path(result["report"]).read_text().startswith("<!")
    settings, call = engine[0]["settings"], engine[0]
    assert (call["minutes"], call["steps"], call["seed"], call["workers"]) == (0.5, None, 4, 1)
    assert (settings.model, settings.rule, settings.epsilon) == ("explicit", "threshold", 0.1)
    assert settings.width == 64 and settings.reward_inputs == "state-action"

    before = {file: file.stat().st_mtime_ns for file in out_dir.iterdir()}
    code, out, _ = run("discover", path, "--out", out_dir, *options)
    assert code == 0 and "finished already" in out and "cross needs 3 of 6 variables" in out
    assert "exactly the set" in out and "accuracy" in out and "F1" in out and "report.html" in out
    assert {file: file.stat().st_mtime_ns for file in out_dir.iterdir()} == before
    assert json.loads(run("discover", path, "--out", out_dir, *options, "--json")[1])["finished"] == "already"


def test_discover_without_truth_or_reward(run: Run, tmp_path: Path, engine: list[dict[str, Any]], saved: Saved) -> None:
    path = saved("log.npz")
    code, out, _ = run("discover", path, "--out", tmp_path / "run", "--steps", 10)
    assert code == 0 and "go needs 1 of 3 variables" in out and "true graph" not in out
    assert engine[0]["steps"] == 10 and engine[0]["minutes"] is None and engine[0]["knowledge"] is None
    path = saved("bare.npz", reward_go=None)
    code, out, _ = run("discover", path, "--out", tmp_path / "bare")
    assert code == 0 and "no reward" in out
    result = json.loads(run("discover", path, "--out", tmp_path / "bare2", "--json")[1])
    assert result["rewards"] == {} and result["score"] is None


def test_discover_with_the_last_action(
    run: Run, tmp_path: Path, engine: list[dict[str, Any]], saved: Saved, refused: Refused
) -> None:
    path = saved("log.npz")
    for last in ("on", "off", "auto"):
        assert run("discover", path, "--out", tmp_path / last, "--last-action", last)[0] == 0
    assert run("discover", path, "--out", tmp_path / "left_out")[0] == 0
    assert [call["settings"].last_action for call in engine] == ["on", "off", "auto", "auto"]
    refused(run("discover", path, "--out", tmp_path / "other", "--last-action", "yes"), "--last-action", "'yes'")


def test_a_last_action_that_no_row_has_is_refused(run: Run, tmp_path: Path, saved: Saved, refused: Refused) -> None:
    rng = np.random.default_rng(3)
    rows = {name: rng.normal(size=(200, 3)) for name in ("obs", "next_obs")}
    path = saved("alone.npz", **rows, action=rng.normal(size=(200, 1)), reward_go=None, episode=np.arange(200))
    refused(run("discover", path, "--out", tmp_path / "run", "--last-action", "on"), "no row continues another")
    assert not (tmp_path / "run").exists()


def test_a_cause_that_repeats_the_last_action_is_named(
    run: Run, tmp_path: Path, engine: list[dict[str, Any]], saved: Saved
) -> None:
    rng = np.random.default_rng(2)
    action, states = rng.normal(size=(ROWS, 2)), rng.normal(size=(ROWS + 1, 3))
    states[1:, 2] = action.sum(1)
    truth = np.eye(3, 4, dtype=bool)
    log = {"obs": states[:-1], "next_obs": states[1:], "action": action, "episode": np.zeros(ROWS, int)}
    for name, causes in (("none", False), ("door", True)):
        truth[1, 2] = causes
        path = saved(f"{name}.npz", truth=truth, **log)
        assert ("--last-action" in run("discover", path, "--out", tmp_path / name)[1]) == causes
    assert "door: taken for a cause" in run("discover", path, "--out", tmp_path / "door")[1]
    assert "--last-action" not in run("discover", path, "--out", tmp_path / "last", "--last-action", "on")[1]


def test_names_are_never_markup(run: Run, tmp_path: Path, engine: list[dict[str, Any]], saved: Saved) -> None:
    path = saved("log.npz", names=np.array(["[bold]x[/bold]", "[/]", ":smile:"]))
    code, out, _ = run("discover", path, "--out", tmp_path / "run")
    assert code == 0 and "  [bold]x[/bold]\n" in out
    assert "[/]" in run("abstract", tmp_path / "run")[1] and ":smile:" in run("abstract", tmp_path / "run")[1]


def with_value(name: str, where: Any, value: float) -> dict[str, Any]:
    array = np.random.default_rng(1).normal(size=ROWS if name.startswith("reward") else (ROWS, 3))
    array[where] = value
    return {name: array}


BAD_LOGS: list[tuple[dict[str, Any], list[str]]] = [
    ({"obs": None}, ["missing array 'obs'"]),
    ({"obs": None, "observations": np.zeros((ROWS, 3))}, ["did you mean 'obs'"]),
    ({"next_obs": np.zeros((ROWS - 1, 3))}, ["'next_obs'", f"({ROWS - 1}, 3)"]),
    ({"action": np.zeros((3, 2))}, ["'action'", "(3, 2)"]),
    ({"reward_go": np.zeros(3)}, ["'reward_go'"]),
    ({"obs": np.full((ROWS, 3), "a")}, ["'obs'", "not numeric"]),
    ({"names": np.array(["x", "x", "y"])}, ["'x' is used twice"]),
    ({"names": np.array(["x", "a\nb", "y"])}, [r"'a\nb'", "newline"]),
    (with_value("obs", (7, 1), np.nan), ["'obs'", "'speed'", "row 7", "nan"]),
    (with_value("next_obs", (9, 2), np.inf), ["'next_obs'", "'door'", "row 9", "inf"]),
    (with_value("reward_go", 5, np.nan), ["'reward_go'", "row 5"]),
    ({"episode": np.arange(ROWS) / 2}, ["'episode'", "row 1"]),
    ({"terminated": np.arange(ROWS)}, ["'terminated'", "row 2"]),
    ({"truth": np.zeros((3, 3))}, ["'truth'"]),
    ({"reward_go": np.ones(ROWS)}, ["reward 'go' is constant", "--allow-constant"]),
    ({"action": np.ones((ROWS, 2))}, ["'action' is constant", "--allow-constant"]),
    ({"obs": np.ones((ROWS, 3)), "next_obs": np.ones((ROWS, 3))}, ["'x' is constant", "--allow-constant"]),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "parts"), BAD_LOGS)
def test_bad_logs(
    run: Run, tmp_path: Path, changes: dict[str, Any], parts: list[str], refused: Refused, saved: Saved
) -> None:
    path = saved("log.npz", **changes)
    refused(run("discover", path, "--out", tmp_path / "deep" / "run"), str(path), *parts)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.npz", b""),
        ("log.npz", b"PK\x03\x04 not really"),
        ("log.csv", b"a,b\n1,2\n"),
        ("log.csv", b"obs:x,next_obs:x,action\n1,2,3\n4,five,6\n"),
        ("log.parquet", b"\x00\xff" * 40),
        ("log.txt", b"1 2 3"),
    ],
)
def test_unreadable_files(run: Run, tmp_path: Path, name: str, content: bytes, refused: Refused) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    refused(run("discover", path, "--out", tmp_path / "run"), str(path))
    is_a_log = path.suffix == ".parquet"  # a directory with a Parquet file in it is read as one
    refused(run("discover", tmp_path, "--out", tmp_path / "run"), path.name if is_a_log else "directory")
    refused(run("discover", "minari:", "--out", tmp_path / "run"), "minari")
    assert list(tmp_path.iterdir()) == [path]


def test_discover_checks_the_place_first(run: Run, tmp_path: Path, refused: Refused) -> None:
    missing = tmp_path / "missing.npz"  # the place is looked at before the log
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    for place, part in (
        (tmp_path / "file", "is a file, not a run directory"),
        (tmp_path / "file" / "run", "not a directory"),
        (tmp_path / "full", "other things in it"),
        (Path("/proc/nowhere/run"), "cannot be written"),
    ):
        refused(run("discover", missing, "--out", place), str(place), part)
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "full", "thesis.tex"}


def test_bad_input_that_shows_late_leaves_nothing(
    run: Run,
    tmp_path: Path,
    engine: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    refused: Refused,
    saved: Saved,
) -> None:
    def discover(data: Transitions, *, run: Path, **options: Any) -> CausalGraph:
        with RunDirectory(run, "discover", {}).owned():
            raise DataError("too few rows")

    path = saved("log.npz")
    monkeypatch.setattr("cbm.discovery.discover.discover", discover)
    refused(run("discover", path, "--out", tmp_path / "deep" / "run"), "too few rows")
    assert list(tmp_path.iterdir()) == [path]
    other = tmp_path / "earlier"  # what was there before stays
    other.mkdir()
    (other / "config.json").write_text('{"command": "discover", "schema": 1}')
    refused(run("discover", path, "--out", other), "too few rows")
    assert (other / "config.json").is_file()


def test_interrupted_discovery_says_that_it_can_go_on(
    run: Run, tmp_path: Path, engine: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, saved: Saved
) -> None:
    def discover(data: Transitions, **options: Any) -> CausalGraph:
        raise KeyboardInterrupt

    monkeypatch.setattr("cbm.discovery.discover.discover", discover)
    code, out, err = run("discover", saved("log.npz"), "--out", tmp_path / "run")
    assert code == 130 and out == "" and err.count("\n") == 1
    assert "state is saved" in err and "same command" in err


def test_knowledge(run: Run, tmp_path: Path, engine: list[dict[str, Any]], refused: Refused, saved: Saved) -> None:
    path, known = saved("log.npz"), tmp_path / "known.json"
    for text, parts in (
        ("{", ["known.json"]),
        ('{"require": []}', ["known.json", "unknown key 'require'"]),
        ('{"required": [["x", "spd"]]}', ["known.json", "'spd'"]),
        ('{"required": [["x", "reward:stop"]]}', ["known.json", "'reward:stop'"]),
    ):
        known.write_text(text)
        refused(run("discover", path, "--out", tmp_path / "run", "--knowledge", known), *parts)
    refused(run("discover", path, "--out", tmp_path / "run", "--knowledge", tmp_path / "no.json"), "no.json")
    assert not (tmp_path / "run").exists() and engine == []
    known.write_text('{"required": [["x", "speed"], ["door", "reward:go"]]}')
    assert run("discover", path, "--out", tmp_path / "run", "--knowledge", known)[0] == 0
    assert engine[0]["knowledge"].required == {("x", "speed"), ("door", "reward:go")}


# demo ---------------------------------------------------------------------------------------


def test_demo(
    run: Run, tmp_path: Path, engine: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr("cbm.cli.demo.CONTACT_STEPS", 500)
    monkeypatch.setattr("cbm.cli.demo.LIGHT_STEPS", 300)
    out_dir = tmp_path / "demo"
    code, out, err = run("demo", "--out", out_dir, "--minutes", 0.7)
    assert code == 0 and err == ""
    told = " ".join(out.split())
    assert "pick needs 7 of 36: hand_x/y/z, gripper, block0_x/y/z" in told
    assert "stack needs 10 of 36: hand_x/y/z, gripper, block1_x/y/z, fixed_x/y/z" in told
    assert "cross: drops light, countdown (needed)" in told
    assert "would have hidden the light" in told and "too early" not in told
    assert str(out_dir / "report.html") in out and "Everything took" in out
    assert [(call["minutes"], call["steps"]) for call in engine] == [(0.7, None), (0.7, None)]
    assert {path.name for path in out_dir.iterdir()} == {
        "contact", "contact.npz", "light", "light.npz", "report.html"
    }  # fmt: skip

    code, out, _ = run("demo", "--out", out_dir, "--minutes", 0.7)
    assert code == 0 and "had been finished before" in out and "7 of 36" in out
    code, out, _ = run("demo", "--out", out_dir, "--minutes", 0.7, "--json")
    result = json.loads(out)
    assert set(result) == {"out", "report", "runs", "seconds"}
    assert result["runs"]["contact"]["finished"] == "already"
    assert len(result["runs"]["contact"]["rewards"]["pick"]["abstraction"]) == 7
    (tmp_path / "file").touch()
    refused(run("demo", "--out", tmp_path / "file"), "file")


def test_demo_says_when_it_had_too_little_time(
    run: Run, tmp_path: Path, engine: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cbm.cli.demo.CONTACT_STEPS", 500)
    monkeypatch.setattr("cbm.cli.demo.LIGHT_STEPS", 300)
    monkeypatch.setattr("cbm.discovery.discover.discover", _finds_nothing)
    code, out, _ = run("demo", "--out", tmp_path / "demo")
    told = " ".join(out.split())
    assert code == 0 and "pick needs 0 of 36: nothing found" in told
    assert "came too early" in told and "without --minutes goes on" in told and "hidden the light" not in told


def _finds_nothing(data: Transitions, *, run: Path, **options: Any) -> CausalGraph:
    run.mkdir(parents=True, exist_ok=True)
    d = len(data.factors)
    none = np.zeros((d, d + 1))
    verdict = np.full(none.shape, "none")
    reward = RewardGraph((), none[0, :d], none[0, :d], verdict[0, :d], none[0, :d])
    graph = CausalGraph(
        data.factors.names, none > 0, none, none, verdict, 0.02, rewards=dict.fromkeys(data.rewards, reward)
    )
    graph.save(run)
    return graph


# with the real engine ---------------------------------------------------------------------------------


def test_from_log_to_report_for_real(run: Run, tmp_path: Path, refused: Refused) -> None:
    """A first sitting with a ceiling, then the rest, then nothing left to do."""
    log_file, out_dir = tmp_path / "light.npz", tmp_path / "run"
    assert run("collect", "light", "--steps", 240, "--out", log_file, "--quiet")[0] == 0
    arguments = ("discover", log_file, "--out", out_dir, "--preset", "debug", "--workers", 1, "--json", "--quiet")
    code, out, err = run(*arguments, "--steps", 2)
    assert code == 0 and err == "", err
    early = json.loads(out)
    assert early["unsettled"] > 0 and early["finished"] is True and early["undecided"] >= early["unsettled"]
    code, out, err = run(*arguments)
    assert code == 0 and err == "", err
    result = json.loads(out)
    assert result["finished"] is True and result["unsettled"] == 0 and set(result["rewards"]) == {"cross", "park"}
    assert (out_dir / "report.html").is_file() and (out_dir / "result.json").is_file()
    again = json.loads(run(*arguments, "--steps", 2)[1])
    assert again["finished"] == "already" and again["rewards"] == result["rewards"]
    assert run("abstract", out_dir, "--reward", "cross")[0] == 0
    assert run("export", out_dir, "--format", "dot")[0] == 0
    refused(run(*arguments, "--seed", 1), str(out_dir), "another run", "seed")
