"""`make torture`: kills at random moments and malformed inputs, until as many of each have been done as were asked for.

What has been done is counted in `progress.json` of the working directory, so the same command goes on after a stop.
Exit code 1 and one line for each fault found; the input that showed it stays in `faults/`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.torture import inputs, kills


def main() -> int:
    parser = argparse.ArgumentParser(prog="make torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("runs/torture"))
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    progress = options.work / "progress.json"
    done: dict[str, Any] = (
        json.loads(progress.read_text()) if progress.exists() else {"kills": 0, "inputs": 0, "faults": []}
    )

    def count(kind: str, faults: list[str]) -> None:
        done[kind] += 1
        done["faults"] += faults
        for fault in faults:
            print(f"fault: {fault}", flush=True)
        if done[kind] % 100 == 0 or kind == "kills" or faults:
            progress.write_text(json.dumps(done, indent=1))

    for faults in inputs.campaign(options.work, options.seed, done["inputs"], options.inputs):
        count("inputs", faults)
    for faults in kills.campaign(options.work, options.seed, done["kills"], options.kills):
        count("kills", faults)
    progress.write_text(json.dumps(done, indent=1))
    print(f"{done['inputs']} malformed inputs, {done['kills']} kills, {len(done['faults'])} faults")
    return 1 if done["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
