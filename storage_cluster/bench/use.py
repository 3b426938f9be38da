"""What each host of the cluster uses: CPU, disk and network, every second, in the form of a trace's table `samples`.

A host is a network namespace, so its processes are those in that namespace: servers, daemons, and what was run there.
Their CPU time is what the host uses; 100 % is one core. (A process that began and ended between two samples is missed.)
The disk is the model under a device (`servers/medium.py`), which knows for how long it was busy; without a model only
what the host's processes wrote is known. The network is what went over the host's own interface.

    cpu_percent                  of one core
    disk_busy_percent.DEVICE     of the time
    written_bytes_per_s          by its processes, to files and sockets
    sent_bytes_per_s, received_bytes_per_s
    listen_drops_per_s           connections that a full listen queue of the host turned away (SYN or final ACK dropped)
    retransmits_per_s            TCP segments that it sent again

Rates are of the interval that ends at `host_ns` (the machine's wall clock: hosts of the cluster share it).
"""

import asyncio
import contextlib
import csv
import dataclasses
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from storage_cluster.hosts.cluster import ClusterStatus, HostStatus
from storage_cluster.hosts.network import HOST_INTERFACE
from storage_cluster.servers.medium import Counters, read_counters

FILE_NAME = "samples.csv"
INTERVAL_S = 1.0
_TCP_COUNTERS = (("net/netstat", "ListenDrops"), ("net/snmp", "RetransSegs"))
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """One value; a row of `samples`."""

    host: str
    host_ns: int
    metric: str
    value: float


@dataclasses.dataclass
class _Reading:
    """What counters said at a time."""

    monotonic_ns: int
    cpu_ticks: dict[int, int]  # process to its CPU time
    written_bytes: dict[int, int]
    network: tuple[int, int]  # received, sent
    tcp: tuple[int, int]  # connections that listen queues dropped, segments sent again
    disks: dict[str, Counters]


class Sampler:
    """Turns counters into rates; the first look gives none."""

    def __init__(self, cluster: ClusterStatus) -> None:
        self._hosts = cluster.hosts
        self._last: dict[str, _Reading] = {}

    def look(self) -> list[Sample]:
        """What every host used since the last look."""
        processes = _processes({host.net_inode for host in self._hosts})
        found: list[Sample] = []
        for host in self._hosts:
            now_ns = time.time_ns()
            reading = _read(host, processes.get(host.net_inode, []))
            last = self._last.get(host.host)
            self._last[host.host] = reading
            if last is not None:
                found += (Sample(host.host, now_ns, metric, value) for metric, value in _rates(last, reading))
        return found


@dataclasses.dataclass
class SampleFile:
    """The samples of a run, being written."""

    stream: TextIO

    @classmethod
    def create(cls, path: Path) -> "SampleFile":
        """A new one."""
        made = cls(path.open("w", encoding="utf-8", newline=""))
        made._write([Sample._fields])
        return made

    def add(self, samples: Sequence[Sample]) -> None:
        """Some more."""
        self._write(samples)

    def close(self) -> None:
        """No more."""
        self.stream.close()

    def _write(self, rows: Sequence[tuple[object, ...]]) -> None:
        csv.writer(self.stream).writerows(rows)
        self.stream.flush()


@contextlib.asynccontextmanager
async def sampling(sampler: Sampler | None, path: Path) -> AsyncIterator[None]:
    """Sample into a new file while the context lasts; nothing without a sampler."""
    if sampler is None:
        yield
        return
    file = SampleFile.create(path)
    task = asyncio.create_task(_keep_sampling(sampler, file))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        file.add(sampler.look())
        file.close()


async def _keep_sampling(sampler: Sampler, file: SampleFile) -> None:
    while True:
        file.add(await asyncio.to_thread(sampler.look))
        await asyncio.sleep(INTERVAL_S)


def sample_until_ended(sampler: Sampler, path: Path, interval_s: float) -> None:
    """Sample into a new file until SIGINT or SIGTERM."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    file = SampleFile.create(path)
    while not ended.wait(interval_s):
        file.add(sampler.look())
    file.add(sampler.look())
    file.close()


def read_samples(path: Path) -> list[Sample]:
    """All samples of a file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [
            Sample(row["host"], int(row["host_ns"]), row["metric"], float(row["value"]))
            for row in csv.DictReader(stream)
        ]


def _rates(last: _Reading, now: _Reading) -> Iterator[tuple[str, float]]:
    span_ns = now.monotonic_ns - last.monotonic_ns
    span_s = span_ns / 1e9
    yield "cpu_percent", 100 * _growth(last.cpu_ticks, now.cpu_ticks) / _TICKS_PER_S / span_s
    yield "written_bytes_per_s", _growth(last.written_bytes, now.written_bytes) / span_s
    yield "received_bytes_per_s", (now.network[0] - last.network[0]) / span_s
    yield "sent_bytes_per_s", (now.network[1] - last.network[1]) / span_s
    yield "listen_drops_per_s", (now.tcp[0] - last.tcp[0]) / span_s
    yield "retransmits_per_s", (now.tcp[1] - last.tcp[1]) / span_s
    for name, counters in now.disks.items():
        if name in last.disks:
            share = counters.utilisation_since(last.disks[name], last.monotonic_ns, now.monotonic_ns)
            yield f"disk_busy_percent.{name}", 100 * share


def _growth(last: dict[int, int], now: dict[int, int]) -> int:
    """Of all processes: those that are new count from 0, those that ended no more."""
    return sum(max(value - last.get(pid, 0), 0) for pid, value in now.items())


def _read(host: HostStatus, pids: Sequence[int]) -> _Reading:
    ticks = {pid: value for pid in pids if (value := _cpu_ticks(pid)) is not None}
    written = {pid: value for pid in pids if (value := _written_bytes(pid)) is not None}
    network = next((found for pid in pids if (found := _network(pid)) is not None), (0, 0))
    tcp = next((found for pid in pids if (found := _tcp(pid)) is not None), (0, 0))
    modelled = [device for device in host.devices if device.media != "none"]
    disks = {device.name: read_counters(Path(device.counters_file)) for device in modelled}
    return _Reading(time.monotonic_ns(), ticks, written, network, tcp, disks)


def _processes(inodes: set[int]) -> dict[int, list[int]]:
    """Network namespace to the processes in it."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError):
                inode = os.stat(f"/proc/{name}/ns/net").st_ino
                if inode in inodes:
                    found.setdefault(inode, []).append(int(name))
    return found


def _cpu_ticks(pid: int) -> int | None:
    text = _proc(pid, "stat")
    return sum(map(int, text.rpartition(")")[2].split()[11:13])) if text else None


def _written_bytes(pid: int) -> int | None:
    for line in _proc(pid, "io").splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return None


def _network(pid: int) -> tuple[int, int] | None:
    for line in _proc(pid, "net/dev").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == HOST_INTERFACE:
            cells = numbers.split()
            return int(cells[0]), int(cells[8])
    return None


def _tcp(pid: int) -> tuple[int, int] | None:
    """The namespace's own counters. Source: Documentation/networking/snmp_counter.rst of the kernel."""
    drops, again = (_counter(_proc(pid, file), name) for file, name in _TCP_COUNTERS)
    return (drops, again) if drops is not None and again is not None else None


def _counter(text: str, name: str) -> int | None:
    """A counter of a file in which a line of names is followed by one of values."""
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        found = dict(zip(names.split(), values.split(), strict=False))
        if name in found:
            return int(found[name])
    return None


def _proc(pid: int, name: str) -> str:
    """A file of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text("ascii", "replace")
    except OSError:
        return ""
