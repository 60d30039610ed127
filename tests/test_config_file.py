"""Options in a TOML file: the command line comes first, mistakes are one line."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from cbm.cli.arguments import parse
from cbm.cli.completion import options_of_all_commands, script
from cbm.cli.discover import Options as Discover
from cbm.cli.learn import Options as Learn
from cbm.errors import DataError


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_what_was_saved_is_what_is_read(tmp_path: Path) -> None:
    saved = tmp_path / "run.toml"
    arguments = ["log.npz", "--out", 'odd "name"\\', "--minutes", "2.5", "--quiet", "--rule", "threshold"]
    first = parse(Discover, [*arguments, "--save-config", str(saved)], "discover")
    second = parse(Discover, ["--config", str(saved)], "discover")
    differing = {"config", "save_config"}
    assert {k: v for k, v in vars(first).items() if k not in differing} == {
        k: v for k, v in vars(second).items() if k not in differing
    }
    assert tomllib.loads(saved.read_text())["command"] == "discover"


def test_the_command_line_comes_first(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", 'env = "light"\ntask = ["cross", "park"]\nsteps = 10\ncertain-only = true\n')
    options = parse(Learn, ["contact", "--config", path, "--out", "r", "--task", "pick", "--steps=20"], "learn")
    assert (options.env, options.task, options.steps, options.certain_only) == ("contact", ("pick",), 20, True)


def test_what_the_command_line_replaces_is_checked_too(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", "minutes = '5'")
    with pytest.raises(DataError, match="minutes: must be a number"):
        parse(Discover, ["x.npz", "--config", path, "--out", "r", "--minutes", "3"], "discover")


def test_there_is_one_file(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, "seed = 1") for name in ("a.toml", "b.toml")]
    with pytest.raises(DataError, match="--config: given twice"):
        parse(Discover, ["x.npz", "--out", "r", "--config", paths[0], f"--config={paths[1]}"], "discover")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("last-action = 'on'\nlast_action = 'off'", "'last-action' is there twice"),
        ("minuets = 5", "has no option 'minuets'; did you mean 'minutes'"),
        ("minutes = '5'", "minutes: must be a number, not '5'"),
        ("workers = 1.5", "workers: must be a whole number"),
        ("seed = true", "seed: must be a whole number"),
        ("model = 'implict'", "model: 'implict' is not one of 'implicit'"),
        ("config = 'b.toml'", "has no option 'config'"),
        ("command = 'learn'", "holds options of `cbm learn`, not of `cbm discover`"),
        ("a = [", "not a TOML file"),
        ("", "missing: DATA, --out PATH"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message.replace("[", r"\[")):
        parse(Discover, ["--config", write(tmp_path / "a.toml", text)], "discover")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot read .*none.toml: No such file"):
        parse(Discover, [f"--config={tmp_path / 'none.toml'}"], "discover")


def test_every_command_takes_a_file() -> None:
    for name, options in options_of_all_commands().items():
        assert {"config", "save_config"} <= set(options.__dataclass_fields__), name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_options_and_choices(shell: str) -> None:
    text = script(shell)  # type: ignore[arg-type]
    for word in ("discover", "--save-config", "--last-action", "state-action"):
        assert word in text
    [table] = [line for line in text.splitlines() if line.startswith("COMPLETION_SPEC")]
    assert "\\n" not in table
