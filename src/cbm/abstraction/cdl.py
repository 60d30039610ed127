"""CDL's abstraction (Wang et al., 2022): what the action can influence, and what influences that; the same for all
tasks."""

from __future__ import annotations

from cbm.abstraction.graph_rule import GraphRule
from cbm.abstraction.method import Setup


def make(setup: Setup) -> GraphRule:
    """Controllable and action-relevant variables of the shared dynamics; there is no reward model."""
    return GraphRule("cdl", setup.known_dynamics("cdl"))
