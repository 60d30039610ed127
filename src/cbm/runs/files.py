"""Writes files so that a reader never sees half of one, removes what killed processes leave behind, and reads JSON."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from cbm.errors import DataError, WriteError

ABANDONED = 600.0
"""Seconds without a write after which a temporary file is considered abandoned, on whatever machine its writer is."""
LONGEST_INTEGER = 300
"""Digits; no float can hold a longer integer."""
BAD_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors caused by the given path, as opposed to the disk."""
_TEMPORARY = re.compile(r"\..*\.(\d+)\.[0-9a-f]+\.tmp")


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to: under a temporary name in the same directory, flushed and renamed to `path` at the end."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        # "x" and not tempfile.mkstemp: the file gets the permissions of the user's umask.
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise write_failed(target, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_failed(target: Path, error: OSError) -> DataError | WriteError:
    """A DataError only if the path itself is impossible; a full disk is not a problem of the input."""
    kind = DataError if error.errno in BAD_PATH else WriteError
    return kind(f"cannot write {target}: {error.strerror or f'no room for all of it ({error})'}")


def append_line(path: Path, line: str) -> None:
    """Append one line to a log; a partly written line is cut off when the run is resumed."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError as error:
        raise write_failed(path, error) from error


def sweep_temporary(files: Iterable[Path]) -> None:
    """Remove temporary files that no living process writes, or that are too old."""
    for file in files:
        name = _TEMPORARY.fullmatch(file.name)
        if name is None:
            continue
        try:
            if not is_alive(int(name[1])) or time.time() - file.stat().st_mtime > ABANDONED:
                file.unlink()
        except OSError:
            continue  # its writer has just finished, or it is not ours to remove


def is_alive(process: int) -> bool:
    """Whether this machine has a process with that id."""
    if process == os.getpid():
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """`atomic_file` in one call."""
    with atomic_file(path) as file:
        file.write(data)


def atomic_write_text(path: str | os.PathLike[str], text: str) -> None:
    """`atomic_write_bytes` of the text in UTF-8, line ends as given."""
    atomic_write_bytes(path, text.encode("utf-8"))


def read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a JSON file ({error})") from error


def parse_json(text: str) -> Any:
    """Like json.loads, but an integer that no float can hold is an error here, not later where it is used."""
    return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_INTEGER:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def csv_text(text: str) -> str:
    """A name as a cell of a CSV file, preceded by an apostrophe if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n", "'")) else text


def layout(value: Any, indent: str = "") -> str:
    """JSON text that people can read and diffs can follow: one line per key, matrix row or list entry."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = [f"{inner}{layout(k)}: {layout(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + indent + "}"
    if isinstance(value, list) and any(isinstance(v, list | dict) for v in value):
        return "[\n" + ",\n".join(inner + _line(v) for v in value) + "\n" + indent + "]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
