"""How close a graph is to the true one.

Accuracy alone flatters sparse guesses, so every score carries precision, recall, F1, SHD, AUROC and what a
graph of self-loops would get. A cell is one (effect, cause) pair; there are d * (d+1), the action included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BoolArray = NDArray[np.bool_]
Edge = tuple[str, str]


@dataclass(frozen=True)
class Score:
    """A comparison with the truth. Where both graphs are empty, precision, recall and F1 are 1."""

    cells: int
    true_edges: int
    found_edges: int
    accuracy: float
    """Share of the cells that agree."""
    precision: float
    """Share of the found edges that are true; 0 if none was found though there are some."""
    recall: float
    """Share of the true edges that were found; 0 if there are none but some were found."""
    f1: float
    shd: int
    """Structural Hamming distance: the number of cells that differ."""
    auroc: float | None
    """Chance that a true edge has a larger CMI than a non-edge; None when the truth has only one kind."""
    self_loops_accuracy: float
    """Accuracy of the graph in which every variable causes only itself."""
    self_loops_f1: float
    missed: tuple[Edge, ...]
    """True edges that were not found, as (effect, cause)."""
    spurious: tuple[Edge, ...]
    """Found edges that are not true, as (effect, cause)."""

    def to_json(self) -> dict[str, Any]:
        return {
            "cells": self.cells,
            "true_edges": self.true_edges,
            "found_edges": self.found_edges,
            "accuracy": self.accuracy,
            "precision": self.precision,
            "recall": self.recall,
            "f1": self.f1,
            "shd": self.shd,
            "auroc": self.auroc,
            "self_loops": {"accuracy": self.self_loops_accuracy, "f1": self.self_loops_f1},
            "missed": [{"effect": effect, "cause": cause} for effect, cause in self.missed],
            "spurious": [{"effect": effect, "cause": cause} for effect, cause in self.spurious],
        }

    def table(self, edges: int = 10) -> str:
        """Plain-text summary with at most `edges` missed and spurious edges each."""
        auroc = "undefined" if self.auroc is None else f"{self.auroc:.3f}"
        baseline = f"{100 * self.self_loops_accuracy:.1f} %"
        spurious = f"{len(self.spurious)} of {self.found_edges} found are spurious"
        rows = [
            ("accuracy", f"{100 * self.accuracy:.1f} %", f"self-loops only: {baseline}"),
            ("precision", f"{self.precision:.3f}", spurious),
            ("recall", f"{self.recall:.3f}", f"{len(self.missed)} of {self.true_edges} true are missed"),
            ("F1", f"{self.f1:.3f}", f"self-loops only: {self.self_loops_f1:.3f}"),
            ("SHD", str(self.shd), f"of {self.cells} cells"),
            ("AUROC", auroc, "of the CMI"),
        ]
        lines = [f"{name:<10}{value:>9}   {note}" for name, value, note in rows]
        for title, pairs in (("missed", self.missed), ("spurious", self.spurious)):
            shown = [f"{cause} -> {effect}" for effect, cause in pairs[:edges]]
            if len(pairs) > edges:
                shown.append(f"and {len(pairs) - edges} more")
            if shown:
                lines.append(f"{title + ':':<10} {', '.join(shown)}")
        return "\n".join(lines)


def compare(variables: tuple[str, ...], found: BoolArray, cmi: NDArray[np.float64], truth: BoolArray) -> Score:
    """Score `found` (d, d+1) and the ranking by `cmi` against `truth`; all with row = effect."""
    d = len(variables)
    assert found.shape == cmi.shape == truth.shape == (d, d + 1)
    accuracy, precision, recall, f1 = _rates(found, truth)
    baseline = _rates(np.eye(d, d + 1, dtype=bool), truth)
    return Score(
        cells=truth.size,
        true_edges=int(truth.sum()),
        found_edges=int(found.sum()),
        accuracy=accuracy,
        precision=precision,
        recall=recall,
        f1=f1,
        shd=int((found != truth).sum()),
        auroc=auroc(cmi, truth),
        self_loops_accuracy=baseline[0],
        self_loops_f1=baseline[3],
        missed=_edges(truth & ~found, variables),
        spurious=_edges(found & ~truth, variables),
    )


def auroc(values: NDArray[np.float64], truth: BoolArray) -> float | None:
    """Area under the ROC curve from mid-ranks: a tie counts one half."""
    positive = truth.ravel()
    n_pos = int(positive.sum())
    n_neg = positive.size - n_pos
    if n_pos == 0 or n_neg == 0:
        return None
    _, group, size = np.unique(values.ravel(), return_inverse=True, return_counts=True)
    rank = np.cumsum(size) - (size - 1) / 2  # the mean of the ranks that a group of ties shares
    return float((rank[group][positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def _rates(found: BoolArray, truth: BoolArray) -> tuple[float, float, float, float]:
    hits, n_found, n_true = int((found & truth).sum()), int(found.sum()), int(truth.sum())
    if n_found == n_true == 0:
        return 1.0, 1.0, 1.0, 1.0
    accuracy = float((found == truth).mean())
    precision = hits / n_found if n_found else 0.0
    recall = hits / n_true if n_true else 0.0
    return accuracy, precision, recall, 2 * hits / (n_found + n_true)


def _edges(cells: BoolArray, variables: tuple[str, ...]) -> tuple[Edge, ...]:
    columns = (*variables, "action")
    return tuple((variables[i], columns[j]) for i, j in np.argwhere(cells))
