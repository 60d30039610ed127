"""Files that cannot be used: each gets a DataError of one line that names what is wrong, and nothing else."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.data.readers import common, npz
from cbm.data.transitions import Transitions
from cbm.errors import DataError
from logs import ROWS, good  # type: ignore[import-not-found]


def with_value(name: str, where: Any, value: float) -> dict[str, Any]:
    arrays = good()
    arrays[name][where] = value
    return arrays


def refused(path: Path | str, **options: Any) -> str:
    """The message of the DataError that the file must give: one line that starts with the file."""
    with pytest.raises(DataError) as caught:
        Transitions.load(path, **options)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert message.isprintable() and len(message) < 1500
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    return message


def refused_arrays(tmp_path: Path, arrays: dict[str, Any], **options: Any) -> str:
    np.savez(tmp_path / "log.npz", **arrays)
    return refused(tmp_path / "log.npz", **options)


def assert_contains(message: str, *parts: str) -> None:
    assert all(part in message for part in parts), message


# the file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_absent_directory_empty_and_foreign_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    assert_contains(refused(path), "no such file")
    path.mkdir()
    assert_contains(refused(path), "is a directory")
    path.rmdir()
    path.touch()
    assert_contains(refused(path), "empty")
    path.write_bytes(b"\x80\x04\x95hello\x00\xff" * 50)
    refused(path)
    os.unlink(path)
    os.mkfifo(path)
    assert_contains(refused(path), "not a regular file")


def test_other_suffixes_and_strange_paths(tmp_path: Path) -> None:
    (tmp_path / "log.dat").write_bytes(b"x")
    assert_contains(refused(tmp_path / "log.dat"), "unknown kind of file '.dat'", ".npz")
    with pytest.raises(DataError, match="is a directory"):
        Transitions.load(tmp_path)
    for name in ("a\0b.npz", "n" * 300 + ".npz", "new\nline.npz"):
        with pytest.raises(DataError) as caught:
            Transitions.load(tmp_path / name)
        assert str(caught.value).isprintable()


def test_a_single_array_is_no_npz(tmp_path: Path) -> None:
    with open(tmp_path / "log.npz", "wb") as handle:
        np.save(handle, np.zeros(3))
    assert_contains(refused(tmp_path / "log.npz"), "not an npz file")


def test_truncated_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **good())
    whole = (tmp_path / "log.npz").read_bytes()
    (tmp_path / "log.npz").write_bytes(whole[: len(whole) // 2])
    assert_contains(refused(tmp_path / "log.npz"), "truncated")


def test_wrong_checksum(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **good())
    whole = bytearray((tmp_path / "log.npz").read_bytes())
    whole[300] ^= 1  # inside the numbers of obs
    (tmp_path / "log.npz").write_bytes(whole)
    assert_contains(refused(tmp_path / "log.npz"), "array 'obs' is damaged", "CRC")


def test_more_than_memory_is_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "log.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("obs.npy", bytes(50_000_000))
    assert (tmp_path / "log.npz").stat().st_size < 100_000
    monkeypatch.setattr(common, "available_memory", lambda: 60_000_000)
    monkeypatch.setattr(npz, "_read_member", lambda *_: pytest.fail("must not be read"))
    assert_contains(refused(tmp_path / "log.npz"), "0.1 GB unpacked", "free memory")


def test_unknown_arrays_are_not_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **good(), pixels=np.empty(2, object))
    assert len(Transitions.load(tmp_path / "log.npz")) == ROWS


def test_header_that_lies_about_its_size(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**11, 3)}
    np.lib.format.write_array_header_1_0(buffer, header)
    with zipfile.ZipFile(tmp_path / "log.npz", "w") as archive:
        archive.writestr("obs.npy", buffer.getvalue() + bytes(80))
    assert_contains(refused(tmp_path / "log.npz"), "array 'obs' is damaged")


class Malicious:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["obs", "action", "names", "reward_x", "truth", "discrete_actions"])
def test_pickles_are_never_run(tmp_path: Path, name: str) -> None:
    sentinel = tmp_path / "sentinel"
    bait = Malicious(sentinel)
    message = refused_arrays(tmp_path, good() | {name: np.array([bait, bait], dtype=object)})
    assert_contains(message, f"'{name}'", "object arrays are not read")
    (tmp_path / "log.npz").write_bytes(pickle.dumps(bait))
    refused(tmp_path / "log.npz")
    record = np.zeros(2, [("a", float), ("b", object)])
    record["b"] = bait
    assert_contains(refused_arrays(tmp_path, good() | {name: record}), "object arrays are not read")
    assert not sentinel.exists()
    pickle.loads(pickle.dumps(bait))
    assert sentinel.exists()  # so the bait does work


# arrays -----------------------------------------------------------------------------------------------


def test_missing_arrays_and_near_misses(tmp_path: Path) -> None:
    arrays = good(next_obs=None)
    assert_contains(refused_arrays(tmp_path, arrays), "missing array 'next_obs' (found: 'action', 'names', 'obs'")
    arrays |= {"next_observations": np.zeros(3), "pixels": np.zeros(3)}
    message = refused_arrays(tmp_path, arrays)
    assert_contains(message, "found 'next_observations': did you mean 'next_obs'?", "'pixels'")
    assert message.count("did you mean") == 1
    message = refused_arrays(tmp_path, {"observations": 1, "actions": 2, "rewards": 3, "Next_Obs": 4})
    assert_contains(message, "missing arrays 'obs', 'action', 'next_obs'", "did you mean 'reward'?")
    assert message.count("did you mean") == 4
    assert_contains(refused_arrays(tmp_path, {}), "found: no arrays")


SHAPES: list[tuple[dict[str, Any], list[str]]] = [
    ({"obs": np.zeros(ROWS)}, ["'obs'", f"({ROWS},)"]),
    ({"obs": np.zeros((ROWS, 3, 1))}, ["'obs'", f"({ROWS}, 3, 1)"]),
    ({"obs": np.zeros((ROWS, 0)), "names": None}, ["'obs'", "no columns"]),
    ({"obs": np.float64(3)}, ["'obs'", "()"]),
    ({"next_obs": np.zeros((ROWS, 2))}, ["'next_obs'", f"({ROWS}, 2)", f"({ROWS}, 3)"]),
    ({"next_obs": np.zeros((ROWS - 1, 3))}, ["'next_obs'", f"({ROWS - 1}, 3)", f"({ROWS}, 3)"]),
    ({"action": np.zeros(ROWS + 1)}, ["'action'", f"({ROWS + 1},)", f"({ROWS}, "]),
    ({"action": np.zeros((ROWS, 0))}, ["'action'", f"({ROWS}, 0)"]),
    ({"action": np.zeros((ROWS, 2, 2))}, ["'action'", f"({ROWS}, 2, 2)"]),
    ({"action": np.float64(1)}, ["'action'", "()"]),
    ({"reward": np.zeros((ROWS, 1))}, ["'reward'", f"({ROWS}, 1)", f"({ROWS},)"]),
    ({"reward_pick": np.zeros(3)}, ["'reward_pick'", "(3,)", f"({ROWS},)"]),
    ({"episode": np.zeros(3, int)}, ["'episode'", "(3,)", f"({ROWS},)"]),
    ({"terminated": np.zeros((ROWS, 2))}, ["'terminated'", f"({ROWS}, 2)"]),
    ({"truth": np.zeros((3, 3))}, ["'truth'", "(3, 3)", "(3, 4)"]),
    ({"truth_reward_pick": np.zeros(4)}, ["'truth_reward_pick'", "(4,)", "(3,)"]),
    ({"low": np.zeros(2)}, ["'low'", "(2,)", "(3,)"]),
    ({"names": np.array(["x", "y"])}, ["'names'", "(2,)", "(3,)"]),
    ({"names": np.array([["x", "y", "z"]])}, ["'names'", "(1, 3)"]),
    ({"action_names": np.array(["u"])}, ["'action_names'", "(1,)", "(2,)"]),
    ({"kinds": np.array(["binary"])}, ["'kinds'", "(1,)", "(3,)"]),
    ({name: np.zeros((1, 3)) for name in ("obs", "next_obs")}, ["'obs'", "(1, 3)", "at least 2 rows"]),
    ({name: np.zeros((0, 3)) for name in ("obs", "next_obs")}, ["'obs'", "(0, 3)", "at least 2 rows"]),
]


TYPES: list[tuple[dict[str, Any], list[str]]] = [
    ({"obs": np.full((ROWS, 3), "a")}, ["'obs'", "not numeric", "<U1"]),
    ({"obs": np.zeros((ROWS, 3), complex)}, ["'obs'", "complex128"]),
    ({"obs": np.zeros((ROWS, 3), "M8[s]")}, ["'obs'", "datetime64"]),
    ({"next_obs": np.zeros(ROWS, [("a", float), ("b", int)])}, ["'next_obs'", "not numeric"]),
    ({"action": np.zeros((ROWS, 2), complex)}, ["'action'", "complex128"]),
    ({"reward": np.full(ROWS, "high")}, ["'reward'", "not numeric"]),
    ({"episode": np.full(ROWS, "one")}, ["'episode'", "not numeric"]),
    ({"names": np.arange(3)}, ["'names'", "strings", "int64"]),
    ({"names": np.array([b"a", b"\xff", b"c"])}, ["'names'", "UTF-8"]),
    ({"names": np.array(["x", "x", "y"])}, ["'x' is used twice", "columns 0 and 1"]),
    ({"names": np.array(["x", "", "y"])}, ["name ''", "empty"]),
    ({"names": np.array(["x", "a\nb", "y"])}, [r"'a\nb'", "newline"]),
    ({"names": np.array(["x", "\x1b[2J", "y"])}, ["control"]),
    ({"names": np.array(["x", "action", "y"])}, ["'action' is reserved"]),
    ({"action_names": np.array(["u", "u"])}, ["'u' is used twice"]),
    ({"kinds": np.array(["binary", "vector", "angle"])}, ["variable 'speed'", "unknown kind 'vector'"]),
    ({"reward_action": np.arange(ROWS)}, ["reward 'action'"]),
    ({"reward_reward": np.arange(ROWS)}, ["'reward' and 'reward_reward'"]),
    ({"reward_": np.arange(ROWS)}, ["'reward_'", "no name"]),
    ({"reward_a\tb": np.arange(ROWS)}, [r"'a\tb'", "control"]),
    ({"discrete_actions": np.array(3)}, ["one column"]),
    ({"discrete_actions": np.array(2.5)}, ["'discrete_actions'", "one integer"]),
    ({"discrete_actions": np.array([2, 3])}, ["'discrete_actions'", "one integer"]),
    ({"discrete_actions": np.array(0), "action": np.arange(ROWS)}, ["at least 1"]),
    ({"low": np.array([0, np.inf, 0])}, ["'speed'", "finite"]),
    ({"low": np.ones(3), "high": np.zeros(3)}, ["'x'", "above"]),
]


@pytest.mark.parametrize(("changes", "parts"), SHAPES + TYPES)
def test_shapes_types_and_names(tmp_path: Path, changes: dict[str, Any], parts: list[str]) -> None:
    assert_contains(refused_arrays(tmp_path, good(**changes)), *parts)


VALUES: list[tuple[dict[str, Any], list[str]]] = [
    (with_value("obs", (slice(7, 9), 1), np.nan), ["'obs'", "'speed'", "row 7", "nan is not", "(2 such"]),
    (with_value("next_obs", (29, 2), -np.inf), ["'next_obs'", "'door'", "row 29", "-inf"]),
    (with_value("action", (3, 1), np.inf), ["'action'", "'action_1'", "row 3", "inf"]),
    (with_value("reward", 5, np.nan), ["'reward'", "row 5", "nan"]),
    (with_value("obs", (4, 0), 1e16), ["'obs'", "'x'", "row 4", "1e+16", "beyond 1e+15"]),
    (with_value("obs", (4, 0), -3e38), ["'obs'", "'x'", "row 4", "-3e+38"]),
    (with_value("reward", 6, 1e300), ["'reward'", "row 6", "1e+300"]),
    (good(reward_pick=np.where(np.arange(ROWS) > 3, np.nan, 0)), ["'reward_pick'", "row 4", "(26 such"]),
    (good(obs=np.full((ROWS, 3), np.longdouble("1e400"))), ["'obs'", "row 0", "inf"]),
    (good(action=np.arange(ROWS) - 2), ["'action'", "row 0", "-2", "(2 such rows)"]),
    (good(action=np.arange(ROWS), discrete_actions=9), ["'action'", "row 9", "9 is not one of", "0 to 8"]),
    (good(action=np.arange(ROWS) / 2, discrete_actions=20), ["'action'", "row 1", "0.5"]),
    (good(action=np.arange(ROWS) * 10**9), ["discrete actions", "floats"]),
    (good(terminated=np.arange(ROWS)), ["'terminated'", "row 2", "2 is neither 0 nor 1"]),
    (good(truncated=np.where(np.arange(ROWS) == 8, np.nan, 0)), ["'truncated'", "row 8", "nan"]),
    (good(truth=np.eye(3, 4) * 2), ["'truth'", "row 0, column 0", "2.0"]),
    (good(episode=np.arange(ROWS) / 2), ["'episode'", "row 1", "0.5 is not a whole number"]),
    (good(episode=np.full(ROWS, np.inf)), ["'episode'", "row 0", "inf"]),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "parts"), VALUES)
def test_values(tmp_path: Path, arrays: dict[str, Any], parts: list[str]) -> None:
    assert_contains(refused_arrays(tmp_path, arrays), *parts)


def test_constants_are_refused_unless_allowed(tmp_path: Path) -> None:
    still = good()
    still["obs"][:, 1] = still["next_obs"][:, 1] = 2.5
    message = refused_arrays(tmp_path, still)
    assert_contains(message, "variable 'speed' is constant: 2.5", "obs and next_obs", f"rows 0 to {ROWS - 1}")
    assert Transitions.load(tmp_path / "log.npz", allow_constant=True).factors.kinds[1] == "binary"
    still["obs"][:] = still["next_obs"][:] = 0
    assert_contains(refused_arrays(tmp_path, still), "'x' is constant", "so are 'speed', 'door'")

    changed_once = good()
    changed_once["obs"][:, 1] = changed_once["next_obs"][:, 1] = 2.5
    changed_once["next_obs"][-1, 1] = 2.6
    np.savez(tmp_path / "log.npz", **changed_once)
    assert len(Transitions.load(tmp_path / "log.npz")) == ROWS

    for changes, parts in (
        ({"reward_pick": np.full(ROWS, 3.0)}, ["'reward_pick'", "reward 'pick' is constant: 3"]),
        ({"action": np.full((ROWS, 2), [1.0, 2.0])}, ["'action' is constant", "[1.0, 2.0]"]),
        ({"action": np.zeros(ROWS, int)}, ["'action' is constant", "[0]"]),
    ):
        assert_contains(refused_arrays(tmp_path, good(**changes)), *parts)
        assert len(Transitions.load(tmp_path / "log.npz", allow_constant=True)) == ROWS
    one_column = good()
    one_column["action"][:, 0] = 1
    np.savez(tmp_path / "log.npz", **one_column)
    assert len(Transitions.load(tmp_path / "log.npz")) == ROWS


# tables -----------------------------------------------------------------------------------------------

TABLES: list[tuple[str, list[str]]] = [
    ("a,b\n1,2\n", ["which columns are the action?", "'a', 'b'"]),
    ("obs:x;next_obs:x;action\n1;2;3\n", ["at least 2 rows"]),
    ("obs:x,next_obs:x\n1,2\n2,3\n", ["no column is called 'action'"]),
    ("obs:x,obs:x,action\n1,2,3\n", ["'obs:x' occurs more than once"]),
    ("obs:x,obs: x,action\n1,2,3\n", ["'obs:x' occurs more than once"]),
    ("obs:x,obs:y,next_obs:x,action\n1,2,3,4\n", ["variable 'y'", "no column 'next_obs:y'"]),
    ("obs:x,next_obs:y,next_obs:x,action\n1,2,3,4\n", ["variable 'y'", "no column 'obs:y'"]),
    ("obs:x,next_obs:x,action,action:u\n1,2,3,4\n", ["'action' as well as"]),
    ("obs:x,next_obs:x,action\n", ["no rows"]),
    ("obs:x,next_obs:x,action\n1,2,3\n", ["at least 2 rows"]),
    ("obs:x,action\n1,2\n", ["one row", "no row to pair"]),
    ("obs:x,action,episode\n1,2,0\n2,3,1\n3,4,2\n", ["3 rows", "consecutive"]),
    ("obs:x,next_obs:x,action\n1,2,3\n4,five,6\n", ["'next_obs:x', row 1", "'five' is not a number"]),
    ("obs:x,next_obs:x,action\n1,2,3\n4,inf,6\n", ["'next_obs:x', row 1", "inf"]),
    ("obs:x,next_obs:x,action\n1,2,3\n4,5\n", ["row 1 has 2 cells", "header has 3"]),
    ("obs:x,next_obs:x,action\n1,2,3\n4,5,6,7\n", ["row 1 has 4 cells", "header has 3"]),
    ("obs:x,obs:,action\n1,2,3\n2,3,4\n3,4,5\n", ["name ''", "empty"]),
    ("obs:x,action,reward:\n1,2,3\n2,3,4\n3,4,5\n", ["no name"]),
    ("obs:action,action\n1,2\n2,3\n3,4\n", ["reserved"]),
    ("obs:x,action\n1,2\nnan,3\n3,4\n", ["'obs:x', row 1", "nan"]),
    ("obs:x,action\n1,-1\n2,3\n3,4\n", ["'action'", "row 0", "-1"]),
    ("obs:x,action\n5,1\n5,0\n5,1\n", ["variable 'x' is constant"]),
    ('obs:x,action\n1,"2\n2,3\n3,4\n', ["not a readable CSV file", "unexpected end of data"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "parts"), TABLES)
def test_bad_csv(tmp_path: Path, text: str, parts: list[str]) -> None:
    (tmp_path / "log.csv").write_text(text)
    assert_contains(refused(tmp_path / "log.csv"), *parts)


def test_bad_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "log.parquet"
    base = {"obs:x": [1.0, 2, 3], "next_obs:x": [2.0, 3, 4], "action": [0, 1, 0]}
    for changes, parts in (
        ({"obs:x": ["a", "b", "c"]}, ["'obs:x'", "not numeric", "'a'"]),
        ({"obs:x": [None, None, 3.0]}, ["at least 2 rows"]),
        ({"obs:x": [None, None, None]}, ["'obs:x' is empty"]),
        ({"obs:x": [[1], [2], [3]]}, ["variable 'x'", "no column 'obs:x'"]),
        ({"obs:y": [1, 2, 3]}, ["variable 'y'", "no column 'next_obs:y'"]),
    ):
        parquet.write_table(pyarrow.table(base | changes), path)
        assert_contains(refused(path), *parts)
    for metadata in (b"{", b"3", b'{"kinds": 3}', b'{"truth": [[1], [2, 3]]}', b'{"kinds": ["odd"]}'):
        parquet.write_table(pyarrow.table(base).replace_schema_metadata({b"cbm": metadata}), path)
        refused(path)
    parquet.write_table(pyarrow.table(base), path)
    assert len(Transitions.load(path)) == 3
    path.write_bytes(path.read_bytes()[:-20])
    assert_contains(refused(path), "not a readable Parquet file")
