"""Writing files so that a reader never sees half of one, and JSON in and out."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cbm.errors import DataError


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to: under a temporary name in the same directory, flushed and renamed over `path` at the end."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        # "x" and not tempfile.mkstemp: the file gets the permissions the user's umask asks for.
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise DataError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """`atomic_file` in one go."""
    with atomic_file(path) as file:
        file.write(data)


def atomic_write_text(path: str | os.PathLike[str], text: str) -> None:
    """`atomic_write_bytes` of the text in UTF-8, line ends as given."""
    atomic_write_bytes(path, text.encode("utf-8"))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not a JSON file ({error})") from error


def layout(value: Any, indent: str = "") -> str:
    """JSON text that a person can read and a diff can follow: one key a line, one matrix row or list entry a line."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        items = [f"{inner}{layout(k)}: {layout(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + "\n" + indent + "}"
    if isinstance(value, list) and any(isinstance(v, list | dict) for v in value):
        return "[\n" + ",\n".join(inner + _line(v) for v in value) + "\n" + indent + "]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
