"""Partitions: events spread by connection, so that stages run on a part at a time, in memory or on disk.

All packets of a 4-tuple, either way and of all hosts, are in one partition. So are 4-tuples that may be one connection
through a NAT or balancer: two whose SYN-ACKs, each seen at one host only, share both ISNs or both timestamps
(`tracer/core/matching`).

Cost: ~30 ns an event to scatter, and its columns once to disk and back where they do not fit in memory.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.errors import ResourceError
from tracer.records import Columns, TcpFlag, TcpOption

Keys = NDArray[np.uint64]

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: multiplying by it spreads keys over the high bits (Knuth, TAOCP 3, §6.4)."""
MOST_IN_MEMORY_BYTES = 1 << 28
"""Columns kept in memory before batches go to disk."""


@contextmanager
def spilling(folder: Path | None) -> Iterator[None]:
    """Writing intermediate data to `folder` (the system's temporary one if None).

    Raises: `ResourceError` if it finds no room there.
    """
    try:
        yield
    except OSError as error:
        where = folder or tempfile.gettempdir()
        raise ResourceError(
            f"no room for intermediate data in {where} ({error.strerror or error})",
            "free some space there, or set TMPDIR to a larger disk",
        ) from None


def address_key(text: str) -> int:
    """64 bits of an address, the same in every run and on every machine."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def connection_keys(events: Columns, address_keys: Keys) -> Keys:
    """64 bits of each event's 4-tuple, the same for both directions; shape (n,).

    Arguments: `address_keys` by the index that the columns `src_addr` and `dst_addr` hold.
    """
    with np.errstate(over="ignore"):
        ends = [
            (address_keys[events[f"{end}_addr"]] ^ events[f"{end}_port"].astype(np.uint64)) * SPREAD
            for end in ("src", "dst")
        ]
        return (ends[0] + ends[1]) * SPREAD


@dataclass(slots=True)
class Handshakes:
    """Fingerprints of SYN-ACKs, to find 4-tuples that may be one connection."""

    keys: list[Keys] = field(default_factory=list)
    fingerprints: list[Keys] = field(default_factory=list)
    hosts: list[Keys] = field(default_factory=list)

    def add(self, host: int, events: Columns, keys: Keys) -> None:
        """Note the SYN-ACKs of a batch of one host."""
        both = TcpFlag.SYN | TcpFlag.ACK
        answers = np.flatnonzero((events["flags"] & both) == both)
        stamped = answers[(events["options"][answers] & TcpOption.TIMESTAMPS) != 0]
        for rows, (first, second) in ((answers, ("seq", "ack")), (stamped, ("tsval", "tsecr"))):
            pairs = (events[first][rows].astype(np.uint64) << np.uint64(32)) | events[second][rows]
            self.keys.append(keys[rows])
            self.fingerprints.append(pairs)
            self.hosts.append(np.full(len(rows), host, dtype=np.uint64))

    def joined(self) -> dict[int, int]:
        """Keys to be replaced by another key, so that what may be one connection has one key."""
        if not self.keys:
            return {}
        columns = [np.concatenate(column) for column in (self.fingerprints, self.keys, self.hosts)]
        seen = np.unique(np.column_stack(columns), axis=0)
        pairs, hosts_count = np.unique(seen[:, :2], axis=0, return_counts=True)
        lone = pairs[hosts_count == 1]
        _, places, count = np.unique(lone[:, 0], return_index=True, return_counts=True)
        shared = places[count == 2]
        leader: dict[int, int] = {}

        def lead(key: int) -> int:
            while key in leader:
                key = leader[key]
            return key

        for one, other in zip(lone[shared, 1].tolist(), lone[shared + 1, 1].tolist(), strict=True):
            first, second = sorted((lead(one), lead(other)))
            if first != second:
                leader[second] = first
        return {key: lead(key) for key in leader}


@dataclass(frozen=True, slots=True)
class Batch:
    """A run of one host's events, and the HTTP heads that begin in them."""

    host: int
    events: pa.RecordBatch
    heads: pa.RecordBatch

    @property
    def nbytes(self) -> int:
        """Bytes of its columns."""
        return int(self.events.nbytes + self.heads.nbytes)


class Partitions:
    """Batches by partition; those that do not fit in memory are in files of a temporary folder, gone with `close`."""

    def __init__(self, bits: int, spill: Path | None, most_in_memory_bytes: int = MOST_IN_MEMORY_BYTES) -> None:
        self.bits = bits
        self.handshakes = Handshakes()
        self._spill, self._most, self._room = spill, most_in_memory_bytes, most_in_memory_bytes
        self._held: list[list[Batch]] = [[] for _ in range(1 << bits)]
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._written = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return 1 << self.bits

    def add(self, host: int, events: Columns, heads: pa.RecordBatch, keys: Keys) -> None:
        """Take in a batch of one host; its batches must come in order. Safe to call from several threads."""
        with self._lock:
            if self.bits:
                self.handshakes.add(host, events, keys)
        for number, batch in self._scattered(host, events, heads, keys):
            with self._lock:
                self._held[number].append(batch)
                self._room -= batch.nbytes
        if self._room < 0:
            with self._lock:
                self._to_disk()

    def take(self, number: int) -> list[Batch]:
        """The batches of a partition, by host; in order within one, unless regrouped. They are kept no longer."""
        held, self._held[number] = self._held[number], []
        return sorted([*self._from_disk(number), *held], key=lambda batch: batch.host)

    def regrouped(self, joined: dict[int, int], address_keys: Keys) -> "Partitions":
        """The same batches, with 4-tuples that may be one connection brought together."""
        if not joined or not self.bits:
            return self
        moved, to = (np.array(column, dtype=np.uint64) for column in (list(joined), list(joined.values())))
        order = np.argsort(moved)
        regrouped = Partitions(self.bits, self._spill, self._most)
        for number in range(len(self)):
            for batch in self.take(number):
                events = {name: batch.events[name].to_numpy() for name in batch.events.schema.names}
                keys = connection_keys(events, address_keys)
                place = np.searchsorted(moved[order], keys).clip(max=len(moved) - 1)
                found = moved[order][place] == keys
                keys = np.where(found, to[order][place], keys)
                regrouped.add(batch.host, events, batch.heads, keys)
        self.close()
        return regrouped

    def close(self) -> None:
        """Let go of everything, on disk too."""
        self._held = [[] for _ in self._held]
        if self._folder is not None:
            self._folder.cleanup()

    def _scattered(self, host: int, events: Columns, heads: pa.RecordBatch, keys: Keys) -> Iterator[tuple[int, Batch]]:
        if not self.bits:
            yield 0, Batch(host, pa.record_batch(dict(events)), heads)
            return
        numbers = (keys >> np.uint64(64 - self.bits)).astype(np.uint16)
        order = np.argsort(numbers, kind="stable")
        edges = np.searchsorted(numbers[order], np.arange(len(self) + 1))
        scattered = pa.record_batch({name: column[order] for name, column in events.items()})
        head_numbers = numbers[np.searchsorted(events["frame"], heads["frame"].to_numpy())]
        for number in range(len(self)):
            start, end = edges[number], edges[number + 1]
            if end > start:
                own_heads = heads.filter(pa.array(head_numbers == number))
                yield number, Batch(host, scattered.slice(start, end - start), own_heads)

    def _to_disk(self) -> None:
        """Write out what is held. Held slices share memory, so all of them go at once."""
        with spilling(self._spill):
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="twintap-", dir=self._spill)
            self._written += 1
            for number, batches in enumerate(self._held):
                for host in {batch.host for batch in batches}:
                    self._write(number, host, [batch for batch in batches if batch.host == host])
                batches.clear()
        self._room = self._most

    def _write(self, number: int, host: int, batches: list[Batch]) -> None:
        assert self._folder is not None
        stem = Path(self._folder.name) / f"{number:05}-{self._written:05}-{host:05}"
        parts = {"events": [batch.events for batch in batches], "heads": [batch.heads for batch in batches]}
        for ending, of_kind in parts.items():
            with pa.OSFile(f"{stem}.{ending}", "wb") as file, pa.ipc.new_file(file, of_kind[0].schema) as writer:
                writer.write_table(pa.Table.from_batches(of_kind).combine_chunks())

    def _from_disk(self, number: int) -> Iterator[Batch]:
        if self._folder is None:
            return
        for path in sorted(Path(self._folder.name).glob(f"{number:05}-*.events")):
            host = int(path.stem.rsplit("-", 1)[1])
            yield Batch(host, _read(path), _read(path.with_suffix(".heads")))


def _read(path: Path) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        return reader.get_batch(0) if reader.num_record_batches else pa.RecordBatch.from_pylist([], reader.schema)
