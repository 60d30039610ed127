"""Which runs belong together: runs of one task form a panel, runs that differ in nothing but the seed form a line.

Two runs of one method with different settings are two lines, and each line's label says what sets it apart.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from cbm.abstraction.table import METHODS, in_tables
from cbm.agents.settings import AGENTS
from cbm.errors import DataError
from cbm.report.learning import LearningRun

METHOD_NAMES = {name: METHODS[name].label for name in in_tables()}
"""Methods in the order in which tables list them; unknown ones come after, by their own name."""
LABEL_LENGTH = 44
# What is no setting of the method, or is another form of one that is compared already.
_IGNORED = (
    *("command", "world", "options", "method", "seed", "factors", "oracle"),
    *("dynamics", "dynamics_graph", "together", "demonstration_policies"),
)


@dataclass(eq=False)
class Line:
    """Runs of one method on one task with the same settings: one line of a chart, one row of a table."""

    label: str
    method: str
    runs: list[LearningRun]


@dataclass(eq=False)
class Panel:
    """One task of one world, with all lines."""

    world: str
    options: dict[str, Any]
    task: str
    lines: list[Line] = field(default_factory=list)

    @property
    def runs(self) -> list[LearningRun]:
        return [run for line in self.lines for run in line.runs]

    @property
    def title(self) -> str:
        return f"{self.world} \u00b7 {self.task}"

    @property
    def options_text(self) -> str:
        return ", ".join(f"{key} {plain(value)}" for key, value in sorted(self.options.items()))


def panels(runs: list[LearningRun]) -> list[Panel]:
    """In the order in which worlds and tasks first appear."""
    found: dict[tuple[str, str, str], tuple[Panel, list[LearningRun]]] = {}
    for run in runs:
        options = run.config.get("options") or {}
        for task in run.tasks:
            key = (run.world, json.dumps(options, sort_keys=True), task)
            panel, members = found.setdefault(key, (Panel(run.world, options, task), []))
            if members and members[0].variables != run.variables:
                raise DataError(f"{run.path}: its variables are not those of {members[0].path}, which is the same task")
            members.append(run)
    for panel, members in found.values():
        panel.lines = lines(members, panel.task)
    return [panel for panel, _ in found.values()]


def line_labels(groups: list[Panel]) -> list[str]:
    """Every label once; the methods in their order, whichever task they were tried on."""
    order = list(METHOD_NAMES)
    found = {line.label: line.method for panel in groups for line in panel.lines}
    return sorted(found, key=lambda label: order.index(found[label]) if found[label] in order else len(order))


def lines(runs: list[LearningRun], task: str) -> list[Line]:
    """By method, then by settings; two runs with one seed are told apart by the dynamics they were given."""
    order = list(METHOD_NAMES)
    methods = sorted({run.method for run in runs}, key=lambda m: (order.index(m) if m in order else len(order), m))
    result = []
    for method in methods:
        members = [run for run in runs if run.method == method]
        settings = [_settings(run, task) for run in members]
        groups = _grouped(settings)
        if any(_repeated([members[k] for k in group]) for group in groups):
            for run, values in zip(members, settings, strict=True):
                values["dynamics"] = run.config.get("dynamics")
            groups = _grouped(settings)
        for group in groups:
            twins = _repeated([members[k] for k in group])
            if twins:
                raise DataError(f"{twins[1].path}: the same method, task, settings and seed as {twins[0].path}")
        labels = _labels(METHOD_NAMES.get(method, method), [settings[group[0]] for group in groups])
        for label, group in zip(labels, groups, strict=True):
            result.append(Line(label, method, sorted((members[k] for k in group), key=lambda run: run.seed)))
    return result


def _settings(run: LearningRun, task: str) -> dict[str, Any]:
    """Everything that may differ between two runs of one method on one task, as a flat record."""
    values: dict[str, Any] = {"dynamics": "run" if run.config.get("dynamics") else "joint"}
    for key, value in run.config.items():
        if key == "tasks":
            values["with"] = _company(run, task)
        elif key in ("settings", "method_options"):
            flatten(value, "", values)
        elif key not in _IGNORED:
            values[key] = value
    return values


def _company(run: LearningRun, task: str) -> str | None:
    """Other tasks of the run, and whether they were learned at the same time."""
    others = [other for other in run.tasks if other != task]
    return " and ".join(others) + (" at once" if run.config.get("together") else " in turn") if others else None


def flatten(value: Any, prefix: str, into: dict[str, Any]) -> None:
    """Nested settings as one record; those of the agent go by their own names, beside the agent's."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in AGENTS:
                into["agent"] = key
            flatten(item, "" if key in AGENTS else f"{prefix}{key}.", into)
    else:
        into.setdefault(prefix.rstrip("."), value)


def _grouped(settings: list[dict[str, Any]]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for k, values in enumerate(settings):
        groups.setdefault(json.dumps(values, sort_keys=True), []).append(k)
    return list(groups.values())


def _repeated(runs: list[LearningRun]) -> tuple[LearningRun, LearningRun] | None:
    """Two runs with one seed: counting both would make the interval too narrow."""
    seen: dict[int, LearningRun] = {}
    for run in runs:
        if run.seed in seen:
            return seen[run.seed], run
        seen[run.seed] = run
    return None


def _labels(name: str, variants: list[dict[str, Any]]) -> list[str]:
    """The method's name, with the settings that differ where there are several variants."""
    keys = sorted({key for values in variants for key in values})
    differing = [key for key in keys if len({json.dumps(values.get(key)) for values in variants}) > 1]
    if not differing:
        return [name]
    labels = []
    for number, values in enumerate(variants, start=1):
        parts = [_words(key, values.get(key)) for key in differing]
        label = f"{name} ({', '.join(parts)})"
        labels.append(label if len(label) <= LABEL_LENGTH else f"{name} (variant {number})")
    return labels


def _words(key: str, value: Any) -> str:
    return "alone" if key == "with" and value is None else f"{key} {plain(value)}"


def plain(value: Any) -> str:
    """A setting in words: lists without brackets, no quotes."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "x".join(plain(item) for item in value)
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)
