"""`cbm export`: the graph in the format of another tool."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from cbm.cli.arguments import Flag, MaybePath, parse
from cbm.cli.console import print_json, show
from cbm.cli.paths import check_file, made_directory
from cbm.errors import DataError
from cbm.graph import CausalGraph
from cbm.graph.export import SUFFIXES, export


@dataclass(frozen=True)
class Options:
    """Write the graph of a run in the format of another tool.

    Example: cbm export runs/contact --format dot | dot -Tsvg > graph.svg

    Without --out, text goes to the output. The arrays for tigramite and causal-learn are .npz files and need --out.
    """

    run: Positional[Path]
    """Run directory of `cbm discover`, or a graph.json."""
    format: Literal["networkx", "dot", "graphml", "json", "csv", "tigramite", "causal-learn"]
    """networkx: node-link JSON.
    dot: Graphviz.
    graphml: Gephi, yEd, Cytoscape.
    json: graph.json itself.
    csv: every candidate edge with its strength.
    tigramite: its graph array.
    causal-learn: its matrix, on two time slices."""
    out: MaybePath = None
    """File to write."""
    force: Flag = False
    """Overwrite the file if it exists."""
    json: Flag = False
    """Print {"run", "format", "out"} once the file is written."""


def main(arguments: list[str]) -> None:
    options = parse(Options, arguments, "export")
    graph = CausalGraph.load(options.run)
    if options.out is None:
        if SUFFIXES[options.format] == ".npz":
            raise DataError(f"--format {options.format} is a binary file: say where it goes with --out FILE.npz")
        if options.json:
            raise DataError("--json reports on a file that was written, so it needs --out")
        text = export(graph, options.format)
        assert isinstance(text, str)
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8"))  # the format's own bytes, whatever the terminal's encoding
        return
    check_file(options.out, force=options.force)
    with made_directory(options.out.parent):
        export(graph, options.format, options.out)
    if options.json:
        print_json({"run": str(options.run), "format": options.format, "out": str(options.out)})
    else:
        show(str(options.out))
