"""A log larger than memory, from a directory of Parquet files to the graph: time and peak memory.

    nice python -m benchmarks.large --rows 20000000 --out /tmp/large --results results/large.csv
    nice python -m benchmarks.large --rows 1000000 --compare --out /tmp/large

The log is a time series of a sparse nonlinear system with a known graph: 30 variables, four actions, a reward, an
episode and a time column, written file by file. `--compare` also reads it into memory and compares the graphs. Memory
is that of the whole process tree.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory import Usage, environment, measured
from benchmarks.store import Columns, Store
from benchmarks.systems import sparse_nonlinear

ROOT = Path(__file__).parents[1]
VARIABLES, ACTIONS, HORIZON = 30, 4, 50
PER_FILE = 1_000_000
CAUSES = (3, 7, 11)
"""Variables that the reward depends on."""
COLUMNS = Columns(
    ("rows", "memory", "workers"),
    ("step", "seconds", "peak_rss_gb", "peak_pss_gb", "log_gb", "f1", "abstraction"),
    ("step", "memory", "abstraction"),
    ("rows", "workers"),
)


def write_log(folder: Path, rows: int, seed: int) -> float:
    """Files of whole episodes; the seconds that it took. Files that are there already are kept."""
    import pyarrow as pa
    from pyarrow import parquet

    started = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, rows, PER_FILE)):
        path = folder / f"part-{number}.parquet"
        if path.exists():
            continue
        columns, about = _part(number, min(PER_FILE, rows - first), seed)
        table = pa.table(columns).replace_schema_metadata({b"cbm": json.dumps(about).encode()})
        parquet.write_table(table, path.with_suffix(".tmp"), row_group_size=100_000)
        path.with_suffix(".tmp").rename(path)
        print(f"{path}: {table.num_rows:,} rows", file=sys.stderr)
    return time.monotonic() - started


def _part(number: int, rows: int, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """One file: each episode is HORIZON rows, so that it gives one transition less."""
    data = sparse_nonlinear(VARIABLES, rows, seed, ACTIONS, HORIZON, part=number)
    after = data.next_obs[:, list(CAUSES)]
    noise = np.random.default_rng([seed, 5, number]).normal(0, 0.1, rows)
    place = np.arange(rows)
    columns = {"episode": number * (PER_FILE // HORIZON) + place // HORIZON, "time": place % HORIZON * 0.02}
    columns |= {f"x{i}": data.obs[:, i].astype(np.float32) for i in range(VARIABLES)}
    columns |= {f"action_{k}": data.action[:, k].astype(np.float32) for k in range(ACTIONS)}
    columns["reward"] = (np.tanh(after).sum(1) + noise).astype(np.float32)
    assert data.truth is not None
    parents = np.isin(np.arange(VARIABLES), CAUSES)
    return columns, {"truth": data.truth.tolist(), "truth_reward_reward": parents.tolist()}


def discover(log: Path, run: Path, memory: str, workers: int) -> Usage:
    words = [sys.executable, "-m", "cbm.cli", "discover", str(log), "--out", str(run), "--memory", memory]
    return measured([*words, "--workers", str(workers)], environment(ROOT))


def converted(log: Path, memory: str, maps: Path) -> Usage:
    """The conversion alone."""
    program = (
        "import sys; from pathlib import Path; from cbm.data.log import Limit, read_log; "
        "from cbm.cli.log_options import memory_of; "
        "print(len(read_log(sys.argv[1], limit=Limit(memory_of(sys.argv[2]), Path(sys.argv[3]))).data))"
    )
    return measured([sys.executable, "-c", program, str(log), memory, str(maps)], environment(ROOT))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--memory", default="1GB", help="what `cbm discover --memory` gets")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compare", action="store_true", help="also read the log into memory, and compare the graphs")
    parser.add_argument("--results", type=Path, help="CSV file that gets the rows")
    options = parser.parse_args(arguments)
    log = options.out / f"log-{options.rows}"
    print(f"log written in {write_log(log, options.rows, options.seed):.0f} s", flush=True)
    size = sum(file.stat().st_size for file in log.iterdir()) / 1e9
    store = Store(options.results, COLUMNS)
    place = options.out / f"runs-{options.rows}"
    mapped = place / "mapped"
    key = {"rows": options.rows, "memory": options.memory, "workers": options.workers, "log_gb": round(size, 2)}
    usage = converted(log, options.memory, place / ".cbm-maps")
    _say(store, key | {"step": "conversion"}, usage, None)
    usage = discover(log, mapped, options.memory, options.workers)
    print(usage.output)
    _say(store, key | {"step": "discovery from the map"}, usage, mapped)
    if options.compare:
        usage = discover(log, place / "in-memory", "1TB", options.workers)
        _say(store, key | {"step": "discovery in memory", "memory": "1TB"}, usage, place / "in-memory")
        same = _graph(mapped) == _graph(place / "in-memory")
        print(f"the graphs are {'identical' if same else 'DIFFERENT'}")


def _say(store: Store, row: dict[str, Any], usage: Usage, run: Path | None) -> None:
    result = json.loads((run / "result.json").read_text()) if run is not None else {}
    row |= {
        "seconds": round(usage.seconds, 1),
        "peak_rss_gb": round(usage.resident / 1e9, 3),
        "peak_pss_gb": round(usage.proportional / 1e9, 3),
        "f1": result.get("score", {}).get("f1"),
        "abstraction": " ".join(result.get("abstractions", {}).get("reward", [])),
    }
    store.add(row)
    print(json.dumps(row), flush=True)


def _graph(run: Path) -> dict[str, Any]:
    graph: dict[str, Any] = json.loads((run / "graph.json").read_text())
    graph.pop("seconds")
    return graph


if __name__ == "__main__":
    main(sys.argv[1:])
