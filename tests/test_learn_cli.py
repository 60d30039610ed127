"""`cbm learn` and `cbm evaluate`: what they print and write, and what they refuse in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.discovery.settings import preset
from cbm.envs.collect import collect
from cbm.envs.registry import make_world
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.learning import assess, prediction
from cbm.report.page import collect_run

Result = tuple[int, str, str]
Run = Callable[..., Result]
SMALL = ("--preset", "debug", "--steps", 600, "--quiet")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a few seconds."""
    from cbm.cli import main as cli

    run = tmp_path_factory.mktemp("runs") / "park"
    arguments = ["learn", "light", "--task", "park", "--method", "oracle", "--out", run, *SMALL]
    assert cli.main([str(argument) for argument in arguments]) == 0
    return run


@pytest.fixture
def dynamics(tmp_path: Path, graph_of: Callable[..., CausalGraph]) -> Callable[..., Path]:
    """A run directory with the true graph of a world, as `cbm discover` leaves one."""

    def make(world: str, **changes: Any) -> Path:
        run = tmp_path / f"dynamics-{world}"
        run.mkdir()
        data = collect(make_world(world), 300)
        for task in changes.get("without", ()):
            data.rewards.pop(task)
        graph_of(data).save(run)
        return run

    return make


# What they say


def test_a_newcomer_reads_the_result(run: Run, learned: Path) -> None:
    code, out, err = run("learn", "light", "--task", "park", "--method", "oracle", "--out", learned, *SMALL)
    assert code == 0 and err == ""
    assert "is finished already: nothing to do" in out
    assert "park: success in" in out and "the policy sees 2 of 6 variables: position, speed" in out
    assert "exactly the set that the true graph gives" in out
    assert f"cbm evaluate {learned} --ood" in out


def test_json(run: Run, learned: Path) -> None:
    code, out, _ = run("learn", "light", "--task", "park", "--method", "oracle", "--out", learned, *SMALL, "--json")
    said = json.loads(out)
    assert code == 0 and said["finished"] == "already" and said["tasks"]["park"]["kept"] == ["position", "speed"]
    assert said["tasks"]["park"]["exact"] is True and 0 <= said["tasks"]["park"]["success"] <= 1


def test_progress_without_a_terminal(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr("cbm.cli.progress.LINE_EVERY", 0.0)
    code, _, err = run("learn", "light", "--task", "park", "--method", "full", "--out", tmp_path / "r", *SMALL[:-1])
    lines = err.splitlines()
    assert code == 0 and len(lines) == 150  # a line a turn, since none had to wait
    assert lines[0].startswith("learning light: 1 % (") and lines[0].endswith("so far), step 4; park: 6 variables")
    assert "100 % (" in lines[-1] and "step 600; park: return -" in lines[-1] and " %, 6 variables" in lines[-1]


def test_files(learned: Path) -> None:
    names = {path.name for path in learned.iterdir()}
    assert names >= {"config.json", "eval.csv", "abstraction.jsonl", "metrics.jsonl", "result.json", "checkpoint"}
    config = json.loads((learned / "config.json").read_text())
    assert config["command"] == "learn" and config["oracle"] == {"park": ["position", "speed"]}
    assert config["settings"]["sac"]["hidden"] == [16, 16] and config["factors"]["variables"][0]["name"] == "position"


def test_settings_can_be_changed(run: Run, tmp_path: Path) -> None:
    changes = ("--set", "gamma=0.5", "--set", "hidden=[4]", "--set", "sac.alpha=schedule", "--set", "episodes=2")
    code, _, err = run("learn", "light", "--method", "full", "--out", tmp_path / "r", *SMALL, *changes)
    assert code == 0, err
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    assert config["tasks"] == ["cross"]  # the world's first
    settings = config["settings"]
    assert settings["episodes"] == 2
    assert (settings["sac"]["gamma"], settings["sac"]["hidden"], settings["sac"]["alpha"]) == (0.5, [4], "schedule")


@pytest.mark.parametrize(
    ("twice", "said"),
    [
        (("--set", "gamma=0.5", "--set", "sac.gamma=0.6"), "--set gamma: given twice"),
        (("--set", "episodes=2", "--set", "episodes=2"), "--set episodes: given twice"),
        (("--method-option", "width=8", "--method-option", "width=9"), "--method-option width: given twice"),
    ],
)
def test_nothing_is_set_twice(run: Run, refused: Any, tmp_path: Path, twice: tuple[str, ...], said: str) -> None:
    refused(run("learn", "light", "--method", "tia", "--out", tmp_path / "r", *SMALL, *twice), said)
    assert not (tmp_path / "r").exists()


def test_divergence_is_told_as_such(run: Run, tmp_path: Path) -> None:
    arguments = ("learn", "light", "--method", "full", "--out", tmp_path / "r", *SMALL, "--set", "learning_rate=1e30")
    code, _, err = run(*arguments)
    assert code == 1 and err.startswith("cbm: SAC diverged at update") and "lower learning rate" in err


def test_a_finished_run_outlives_its_report(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise DataError("this page cannot be made")

    monkeypatch.setattr("cbm.report.write_report", refuse)
    arguments = ("learn", "light", "--method", "full", "--out", tmp_path / "r", *SMALL)
    code, out, err = run(*arguments)
    assert code == 0 and "cbm: no report could be made: this page cannot be made\n" in err and "cross: " in out
    (tmp_path / "r" / "eval.csv").unlink()
    code, out, _ = run(*arguments)
    assert code == 0 and "finished already" in out and "next    cbm evaluate" in out


def test_a_gymnasium_environment(run: Run, tmp_path: Path) -> None:
    arguments = ("learn", "gymnasium:Pendulum-v1", "--method", "full", "--out", tmp_path / "r", *SMALL)
    code, out, err = run(*arguments)
    assert code == 0 and "reward: return -" in out, err
    code, out, _ = run("evaluate", tmp_path / "r", "--episodes", 2, "--json")
    found = json.loads(out)["tasks"]["reward"]
    assert code == 0 and found["in"]["success"] is None and found["out"] is None


def test_evaluate_in_and_out_of_distribution(run: Run, learned: Path) -> None:
    code, out, err = run("evaluate", learned, "--ood", "--episodes", 4)
    assert code == 0 and err == ""
    assert "noise for 4 variables not needed" in out
    stored = json.loads((learned / "evaluation.json").read_text())
    found = stored["tasks"]["park"]
    assert found["in"] == found["out"] and found["replaced"] == 4  # the oracle's policy does not look there
    assert stored["episodes"] == 4 and stored["prediction"] is None
    last = (learned / "eval.csv").read_text().splitlines()[-1].split(",")
    assert found["in"]["return"] == pytest.approx(float(last[2]), rel=1e-5)  # the run's own last evaluation, again
    run("evaluate", learned, "--episodes", 4)
    assert json.loads((learned / "evaluation.json").read_text()) == stored, "what was measured before is kept"


def test_evaluate_somewhere_else_with_another_seed(run: Run, learned: Path, tmp_path: Path) -> None:
    before = (learned / "evaluation.json").read_bytes() if (learned / "evaluation.json").exists() else b""
    code, _, _ = run("evaluate", learned, "--episodes", 3, "--seed", 5, "--out", tmp_path / "deep" / "e.json")
    assert code == 0
    stored = json.loads((tmp_path / "deep" / "e.json").read_text())
    assert stored["seed"] == 5 and stored["tasks"]["park"]["out"] is None
    assert before == ((learned / "evaluation.json").read_bytes() if before else b"")


@pytest.mark.slow
def test_prediction_errors(run: Run, learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assess, "ROWS", 500)
    monkeypatch.setattr(prediction, "preset", lambda name, model: preset("debug", model))
    code, out, err = run("evaluate", learned, "--episodes", 1, "--prediction", "--updates", 40, "--out", tmp_path / "e")
    assert code == 0 and "noise for distractors" in out, err
    rows = json.loads((tmp_path / "e").read_text())["prediction"]
    assert [row["steps"] for row in rows] == [*range(1, 21)] * 2
    assert [row["model"] for row in rows] == ["implicit"] * 20 + ["explicit"] * 20
    assert all(row["in"] == row["out"] for row in rows)  # nothing in this world is called a distractor
    assert all(row["still"] > 0 for row in rows)


# What they refuse


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["contac"], "did you mean 'contact'"),
        (["contact", "--task", "pik"], "did you mean 'pick'"),
        (["contact", "--task", "pick", "--task", "pick"], "twice"),
        (["contact", "--method", "orakle"], "did you mean 'oracle'"),
        (["contact", "--preset", "latop"], "did you mean 'laptop'"),
        (["contact", "--set", "gama=0.9"], "did you mean 'gamma'"),
        (["contact", "--set", "gamma=2"], "gamma"),
        (["contact", "--set", "sac.copies=2"], "unknown setting 'sac.copies'"),
        (["contact", "--dynamics", "nowhere", "--model", "explicit"], "with the model of that run"),
        (["contact", "--set", "gamma"], "KEY=VALUE"),
        (["contact", "--steps", "2000"], "too few"),
        (["contact", "--rewards", "run"], "--dynamics"),
        (["contact", "--certain-only"], "--certain-only: needs --dynamics RUN"),
        (["contact", "--dynamics", "nowhere", "--set", "last_action=true"], "as they were found"),
        (["contact", "--set", "last_action=7"], "setting last_action must be true or false, got 7"),
        (["contact", "--rewards", "rum"], "did you mean 'run'"),
        (["contact", "--model", "demi"], "--model"),
        (["contact", "--demonstrations", "-1"], "--demonstrations"),
        (["contact", "--option", "blocks=1"], "blocks"),
        (["contact", "--dynamics", "nowhere"], "nowhere"),
        (["contact", "--method", "full", "--pretrain", "log.npz"], "nothing to pretrain"),
        (["contact", "--method", "tia", "--pretrain", "log.npz"], "log.npz"),
        (["contact", "--method", "tia", "--method-option", "widht=3"], "did you mean 'width'"),
        (["chemical"], "discrete"),
        (["Pendulum-v1"], "unknown world 'Pendulum-v1'; for the Gymnasium environment write gymnasium:Pendulum-v1"),
        (["gymnasium:Pendulum-v1", "--option", "gravity=9.81"], "cannot be made (TypeError: "),
        (["gymnasium:FrozenLake-v1", "--option", "map_name=1x1"], "cannot be made (KeyError: '1x1'"),
        (["gymnasium:CartPole-v1"], "Box"),
        (["gymnasium:Pendulum-v1", "--demonstrations", "2"], "no scripted"),
        (["gymnasium:Pendulum-v1", "--method", "oracle"], "oracle"),
    ],
)
def test_bad_input(run: Run, refused: Any, tmp_path: Path, arguments: list[str], said: str) -> None:
    refused(run("learn", *arguments, "--out", tmp_path / "deep" / "run"), said)
    assert list(tmp_path.iterdir()) == []


WITHOUT_TIANSHOU = """
import sys
sys.modules["tianshou"] = None  # its import fails
from cbm.cli.main import main
at = sys.argv.index("--then")
sys.exit(main(sys.argv[1:at]) or main(sys.argv[at + 1:]))
"""


@pytest.mark.slow
def test_without_tianshou(tmp_path: Path) -> None:
    """Nothing at run time needs it, in `learn` as in `evaluate`."""
    learn = ["learn", "light", "--method", "full", "--out", "run", "--quiet", "--json", *SMALL]
    evaluate = ["evaluate", "run", "--episodes", "2", "--json"]
    command = [sys.executable, "-c", WITHOUT_TIANSHOU, *map(str, [*learn, "--then", *evaluate])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "evaluation.json").is_file()


def test_a_graph_of_another_environment(run: Run, refused: Any, tmp_path: Path, dynamics: Any) -> None:
    there = dynamics("light")
    result = run("learn", "contact", "--dynamics", there, "--out", tmp_path / "run", *SMALL)
    refused(result, "position", "hand_x")
    assert not (tmp_path / "run").exists()


def test_a_dynamics_run_without_the_reward(run: Run, refused: Any, tmp_path: Path, dynamics: Any) -> None:
    there = dynamics("light", without=("park",))
    result = run("learn", "light", "--task", "park", "--dynamics", there, "--out", tmp_path / "run", *SMALL)
    refused(result, "park", "cross", "--rewards learned")


def test_only_what_is_certain_in_a_dynamics_run(run: Run, refused: Any, tmp_path: Path, dynamics: Any) -> None:
    there = dynamics("light")
    graph = CausalGraph.load(there)
    park = graph.rewards["park"]
    verdict = np.where(np.isin(graph.variables, ["wind"]), "undecided", park.verdict)
    replace(graph, rewards={"park": replace(park, verdict=verdict)}).save(there)
    kept = {}
    for name, flags in (("both", ()), ("certain", ("--certain-only",))):
        out = tmp_path / name
        code, said, err = run(
            "learn", "light", "--task", "park", "--dynamics", there, "--out", out, *flags, *SMALL, "--json"
        )
        assert code == 0 and err == "", err
        kept[name] = json.loads(said)["tasks"]["park"]["kept"]
        (shown,) = collect_run(out)["rewards"]
        assert [graph.variables[k] for k, _ in shown["kept"]] == kept[name], "the page shows what the policy saw"
    assert kept == {"both": ["position", "speed", "wind"], "certain": ["position", "speed"]}
    assert "certain_only" not in json.loads((tmp_path / "both" / "config.json").read_text())
    assert json.loads((tmp_path / "certain" / "config.json").read_text())["certain_only"] is True
    again = run("learn", "light", "--task", "park", "--dynamics", there, "--out", tmp_path / "certain", *SMALL)
    refused(again, "another run", "certain_only")


def test_a_log_to_pretrain_on(run: Run, refused: Any, tmp_path: Path) -> None:
    for world in ("light", "contact"):
        collect(make_world(world), 400).save(tmp_path / f"{world}.npz")
    arguments = ("learn", "light", "--method", "tia", "--out", tmp_path / "run", "--preset", "debug", "--steps", 300)
    refused(run(*arguments, "--pretrain", tmp_path / "contact.npz"), "the log is of another environment", "hand_x")
    code, _, err = run(*arguments, "--pretrain", tmp_path / "light.npz", "--method-option", "width=16", "--quiet")
    assert code == 0, err
    first = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[0])
    assert first["phase"] == "pretraining" and first["task"] == "cross" and first["step"] == 0 and "dynamics" in first
    collect(make_world("light"), 400, seed=1).save(tmp_path / "light.npz")
    other = run(*arguments, "--pretrain", tmp_path / "light.npz", "--method-option", "width=16", "--quiet")
    refused(other, "holds another run", "pretrain_log")


def test_another_runs_directory(run: Run, refused: Any, learned: Path) -> None:
    result = run("learn", "light", "--task", "cross", "--method", "oracle", "--out", learned, *SMALL)
    refused(result, "holds another run", 'tasks ["park"], not ["cross"]')


def test_evaluate_needs_a_policy(run: Run, refused: Any, light_run: Path, tmp_path: Path) -> None:
    refused(run("evaluate", tmp_path / "nowhere"), "no such run directory")
    refused(run("evaluate", light_run), "no config.json")
    (light_run / "config.json").write_text('{"command": "discover"}')
    refused(run("evaluate", light_run), "cbm discover")


def test_evaluate_out_of_distribution_needs_the_truth(run: Run, refused: Any, tmp_path: Path) -> None:
    assert run("learn", "gymnasium:Pendulum-v1", "--method", "full", "--out", tmp_path / "r", *SMALL)[0] == 0
    refused(run("evaluate", tmp_path / "r", "--ood"), "no true graph")


def test_damaged_checkpoints(run: Run, refused: Any, learned: Path, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(learned, copy)
    for path in (copy / "checkpoint").iterdir():
        path.write_bytes(b"what?")
    refused(run("evaluate", copy), "no checkpoint can be read")
