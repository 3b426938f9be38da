"""Reads the kernel's counters of a host: CPU time, bytes of disk and network, TCP retransmissions.

A host is a network namespace, so its processes are those in that namespace: servers, daemons, agents, and what was run
there. CPU time is that of the host's control group (`groups`), into which its processes are moved when they are first
seen; where that is not allowed it is the sum of what each process has used, and a process that began and ended between
two looks is missed. What a process used before it was first seen counts from then on, except at the first look of all.

A disk is the model under a device (`servers/disks/medium.py`), which knows what it did and for how long; beside it,
what the host's processes had read from and written to real disks. TCP's counters are the namespace's.

Source: proc(5) (`stat`, `io`), Documentation/networking/snmp_counter.rst of the kernel.
"""

import contextlib
import dataclasses
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from storage_cluster.hosts.cluster import HostStatus
from storage_cluster.hosts.groups import HostGroup
from storage_cluster.servers import processor
from storage_cluster.servers.disks import medium

TCP_COUNTERS = {
    "listen_overflows": ("net/netstat", "ListenOverflows"),
    "listen_drops": ("net/netstat", "ListenDrops"),
    "syn_retransmits": ("net/netstat", "TCPSynRetrans"),
    "retransmits": ("net/snmp", "RetransSegs"),
    "resets_sent": ("net/snmp", "OutRsts"),
}
"""Our name to the file and the name in it."""
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Reading:
    """The counters' values at one time; bytes are (read or received, written or sent)."""

    monotonic_ns: int
    cpu_ns: int
    cpu_wait_ns: int | None  # None: not counted here
    disk_bytes: tuple[int, int]
    network_bytes: dict[str, tuple[int, int]]  # by interface
    tcp: dict[str, int]
    media: dict[str, medium.Counters]  # by device
    processor_ns: int | None = None  # time that requests took of the modelled processor; None: there is none


class HostCounters:
    """The counters of one host, read repeatedly."""

    def __init__(self, host: HostStatus, state_dir: Path) -> None:
        self._host = host
        self._group = HostGroup.of(state_dir, host.host)
        self._logs_dir = state_dir / "logs" / host.host
        self._newcomers_ns: int | None = None  # what processes had used before they came into the group
        self._cpu, self._read, self._written = _Sum(), _Sum(), _Sum()

    def read(self, pids: Sequence[int]) -> Reading:
        """The current values, given the processes on the host."""
        cpu_ns, disk_bytes = self._use(pids)
        some = next((pid for pid in pids if _proc(pid, "net/dev")), None)
        modelled = [device for device in self._host.devices if device.media != "none"]
        return Reading(
            time.monotonic_ns(),
            cpu_ns,
            self._group.cpu_wait_ns() if self._group else None,
            disk_bytes,
            _network_bytes(some, self._host.interfaces) if some else {},
            _tcp(some) if some else {},
            {device.name: medium.read_counters(Path(device.counters_file)) for device in modelled},
            processor.busy_ns(self._logs_dir) if self._host.cores else None,
        )

    def _use(self, pids: Sequence[int]) -> tuple[int, tuple[int, int]]:
        """CPU time and (read, written) bytes of real disks, both growing."""
        used_ns = {pid: ns for pid in pids if (ns := _cpu_ns(pid)) is not None}
        disk = {pid: found for pid in pids if (found := _disk_bytes(pid)) is not None}
        cpu_ns = self._cpu.add(used_ns)
        disk_bytes = (
            self._read.add({pid: found[0] for pid, found in disk.items()}),
            self._written.add({pid: found[1] for pid, found in disk.items()}),
        )
        try:
            if self._group is not None:
                return self._of_group(self._group, used_ns), self._group.disk_bytes() or disk_bytes
        except OSError:
            self._group = None  # not allowed, or the cluster went down: from now on by process
        return cpu_ns, disk_bytes

    def _of_group(self, group: HostGroup, used_ns: Mapping[int, int]) -> int:
        """CPU time of the group, and what those that are new to it had used before. Raises: OSError."""
        newcomers = used_ns.keys() - group.processes()
        group.take_in(newcomers)
        if self._newcomers_ns is None:
            self._newcomers_ns = 0
        else:
            self._newcomers_ns += sum(used_ns[pid] for pid in newcomers)
        return self._newcomers_ns + group.cpu_ns()


class _Sum:
    """The sum of what all processes used since the first reading. New ones count from 0; ended ones stay counted."""

    def __init__(self) -> None:
        self._total = 0
        self._last: dict[int, int] | None = None

    def add(self, values: dict[int, int]) -> int:
        """The sum, given what each process has used by now."""
        if self._last is not None:
            self._total += sum(max(value - self._last.get(pid, 0), 0) for pid, value in values.items())
        self._last = values
        return self._total


def processes(net_inodes: Iterable[int]) -> dict[int, list[int]]:
    """Network namespace to the processes in it."""
    wanted = set(net_inodes)
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                inode = os.stat(f"/proc/{name}/ns/net").st_ino
                if inode in wanted:
                    found.setdefault(inode, []).append(int(name))
    return found


def _cpu_ns(pid: int) -> int | None:
    text = _proc(pid, "stat")
    return _TICK_NS * sum(map(int, text.rpartition(")")[2].split()[11:13])) if text else None


def _disk_bytes(pid: int) -> tuple[int, int] | None:
    """(read from, written to) real disks; None if this user may not read it."""
    lines = dict(line.split(": ") for line in _proc(pid, "io").splitlines())
    return (int(lines["read_bytes"]), int(lines["write_bytes"])) if lines else None


def _network_bytes(pid: int, interfaces: Collection[str]) -> dict[str, tuple[int, int]]:
    found = {}
    for line in _proc(pid, "net/dev").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() in interfaces:
            cells = numbers.split()
            found[name.strip()] = int(cells[0]), int(cells[8])
    return found


def _tcp(pid: int) -> dict[str, int]:
    texts = {file: _proc(pid, file) for file in {file for file, _ in TCP_COUNTERS.values()}}
    counters = {file: _parse_named(text) for file, text in texts.items()}
    return {ours: counters[file][name] for ours, (file, name) in TCP_COUNTERS.items() if name in counters[file]}


def _parse_named(text: str) -> dict[str, int]:
    """The counters of a file in which a line of names is followed by one of values."""
    lines = text.splitlines()
    found: dict[str, int] = {}
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        found |= zip(names.split()[1:], map(int, values.split()[1:]), strict=False)
    return found


def _proc(pid: int, name: str) -> str:
    """A file of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text("ascii", "replace")
    except OSError:
        return ""
