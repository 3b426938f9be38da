"""Models the medium of a device: the duration of its transfers, and their faults.

The device's files are ordinary files; the model only says how long to wait. So it can be put on any machine, and it is
a model: nothing here seeks.

    arrival ──▶ queue ──▶ [ position + bytes / bandwidth ] ──▶ done, not before arrival at the head + latency
                           the medium is busy for this long

Theory. A medium is one server with a queue. A transfer keeps it busy for a positioning time and its bytes over the
sustained bandwidth; the next one begins when it is free. A *disk* positions by a seek and a share of a rotation, unless
the transfer goes on where the last one of the same file ended. With a queue it picks near requests first, so
positioning shrinks with the logarithm of the queue: to 45 % at 32, which makes 180 random transfers per second of the
81 that it does one at a time. An *SSD* overlaps requests: it is busy for the reciprocal of its rated IOPS only, while a
single request takes its latency. Writes are charged by the MiB, as the kernel writes back, and the rest when the file
is synced; a sync costs two more transfers, for the file system's journal (file and directory), with the drive's write
cache off, as a store that promises durability runs it.

Numbers. `hdd`: 7,200 rpm, 4.16 ms half a turn, 83 to 175 MB/s from the inner to the outer tracks (Seagate Constellation
ES.3 product manual), here 130; 8.2 ms average seek, reading and writing (HGST Ultrastar 7K4000 specification, 4.4.1.1).
`ssd`: 72,000 read and 33,000 write IOPS at queue depth 32, 500 and 490 MB/s, latency 110 and 52 µs (Intel SSD DC S4500
product specification; power-loss protected, so a sync is a write). The share of 45 % is ours, from the 170 to 190 IOPS
that such drives reach with deep queues. The form of the disk model is that of Ruemmler and Wilkes, "An introduction to
disk drive modeling", IEEE Computer 27(3), 1994, with an average in place of the seek curve.

`hdd-2016`, `ssd-2016`: what a lab of 2016 had in a desktop machine. A disk of 3 TB: 7,200 rpm, 8.5 ms seek (Seagate
Barracuda ST3000DM001 product manual), 150 MB/s; the second of two journal writes in a row comes when its place has just
passed under the head, so it takes a turn. An SSD of 512 GB on SATA without power-loss protection: 520 and 470 MB/s,
90,000 and 80,000 IOPS (the rated ones of its class), and a flush that waits for its flash: 2.5 ms, our figure from the
400 or so synced 4 KiB writes per second that such drives reach one at a time where they are tried as journals. Of a
file's two journal writes each is a flush, a write and a flush (libata does not use FUA), and the flush before the
second finds nothing: three flushes for two syncs. Flushes that wait at the same time are done as one (Linux,
block/blk-flush.c); that a queue of 32 saves 85 % of their time is ours, too.

A device may have another bandwidth than its profile's, and a page cache before it (`page_cache.py`): reads that find
all they want there do not come to the medium, not even to its faults. Without one every read does, as after a cold
start.

Limits. No zones, no track skew, no read-ahead, no write cache, no garbage collection. Account and container databases,
and what daemons read, are not behind it. Waiting is as exact as the event loop's timers (one millisecond), so the ssd's
latencies are rounded.

Faults (`<state dir>/disks/<host>/<device>.fault`, JSON, written by the keeper, read at each transfer) add latency, fail
transfers (EIO) or refuse writes (ENOSPC), on any profile. Counters are in `<device>.counters` beside it, see
`Counters`; processes of one host share them through a lock on that file. A device of profile `none` without a fault has
neither.
"""

import contextlib
import dataclasses
import errno
import fcntl
import json
import math
import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from storage_cluster.servers.disks.page_cache import METADATA_PAGE, PageCache

JOURNAL_BYTES = 4096
WRITE_BACK_BYTES = 1 << 20
METADATA_BYTES = 4096
_QUEUE_MAX = 32
_QUEUE_GAIN = 0.55  # of the positioning time, at the deepest queue
_ITERATIONS = 4
_NS = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Profile:
    """The performance of a medium; times in ns, bandwidth in bytes per second."""

    seek_ns: int
    turn_ns: int
    read_busy_ns: int
    write_busy_ns: int
    read_latency_ns: int
    write_latency_ns: int
    read_bytes_per_s: int
    write_bytes_per_s: int
    sync_busy_ns: int = 0
    """What a sync costs beside its transfer: a flush of the write cache, or the turn of a disk that was just missed."""
    sync_gain: float = 0.0
    """The share of it that the deepest queue saves: flushes that wait at once are done as one."""

    def busy_s(self, size_bytes: float, transfer_bytes: int, *, is_read: bool) -> float:
        """How long it is busy with so many bytes, in transfers of that size that each position anew."""
        bandwidth = self.read_bytes_per_s if is_read else self.write_bytes_per_s
        each_ns = self.seek_ns + self.turn_ns / 2 + (self.read_busy_ns if is_read else self.write_busy_ns)
        return size_bytes / bandwidth + size_bytes / transfer_bytes * each_ns / _NS


PROFILES = {
    "hdd": Profile(8_200_000, 8_333_000, 0, 0, 0, 0, 130_000_000, 130_000_000),
    "ssd": Profile(0, 0, _NS // 72_000, _NS // 33_000, 110_000, 52_000, 500_000_000, 490_000_000),
    "hdd-2016": Profile(8_500_000, 8_333_000, 0, 0, 0, 0, 150_000_000, 150_000_000, 8_333_000, 0.55),
    "ssd-2016": Profile(
        *(0, 0, _NS // 90_000, _NS // 80_000, 100_000, 60_000, 520_000_000, 470_000_000, 3_750_000, 0.85)
    ),
}
"""Profiles by name; `none`, which costs nothing, is not among them."""


def profile_of(media: str, read_bytes_per_s: int = 0, write_bytes_per_s: int = 0) -> Profile | None:
    """The profile of a kind of medium, with another bandwidth where one is given; None for `none`."""
    found = PROFILES.get(media)
    if found is None:
        return None
    return dataclasses.replace(
        found,
        read_bytes_per_s=read_bytes_per_s or found.read_bytes_per_s,
        write_bytes_per_s=write_bytes_per_s or found.write_bytes_per_s,
    )


DISKS_DIR = "disks"
"""Where the state directory keeps faults and counters, by host."""


def directory(state_dir: Path, host: str) -> Path:
    """The directory of a host's faults and counters."""
    return state_dir / DISKS_DIR / host


@dataclasses.dataclass(frozen=True)
class Fault:
    """The faults of a device."""

    latency_ns: int = 0
    error_probability: float = 0.0
    full: bool = False
    seed: int | None = None


@dataclasses.dataclass
class Counters:
    """What a device has done: the file's whole content, little-endian 64-bit integers in this order.

    `busy_ns` is charged when a transfer is queued. What is busy up to a moment t (CLOCK_MONOTONIC, ns) is
    `busy_ns - max(0, free_at_ns - t)`; its growth over an interval is the utilisation.
    """

    reads_count: int = 0
    writes_count: int = 0
    syncs_count: int = 0
    errors_count: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    busy_ns: int = 0
    queued_ns: int = 0  # time that transfers waited before they began
    free_at_ns: int = 0
    stream: int = 0  # where the last transfer ended: a number for the file

    def utilisation_since(self, earlier: "Counters", from_ns: int, to_ns: int) -> float:
        """The share of a time in which the device was busy, between two readings."""
        busy_ns = (self.busy_ns - max(0, self.free_at_ns - to_ns)) - (
            earlier.busy_ns - max(0, earlier.free_at_ns - from_ns)
        )
        return busy_ns / (to_ns - from_ns)


_LAYOUT = struct.Struct(f"<{len(dataclasses.fields(Counters))}q")


def read_counters(file: Path) -> Counters:
    """A device's counters; zeros if it has done nothing."""
    with contextlib.suppress(FileNotFoundError):
        return Counters(*_LAYOUT.unpack(file.read_bytes()[: _LAYOUT.size]))
    return Counters()


class Medium:
    """One device's medium. Methods return the seconds to wait; they raise OSError for what the device refuses."""

    def __init__(
        self,
        device_dir: Path,
        state_dir: Path,
        profile: Profile | None,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        source: random.Random | None = None,
        cache: PageCache | None = None,
        *,
        synced: bool = True,
    ) -> None:
        """`synced`: whether a sync waits for the medium; else what it would write is written later."""
        self._device_dir = device_dir
        self._profile = profile
        self._cache = cache
        self._synced = synced
        self._monotonic_ns = monotonic_ns
        self._random = source or random.Random()
        self._fault_file = f"{state_dir / device_dir.name}.fault"
        self._counters_file = state_dir / f"{device_dir.name}.counters"
        self._fault: Fault | None = None
        self._fault_stamp = 0

    @property
    def bytes_per_s(self) -> int:
        """The lesser of its bandwidths; 0 if it states none."""
        return min(self._profile.read_bytes_per_s, self._profile.write_bytes_per_s) if self._profile else 0

    @property
    def is_modelled(self) -> bool:
        """Whether transfers can take time or fail: otherwise all methods return 0 at once."""
        self._look_for_fault()
        return self._profile is not None or self._fault is not None

    def admit(self, size_bytes: int) -> None:
        """Raises: OSError (ENOSPC) if a file of that size does not fit, as Swift's servers check before the body."""
        self._look_for_fault()
        found = os.statvfs(self._device_dir)
        if (self._fault is not None and self._fault.full) or found.f_bavail * found.f_frsize < size_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, size_bytes: int, stream: int, start: int = METADATA_PAGE) -> float:
        """A read of a file's bytes from `start` on, or of its metadata; `stream` is a number for the file."""
        if self._cache is not None and self._cache.read(stream, start, size_bytes):
            return 0.0
        return self._transfer("read", size_bytes, stream)

    def write(self, size_bytes: int, stream: int, start: int = METADATA_PAGE) -> float:
        """A write of a file's bytes from `start` on, or of its metadata."""
        if self._cache is not None:
            self._cache.write(stream, start, size_bytes)
        return self._transfer("write", size_bytes, stream)

    def note_metadata(self, stream: int) -> None:
        """A file's metadata was written with its bytes, so it is in the page cache."""
        if self._cache is not None:
            self._cache.write(stream, METADATA_PAGE, METADATA_BYTES)

    def sync(self) -> float:
        """Write the file system's journal; without syncs it is written behind, with what else there is."""
        return self._transfer("sync", JOURNAL_BYTES, -1) if self._synced else 0.0

    def _transfer(self, kind: str, size_bytes: int, stream: int) -> float:
        if not self.is_modelled:
            return 0.0
        fault = self._fault or Fault()
        with self._lock_counters() as counters:
            if fault.full and kind != "read":
                counters.errors_count += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            wait_s = self._queue(counters, kind, size_bytes, stream, fault.latency_ns)
            if self._random.random() < fault.error_probability:
                counters.errors_count += 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return wait_s

    def _queue(self, counters: Counters, kind: str, size_bytes: int, stream: int, extra_ns: int) -> float:
        now_ns = self._monotonic_ns()
        begin_ns = max(now_ns, counters.free_at_ns)
        latency_ns, busy_ns = self._times(kind, size_bytes, stream == counters.stream, begin_ns - now_ns)
        busy_ns += extra_ns
        counters.free_at_ns = begin_ns + busy_ns
        counters.busy_ns += busy_ns
        counters.queued_ns += begin_ns - now_ns
        counters.stream = stream
        counters.reads_count += kind == "read"
        counters.writes_count += kind == "write"
        counters.syncs_count += kind == "sync"
        counters.read_bytes += size_bytes if kind == "read" else 0
        counters.written_bytes += size_bytes if kind != "read" else 0
        return (begin_ns - now_ns + max(busy_ns, latency_ns)) / _NS

    def _times(self, kind: str, size_bytes: int, goes_on: bool, backlog_ns: int) -> tuple[int, int]:
        """(latency, busy) of one transfer, ns."""
        profile = self._profile
        if profile is None:
            return 0, 0
        is_read = kind == "read"
        bandwidth = profile.read_bytes_per_s if is_read else profile.write_bytes_per_s
        busy_ns = size_bytes * _NS // bandwidth + (profile.read_busy_ns if is_read else profile.write_busy_ns)
        mean_ns = profile.seek_ns + profile.turn_ns // 2
        if mean_ns and not goes_on:
            positioning_ns = profile.seek_ns + self._random.uniform(0, profile.turn_ns)
            busy_ns += round(positioning_ns * _shrink(backlog_ns / mean_ns))
        if kind == "sync" and profile.sync_busy_ns:
            busy_ns += round(profile.sync_busy_ns * _shrink(backlog_ns / profile.sync_busy_ns, profile.sync_gain))
        return (profile.read_latency_ns if is_read else profile.write_latency_ns), busy_ns

    def _look_for_fault(self) -> None:
        try:
            stamp = os.stat(self._fault_file).st_mtime_ns
        except FileNotFoundError:
            self._fault, self._fault_stamp = None, 0
            return
        if stamp != self._fault_stamp:
            self._fault = Fault(**json.loads(Path(self._fault_file).read_text("ascii")))
            self._fault_stamp = stamp
            self._random = random.Random(self._fault.seed) if self._fault.seed is not None else self._random

    @contextlib.contextmanager
    def _lock_counters(self) -> Iterator[Counters]:
        """The counters, for one change; other processes of the host wait."""
        descriptor = os.open(self._counters_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            content = os.pread(descriptor, _LAYOUT.size, 0)
            counters = Counters(*_LAYOUT.unpack(content)) if len(content) == _LAYOUT.size else Counters()
            try:
                yield counters
            finally:
                os.pwrite(descriptor, _LAYOUT.pack(*dataclasses.astuple(counters)), 0)
        finally:
            os.close(descriptor)


class Writing:
    """One file on its way to the medium."""

    def __init__(self, medium: Medium, stream: int) -> None:
        self._medium = medium
        self._stream = stream
        self._clean_bytes = 0
        self.dirty_bytes = 0
        """In memory, not on the medium."""

    def add(self, size_bytes: int) -> float:
        """Note bytes written to memory; returns the seconds for which the writer must wait. Raises: OSError."""
        self.dirty_bytes += size_bytes
        return self.write(self.dirty_bytes) if self.dirty_bytes >= WRITE_BACK_BYTES else 0.0

    def write(self, size_bytes: int) -> float:
        """Write so many of the bytes in memory; returns the seconds to wait. Raises: OSError."""
        wait_s = self._medium.write(size_bytes, self._stream, self._clean_bytes)
        self._clean_bytes += size_bytes
        self.dirty_bytes -= size_bytes
        return wait_s

    def sync(self) -> float:
        """Write all bytes and the file's name to the medium; returns the seconds to wait. Raises: OSError."""
        self._medium.write(max(self.dirty_bytes, METADATA_BYTES), self._stream, self._clean_bytes)
        self._medium.note_metadata(self._stream)
        self._medium.sync()
        return self._medium.sync()


def _shrink(backlog: float, gain: float = _QUEUE_GAIN) -> float:
    """The share of the positioning time that is left with a queue; `backlog` is its length in whole positioning times.

    The queued ones were shrunk, too, so there are more of them than the backlog says: found by iteration.
    """
    shrink = 1.0
    for _ in range(_ITERATIONS):
        queue = min(_QUEUE_MAX, 1 + backlog / shrink)
        shrink = 1 - gain * math.log2(queue) / math.log2(_QUEUE_MAX)
    return shrink
