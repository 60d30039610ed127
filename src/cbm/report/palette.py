"""Colours and marks of the methods, the same on the page and in pictures; they stand in the table of methods.

The colours stay apart for all common kinds of colour vision, on white and on the dark page (a test computes by how
much). Marks are a second way to tell lines apart. A second variant of a method has a further colour and is dashed.
"""

from __future__ import annotations

from collections.abc import Sequence

from cbm.abstraction.table import METHODS, in_tables

_NAMES = in_tables()
OTHERS_LIGHT = ("#7d8590", "#8a6d00", "#7b4fc9", "#00767a")
OTHERS_DARK = ("#8b95a3", "#c9b458", "#a78bea", "#3fb3b6")
LIGHT = {name: METHODS[name].light for name in _NAMES} | {f"other-{k}": c for k, c in enumerate(OTHERS_LIGHT, 1)}
DARK = {name: METHODS[name].dark for name in _NAMES} | {f"other-{k}": c for k, c in enumerate(OTHERS_DARK, 1)}
MARKS = {name: METHODS[name].mark for name in _NAMES}
"""As matplotlib names them; curves.js draws the same."""
OTHER_MARKS = ("o", "s", "^", "D")


def styles(methods: Sequence[str]) -> list[dict[str, str | bool]]:
    """Colour name, mark and dashes of each line, given the method of each."""
    result: list[dict[str, str | bool]] = []
    others = 0
    for k, method in enumerate(methods):
        if method in MARKS and method not in methods[:k]:
            result.append({"colour": method, "mark": MARKS[method], "dashed": False})
            continue
        place = others % len(OTHER_MARKS)
        mark = MARKS.get(method, OTHER_MARKS[place])
        result.append({"colour": f"other-{place + 1}", "mark": mark, "dashed": True})
        others += 1
    return result


def style_sheet() -> str:
    """The colours as classes, for light and dark."""
    light = "\n".join(f".m-{name} {{ color: {colour}; }}" for name, colour in LIGHT.items())
    dark = "\n".join(f"  .m-{name} {{ color: {colour}; }}" for name, colour in DARK.items())
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
