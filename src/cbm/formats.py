"""Files of transitions: npz, CSV, Parquet and Minari, in and out.

Every reader returns the arrays of the npz contract by name (`obs`, `action`, `next_obs`, `reward_<name>`,
`episode`, `names`, ...) and every writer takes them; `cbm.transitions` gives them meaning and checks their
contents. Nothing here unpickles. Whatever a damaged file makes a parser raise leaves as a `DataError`. The
layout of CSV and Parquet tables is described in `cbm.tables`.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from cbm.errors import DataError
from cbm.factors import Factors
from cbm.tables import (
    ABOUT_COLUMNS,
    FLAGS,
    Arrays,
    check_header,
    column_name,
    from_columns,
    is_known_column,
    parse_cells,
    to_columns,
)

SUFFIXES = (".npz", ".csv", ".parquet")
MINARI = "minari:"
_METADATA_KEY = b"cbm"
_MEMORY_SHARE = 0.8


def read(path: str | os.PathLike[str]) -> Arrays:
    """Arrays of a file, by its suffix, or of a Minari dataset, by the prefix `minari:`."""
    if isinstance(path, str) and path.startswith(MINARI):
        return read_minari(path.removeprefix(MINARI))
    file = Path(path)
    try:
        if file.is_dir():
            raise DataError("is a directory, not a file")
        if not file.exists():
            raise DataError("no such file")
        if not file.is_file():
            raise DataError("is not a regular file")
        reader = {".npz": read_npz, ".csv": read_csv, ".parquet": read_parquet}[_suffix(path)]
        if file.stat().st_size == 0:
            raise DataError("the file is empty (0 bytes)")
        return reader(file)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or _reason(error)}") from None


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Write under a temporary name in the same directory, then rename: a file is whole or not there."""
    writer = {".npz": _write_npz, ".csv": _write_csv, ".parquet": _write_parquet}[_suffix(path)]
    try:
        with _replacing(Path(path)) as handle:
            writer(handle, arrays)
    except DataError:
        raise
    except (OSError, ValueError) as error:  # a path with a zero byte is a ValueError
        raise DataError(f"cannot be written: {getattr(error, 'strerror', None) or _reason(error)}") from None


def is_known_array(name: str) -> bool:
    exact = ("obs", "action", "next_obs", "reward", *FLAGS, *ABOUT_COLUMNS)
    return name in exact or name.startswith(("reward_", "context_", "truth_reward_"))


def is_metadata(name: str) -> bool:
    """Arrays that a table has no columns for; names are in its header."""
    described = name in ABOUT_COLUMNS and name not in ("names", "action_names")
    return described or name.startswith("truth_reward_")


# npz --------------------------------------------------------------------------------------------------


def read_npz(path: Path) -> Arrays:
    """Arrays of the contract; unknown ones are listed with an empty array and never decompressed."""
    if not zipfile.is_zipfile(path):
        raise DataError("not an npz file, or a truncated one (no zip directory in it)")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
            known = {name: entry for name, entry in entries.items() if is_known_array(name)}
            _check_memory(entry.file_size for entry in known.values())
            arrays = {name: _read_member(archive, entry, name) for name, entry in known.items()}
            return arrays | {name: np.empty(0) for name in entries if name not in known}
    except DataError:
        raise
    except Exception as error:  # a damaged directory can raise almost anything
        raise DataError(f"damaged npz file: {_reason(error)}") from None


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
        raise DataError(f"array {name!r} is damaged: {_reason(error)}") from None


def _write_npz(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    np.savez(handle, **arrays)  # type: ignore[arg-type]


# tables -----------------------------------------------------------------------------------------------


def read_csv(path: Path) -> Arrays:
    try:
        with open(path, newline="", encoding="utf-8-sig") as handle:
            rows = (row for row in csv.reader(handle, skipinitialspace=True) if row)
            header = [column_name(cell) for cell in next(rows, [])]
            check_header(header)
            return from_columns(parse_cells(header, rows))
    except (csv.Error, UnicodeError) as error:
        raise DataError(f"not a readable CSV file: {_reason(error)}") from None


def read_parquet(path: Path) -> Arrays:
    parquet = _optional("pyarrow.parquet", "reading Parquet")
    try:
        with parquet.ParquetFile(path) as file:
            header = [column_name(name) for name in file.schema_arrow.names]
            check_header(header)
            _check_memory(file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups))
            used = [(raw, name) for raw, name in zip(file.schema_arrow.names, header, strict=True)
                    if is_known_column(name)]  # fmt: skip
            table = file.read(columns=[raw for raw, _ in used])
            columns = {name: table.column(raw).to_numpy() for raw, name in used}
            about = json.loads((file.schema_arrow.metadata or {}).get(_METADATA_KEY, b"{}"))
            extra = {name: np.array(about[name]) for name in about if is_metadata(name)}
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"not a readable Parquet file: {_reason(error)}") from None
    return from_columns(columns) | extra


def _write_csv(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    columns = to_columns(arrays)
    with io.TextIOWrapper(handle, encoding="utf-8", newline="", write_through=True) as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        # Python writes the shortest digits that give the same double, and keeps 1.0 apart from the integer 1
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))


def _write_parquet(handle: IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    pyarrow = _optional("pyarrow", "writing Parquet")
    columns = to_columns(arrays)
    about = {name: values.tolist() for name, values in arrays.items() if is_metadata(name)}
    table = pyarrow.table(columns).replace_schema_metadata({_METADATA_KEY: json.dumps(about)})
    _optional("pyarrow.parquet", "writing Parquet").write_table(table, handle)


# Minari -----------------------------------------------------------------------------------------------


def read_minari(name: str) -> Arrays:
    """A Minari dataset that is already on this machine; nothing is downloaded."""
    minari = _optional("minari", "reading a Minari dataset")
    try:
        dataset = minari.load_dataset(name, download=False)
        factors = Factors.from_spaces(dataset.observation_space, dataset.action_space)
        return _from_episodes(factors, dataset.observation_space, list(dataset.iterate_episodes()))
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"no such Minari dataset on this machine: 'minari download {name}' fetches it") from None
    except Exception as error:
        raise DataError(f"the Minari dataset cannot be read: {_reason(error)}") from None


def _from_episodes(factors: Factors, observation_space: Any, episodes: list[Any]) -> Arrays:
    episodes = [episode for episode in episodes if len(episode.rewards)]
    if not episodes:
        raise DataError("the Minari dataset has no steps")
    states = [_flat_observations(observation_space, episode.observations) for episode in episodes]
    steps = [len(episode.rewards) for episode in episodes]
    for episode, state, count in zip(episodes, states, steps, strict=True):
        if len(state) != count + 1:
            raise DataError(f"episode {episode.id}: {len(state)} observations for {count} steps, not {count + 1}")
    actions = [np.asarray(episode.actions).reshape(n, -1) for episode, n in zip(episodes, steps, strict=True)]
    arrays = {
        "obs": np.concatenate([state[:-1] for state in states]),
        "action": np.concatenate(actions),
        "next_obs": np.concatenate([state[1:] for state in states]),
        "reward": np.concatenate([episode.rewards for episode in episodes]),
        "terminated": np.concatenate([episode.terminations for episode in episodes]),
        "truncated": np.concatenate([episode.truncations for episode in episodes]),
        "episode": np.repeat(np.arange(len(episodes)), steps),
        "names": np.array(factors.names),
        "groups": np.array([variable.group for variable in factors.variables]),
        "action_names": np.array(factors.action_names),
    }
    if factors.discrete_actions is not None:
        arrays["discrete_actions"] = np.array(factors.discrete_actions)
    return arrays


def _flat_observations(space: Any, values: Any) -> np.ndarray:
    """Observations of an episode as rows, in the order of `Factors.from_spaces`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return np.hstack([_flat_observations(part, values[key]) for key, part in space.spaces.items()])
    if isinstance(space, spaces.Discrete):
        return (np.asarray(values).reshape(-1, 1) == space.start + np.arange(space.n)).astype(float)
    rows = np.asarray(values)
    return rows.reshape(len(rows), -1)


# shared -----------------------------------------------------------------------------------------------


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"unknown kind of file {suffix!r} (one of {', '.join(SUFFIXES)}, or {MINARI}NAME)")
    return suffix


def _optional(module: str, purpose: str) -> Any:
    """Import where it is used, so that other files do without it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise DataError(f"{purpose} needs {package}, which is not installed: pip install {package}") from None


def _reason(error: BaseException) -> str:
    """What a parser said, as one printable line: it may quote the damaged bytes."""
    text = "".join(c if c.isprintable() else "?" for c in " ".join(str(error).split()))
    return f"{text:.200}" if text else type(error).__name__


def _check_memory(sizes: Iterable[int]) -> None:
    needed, available = sum(sizes), _available_memory()
    if available is not None and needed > _MEMORY_SHARE * available:
        raise DataError(
            f"its arrays take {needed / 1e9:.1f} GB unpacked, more than {_MEMORY_SHARE:.0%} of the "
            f"{available / 1e9:.1f} GB of free memory"
        )


def _available_memory() -> int | None:
    """Bytes that can be used without swapping, or None where the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as handle:
            yield handle
        os.replace(temporary, path)
    except BaseException:  # an interrupt as well: no half-written file stays behind
        temporary.unlink(missing_ok=True)
        raise
