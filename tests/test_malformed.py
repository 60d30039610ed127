"""Damaged and made-up files: every reader answers with a DataError of one line, or reads them; nothing is run."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cbm.data.log import read_log
from cbm.data.readers import READERS
from cbm.data.roles import Roles
from cbm.data.transitions import Transitions
from cbm.errors import DataError
from every_format import ROLES, WRITERS, recording, write_bag  # type: ignore[import-not-found]

FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.filterwarnings("ignore")  # libraries may warn of damaged files as they like

cells = st.one_of(
    st.floats(allow_nan=True).map(str), st.integers(-3, 40).map(str), st.text(max_size=6),
    st.sampled_from(["", "nan", "inf", "true", "2024-01-02T03:04:05", '"', "=1+1", "1e999", "\x00"]),
    st.sampled_from(["0,5", "#N/A", "# x", "sep=;"]),
)  # fmt: skip
names = st.one_of(
    st.sampled_from(["t", "time", "run", "episode", "action", "obs:x", "next_obs:x", "reward", "x", "done", "", "cmd"]),
    st.sampled_from(["#", "# t", "sep=;", "Unnamed: 0", "Time (s)"]),
    st.text(max_size=5),
)


def harmless(source: Any, **roles: Any) -> None:
    """Read, or refused in one printable line without a traceback behind it."""
    try:
        read_log(source, Roles.of(**roles), allow_constant=True)
    except DataError as error:
        assert str(error).isprintable() and len(str(error)) < 3000, str(error)
        assert error.__cause__ is None


@FEW
@given(st.lists(names, min_size=1, max_size=6), st.data(), st.sampled_from([".csv", ".tsv"]))
def test_any_table_of_text(tmp_path_factory: pytest.TempPathFactory, header: list[str], data: Any, suffix: str) -> None:
    mark = data.draw(st.sampled_from([",", ";", "\t", "|"]))
    rows = data.draw(st.lists(st.lists(cells, min_size=len(header), max_size=len(header)), max_size=8))
    path = tmp_path_factory.mktemp("text") / f"log{suffix}"
    path.write_text("\n".join(mark.join(row) for row in [header, *rows]), encoding="utf-8", errors="replace")
    harmless(path)
    harmless(path, obs=header[0] or "*", action=header[-1] or "*", time=header[0] or "*")


@FEW
@given(st.dictionaries(names, st.lists(st.one_of(st.none(), st.floats(), st.integers(-5, 5), st.text(max_size=3),
       st.booleans(), st.lists(st.floats(), max_size=2)), min_size=4, max_size=4), min_size=1, max_size=5))  # fmt: skip
def test_any_frame(columns: dict[str, list[Any]]) -> None:
    arrays = {name: np.array(values, object) for name, values in columns.items()}
    harmless(arrays, action="*") if all(value.ndim == 1 for value in arrays.values()) else None
    harmless({name: value for name, value in arrays.items() if value.ndim == 1} or {"x": np.zeros(3)})


values = st.lists(st.one_of(st.none(), st.floats(), st.integers(-5, 5)), min_size=4, max_size=4)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@FEW
@given(columns=st.dictionaries(names, values, min_size=1, max_size=5))
def test_any_frame_of_a_library(library: str, columns: dict[str, list[Any]]) -> None:
    module = pytest.importorskip(library)
    plain = {name: [None if value is None else float(value) for value in column] for name, column in columns.items()}
    frame = module.table(plain) if library == "pyarrow" else module.DataFrame(plain)
    harmless(frame)
    harmless(frame, action="*")


def test_a_zero_byte_in_the_name_of_a_column_does_not_end_the_process() -> None:
    polars = pytest.importorskip("polars")
    harmless(polars.DataFrame({"a\0b": [1.0, 2.0, 3.0], "x": [1.0, 2.0, 4.0]}), action="x")


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
arrays = st.builds(
    lambda shape, kind: np.zeros(shape, kind),
    shapes, st.sampled_from([np.float32, np.int64, bool, np.uint8, "S2", "U2", np.complex64]),
)  # fmt: skip


class MadeUp:
    """Something with the fields of a buffer, and whatever in them."""

    def __init__(self, fields: dict[str, Any]):
        vars(self).update(fields)


SHOWS = {
    "stable-baselines3": ["observations", "actions", "rewards", "pos", "full"],
    "tianshou": ["sample_indices", "maxsize", "prev"],
}
"""By these a buffer is known."""
fields = st.sampled_from([
    "next_observations", "dones", "timeouts", "buffer_size", "n_envs", "optimize_memory_usage", "generator_ready",
    "episode_starts", "obs", "obs_next", "act", "rew", "done", "terminated", "truncated", "last_index",
])  # fmt: skip
contents = st.one_of(arrays, st.integers(-2, 9), st.booleans(), st.none(), st.text(max_size=2))


@pytest.mark.parametrize("library", SHOWS)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_buffer(library: str, data: Any) -> None:
    given_fields = data.draw(st.dictionaries(fields, contents))
    harmless(MadeUp(given_fields | {name: data.draw(contents) for name in SHOWS[library]}))


@FEW
@given(st.dictionaries(st.sampled_from(["obs", "next_obs", "action", "reward", "episode", "names", "kinds", "truth",
       "terminated", "action_names", "discrete_actions", "low"]), arrays, min_size=1))  # fmt: skip
def test_any_archive_of_arrays(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("npz") / "log.npz"
    np.savez(path, **content)
    harmless(path)


groups = st.sampled_from(["observations", "actions", "rewards", "terminals", "timeouts", "data/demo_0/obs/x", "data",
                          "data/demo_0/actions", "data/demo_1/actions", "episode_0/observations", "episode_0/actions",
                          "episode_0/rewards", "episode_0/terminations", "episode_1/observations/x"])  # fmt: skip
numbers = arrays.filter(lambda array: array.dtype.kind != "U")  # which HDF5 does not know


@FEW
@given(st.dictionaries(groups, numbers, min_size=1))
def test_any_tree_of_hdf5(tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path_factory.mktemp("hdf5") / "log.hdf5"
    with h5py.File(path, "w") as file:
        for name, value in sorted(content.items()):
            parts = name.split("/")
            if not any(isinstance(file.get("/".join(parts[:k])), h5py.Dataset) for k in range(1, len(parts))):
                file[name] = value
    harmless(path)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 9), st.floats(), st.text(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


@FEW
@given(st.dictionaries(st.sampled_from(["codebase_version", "fps", "features", "data_path", "total_episodes"]),
       json_values), json_values)  # fmt: skip
def test_any_description_of_a_lerobot_dataset(
    tmp_path_factory: pytest.TempPathFactory, info: dict[str, Any], feature: Any
) -> None:
    log = WRITERS["lerobot_v3"](tmp_path_factory.mktemp("lerobot"), recording(rows=8))[0]
    file = log / "meta" / "info.json"
    sound = json.loads(file.read_text())
    for content in (info, sound | info, sound | {"features": sound["features"] | {"action": feature}}):
        file.write_text(json.dumps(content))
        harmless(log)


def test_every_reader_is_tried() -> None:
    tried = {"ros" if kind in ("mcap", "sqlite3") else kind.partition("_")[0] for kind in [*WRITERS, "mcap", "sqlite3"]}
    assert tried >= set(READERS)


def files_of(kind: str, folder: Path) -> tuple[Path, list[Path]]:
    """A sound log, and the files of it that can be damaged."""
    columns = recording(rows=8)
    log = write_bag(folder, columns, kind) if kind in ("mcap", "sqlite3") else WRITERS[kind](folder, columns)[0]
    return log, [log] if log.is_file() else sorted(file for file in log.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder for each kind, made once."""
    return {kind: tmp_path_factory.mktemp(kind) for kind in [*WRITERS, "mcap", "sqlite3"]}


@pytest.mark.parametrize("kind", [*WRITERS, "mcap", "sqlite3"])
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_bytes(kind: str, sound: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    folder = sound[kind]
    if not any(folder.iterdir()):
        files_of(kind, folder)
    work = tmp_path_factory.mktemp("damaged")
    shutil.copytree(folder, work, dirs_exist_ok=True)
    (log,) = work.iterdir()
    files = [log] if log.is_file() else sorted(file for file in log.rglob("*") if file.is_file())
    file = data.draw(st.sampled_from(files))
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, max(0, len(content) - 1)))
        change = data.draw(st.sampled_from(["cut", "flip", "insert", "drop"]))
        if change == "cut":
            del content[start:]
        elif change == "drop":
            del content[start : start + 7]
        else:
            content[start : start + (change == "flip")] = data.draw(st.binary(min_size=1, max_size=6))
    file.write_bytes(bytes(content))
    harmless(log, **(ROLES if kind in ("csv", "semicolons", "tsv", "parquet", "arrow") else {}))
    harmless(log, action="*")
    shutil.rmtree(work)


class Bait:
    """Unpickling this makes a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize(
    "suffix", [".csv", ".tsv", ".npz", ".parquet", ".arrow", ".hdf5", ".mcap", ".db3", ".pkl", ".pt"]
)
def test_pickles_are_run_by_no_reader(tmp_path: Path, suffix: str) -> None:
    bait = pickle.dumps(Bait(tmp_path / "run"))
    buffer = io.BytesIO()
    np.save(buffer, np.array([Bait(tmp_path / "run")], object), allow_pickle=True)
    for content in (bait, buffer.getvalue()):
        (tmp_path / f"log{suffix}").write_bytes(content)
        with pytest.raises(DataError):
            Transitions.load(tmp_path / f"log{suffix}")
    assert not (tmp_path / "run").exists()


def test_an_hdf5_file_runs_and_fetches_nothing(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "log.hdf5"
    with h5py.File(path, "w") as file:
        file["observations"] = h5py.ExternalLink("elsewhere.hdf5", "/secret")
        file["actions"] = np.zeros((3, 1))
    harmless(path)
    with h5py.File(path, "w") as file:
        file["observations"] = np.void(pickle.dumps(Bait(tmp_path / "run")))
        file["actions"] = np.array([b"a", b"b"])
    harmless(path)
    assert not (tmp_path / "run").exists()
