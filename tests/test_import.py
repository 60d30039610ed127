"""`import cbm` is quick and light, and its names are there when they are asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

import pytest

import cbm
from cbm.errors import DataError

HEAVY = (
    "torch",
    "matplotlib",
    "networkx",
    "scipy",
    "pandas",
    "pyarrow",
    "lightgbm",
    "minari",
    "tyro",
    "rich",
)

TIMED = """
import json, sys, time
start = time.process_time()  # what the import costs, not what else the machine is doing
import cbm
seconds = time.process_time() - start
print(json.dumps([seconds, [name for name in sys.argv[1:] if name in sys.modules]]))
"""


def fresh(script: str, *arguments: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_takes_less_than_0_3_seconds_and_no_torch() -> None:
    runs = [json.loads(fresh(TIMED, *HEAVY)) for _ in range(3)]
    assert runs[0][1] == []
    assert min(seconds for seconds, _ in runs) < 0.3


@pytest.mark.parametrize(
    "use",
    [
        "cbm.Transitions",
        "cbm.Factors",
        "cbm.CausalGraph",
        "cbm.AbstractionWrapper",
        "cbm.make_world('contact')",
        "__import__('cbm.envs.collect').envs.collect.collect(cbm.make_world('light'), 100)",
        "__import__('gymnasium').make('cbm/Contact-v0')",
    ],
)
def test_data_model_and_worlds_need_no_torch(use: str) -> None:
    assert fresh(f"import sys, cbm; {use}; print('torch' in sys.modules)").strip() == "False"


def test_every_public_name_is_there() -> None:
    for name in cbm.__all__:
        assert getattr(cbm, name) is getattr(cbm, name)
    assert set(cbm.__all__) <= set(dir(cbm))
    assert cbm.DataError is DataError


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'cbm' has no attribute 'nonsense'"):
        cbm.nonsense  # noqa: B018
    assert not hasattr(cbm, "nonsense")


def test_version() -> None:
    assert cbm.__version__ == metadata.version("cbm-rl")


def test_version_of_a_source_tree_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert cbm._version() == "0+unknown"
