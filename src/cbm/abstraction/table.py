"""The table of methods: everything that is known of a method outside its own file.

The command line and its help, the report with its palette, benchmarks and docs read it here. A new method is its file
and a row. Neither torch nor any method is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from cbm.abstraction.settings import IcpSettings, PartitionSettings
from cbm.errors import DataError, unknown_name

Needs = Literal["nothing", "graph", "truth"]
Options = PartitionSettings | IcpSettings


@dataclass(frozen=True)
class MethodRow:
    """One method of the table."""

    label: str
    """In tables and charts."""
    summary: str
    """What it keeps, for help and docs."""
    light: str
    """Colour on white …"""
    dark: str
    """… and on the dark page; a test computes that colours stay apart for all common kinds of colour vision."""
    mark: str
    """As matplotlib names it; curves.js draws the same."""
    needs: Needs = "nothing"
    """graph: dynamics, of a run of `cbm discover` or learned beside the policy. truth: the world's own graph."""
    pretrains: bool = False
    """Whether it has dynamics of its own, which may be learned on a log first."""
    options: type[Options] | None = None
    """The record of its options."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Where they differ from the record's."""

    @property
    def option_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in fields(self.options)) if self.options is not None else ()


METHODS: dict[str, MethodRow] = {
    "cbm": MethodRow(
        "CBM", "what the reward depends on, directly or through others", "#1f4a94", "#4a76f5", "s", needs="graph"
    ),
    "cdl": MethodRow(
        "CDL", "what the action can influence, and what that depends on", "#ed8610", "#ea9410", "^", needs="graph"
    ),
    "tia": MethodRow(
        "TIA", "a learned part that explains the reward, apart from one that must not", "#0b8a63", "#70b88e", "D",
        pretrains=True, options=PartitionSettings,
    ),
    "denoised": MethodRow(
        "Denoised MDP", "a learned part that is controllable and matters to the reward", "#bb78b4", "#b57cc4", "v",
        pretrains=True, options=PartitionSettings, defaults={"size_penalty": 0.05},
    ),
    "icp": MethodRow(
        "ICP", "what has the same effect on the reward in all environments", "#00a6ff", "#3fd0ff", "P",
        options=IcpSettings,
    ),
    "oracle": MethodRow("Oracle", "what the true graph says", "#1b2028", "#e6eaf0", "o", needs="truth"),
    "full": MethodRow("Full", "everything", "#d92b12", "#b85a24", "X"),
}  # fmt: skip
"""By the name on the command line; the module is `cbm.abstraction.NAME`."""


def method_row(name: str) -> MethodRow:
    if name not in METHODS:
        raise unknown_name("unknown method", name, METHODS)
    return METHODS[name]


def in_tables() -> tuple[str, ...]:
    """Names in the order of tables and charts: first what knows the truth."""
    return tuple(sorted(METHODS, key=lambda name: METHODS[name].needs != "truth"))


def method_options(name: str, options: Mapping[str, Any]) -> Options | None:
    """The record of a method's options, checked; None for methods that have none."""
    row = method_row(name)
    for option in options:
        if option not in row.option_names:
            raise unknown_name(f"method {name!r}: unknown option", option, row.option_names)
    if row.options is None:
        return None
    try:
        return row.options(**{**row.defaults, **options})
    except DataError as error:
        raise DataError(f"method {name!r}: {error}") from None


def help_text() -> str:
    """One line for each method."""
    return "\n".join(f"{name}: {row.summary}." for name, row in METHODS.items())
