"""Draws which folder of the package imports which: `python docs/import_graph.py` writes docs/images/imports.svg.

An arrow that follows from others is left out: where `cli` imports `learning` and `learning` imports `agents`, the arrow
from `cli` to `agents` would say nothing new about the order. The files next to the folders (errors, checks, device) are
used by all of them and are not drawn.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "cbm"
PICTURE = Path(__file__).parent / "images" / "imports.svg"
WIDTH, HEIGHT, ROW, MARGIN = 112, 34, 84, 20
"""Of a box, of a row of boxes, and around the picture, in pixels."""

COLUMNS = {
    "cli": 1, "report": 1, "learning": 1, "abstraction": 1, "discovery": 1, "graph": 1, "runs": 1,
    "envs": 0, "data": 0, "agents": 2, "sweep": 3, "jobs": 3,
}  # fmt: skip
"""Where a folder stands, so that no arrow runs behind a box; the row follows from the imports."""

Graph = dict[str, set[str]]


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


def folder_graph(root: Path = ROOT) -> Graph:
    """Folder: the other folders that its files import."""
    folders = {path.parent.relative_to(root).parts[0] for path in root.glob("*/**/*.py")}
    graph: Graph = {folder: set() for folder in sorted(folders)}
    for folder, below in graph.items():
        for path in (root / folder).rglob("*.py"):
            parts = [name.split(".") for name in imports(path)]
            below |= {part[1] for part in parts if len(part) > 1 and part[0] == "cbm"} & folders - {folder}
    return graph


def depths(graph: Graph) -> dict[str, int]:
    """The row of each folder, below all that import it; a cycle is an error."""
    found: dict[str, int] = {}
    while len(found) < len(graph):
        above = {folder: {other for other in graph if folder in graph[other]} for folder in graph.keys() - found.keys()}
        ready = {folder: others for folder, others in above.items() if others <= found.keys()}
        if not ready:
            raise ValueError(f"a cycle among {', '.join(sorted(above))}")
        found |= {folder: 1 + max((found[other] for other in others), default=-1) for folder, others in ready.items()}
    return found


def reduced(graph: Graph) -> Graph:
    """Without the arrows that follow from others."""

    def reach(folder: str) -> set[str]:
        return graph[folder].union(*(reach(below) for below in graph[folder]))

    return {folder: below - set().union(*(reach(other) for other in below)) for folder, below in graph.items()}


def svg(graph: Graph) -> str:
    """The picture: what is imported stands below what imports it."""
    depth = depths(graph)
    columns = {folder: COLUMNS.get(folder, 1 + max(COLUMNS.values())) for folder in graph}
    width = (1 + max(columns.values())) * (WIDTH + MARGIN) + MARGIN
    height = max(depth.values()) * ROW + HEIGHT + 2 * MARGIN
    middle = {
        folder: (MARGIN + WIDTH / 2 + columns[folder] * (WIDTH + MARGIN), MARGIN + HEIGHT / 2 + depth[folder] * ROW)
        for folder in graph
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif">',
        '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
        '<path d="M0 0L8 4L0 8z" fill="#667"/></marker>',
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
    ]
    for folder, below in sorted(reduced(graph).items()):
        for other in sorted(below):
            (x1, y1), (x2, y2) = middle[folder], middle[other]
            ends = f'x1="{x1:g}" y1="{y1 + HEIGHT / 2:g}" x2="{x2:g}" y2="{y2 - HEIGHT / 2:g}"'
            lines.append(f'<line {ends} stroke="#667" marker-end="url(#arrow)"/>')
    for folder, (x, y) in sorted(middle.items()):
        box = f'x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"'
        lines.append(f'<rect {box} fill="#eef2f7" stroke="#445"/>')
        lines.append(f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" font-size="14">{folder}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(svg(folder_graph()), encoding="utf-8")
    print(PICTURE)
