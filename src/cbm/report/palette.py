"""Colours and marks of the methods, the same on the page and in pictures.

The colours stay apart for all common kinds of colour vision, on white and on the dark page (a test computes by how
much). Marks are a second way to tell lines apart. A second variant of a method has a further colour and is dashed.
"""

from __future__ import annotations

from collections.abc import Sequence

LIGHT = {
    "oracle": "#1b2028",
    "cbm": "#1f4a94",
    "cdl": "#ed8610",
    "tia": "#0b8a63",
    "denoised": "#bb78b4",
    "icp": "#00a6ff",
    "full": "#d92b12",
    "other-1": "#7d8590",
    "other-2": "#8a6d00",
    "other-3": "#7b4fc9",
    "other-4": "#00767a",
}
DARK = {
    "oracle": "#e6eaf0",
    "cbm": "#4a76f5",
    "cdl": "#ea9410",
    "tia": "#70b88e",
    "denoised": "#b57cc4",
    "icp": "#3fd0ff",
    "full": "#b85a24",
    "other-1": "#8b95a3",
    "other-2": "#c9b458",
    "other-3": "#a78bea",
    "other-4": "#3fb3b6",
}
MARKS = {"oracle": "o", "cbm": "s", "cdl": "^", "tia": "D", "denoised": "v", "icp": "P", "full": "X"}
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
