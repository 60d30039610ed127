"""Hysteresis with two thresholds: a dependency is accepted above one, and dropped only below a lower one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


class Hysteresis:
    """Decisions that depend on the previous decisions."""

    def __init__(self, on: float = 1.0, off: float = 0.6):
        self.on, self.off = on, off
        self.chosen: np.ndarray | None = None
        """Booleans; None until there is evidence."""

    def move(self, evidence: np.ndarray, thresholds: np.ndarray, doubt: np.ndarray | None = None) -> np.ndarray:
        """On above `on` thresholds, off below `off`, unchanged in between; the first time `on` alone decides.

        With a margin `doubt`, evidence must be above by the margin to switch on, and below by it to switch off; cells
        in doubt at the first decision are on.
        """
        margin = 0.0 if doubt is None else doubt
        if self.chosen is None:
            self.chosen = evidence + margin > self.on * thresholds
        else:
            kept = self.chosen & (evidence + margin >= self.off * thresholds)
            self.chosen = kept | (evidence - margin > self.on * thresholds)
        return self.chosen

    def verdict(self, verdict: np.ndarray) -> np.ndarray:
        """The current verdicts, undecided where they contradict what was chosen."""
        if self.chosen is None:
            return np.full(verdict.shape, "undecided")
        moment = np.where(self.chosen, verdict != "none", verdict != "edge")
        return np.where(moment, verdict, "undecided")

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.chosen is None else {"chosen": torch.tensor(self.chosen)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.chosen = tensors["chosen"].numpy().copy() if "chosen" in tensors else None
