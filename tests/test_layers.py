"""Dependencies between the folders of the package point one way; files and functions stay short."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cbm
from docs.import_graph import PICTURE, depths, folder_graph, imports, reduced, svg

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
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 60
NO_TORCH = ("errors", "checks", "runs", "jobs", "data", "graph", "envs")


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


def test_no_file_and_no_function_is_too_long() -> None:
    """What is longer has two purposes, and a reader who looks for one of them finds neither."""
    long = []
    for path in sorted(ROOT.rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        if (lines := len(text.splitlines())) > MOST_LINES:
            long.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if (lines := node.end_lineno - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION:
                    long.append(f"{name}, {node.name}: {lines} lines")
    assert not long


def test_the_picture_of_the_imports_is_the_one_of_now() -> None:
    assert PICTURE.read_text(encoding="utf-8") == svg(folder_graph()), "draw it anew: python docs/import_graph.py"


def test_arrows_that_follow_from_others_are_not_drawn() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": set(), "d": set()}
    assert reduced(graph) == {"a": {"b", "d"}, "b": {"c"}, "c": set(), "d": set()}
    assert depths(graph) == {"a": 0, "b": 1, "c": 2, "d": 1}
    with pytest.raises(ValueError, match="a cycle among a, b"):
        depths({"a": {"b"}, "b": {"a"}, "c": set()})
