"""The command line: what it prints and writes, and how it refuses; `test_cli_discover.py` has discovery."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cbm.cli import main as cli
from cbm.data.transitions import Transitions
from cbm.errors import DataError
from cbm.graph import ActionEffect, CausalGraph

Run = Callable[..., tuple[int, str, str]]
Refused = Callable[..., None]
Saved = Callable[..., Path]
GraphOf = Callable[[Transitions], CausalGraph]


# the program ------------------------------------------------------------------------------------------


def test_help_and_version(run: Run) -> None:
    for arguments in ([], ["--help"], ["-h"], ["help"]):
        code, out, err = run(*arguments)
        assert code == 0 and err == ""
        assert all(f"  {name} " in out for name in cli.COMMANDS)
    code, out, _ = run("--version")
    assert code == 0 and out.startswith("cbm ") and out.strip() != "cbm"


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_help_of_every_command(run: Run, command: str) -> None:
    code, out, err = run(command, "--help")
    assert code == 0 and err == ""
    assert f"usage: cbm {command}" in out and ("--json" in out or command == "completion")  # a script is no result
    assert "None" not in out and "--no-" not in out


WRONG: list[tuple[list[str], list[str]]] = [
    (["discovr"], ["unknown command 'discovr'", "'discover'"]),
    (["nonsense"], ["unknown command", "collect"]),
    (["envs", "--jsn"], ["--jsn", "did you mean --json?"]),
    (["envs", "extra"], ["unknown: extra"]),
    (["discover"], ["missing: DATA, --out"]),
    (["discover", "a.npz", "--out"], ["--out: a value is missing"]),
    (["discover", "a.npz", "--out", "r", "--model", "dem"], ["--model: 'dem' is not one of", "'demi'"]),
    (["discover", "a.npz", "--out", "r", "--minutes", "abc"], ["--minutes: 'abc' is not a number"]),
    (["discover", "a.npz", "--out", "r", "--minutes", "0"], ["--minutes", "more than 0"]),
    (["discover", "a.npz", "--out", "r", "--minutes", "nan"], ["--minutes", "nan"]),
    (["discover", "a.npz", "--out", "r", "--minutes", "-3"], ["--minutes", "-3"]),
    (["discover", "a.npz", "--out", "r", "--seed", "1.5"], ["--seed: '1.5' is not a whole number"]),
    (["discover", "a.npz", "--out", "r", "--seed", "-1"], ["--seed", "at least 0"]),
    (["discover", "a.npz", "--out", "r", "--seed", "9" * 30], ["--seed", "2^63"]),
    (["discover", "a.npz", "--out", "r", "--steps", "0"], ["--steps", "at least 1"]),
    (["discover", "a.npz", "--out", "r", "--workers", "0"], ["--workers", "at least 1"]),
    (["discover", "a.npz", "--out", "r", "--steps", "5", "--minutes", "1"], ["--minutes and --steps"]),
    (["discover", "a.npz", "--out", "r", "--epsilon", "0.0005"], ["--epsilon", "calibrated", "at least"]),
    (["discover", "a.npz", "--out", "r"], ["a.npz: no such file"]),
    (["collect", "contct", "--steps", "100", "--out", "a.npz"], ["'contct'", "contact"]),
    (["collect", "light", "--steps", "100", "--out", "a.npz", "--policy", "hold"], ["light", "'hold'"]),
    (["collect", "light", "--steps", "100", "--out", "a.npz", "--blocks", "3"], ["light", "'blocks'"]),
    (["collect", "contact", "--steps", "1", "--out", "a.npz"], ["--steps", "at least 2"]),
    (["collect", "contact", "--steps", "100", "--out", "a.txt"], ["a.txt", "'.txt'", ".npz"]),
    (["collect", "contact", "--steps", "100", "--out", "a.npz", "--blocks", "1"], ["blocks"]),
    (["abstract", "nowhere"], ["nowhere"]),
    (["export", "nowhere", "--format", "dot"], ["nowhere"]),
    (["export", "nowhere", "--format", "png"], ["--format: 'png' is not one of"]),
    (["report"], ["at least one run directory"]),
    (["report", "nowhere"], ["nowhere: no such run directory"]),
    (["report", "a", "b"], ["--out"]),
    (["bench", "nonsense"], ["unknown benchmark 'nonsense'", "discovery"]),
    (["demo", "--minutes", "0"], ["--minutes"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "parts"), WRONG)
def test_wrong_arguments(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    parts: list[str],
    refused: Refused,
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(run(*arguments), *parts)
    assert list(tmp_path.iterdir()) == []


def test_unexpected_errors_and_interrupts(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CBM_DEBUG", raising=False)
    for error, code, text in (
        (RuntimeError("a\nb"), 1, "cbm: internal error: RuntimeError: a b (CBM_DEBUG=1 shows where)\n"),
        (OSError(28, "No space left on device", "file"), 1, "cbm: file: No space left on device\n"),
        (KeyboardInterrupt(), 130, "cbm: interrupted\n"),
        (KeyboardInterrupt("state saved"), 130, "cbm: interrupted; state saved\n"),
        (DataError("two\nlines \x1b[2J"), 2, "cbm: two lines ?[2J\n"),
    ):

        def fail(arguments: list[str], error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr("cbm.cli.envs.main", fail)
        assert run("envs") == (code, "", text)
    monkeypatch.setattr("cbm.cli.envs.main", lambda arguments: 1 / 0)
    monkeypatch.setenv("CBM_DEBUG", "1")
    code, _, err = run("envs")
    assert (
        code == 1 and "Traceback" in err and err.endswith("cbm: internal error: ZeroDivisionError: division by zero\n")
    )


# worlds and logs --------------------------------------------------------------------------------------


def test_envs(run: Run) -> None:
    code, out, _ = run("envs", "--json")
    worlds = {world["name"]: world for world in json.loads(out)}
    assert code == 0 and {"contact", "light"} <= set(worlds)
    assert set(worlds["contact"]) == {"name", "id", "variables", "tasks", "backends", "true_graph"}
    assert worlds["contact"]["variables"] == 36 and worlds["contact"]["tasks"] == ["pick", "stack"]
    code, out, _ = run("envs")
    assert code == 0 and all(word in out for word in ("contact", "pick, stack", "cbm/Light-v0", "known"))


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_collect(run: Run, tmp_path: Path, suffix: str, refused: Refused) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / "deeper" / f"log{suffix}"
    code, out, err = run("collect", "light", "--steps", 250, "--out", path, "--seed", 3, "--json")
    summary = json.loads(out)
    assert code == 0 and err == "" and summary["rows"] == 250 and set(summary["rewards"]) == {"cross", "park"}
    assert 0 < summary["variables"]["light"]["changed"] < 0.5
    data = Transitions.load(path)
    assert len(data) == 250 and (data.truth is not None) == summary["true_graph"] == (suffix != ".csv")
    refused(run("collect", "light", "--steps", 250, "--out", path), "exists already", "--force")
    code, out, _ = run("collect", "light", "--steps", 120, "--out", path, "--force", "--quiet")
    assert code == 0 and "120 transitions" in out and "cbm discover" in out
    assert len(Transitions.load(path)) == 120


def test_collect_options_and_seed(run: Run, tmp_path: Path) -> None:
    sizes = ("--blocks", 2, "--distractors", 1, "--rescale", "--world-seed", 5)
    for name in ("a", "b"):
        assert run("collect", "contact", "--steps", 100, "--out", tmp_path / f"{name}.npz", *sizes)[0] == 0
    first, second = (Transitions.load(tmp_path / f"{name}.npz", allow_constant=True) for name in "ab")
    assert len(first.factors) == 4 + 6 + 3 + 2 and (first.obs == second.obs).all()


def test_collect_checks_the_place_first(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "dir.npz").mkdir()
    monkeypatch.setattr("cbm.envs.collect.collect", lambda *a, **k: pytest.fail("worked before looking"))
    for place, part in (("file/x.npz", "not a directory"), ("dir.npz", "is a directory")):
        refused(run("collect", "light", "--steps", 100, "--out", tmp_path / place), place, part)
    refused(run("collect", "light", "--steps", 100, "--out", "/proc/nowhere/x.npz"), "/proc/nowhere/x.npz")
    refused(run("collect", "light", "--steps", 100, "--out", tmp_path / ("x" * 300 + ".npz")), "xxx")


# runs -------------------------------------------------------------------------------------------------


def test_abstract(run: Run, light_run: Path, refused: Refused) -> None:
    refused(run("abstract", light_run), "several rewards", "cross|park")
    refused(run("abstract", light_run, "--reward", "crss"), "'crss'", "cross")
    code, out, _ = run("abstract", light_run, "--reward", "cross", "--json")
    result = json.loads(out)
    assert code == 0 and list(result)[:6] == ["reward", "rule", "certain", "possible", "abstraction", "kept"]
    assert result["abstraction"] == ["speed", "light", "countdown"] == list(result["kept"]) == result["certain"]
    assert result["possible"] == [] and result["undecided_links"] == {}
    code, out, _ = run("abstract", light_run / "graph.json", "--reward", "cross")
    assert code == 0 and "3 of 6 variables kept" in out and "countdown -> light -> reward cross" in out
    result = json.loads(run("abstract", light_run, "--rule", "cdl", "--json")[1])
    assert result["reward"] is None and "light" in result["dropped"]
    result = json.loads(run("abstract", light_run, "--reward", "cross", "--at-least", 50, "--json")[1])
    assert result["abstraction"] == ["speed", "light"], "no effect has 50 nats: the causes of the reward remain"
    refused(run("abstract", light_run, "--reward", "cross", "--at-least", -1), "--at-least", "-1")


def test_abstract_with_doubt(run: Run, light_run: Path) -> None:
    """Whether the wind moves the light is undecided: wind cannot be ruled out for crossing."""
    graph = CausalGraph.load(light_run)
    light, wind = graph.index("light"), graph.index("wind")
    verdict, reason = graph.verdict.astype("<U9"), np.full(graph.verdict.shape, "", dtype=object)
    verdict[light, wind], reason[light, wind] = "undecided", "near the threshold"
    cross = replace(graph.rewards["cross"], action=ActionEffect(0.0, 0.001, "none", 0.01), limit_of_detection=0.004)
    limits = np.full(len(graph), 0.003)
    doubtful = replace(graph, verdict=verdict, reason=reason, limit_of_detection=limits, rewards={"cross": cross})
    doubtful.save(light_run)
    result = json.loads(run("abstract", light_run, "--json")[1])
    assert result["certain"] == ["speed", "light", "countdown"] and result["possible"] == ["wind"]
    assert result["abstraction"] == ["speed", "light", "countdown", "wind"]
    assert result["undecided_links"] == {"wind": ["wind -?-> light: near the threshold"]}
    result = json.loads(run("abstract", light_run, "--certain-only", "--json")[1])
    assert result["abstraction"] == result["certain"] and result["possible"] == ["wind"]
    assert result["dropped"]["wind"].startswith("cannot be ruled out: wind -?-> light -> reward cross")
    code, out, _ = run("abstract", light_run)
    assert code == 0 and "4 of 6 variables kept; 3 certainly needed, 1 cannot be ruled out" in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "wind wind -?-> light -> reward cross (CMI 0.000 ± 0.001 undecided, 0.500 ± 0.001)" in lines
    assert "undecided: wind -?-> light: near the threshold" in lines
    assert "(none), limit of detection 0.00" in out and "It does not depend on the action itself." in lines


def test_abstract_with_one_reward_or_none(
    run: Run, tmp_path: Path, refused: Refused, saved: Saved, graph_of: GraphOf
) -> None:
    graph_of(Transitions.load(saved("one.npz"))).save(tmp_path / "one.json")
    assert json.loads(run("abstract", tmp_path / "one.json", "--json")[1])["reward"] == "go"
    graph_of(Transitions.load(saved("no.npz", reward_go=None))).save(tmp_path / "no.json")
    refused(run("abstract", tmp_path / "no.json"), "no reward", "--rule cdl")
    (tmp_path / "bad.json").write_text('{"schema": 7}')
    refused(run("abstract", tmp_path / "bad.json"), "bad.json", "schema")


@pytest.mark.parametrize("format", ["networkx", "dot", "graphml", "json", "csv", "tigramite", "causal-learn"])
def test_export(run: Run, tmp_path: Path, light_run: Path, format: str, refused: Refused) -> None:
    path = tmp_path / "deeper" / "file"
    binary = format in ("tigramite", "causal-learn")
    if binary:
        refused(run("export", light_run, "--format", format), "--out")
    else:
        refused(run("export", light_run, "--format", format, "--json"), "--out")
        code, out, err = run("export", light_run, "--format", format)
        assert code == 0 and err == "" and "countdown" in out
    code, printed, _ = run("export", light_run, "--format", format, "--out", path, "--json")
    assert code == 0 and json.loads(printed) == {"run": str(light_run), "format": format, "out": str(path)}
    assert path.stat().st_size > 100 and (binary or path.read_bytes().decode() == out)
    refused(run("export", light_run, "--format", format, "--out", path), "--force")
    assert run("export", light_run, "--format", format, "--out", path, "--force")[0] == 0


def test_report(run: Run, tmp_path: Path, light_run: Path, refused: Refused) -> None:
    code, out, _ = run("report", light_run)
    assert code == 0 and out.strip() == str(light_run / "report.html")
    other = tmp_path / "deeper" / "both.html"
    code, out, _ = run("report", light_run, light_run, "--out", other, "--json")
    assert code == 0 and json.loads(out) == {"report": str(other), "runs": [str(light_run)] * 2}
    assert other.is_file()
    refused(run("report", light_run / "graph.json"), "is not a run directory")
    (tmp_path / "empty").mkdir()
    refused(run("report", tmp_path / "empty", "--out", tmp_path / "new" / "r.html"), "no graph.json")
    assert not (tmp_path / "new").exists()


# benchmarks -----------------------------------------------------------------------------------------


def test_bench_dispatches(run: Run, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    @dataclass(frozen=True)
    class Options:
        """What it measures."""

        seed: int = 0
        """Seed."""
        quick: bool = False
        """Small."""
        out: Path | None = None
        """File."""
        sizes: tuple[int, ...] = (1, 2)
        """Sizes."""

    def measure(options: Options) -> dict[str, Any]:
        print("a table")
        return {"seed": options.seed, "quick": options.quick, "sizes": list(options.sizes)}

    module = SimpleNamespace(Options=Options, main=measure)
    monkeypatch.setattr("cbm.cli.bench._module", lambda name: module)
    code, out, err = run("bench", "engine", "--seed", 3, "--quick", "--sizes", 4, 5, "--json")
    assert code == 0 and json.loads(out) == {"seed": 3, "quick": True, "sizes": [4, 5]} and "a table" in err
    assert run("bench", "engine")[1] == "a table\n"
    code, out, _ = run("bench", "--json", "--seed", 1)
    assert list(json.loads(out)) == ["discovery", "engine", "prediction", "worlds", "sac"]
    code, out, _ = run("bench", "engine", "--help")
    assert code == 0 and "What it measures." in out and "--sizes" in out and "--json" in out
    refused(run("bench", "engine", "--sizs", 3), "--sizs", "cbm bench engine --help")


def test_bench_without_a_checkout(run: Run, monkeypatch: pytest.MonkeyPatch, refused: Refused, tmp_path: Path) -> None:
    monkeypatch.setattr("cbm.cli.bench.CHECKOUT", tmp_path)
    refused(run("bench", "engine"), "benchmarks are in the repository")


# as a process -----------------------------------------------------------------------------------------


def process(*arguments: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cbm.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)


def test_exit_codes_of_the_process(tmp_path: Path, light_run: Path, saved: Saved) -> None:
    good = process("abstract", light_run, "--reward", "cross")
    assert good.returncode == 0 and good.stderr == "" and "light" in good.stdout
    bad = process("discover", saved("log.npz", action=None), "--out", tmp_path / "run")
    assert bad.returncode == 2 and bad.stdout == "" and bad.stderr.count("\n") == 1
    assert "missing array 'action'" in bad.stderr and not (tmp_path / "run").exists()
    narrow = process("abstract", light_run, "--reward", "cross", PYTHONIOENCODING="ascii")
    assert narrow.returncode == 0 and "Traceback" not in narrow.stderr


def test_light_commands_do_without_heavy_modules(light_run: Path) -> None:
    script = """
import sys
from cbm.cli.main import main
codes = [main(["--help"]), main(["envs"]), main(["abstract", sys.argv[1], "--reward", "cross"]),
         main(["export", sys.argv[1], "--format", "csv"]), main(["discover", "--help"])]
heavy = [name for name in ("torch", "matplotlib", "scipy", "pandas") if name in sys.modules]
print(codes, heavy, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script, str(light_run)], capture_output=True, text=True, timeout=120)
    assert done.stderr.strip() == "[0, 0, 0, 0, 0] []"


def test_a_reader_that_stops_early_is_no_error(light_run: Path) -> None:
    command = [sys.executable, "-m", "cbm.cli", "export", str(light_run), "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as done:
        assert done.stdout is not None and done.stderr is not None
        done.stdout.close()
        assert done.wait(60) == 0 and done.stderr.read() == b""
