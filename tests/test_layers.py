"""Dependencies between the folders of the package point one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import cbm

ROOT = Path(cbm.__file__).parent
BASE = {"errors", "checks", "device"}
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "checks": {"errors"},
    "device": {"errors"},
    "runs": BASE,
    "jobs": BASE | {"runs"},
    "data": BASE | {"runs"},
    "graph": BASE | {"runs", "data"},
    "envs": BASE | {"runs", "data"},
    "discovery": BASE | {"runs", "jobs", "data", "graph"},
    "abstraction": BASE | {"runs", "jobs", "data", "graph", "discovery"},
    "agents": BASE | {"runs", "data"},
    "learning": BASE | {"runs", "jobs", "data", "graph", "envs", "discovery", "abstraction", "agents"},
    "report": BASE | {"runs", "data", "graph", "abstraction", "agents", "learning"},
    "sweep": BASE | {"runs", "jobs"},
    "cli": BASE
    | {"runs", "jobs", "data", "graph", "envs", "discovery", "abstraction", "agents", "learning", "report", "sweep"},
}
"""Folder or file of the package: what it may import, lazily or not, for types or not."""
NO_TORCH = ("errors", "checks", "runs", "jobs", "data", "graph", "envs")


def imports(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a module comes from"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def test_every_part_of_the_package_has_its_place() -> None:
    assert {part_of(path) for path in FILES} == set(BELOW)


def test_the_table_has_no_cycle() -> None:
    seen: set[str] = set()
    for part, below in BELOW.items():  # each line may only name lines above it
        assert below <= seen, part
        seen.add(part)


@pytest.mark.parametrize("part", BELOW)
def test_imports_point_down(part: str) -> None:
    wrong = []
    for path in FILES:
        if part_of(path) != part:
            continue
        for name in imports(path):
            package, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if package == "benchmarks" or (package == "cbm" and target in set(BELOW) - BELOW[part] - {part}):
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


@pytest.mark.parametrize("part", NO_TORCH)
def test_what_has_no_networks_imports_no_torch(part: str) -> None:
    files = [path for path in FILES if part_of(path) == part and path != ROOT / "runs" / "checkpoint.py"]
    assert not [path for path in files if any(name.partition(".")[0] == "torch" for name in imports(path))]
