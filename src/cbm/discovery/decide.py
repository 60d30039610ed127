"""From CMI to verdicts: the paper's threshold, or thresholds calibrated on inputs that cannot matter."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cbm.discovery.settings import NORMAL, SHADOW_DEVIATIONS, STANDARD_ERRORS, SURE_ABOVE_ZERO, Settings


@dataclass(frozen=True)
class Verdicts:
    """(K, inputs) decisions about real inputs."""

    cmi: np.ndarray
    stderr: np.ndarray
    thresholds: np.ndarray
    edge: np.ndarray
    """Whether the effect counts as present, undecided cells included."""
    verdict: np.ndarray
    """"edge", "none" or "undecided"."""
    reason: np.ndarray = field(default_factory=lambda: np.zeros(0, "<U1"))
    """Why a cell is undecided; empty: not said."""
    settled: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    """Whether a cell was decided, or left open, by the data and not by a ceiling; empty: all are."""
    limit: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """(K,) limit of detection in nats; empty: not measured."""


def above_shadows(cmi: np.ndarray, real_inputs: int) -> np.ndarray:
    """CMI relative to that of a typical shadow of the same target: what every dropped input costs is no effect."""
    shadows = cmi[:, real_inputs:]
    return cmi - np.median(shadows, 1, keepdims=True) if shadows.shape[1] else cmi


def decide(
    cmi: np.ndarray,
    stderr: np.ndarray,
    null: np.ndarray,
    settings: Settings,
    strongest: np.ndarray | None = None,
    sure: float = SURE_ABOVE_ZERO,
    breadth: np.ndarray | None = None,
) -> Verdicts:
    """Verdicts from (K, inputs) CMI and standard errors, and (K, n) CMI of shadows.

    `strongest` (K,) is the CMI of each target's strongest cause, where that is not the largest in `cmi`;
    `sure` is how many of its own standard errors an effect must exceed, or, where it is negative, how many it may lack
    of its threshold and still count; `breadth` (inputs,) how many columns each input has: shadows have one, and what
    models imagine grows with their number.
    """
    if settings.rule == "threshold":
        edge = cmi >= settings.epsilon  # the paper's rule
        verdict = np.where(edge, "edge", "none")
        return Verdicts(cmi, stderr, np.full_like(cmi, settings.epsilon), edge, verdict)
    if strongest is None:
        strongest = cmi.max(1, initial=0.0)
    breadth = np.ones(cmi.shape[1]) if breadth is None else breadth
    thresholds = np.maximum(calibrated_thresholds(strongest, null, settings, breadth), sure * stderr)
    edge = cmi + max(-sure, 0.0) * stderr > thresholds
    clear = np.abs(cmi - thresholds) > STANDARD_ERRORS * stderr
    verdict = np.where(clear, np.where(edge, "edge", "none"), "undecided")
    return Verdicts(cmi, stderr, thresholds, edge, verdict)


def calibrated_thresholds(
    strongest: np.ndarray, null: np.ndarray, settings: Settings, breadth: np.ndarray
) -> np.ndarray:
    """(K, inputs): beyond the scatter of the target's shadows and a small share of its strongest cause.

    Never below `smallest_effect`, never above twice the paper's epsilon.
    """
    own = NORMAL * np.abs(null).mean(1) if null.shape[1] else np.zeros(len(strongest))
    usual = np.median(own) if len(own) else 0.0
    scatter = np.sqrt((own**2 + usual**2) / 2)  # few shadows per target: lean on the others' too
    wanted = np.maximum(SHADOW_DEVIATIONS * np.outer(scatter, breadth), settings.strongest_share * strongest[:, None])
    return np.clip(wanted, settings.smallest_effect, 2 * settings.epsilon)
