"""One log in every format: a short recording of three sensors, one command and one reward, in four runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cbm.data.transitions import Transitions

NAMES, ROWS, RUNS, STEP = ("cos", "sin", "vel"), 25, 4, 0.05
NEED = {"lerobot": "pyarrow", "parquet": "pyarrow", "arrow": "pyarrow", "ros": "rosbags", "mcap": "rosbags",
        "robomimic": "h5py", "d4rl": "h5py", "minari": "h5py"}  # fmt: skip


def recording(rows: int = ROWS, runs: int = RUNS, seed: int = 0) -> dict[str, np.ndarray]:
    """Columns of the log: `rows` time steps in each run."""
    rng = np.random.default_rng(seed)
    push = rng.normal(size=(runs, rows))
    state = np.zeros((runs, rows, 3))
    state[:, 0] = rng.normal(size=(runs, 3))
    for t in range(rows - 1):
        cos, sin, vel = state[:, t].T
        state[:, t + 1] = np.stack([cos - 0.1 * sin * vel, sin + 0.1 * cos * vel, 0.9 * vel + 0.3 * push[:, t]], 1)
    flat = state.reshape(-1, 3)
    return {
        "t": np.tile(np.arange(rows) * STEP, runs),
        **{name: flat[:, i] for i, name in enumerate(NAMES)},
        "cmd": push.reshape(-1),
        "reward": flat[:, 0] - 0.1 * flat[:, 2] ** 2,
        "run": np.repeat(np.arange(runs), rows),
    }


def expected(columns: dict[str, np.ndarray]) -> Transitions:
    """The transitions that every reader must find."""
    first = np.flatnonzero(columns["run"][:-1] == columns["run"][1:])
    obs = np.column_stack([columns[name] for name in NAMES])
    return Transitions.from_arrays({
        "obs": obs[first], "next_obs": obs[first + 1], "action": columns["cmd"][first],
        "episode": columns["run"][first],
        "reward": columns["reward"][first], "names": np.array(NAMES), "action_names": np.array(["cmd"]),
    })  # fmt: skip


ROLES: dict[str, Any] = {"obs": NAMES, "action": "cmd", "reward": "reward", "episode": "run", "time": "t"}
Writer = Callable[[Path, dict[str, np.ndarray]], tuple[Path, dict[str, Any]]]
"""Writes the log and says where it is and which roles it needs."""


def write_text(suffix: str, mark: str) -> Writer:
    def write(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
        target = path / f"log{suffix}"
        lines = [mark.join(columns), *(mark.join(map(repr, row)) for row in
                 zip(*(values.tolist() for values in columns.values()), strict=True))]  # fmt: skip
        target.write_text("\n".join(lines) + "\n")
        return target, ROLES

    return write


def write_npz(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    expected(columns).save(path / "log.npz")
    return path / "log.npz", {}


def write_parquet(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), path / "log.parquet")
    return path / "log.parquet", ROLES


def write_arrow(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    pyarrow, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    feather.write_feather(pyarrow.table(columns), str(path / "log.feather"))
    return path / "log.feather", ROLES


def write_lerobot(version: str) -> Writer:
    """As LeRobot lays a dataset out: one file for each episode in version 2, one for many in version 3."""

    def write(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        root = path / f"lerobot_{version}"
        (root / "meta").mkdir(parents=True)
        vector = {"dtype": "float32", "shape": [3], "names": {"motors": list(NAMES)}}
        features = {
            "observation.state": vector, "action": {"dtype": "float32", "shape": [1], "names": ["cmd"]},
            "observation.images.top": {"dtype": "video", "shape": [3, 96, 96], "names": None},
            "next.reward": {"dtype": "float32", "shape": [1], "names": None},
        }  # fmt: skip
        info = {"codebase_version": version, "fps": 1 / STEP, "features": features, "total_episodes": RUNS}
        (root / "meta" / "info.json").write_text(json.dumps(info))
        rows = np.arange(len(columns["t"]))
        parts = [rows[columns["run"] == run] for run in range(RUNS)] if version.startswith("v2") else [rows]
        for number, part in enumerate(parts):
            name = f"episode_{number:06d}" if version.startswith("v2") else f"file-{number:03d}"
            file = root / "data" / "chunk-000" / f"{name}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            state = np.column_stack([columns[name][part] for name in NAMES])
            parquet.write_table(pyarrow.table({
                "observation.state": pyarrow.FixedSizeListArray.from_arrays(state.ravel(), 3),
                "action": [[value] for value in columns["cmd"][part].tolist()],
                "next.reward": columns["reward"][part], "timestamp": columns["t"][part].astype(np.float32),
                "frame_index": np.arange(len(part)), "episode_index": columns["run"][part], "index": part,
                "task_index": np.zeros(len(part), int),
            }), file)  # fmt: skip
        return root, {}

    return write


def write_robomimic(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "demo.hdf5", "w") as file:
        for run in range(RUNS):
            here = columns["run"] == run
            demo = file.create_group(f"data/demo_{run}")
            demo["actions"], demo["rewards"] = columns["cmd"][here][:, None], columns["reward"][here]
            for name in NAMES:
                demo[f"obs/{name}"] = columns[name][here][:, None]
            demo["obs/agentview_image"] = np.zeros((here.sum(), 4, 4, 3), np.uint8)
    return path / "demo.hdf5", {}


def write_d4rl(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path / "d4rl.hdf5", "w") as file:
        file["observations"] = np.column_stack([columns[name] for name in NAMES])
        file["actions"], file["rewards"] = columns["cmd"][:, None], columns["reward"]
        file["timeouts"] = np.append(columns["run"][:-1] != columns["run"][1:], True)
        file["terminals"] = np.zeros(len(columns["t"]), bool)
    return path / "d4rl.hdf5", {}


def write_minari(path: Path, columns: dict[str, np.ndarray]) -> tuple[Path, dict[str, Any]]:
    h5py = pytest.importorskip("h5py")
    (path / "set-v0" / "data").mkdir(parents=True)
    with h5py.File(path / "set-v0" / "data" / "main_data.hdf5", "w") as file:
        for run in range(RUNS):
            here = np.flatnonzero(columns["run"] == run)
            part = file.create_group(f"episode_{run}")
            for name in NAMES:
                part[f"observations/{name}"] = columns[name][here]
            part["actions"], part["rewards"] = columns["cmd"][here[:-1]][:, None], columns["reward"][here[:-1]]
            part["terminations"] = np.zeros(len(here) - 1, bool)
            part["truncations"] = np.arange(len(here) - 1) == len(here) - 2
    return path / "set-v0", {}


def write_bag(path: Path, columns: dict[str, np.ndarray], storage: str = "sqlite3") -> Path:
    """A bag of the first run only: a bag is one recording."""
    rosbag2, typesys = pytest.importorskip("rosbags.rosbag2"), pytest.importorskip("rosbags.typesys")
    store = typesys.get_typestore(typesys.Stores.ROS2_HUMBLE)
    types = store.types
    plugin = rosbag2.StoragePlugin.MCAP if storage == "mcap" else rosbag2.StoragePlugin.SQLITE3
    with rosbag2.Writer(path / f"bag_{storage}", version=9, storage_plugin=plugin) as writer:
        topics = {name: writer.add_connection(name, kind, typestore=store) for name, kind in (
            ("/joints", "sensor_msgs/msg/JointState"), ("/cmd", "std_msgs/msg/Float64"),
            ("/reward", "std_msgs/msg/Float64"), ("/note", "std_msgs/msg/String"))}  # fmt: skip
        float64 = types["std_msgs/msg/Float64"]
        header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](0, 0), "")
        for k in np.flatnonzero(columns["run"] == 0):
            moment = int(1e18 + round(columns["t"][k] * 1e9))
            state = np.array([columns[name][k] for name in NAMES])
            joints = types["sensor_msgs/msg/JointState"](header, list(NAMES), state, np.empty(0), np.empty(0))
            for name, message in (("/joints", joints), ("/cmd", float64(columns["cmd"][k])),
                                  ("/reward", float64(columns["reward"][k])),
                                  ("/note", types["std_msgs/msg/String"]("hello"))):  # fmt: skip
                writer.write(topics[name], moment, store.serialize_cdr(message, topics[name].msgtype))
    return path / f"bag_{storage}"


WRITERS: dict[str, Writer] = {
    "npz": write_npz, "csv": write_text(".csv", ","), "semicolons": write_text(".csv", ";"),
    "tsv": write_text(".tsv", "\t"), "parquet": write_parquet, "arrow": write_arrow,
    "lerobot_v2": write_lerobot("v2.1"), "lerobot_v3": write_lerobot("v3.0"), "robomimic": write_robomimic,
    "d4rl": write_d4rl, "minari": write_minari,
}  # fmt: skip
