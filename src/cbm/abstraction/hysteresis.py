"""Two thresholds against flicker: a dependency is taken up above one, and given up only below a lower one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


class Hysteresis:
    """Decisions that remember what they were."""

    def __init__(self, on: float = 1.0, off: float = 0.6):
        self.on, self.off = on, off
        self.chosen: np.ndarray | None = None
        """Booleans; None until there is evidence."""

    def move(self, evidence: np.ndarray, thresholds: np.ndarray, doubt: np.ndarray | None = None) -> np.ndarray:
        """On above `on` thresholds, off below `off`, as before in between; the first time `on` alone decides.

        With a margin of `doubt`, on only what lies above by it and off only what lies below by it; what is in doubt the
        first time is on.
        """
        margin = 0.0 if doubt is None else doubt
        if self.chosen is None:
            self.chosen = evidence + margin > self.on * thresholds
        else:
            kept = self.chosen & (evidence + margin >= self.off * thresholds)
            self.chosen = kept | (evidence - margin > self.on * thresholds)
        return self.chosen

    def verdict(self, verdict: np.ndarray) -> np.ndarray:
        """Where what was chosen differs from the verdict of the moment, nothing is decided."""
        if self.chosen is None:
            return np.full(verdict.shape, "undecided")
        moment = np.where(self.chosen, verdict != "none", verdict != "edge")
        return np.where(moment, verdict, "undecided")

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.chosen is None else {"chosen": torch.tensor(self.chosen)}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.chosen = tensors["chosen"].numpy().copy() if "chosen" in tensors else None
