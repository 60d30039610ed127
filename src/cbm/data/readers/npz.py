"""npz files: the arrays of the contract by their names. Nothing is unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from cbm.data.readers.common import check_memory, reason
from cbm.data.readers.tables import Arrays, is_known_array
from cbm.data.reading_notes import ReadingNotes
from cbm.data.roles import Roles
from cbm.data.series import Reading
from cbm.errors import DataError


def read(path: Path, roles: Roles) -> Reading:
    """Arrays by their names: their columns have no names, so roles cannot be assigned."""
    if roles.named:
        raise DataError("an npz file has arrays, not columns: --obs, --action and so on are for tables")
    arrays = _read(path)
    rows = next(iter(np.shape(arrays.get("obs", ()))), 0)
    return Reading(arrays, ReadingNotes("npz", rows, episode=_episodes(arrays)))


def _episodes(arrays: Arrays) -> str:
    if "episode" in arrays:
        return "array 'episode'"
    return "flags" if {"terminated", "truncated"} & set(arrays) else "rows that continue each other"


def _read(path: Path) -> Arrays:
    """Arrays of the contract; unknown ones are listed with an empty array and never decompressed."""
    if not zipfile.is_zipfile(path):
        raise DataError("not an npz file, or a truncated one (no zip directory in it)")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            known = {name: entry for name, entry in entries.items() if is_known_array(name)}
            check_memory(entry.file_size for entry in known.values())
            arrays = {name: _read_member(archive, entry, name) for name, entry in known.items()}
            return arrays | {name: np.empty(0) for name in entries if name not in known}
    except DataError:
        raise
    except Exception as error:  # a damaged directory can raise almost anything
        raise DataError(f"damaged npz file: {reason(error)}") from None


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, name: str) -> np.ndarray:
    try:
        with archive.open(entry) as member:
            array = np.lib.format.read_array(member, allow_pickle=False)
            if member.read(1):  # also makes zipfile compare the checksum, which it does at the end only
                raise DataError(f"array {name!r} has bytes after its end")
            return array
    except DataError:
        raise
    except Exception as error:  # zlib, struct, tokenizer, memory: all mean that the bytes are no array
        if "allow_pickle" in str(error):
            raise DataError(f"array {name!r} is an object array; object arrays are not read") from None
        raise DataError(f"array {name!r} is damaged: {reason(error)}") from None


def write(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    np.savez(handle, **arrays)  # type: ignore[arg-type]
