"""One column of a table of text: whether its cells are numbers, and which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cbm.data.roles import EMPTY, NUMBER, TEXT, Roles, Selection, is_possible
from cbm.errors import DataError

_EMPTY = (
    "", "na", "n/a", "nan", "null", "none", "-", "nat", "<na>", "#n/a", "#na",
    "nan(ind)", "-nan(ind)", "1.#qnan", "-1.#qnan", "1.#ind", "-1.#ind",
)  # fmt: skip
"""How programs write that a cell has no value, in lower case."""
_WORDS = {"true": 1.0, "false": 0.0} | dict.fromkeys(_EMPTY, np.nan)
_WHOLE_ID = re.compile(r"[+-]?\d{1,15}(\.0*)?", re.ASCII)
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


class TextColumn:
    """One column, block by block: numbers take far less room than their text, which is kept only where it may serve.

    Without `keeps` neither is kept, only what they show of the column.
    """

    def __init__(self, name: str, roles: Roles, decimal_commas: bool, keeps: bool = True):
        self.name, self.keeps = name, keeps
        self.filled = False
        self.keeps_text = is_possible(name, "episode", roles) or is_possible(name, "time", roles)
        self.whole = is_possible(name, "action", roles)  # only an action differs as an integer
        named = {*roles.obs, *roles.action, *roles.reward, *roles.time}
        self.numbers_episodes = is_possible(name, "episode", roles) and name not in named
        self.whole_ids = True
        """Whether episodes can be told apart by numbers: 1.1 and 1.10 are two names."""
        self.parts: list[np.ndarray] = []
        self.texts: list[Sequence[str]] = []
        self.bad: tuple[int, str] | None = None
        """First row with a cell that is no number, and the cell."""
        self.decimal_commas = decimal_commas
        self.comma: str | None = None
        """First number with a comma in it."""

    def add(self, cells: Sequence[str], start: int) -> None:
        if self.keeps_text and self.keeps:
            self.texts.append(cells)
        if self.bad is not None:
            return
        self.whole = self.whole and all(map(_is_whole, cells))
        if self.numbers_episodes and self.whole_ids:
            self.whole_ids = all(map(_is_whole_id, cells))
        try:
            numbers = _floats(cells)
        except ValueError:  # a word, an empty cell, or no number at all: look at each
            numbers = self._look(cells, start)
        self.filled = self.filled or not np.isnan(numbers).all()
        if self.keeps and self.bad is None:
            self.parts.append(numbers)

    def _look(self, cells: Sequence[str], start: int) -> np.ndarray:
        numbers = np.full(len(cells), np.nan)
        for row, cell in enumerate(cells):
            text = cell.strip()
            try:
                numbers[row] = self._number(text)
            except ValueError:
                self.bad = (start + row, text)
                self.parts.clear()
                break
        return numbers

    def _number(self, text: str) -> float:
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        if self.decimal_commas and _DECIMAL_COMMA.fullmatch(text):
            self.comma = self.comma or text
            text = text.replace(",", ".")
        return _floats([text])[0]

    def kind(self) -> str:
        if self.bad is not None:
            return TEXT
        return NUMBER if self.filled else EMPTY

    def parsed(self, cells: Sequence[str], start: int) -> np.ndarray:
        """A block of cells as numbers, or as text if any cell of the column is no number."""
        if self.bad is not None:
            return np.array([cell.strip() for cell in cells], object)
        if self.numbers_episodes and not self.whole_ids:
            return _ids(cells)
        try:
            return _floats(cells)
        except ValueError:
            return self._look(cells, start)

    def check_numbers(self) -> None:
        """Refuse a column that is used as numbers and has a cell that is none."""
        if self.bad is not None:
            row, cell = self.bad
            hint = "; a second line of names or units under the header must go" if row == 0 else ""
            raise DataError(f"column {self.name!r}, row {row}: {cell!r:.60} is not a number{hint}")

    def why_text(self) -> str | None:
        """Why a column that begins with numbers cannot be used as numbers; None: it is plain text, or numbers."""
        if self.bad is None or not self.filled:
            return None
        row, cell = self.bad
        return f"{cell!r:.40} in row {row} is no number"

    def values(self, as_numbers: bool) -> np.ndarray:
        if self.bad is None and self.numbers_episodes and not self.whole_ids and not as_numbers:
            return _ids([cell for cells in self.texts for cell in cells])
        if self.bad is None:
            return np.concatenate(self.parts)
        if as_numbers:
            self.check_numbers()
        return np.array([cell.strip() for cells in self.texts for cell in cells], object)


def _floats(cells: Sequence[str]) -> np.ndarray:
    """Python also reads 1_10 as 110, which in a log is a name."""
    if "_" in "".join(cells):
        raise ValueError
    return np.array(list(map(float, cells)))


def _ids(cells: Sequence[str]) -> np.ndarray:
    """Names of episodes as they are written; "" where there is none."""
    texts = [cell.strip() for cell in cells]
    return np.array(["" if text.lower() in _EMPTY else text for text in texts], object)


def _is_whole_id(cell: str) -> bool:
    return _WHOLE_ID.fullmatch(cell.strip()) is not None or cell.strip().lower() in _WORDS


def _is_whole(cell: str) -> bool:
    digits = cell.strip().removeprefix("-")
    return (digits.isdecimal() and len(digits) < 16) or digits.lower() in ("true", "false", "")


def check_some_numbers(columns: Iterable[TextColumn]) -> None:
    """Refuse a table of text alone by its first cell: it may hold units, or be no table at all."""
    kinds = {column.kind(): column for column in reversed(list(columns))}
    if NUMBER not in kinds and TEXT in kinds:
        kinds[TEXT].check_numbers()


def remarked(selection: Selection, columns: Mapping[str, TextColumn]) -> Selection:
    """With what only the cells show: the one cell that makes a column text, and commas that were read as points."""
    spoilt = {name: why for name in selection.ignored if (why := columns[name].why_text())}
    ignored = spoilt | {name: why for name, why in selection.ignored.items() if name not in spoilt}
    commas = [column for name in selection.values() if (column := columns[name]).comma and column.bad is None]
    guesses = selection.guesses
    if commas:
        cell = str(commas[0].comma)
        said = f"decimal commas: {cell!r} in column {commas[0].name!r} is {cell.replace(',', '.')}"
        guesses = (*guesses, said)
    return replace(selection, ignored=ignored, guesses=guesses)
