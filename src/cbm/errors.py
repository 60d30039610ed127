"""What may go wrong without a bug: the input is wrong, or the machine could not write."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DataError(ValueError):
    """Input that cannot be used; the message names the array, the variable and the row where it can."""


class InUseError(DataError):
    """A run directory that belongs to another process."""


class WriteError(RuntimeError):
    """A file could not be written: a full disk, a quota, a broken device. Not the input's fault, and nothing is
    removed because of it: with room again, the same command goes on."""


def unknown_name(what: str, name: object, known: Iterable[str]) -> DataError:
    """The error for a name that is not there, with the nearest ones that are."""
    names = list(known)
    folded = {n.lower(): n for n in names}
    close = [folded[n] for n in difflib.get_close_matches(str(name).lower(), folded, n=3, cutoff=0.5)]
    if close:
        hint = f"did you mean {' or '.join(repr(n) for n in close)}?"
    elif names:
        hint = f"there are: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
    else:
        hint = "there are none"
    return DataError(f"{what} {name!r}; {hint}" if name is not None else f"{what}: none given; {hint}")
