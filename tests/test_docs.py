"""Links in the documentation lead somewhere, every page is in the table of contents, every option in the reference."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import fields
from pathlib import Path

import pytest

from cbm.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *DOCS.rglob("*.md")])
GENERATED = {DOCS / "reference" / "cli.md"}


def links(page: Path) -> list[str]:
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [link.partition("#")[0] for link in links(page) if not re.match(r"[a-z]+:|#", link)]
    paths = [(page.parent / target).resolve() for target in targets]
    assert not [str(path) for path in paths if not path.exists() and path not in GENERATED]
    if DOCS in page.parents:
        assert not [str(path) for path in paths if DOCS not in path.parents], "the site has only what is in docs/"


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    assert not [str(page) for page in PAGES if DOCS in page.parents and str(page.relative_to(DOCS)) not in contents]


def test_nothing_is_loaded_from_the_network() -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in contents and "http" not in contents


def test_the_reference_has_every_command_and_option() -> None:
    pytest.importorskip("mkdocs")
    spec = importlib.util.spec_from_file_location("docs_hooks", DOCS / "hooks.py")
    assert spec is not None and spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = hooks.command_line()
    for name in COMMANDS:
        section = page.split(f"## cbm {name}\n")[1].split("\n## ")[0]
        for entry in fields(importlib.import_module(f"cbm.cli.{name}").Options):
            assert f"--{entry.name.replace('_', '-')}" in section or f"`{entry.name.upper()}`" in section, entry.name
