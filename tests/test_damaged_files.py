"""Randomly damaged files: every one is either read as sound transitions or refused with a DataError."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cbm.data.transitions import Transitions
from cbm.errors import DataError
from logs import ROWS, good  # type: ignore[import-not-found]


def npz_bytes(save: Callable[..., None] = np.savez) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **good(episode=np.arange(ROWS), kinds=np.array(["continuous"] * 3)))
    return buffer.getvalue()


STORED, PACKED = npz_bytes(), npz_bytes(np.savez_compressed)
FUZZ = settings(max_examples=150, deadline=None)


def sound_or_refused(path: Path) -> None:
    """The only two outcomes that a file may have."""
    try:
        data = Transitions.load(path)
    except DataError as error:
        assert str(error).isprintable()
        return
    rows, d = data.obs.shape
    assert data.next_obs.shape == (rows, d) == (len(data), len(data.factors))
    assert data.episode.shape == (rows,) and len(data.action) == rows
    for values in (data.obs, data.next_obs, data.action, *data.rewards.values()):
        assert np.isfinite(values).all() and len(values) == rows
    train, held = data.split()
    assert len(train) + len(held) == rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@FUZZ
@given(st.sampled_from([STORED, PACKED]), st.data())
def test_random_truncation(folder: Path, whole: bytes, data: st.DataObject) -> None:
    start = data.draw(st.just(0) | st.integers(0, len(whole)))
    end = data.draw(st.integers(0, len(whole)))
    (folder / "log.npz").write_bytes(whole[start:end])
    sound_or_refused(folder / "log.npz")


@FUZZ
@given(st.sampled_from([STORED, PACKED]), st.data())
def test_random_byte_flips(folder: Path, whole: bytes, data: st.DataObject) -> None:
    broken = bytearray(whole)
    # the zip directory at the end and the array headers are where damage is most inventive
    place = st.integers(0, len(whole) - 1) | st.integers(len(whole) - 500, len(whole) - 1) | st.integers(0, 200)
    for position in data.draw(st.lists(place, min_size=1, max_size=6)):
        broken[position] = data.draw(st.integers(0, 255))
    (folder / "log.npz").write_bytes(broken)
    sound_or_refused(folder / "log.npz")


@FUZZ
@given(st.data())
def test_random_array_headers(folder: Path, data: st.DataObject) -> None:
    """Damage inside an array with a checksum that fits, which only the array's own header can betray."""
    buffer = io.BytesIO()
    np.save(buffer, good()["obs"])
    member = bytearray(buffer.getvalue())
    for position in data.draw(st.lists(st.integers(0, 90), min_size=1, max_size=4)):
        member[position] = data.draw(st.sampled_from(b"0123456789(),'<>|fiuObUVMmc{}: ") | st.integers(0, 255))
    with zipfile.ZipFile(io.BytesIO(STORED)) as source, zipfile.ZipFile(folder / "log.npz", "w") as target:
        for name in source.namelist():
            target.writestr(name, bytes(member) if name == "obs.npy" else source.read(name))
    sound_or_refused(folder / "log.npz")


DTYPES = st.sampled_from(
    [
        "f2",
        "f4",
        "f8",
        "g",
        "i1",
        "u1",
        "i4",
        "i8",
        "u8",
        "?",
        "c8",
        "c16",
        "U3",
        "S3",
        "M8[s]",
        "m8[s]",
        "V4",
        "O",
    ]
)
NAMES = [
    "obs", "action", "next_obs", "reward", "reward_x", "reward_", "episode", "terminated", "truncated",
    "names", "action_names", "kinds", "groups", "low", "high", "discrete_actions", "truth",
    "truth_reward_x", "other",
]  # fmt: skip


@FUZZ
@given(st.data())
def test_random_arrays(folder: Path, data: st.DataObject) -> None:
    arrays = good()
    for name in data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3)):
        if data.draw(st.booleans()):
            arrays.pop(name, None)
            continue
        size = st.sampled_from([0, 1, 2, 3, 4, ROWS, ROWS + 1])
        shape = data.draw(
            st.sampled_from([(ROWS, 3), (ROWS, 1), (ROWS,), (3,), ()]) | st.lists(size, max_size=3).map(tuple)
        )
        seed = data.draw(st.integers(0, 3))
        values = np.random.default_rng(seed).integers(0, 2 + 50 * seed, shape)
        arrays[name] = np.asarray(values).astype(np.int64).view("V8") if seed == 3 else np.asarray(values)
        dtype = data.draw(DTYPES)
        if seed < 3:
            arrays[name] = np.zeros(shape, dtype) if dtype == "V4" else np.asarray(values).astype(dtype)
    np.savez(folder / "log.npz", **arrays)
    sound_or_refused(folder / "log.npz")


CELLS = st.sampled_from(
    ["0", "1", "2.5", "-1", "", "nan", "inf", "1e400", "x", "True", "1_0", '"', "0x1", "é", "9" * 30]
)
HEADS = st.sampled_from(
    ["obs:x", "obs:y", "next_obs:x", "next_obs:y", "action", "action:u", "reward", "reward:r", "episode",
     "terminated", "note", "obs:", ""]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(HEADS, max_size=6), st.data())
def test_random_csv(folder: Path, extra: list[str], data: st.DataObject) -> None:
    header = data.draw(st.sampled_from([[], ["obs:x", "action"], ["obs:x", "next_obs:x", "action"]])) + extra
    sound = st.sampled_from(["0", "1", "2.5", "7"])
    cell = data.draw(st.sampled_from([sound, CELLS]))
    rows = [[data.draw(cell) for _ in header] for _ in range(data.draw(st.integers(0, 5)))]
    (folder / "log.csv").write_text("\n".join(",".join(row) for row in [header, *rows]), encoding="utf-8")
    sound_or_refused(folder / "log.csv")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_parquet_truncation(folder: Path, data: st.DataObject) -> None:
    pytest.importorskip("pyarrow")
    path = folder / "whole.parquet"
    if not path.exists():
        Transitions.from_arrays(good()).save(path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    (folder / "log.parquet").write_bytes(whole[:cut] if data.draw(st.booleans()) else whole[cut:])
    sound_or_refused(folder / "log.parquet")
