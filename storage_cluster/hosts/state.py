"""The record of a running cluster: the state directory, and the processes that it names.

    <state dir>/state.json   who runs where; written by the keeper once everything is up, removed when it ends
                topology.toml  the topology in use
                logs/<host>/   <service>.jsonl and .log (a line for each request), <service>.err
                data/<host>/   the devices

A process is known by pid and start time, so a recycled pid is never taken for ours, and a state left by a machine that
was switched off is seen for what it is.
"""

import contextlib
import dataclasses
import json
import os
import select
import signal
import time
from collections.abc import Iterable
from pathlib import Path

STATE_FILE = "state.json"
STATE_DIR_VARIABLE = "TWINTAP_CLUSTER_DIR"


@dataclasses.dataclass(frozen=True)
class ProcessId:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start_ticks: int

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return start_ticks(self.pid) == self.start_ticks

    @classmethod
    def of(cls, pid: int) -> "ProcessId":
        """The process that currently has this pid. Raises: ProcessLookupError."""
        ticks = start_ticks(pid)
        if ticks is None:
            raise ProcessLookupError(pid)
        return cls(pid, ticks)


@dataclasses.dataclass(frozen=True)
class ServerState:
    """One server process."""

    host: str
    service: str
    port: int
    process: ProcessId


@dataclasses.dataclass(frozen=True)
class HostState:
    """One host: the process that holds its namespaces, and the namespace's number."""

    host: str
    address: str
    holder: ProcessId
    net_inode: int


@dataclasses.dataclass(frozen=True)
class ClusterState:
    """A cluster that is, or was, up."""

    keeper: ProcessId
    in_user_namespace: bool
    switch: HostState
    hosts: tuple[HostState, ...]
    servers: tuple[ServerState, ...]

    @property
    def running(self) -> bool:
        """Whether its keeper runs; all other processes end with it."""
        return self.keeper.alive

    @property
    def net_inodes(self) -> frozenset[int]:
        """The network namespaces of all hosts and of the switch."""
        return frozenset(host.net_inode for host in (*self.hosts, self.switch))

    def host(self, name: str) -> HostState:
        """The host of that name. Raises: KeyError."""
        for host in self.hosts:
            if host.host == name:
                return host
        raise KeyError(name)


def default_state_dir() -> Path:
    """The cluster's state directory: $TWINTAP_CLUSTER_DIR, or one below $XDG_STATE_HOME."""
    chosen = os.environ.get(STATE_DIR_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base, "twintap", "cluster")


def save(state: ClusterState, state_dir: Path) -> None:
    """Replace the recorded state atomically."""
    target = state_dir / STATE_FILE
    draft = target.with_suffix(".tmp")
    draft.write_text(json.dumps(dataclasses.asdict(state), indent=1), "utf-8")
    draft.replace(target)


def load(state_dir: Path) -> ClusterState | None:
    """The recorded state, None if there is none that can be read."""
    try:
        found = json.loads((state_dir / STATE_FILE).read_text("utf-8"))
        return ClusterState(
            keeper=ProcessId(**found["keeper"]),
            in_user_namespace=found["in_user_namespace"],
            switch=_host_state(found["switch"]),
            hosts=tuple(_host_state(entry) for entry in found["hosts"]),
            servers=tuple(ServerState(**(e | {"process": ProcessId(**e["process"])})) for e in found["servers"]),
        )
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None


def start_ticks(pid: int) -> int | None:
    """When a live process started, in clock ticks since boot; None if there is no such process or it is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def processes_inside(net_inodes: Iterable[int]) -> list[ProcessId]:
    """All processes in these network namespaces that this user may inspect."""
    wanted = set(net_inodes)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "ns" / "net").stat().st_ino in wanted:
                    found.append(ProcessId.of(int(entry.name)))
    return found


def end(processes: Iterable[ProcessId], grace_s: float) -> None:
    """End processes: SIGTERM, and after the grace SIGKILL; returns when none is left."""
    left = [process for process in processes if process.alive]
    for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        opened = []
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                descriptor = os.pidfd_open(process.pid)
                if process.alive:  # checked after opening, so the descriptor is of the process meant
                    signal.pidfd_send_signal(descriptor, number)
                opened.append(descriptor)
        _await_ends(opened, patience_s)
        left = [process for process in left if process.alive]
        if not left:
            return


def _await_ends(descriptors: list[int], patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    waiting = set(descriptors)
    while waiting and (left_s := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left_s * 1000):
            poll.unregister(descriptor)
            waiting.discard(descriptor)
    for descriptor in descriptors:
        os.close(descriptor)


def _host_state(entry: dict) -> HostState:
    return HostState(**(entry | {"holder": ProcessId(**entry["holder"])}))
