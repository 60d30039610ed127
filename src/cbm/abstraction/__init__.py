"""From a causal graph to the state variables a policy needs.

`rules` has the graph rules as pure functions on the adjacency; `explain` (imported where it is used) says why
each variable is kept or dropped. This file imports only the rules, so that `cbm.graph` can use them too.
"""

from cbm.abstraction.rules import (
    RULES,
    Rule,
    action_relevant,
    ancestors,
    cbm_abstraction,
    cdl_abstraction,
    controllable,
    descendants,
)

__all__ = [
    "RULES",
    "Rule",
    "action_relevant",
    "ancestors",
    "cbm_abstraction",
    "cdl_abstraction",
    "controllable",
    "descendants",
]
