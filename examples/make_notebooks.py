"""Writes the three notebooks of this folder, without outputs: `python examples/make_notebooks.py`.

Notebooks are long JSON; their text lives here, where a change can be read.
"""

from __future__ import annotations

import json
from pathlib import Path

HERE = Path(__file__).parent
TEXT = "TEXT "
"""Begins a cell of text."""

ENGINEER = [
    """TEXT # From an engineer's CSV to the variables that matter

A test bench wrote a table: a time stamp, four sensors, the torque that was commanded, a remark, the number of the run.
Some cells are empty. Nothing has to be renamed or cleaned before.""",
    """import numpy as np
import pandas as pd

rng = np.random.default_rng(0)
parts = []
for run in range(30):
    angle, speed, heat = rng.uniform(-1, 1), 0.0, 20.0
    for step in range(80):
        torque = rng.uniform(-1, 1)
        sensors = (step * 0.02, angle, speed, heat, rng.normal())
        angle, speed = angle + 0.2 * speed, 0.8 * speed + 0.3 * torque - 0.1 * angle + 0.02 * rng.normal()
        parts.append((*sensors, torque, -angle**2, "ok", run))  # the reward of a row: what its torque led to
        heat = 0.9 * heat + 2.0 + 0.5 * abs(torque) + 0.05 * rng.normal()
names = ["time", "angle", "speed", "heat", "wind", "torque", "reward", "remark", "run"]
log = pd.DataFrame(parts, columns=names)
log.loc[[7, 400], "speed"] = np.nan
log.to_csv("bench.csv", index=False)
log.head(3)""",
    """TEXT What does `cbm` understand of it? The same is printed by `cbm check bench.csv --action torque`.""",
    """import cbm

data = cbm.Transitions.load("bench.csv", obs=["angle", "speed", "heat", "wind"], action="torque", reward="reward")
data""",
    """TEXT One call gives the graph. It shows itself as in the report: what each reward needs, and how strongly each
variable acts on each other one.""",
    """graph = cbm.discover(log, obs=["angle", "speed", "heat", "wind"], action="torque", reward="reward",
                     episode="run", time="time", workers=1)
graph""",
    """print(graph)
graph.abstraction("reward")""",
    """graph.plot("reward");""",
]

LEROBOT = [
    """TEXT # A LeRobot dataset, without LeRobot

The directory of a dataset (version 2 or 3) is read as it is, with pyarrow alone; videos are left out. Here the script
makes a small one, as a recording of an arm with two joints that pushes a block.""",
    """import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

rng = np.random.default_rng(0)
root = Path("arm")
(root / "meta").mkdir(parents=True, exist_ok=True)
(root / "data/chunk-000").mkdir(parents=True, exist_ok=True)
frames = []
for episode in range(30):
    shoulder, elbow, lamp = rng.uniform(-1, 1, 3)
    for frame in range(80):
        command = rng.uniform(-1, 1, 2)
        state = [shoulder, elbow, lamp]
        shoulder, elbow = 0.9 * shoulder + 0.3 * command[0], 0.8 * elbow + 0.2 * shoulder + 0.3 * command[1]
        shoulder, elbow, lamp = shoulder + 0.02 * rng.normal(), elbow + 0.02 * rng.normal(), 0.7 * lamp + rng.normal()
        frames.append((episode, frame, state, command.tolist(), -abs(shoulder)))  # the reward of the state that follows
episode, frame, state, command, reward = map(list, zip(*frames))
table = pa.table({
    "observation.state": pa.array(state, pa.list_(pa.float32(), 3)),
    "action": pa.array(command, pa.list_(pa.float32(), 2)),
    "next.reward": pa.array(reward, pa.float32()), "timestamp": pa.array(np.array(frame) / 30, pa.float32()),
    "frame_index": frame, "episode_index": episode, "index": list(range(len(frame))),
})
pq.write_table(table, root / "data/chunk-000/file-000.parquet")
features = {
    "observation.state": {"dtype": "float32", "shape": [3], "names": {"motors": ["shoulder", "elbow", "lamp"]}},
    "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["shoulder", "elbow"]}},
    "observation.images.top": {"dtype": "video", "shape": [3, 96, 96], "names": None},
}
(root / "meta/info.json").write_text(json.dumps({"codebase_version": "v3.0", "fps": 30, "features": features}));""",
    """import cbm

data = cbm.Transitions.load(root)
data""",
    """graph = cbm.discover(data, workers=1)
graph""",
    """TEXT The reward is the distance of the shoulder. The policy needs neither the elbow nor the lamp:""",
    """graph.abstraction("reward")""",
]

SB3 = [
    """TEXT # A Stable-Baselines3 agent on its minimal state

The agent's own replay buffer is a log: read it in memory, find what the reward needs, and train on that alone.""",
    """import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3 import SAC


class Bench(gymnasium.Env):
    \"\"\"A cart to be held at the centre, beside six sensors that have nothing to do with it.\"\"\"

    action_space = spaces.Box(-1, 1, (1,), np.float32)
    observation_space = spaces.Dict(
        {"cart": spaces.Box(-9, 9, (2,), np.float32), "noise": spaces.Box(-9, 9, (6,), np.float32)}
    )

    def observe(self):
        return {"cart": np.array([self.x, self.v], np.float32), "noise": self.noise.astype(np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v, self.noise, self.steps = self.np_random.uniform(-1, 1), 0.0, np.zeros(6), 0
        return self.observe(), {}

    def step(self, action):
        self.x, self.v = self.x + 0.2 * self.v, 0.9 * self.v + 0.3 * float(action[0])
        self.noise = 0.5 * self.noise + self.np_random.normal(size=6)
        self.steps += 1
        return self.observe(), -self.x**2, False, self.steps == 50, {}


flat = gymnasium.wrappers.FlattenObservation(Bench())
agent = SAC("MlpPolicy", flat, learning_starts=6000, buffer_size=6000, seed=0, device="cpu")
agent.learn(5900)  # at random, so far
agent.replay_buffer""",
    """import cbm

data = cbm.Transitions.from_table(agent.replay_buffer)
graph = cbm.discover(data, workers=1)
graph""",
    """TEXT The buffer has no names; the environment has. `cbm.Factors` gives them in the order of the flat
observation.""",
    """names = cbm.Factors.from_spaces(Bench.observation_space, Bench.action_space).names
needed = [names[int(variable.removeprefix("obs_"))] for variable in graph.abstraction("reward")]
needed""",
    """env = cbm.AbstractionWrapper(flat, graph, reward="reward")
small = SAC("MlpPolicy", env, learning_starts=50, seed=0, device="cpu", policy_kwargs={"net_arch": [16, 16]})
small.learn(100)
small.observation_space""",
]


def cell(text: str, number: int) -> dict[str, object]:
    """A cell of code, or of text where it says so."""
    source = text.removeprefix(TEXT).splitlines(keepends=True)
    common: dict[str, object] = {"id": f"cell-{number}", "metadata": {}, "source": source}
    if text.startswith(TEXT):
        return {"cell_type": "markdown", **common}
    return {"cell_type": "code", **common, "execution_count": None, "outputs": []}


def notebook(cells: list[str]) -> str:
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": [cell(text, k) for k, text in enumerate(cells)], "metadata": kernel, "nbformat": 4,
               "nbformat_minor": 5}  # fmt: skip
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, cells in (("engineers_csv", ENGINEER), ("lerobot_dataset", LEROBOT), ("sb3_minimal_state", SB3)):
        (HERE / f"{name}.ipynb").write_text(notebook(cells), encoding="utf-8")
