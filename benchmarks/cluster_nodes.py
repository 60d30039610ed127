"""Three nodes on one machine: processes of Ray that can be killed, or network namespaces whose links can be cut."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from cbm.jobs.ray_executor import KEEP_ALIVE

STORE = 100 * 2**20
"""Bytes of each node's object store: results of short runs are small."""
START = 60.0
"""Seconds within which all nodes must have joined."""
NETWORK = "10.77.0"
"""Exists only in our own namespaces."""


class Nodes(Protocol):
    """Working nodes, and a head that only coordinates."""

    address: str
    prefix: list[str]
    """Prefix with which a command runs on the head."""
    environment: dict[str, str]
    """Environment variables that it needs for access."""

    def raylets(self) -> dict[str, int]:
        """Process of each node that is still intact."""

    def strike(self, name: str) -> str:
        """Damage a node; returns a description of the damage."""

    def close(self) -> None: ...


class Raylets:
    """All nodes share this machine's network. A struck node dies with all its processes and is replaced."""

    def __init__(self, nodes: int) -> None:
        from ray.cluster_utils import Cluster

        os.environ.update(ray_settings())
        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.prefix: list[str] = []
        self.environment: dict[str, str] = {}
        self.address: str = self.cluster.address
        self.members: dict[str, Any] = {}
        for _ in range(nodes):
            self._add()

    def _add(self) -> None:
        name = f"node {len(self.members) + 1}"
        self.members[name] = self.cluster.add_node(num_cpus=1, object_store_memory=STORE)

    def raylets(self) -> dict[str, int]:
        found = {name: node.all_processes["raylet"][0].process for name, node in self.members.items()}
        return {name: process.pid for name, process in found.items() if process.poll() is None}

    def strike(self, name: str) -> str:
        """Like a machine that loses power."""
        killed = kill_all(descendants(self.raylets()[name]))
        self._add()
        return f"killed {name} with {killed} processes"

    def close(self) -> None:
        self.cluster.shutdown()


class Namespaces:
    """Each node is a host of its own: with its network, joined to a switch in a further namespace, and its own /tmp.

    A struck node loses its link, but continues to work behind it. Needs root and iproute2.
    """

    def __init__(self, nodes: int, work: Path) -> None:
        """`work`: directory for what Ray prints."""
        self.work = work
        # Ray requires a token if nodes are started by hand: this cluster has its own.
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # A separate folder, since Ray leaves a file by which others would find this cluster after its end.
        self.folder = tempfile.TemporaryDirectory(prefix="cbm-ray-", ignore_cleanup_errors=True)
        self.names = ["cbm-head", *(f"cbm-node{k + 1}" for k in range(nodes))]
        self.prefix = ["ip", "netns", "exec", "cbm-head"]
        self.address = f"{NETWORK}.1:6379"
        self.cut: set[str] = set()
        self.started: list[subprocess.Popen[bytes]] = []
        self._remove()  # what an earlier call left behind
        try:
            self._join_all()
            head = ["--head", "--port", "6379", "--num-cpus", "0", "--include-dashboard", "false"]
            self._start(0, [*head, "--temp-dir", self.folder.name])
            wait_for(lambda: bool(raylet_in("cbm-head")), START)
            time.sleep(3)  # a raylet that exists does not listen yet
            for k in range(1, len(self.names)):
                self._start(k, ["--address", self.address, "--num-cpus", "1"])
            wait_for(lambda: len(self.raylets()) == nodes, START)
            time.sleep(3)
        except BaseException:
            self.close()
            raise

    def _join_all(self) -> None:
        run("ip netns add cbm-switch")
        run("ip -n cbm-switch link add switch type bridge")
        run("ip -n cbm-switch link set switch up")
        for k, name in enumerate(self.names):
            run(f"ip netns add {name}")
            run(f"ip link add wire netns {name} type veth peer name to{k} netns cbm-switch")
            run(f"ip -n cbm-switch link set to{k} master switch up")
            run(f"ip -n {name} addr add {NETWORK}.{k + 1}/24 dev wire")
            run(f"ip -n {name} link set wire up")
            run(f"ip -n {name} link set lo up")

    def _start(self, k: int, words: list[str]) -> None:
        """`ray start` on a node; all but the head have an empty /tmp, as there is no shared disk."""
        ray = Path(sys.executable).with_name("ray")
        own = "" if k == 0 else "mount -t tmpfs tmpfs /tmp && "
        common = ["--node-ip-address", f"{NETWORK}.{k + 1}", "--object-store-memory", str(STORE), "--block"]
        script = f'{own}exec {ray} start "$@"'
        command = ["ip", "netns", "exec", self.names[k], "sh", "-c", script, "sh", *words, *common]
        with (self.work / f"{self.names[k]}.log").open("wb") as log:
            environment = os.environ | ray_settings() | self.environment
            self.started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))

    def raylets(self) -> dict[str, int]:
        found = {name: raylet_in(name) for name in self.names[1:] if name not in self.cut}
        return {name: process for name, process in found.items() if process}

    def strike(self, name: str) -> str:
        self.cut.add(name)
        run(f"ip -n cbm-switch link set to{self.names.index(name)} down")
        return f"cut the link of {name}"

    def mend(self, name: str) -> None:
        run(f"ip -n cbm-switch link set to{self.names.index(name)} up")

    def close(self) -> None:
        self._remove()
        self.folder.cleanup()

    def _remove(self) -> None:
        for name in [*self.names, "cbm-switch"]:
            kill_all(processes_in(name))
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        for process in self.started:
            process.wait()
        self.started.clear()


def ray_settings() -> dict[str, str]:
    """The environment of a node that notices a cut link."""
    return {f"RAY_{name}": str(value) for name, value in KEEP_ALIVE.items()}


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"the nodes did not come up within {seconds:.0f} s")
        time.sleep(0.2)


def processes_in(namespace: str) -> list[int]:
    done = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]


def raylet_in(namespace: str) -> int | None:
    for process in processes_in(namespace):
        if command_of(process).partition("\0")[0].endswith("/raylet"):
            return process
    return None


def command_of(process: int) -> str:
    """The command line of a process, each word followed by a zero byte; empty if it is gone."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def descendants(process: int) -> list[int]:
    """A process and all its descendants, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [process]
    for one in family:
        family += children.get(one, [])
    return family


def at_work(raylet: int) -> list[int]:
    """The commands of a sweep that a node is running."""
    return [process for process in descendants(raylet) if "cbm.cli.sweep_child" in command_of(process)]


def kill_all(processes: list[int]) -> int:
    """Kill the processes; returns how many existed."""
    killed = 0
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
            killed += 1
    return killed
