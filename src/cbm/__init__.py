"""Causal graphs and minimal state abstractions from logged transitions.

Importing this is quick: it registers the Gymnasium ids of the built-in worlds, and everything else is
imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cbm.envs.registry import register_envs

if TYPE_CHECKING:
    from cbm.abstraction.wrapper import AbstractionWrapper
    from cbm.data.factors import Factors
    from cbm.data.transitions import Transitions
    from cbm.discovery.discover import discover
    from cbm.envs.registry import make_world
    from cbm.errors import DataError
    from cbm.graph import CausalGraph

    __version__: str

__all__ = [
    "AbstractionWrapper",
    "CausalGraph",
    "DataError",
    "Factors",
    "Transitions",
    "__version__",
    "discover",
    "make_world",
]

_HOME = {
    "AbstractionWrapper": "cbm.abstraction.wrapper",
    "CausalGraph": "cbm.graph",
    "DataError": "cbm.errors",
    "Factors": "cbm.data.factors",
    "Transitions": "cbm.data.transitions",
    "discover": "cbm.discovery.discover",
    "make_world": "cbm.envs.registry",
}

register_envs()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value = _version()
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'cbm' has no attribute {name!r}")
    globals()[name] = value  # the next look-up finds it without coming here
    return value


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("cbm-rl")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return "0+unknown"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
