"""Samples what each host of the cluster uses: CPU, disk and network, in the form of a trace's table `samples`.

    cpu_percent                         100 is one core; all that ran on the host (`hosts/counters.py`)
    cpu_wait_percent                    of the time, somebody there wanted a processor and had none (only with groups)
    processor_busy_percent              of the time, for a host with a modelled processor: requests kept its cores busy
    disk_busy_percent.DEVICE            of the time, for a device with `media`
    disk_read_bytes_per_s.DEVICE, disk_written_bytes_per_s.DEVICE    the same device
    read_bytes_per_s, written_bytes_per_s    from and to real disks, by the host's processes
    received_bytes_per_s.INTERFACE, sent_bytes_per_s.INTERFACE
    listen_overflows_per_s, listen_drops_per_s    what full listen queues of the host turned away (SYN or final ACK)
    syn_retransmits_per_s, retransmits_per_s, resets_sent_per_s    TCP segments that it sent

Rates are of the interval that ends at `host_ns`, a stamp of the host's own clock: that of the machine, unless a fault
makes it wrong.
"""

import asyncio
import contextlib
import csv
import dataclasses
import os
import select
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from storage_cluster.hosts.cluster import ClusterStatus
from storage_cluster.hosts.counters import HostCounters, Reading, processes

FILE_NAME = "samples.csv"
INTERVAL_S = 1.0


class Sample(NamedTuple):
    """One value; a row of `samples`."""

    host: str
    host_ns: int
    metric: str
    value: float


class Sampler:
    """Converts counters to rates; the first reading gives none."""

    def __init__(self, cluster: ClusterStatus) -> None:
        self._hosts = [(host, HostCounters(host, Path(cluster.state_dir))) for host in cluster.hosts]
        self._last: dict[str, Reading] = {}

    def look(self) -> list[Sample]:
        """What every host used since the last reading."""
        found: list[Sample] = []
        inside = processes(host.net_inode for host, _ in self._hosts)
        for host, counters in self._hosts:
            reading = counters.read(inside.get(host.net_inode, []))
            now_ns = host.clock.stamp(time.time_ns()) if host.clock else time.time_ns()
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


def sample_until_ended(sampler: Sampler, path: Path, interval_s: float, *, until_eof: bool) -> None:
    """Sample into a new file until SIGINT or SIGTERM, or the end of standard input; says so after the first look."""
    ended, end = os.pipe()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.write(end, b"x"))
    sources = [ended, *([sys.stdin] if until_eof else [])]
    file = SampleFile.create(path)
    sampler.look()
    print(f"tracer: sampling into {path}", file=sys.stderr, flush=True)
    while not select.select(sources, [], [], interval_s)[0]:
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


def _rates(last: Reading, now: Reading) -> Iterator[tuple[str, float]]:
    span_ns = now.monotonic_ns - last.monotonic_ns

    def per_s(before: int, after: int) -> float:
        return max(after - before, 0) * 1e9 / span_ns

    yield "cpu_percent", per_s(last.cpu_ns, now.cpu_ns) / 1e7
    if last.cpu_wait_ns is not None and now.cpu_wait_ns is not None:
        yield "cpu_wait_percent", per_s(last.cpu_wait_ns, now.cpu_wait_ns) / 1e7
    if last.processor_ns is not None and now.processor_ns is not None:
        yield "processor_busy_percent", per_s(last.processor_ns, now.processor_ns) / 1e7
    yield "read_bytes_per_s", per_s(last.disk_bytes[0], now.disk_bytes[0])
    yield "written_bytes_per_s", per_s(last.disk_bytes[1], now.disk_bytes[1])
    for name in last.network_bytes.keys() & now.network_bytes.keys():
        for direction, metric in enumerate(("received_bytes_per_s", "sent_bytes_per_s")):
            counted = per_s(last.network_bytes[name][direction], now.network_bytes[name][direction])
            yield f"{metric}.{name}", counted
    for name in last.tcp.keys() & now.tcp.keys():
        yield f"{name}_per_s", per_s(last.tcp[name], now.tcp[name])
    for name in last.media.keys() & now.media.keys():
        before, after = last.media[name], now.media[name]
        share = after.utilisation_since(before, last.monotonic_ns, now.monotonic_ns)
        yield f"disk_busy_percent.{name}", 100 * share
        yield f"disk_read_bytes_per_s.{name}", per_s(before.read_bytes, after.read_bytes)
        yield f"disk_written_bytes_per_s.{name}", per_s(before.written_bytes, after.written_bytes)
