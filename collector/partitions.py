"""Partitions: events spread by connection, so that stages run on a part at a time, in memory or on disk.

All packets of a 4-tuple, either way and of all hosts, are in one partition. So are 4-tuples that may be one connection
through a NAT or balancer (`collector.handshakes`).

Cost: ~30 ns an event to scatter, and its columns once to disk and back where they do not fit in memory.
"""

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.handshakes import SPREAD, Handshakes, Keys, Moves
from collector.spilling import spilling
from tracer.records import Columns

MOST_IN_MEMORY_BYTES = 1 << 28
"""Columns kept in memory before batches go to disk."""


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


@dataclass(frozen=True, slots=True)
class Batch:
    """A run of one host's events, and the HTTP heads that begin in them."""

    host: int
    events: pa.RecordBatch
    heads: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a batch is on disk: which one of the files `stem.events` and `stem.heads`."""

    stem: Path
    place: int
    host: int


class Partitions:
    """Batches by partition; those that do not fit in memory are in files of a temporary folder, gone with `close`."""

    def __init__(self, bits: int, spill: Path | None, most_in_memory_bytes: int = MOST_IN_MEMORY_BYTES) -> None:
        self.bits = bits
        self.handshakes = Handshakes(spill)
        self._spill, self._most, self._room = spill, most_in_memory_bytes, most_in_memory_bytes
        self._held: list[list[Batch]] = [[] for _ in range(1 << bits)]
        self._on_disk: list[list[_Place]] = [[] for _ in range(1 << bits)]
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
        scattered = self._scattered(host, events, heads, keys)
        size = sum(column.nbytes for column in events.values()) + heads.nbytes
        with self._lock:
            for number, batch in scattered:
                self._held[number].append(batch)
            self._room -= size
            if self._room < 0:
                self._to_disk()

    def take(self, number: int) -> list[Batch]:
        """The batches of a partition, by host; in order within one, unless regrouped. They are kept no longer."""
        held, self._held[number] = self._held[number], []
        return sorted([*self._from_disk(number), *held], key=lambda batch: batch.host)

    def regrouped(self, moves: Moves | None, address_keys: Keys) -> "Partitions":
        """The same batches, with 4-tuples that may be one connection brought together."""
        if moves is None or not self.bits:
            return self
        regrouped = Partitions(self.bits, self._spill, self._most)
        for number in range(len(self)):
            for batch in self.take(number):
                events = {name: batch.events[name].to_numpy() for name in batch.events.schema.names}
                keys = moves.applied(connection_keys(events, address_keys))
                regrouped.add(batch.host, events, batch.heads, keys)
        self.close()
        return regrouped

    def close(self) -> None:
        """Let go of everything, on disk too."""
        self._held = [[] for _ in self._held]
        self.handshakes.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _scattered(self, host: int, events: Columns, heads: pa.RecordBatch, keys: Keys) -> list[tuple[int, Batch]]:
        """Batches by partition, slices of the whole."""
        if not self.bits:
            return [(0, Batch(host, pa.record_batch(dict(events)), heads))]
        numbers = (keys >> np.uint64(64 - self.bits)).astype(np.uint16)
        order, edges = self._by_number(numbers)
        head_order, head_edges = self._by_number(numbers[np.searchsorted(events["frame"], heads["frame"].to_numpy())])
        sorted_events = pa.record_batch({name: column[order] for name, column in events.items()})
        sorted_heads = heads.take(pa.array(head_order))
        return [
            (number, Batch(host, sorted_events.slice(*run), sorted_heads.slice(*head_run)))
            for number, (run, head_run) in enumerate(zip(edges, head_edges, strict=True))
            if run[1]
        ]

    def _by_number(self, numbers: NDArray[np.uint16]) -> tuple[NDArray[np.int64], list[tuple[int, int]]]:
        """Rows by partition, in their order within one; and of each partition, its first row and how many it has."""
        counts = np.bincount(numbers, minlength=len(self))
        starts = np.cumsum(counts) - counts
        return np.argsort(numbers, kind="stable"), list(zip(starts.tolist(), counts.tolist(), strict=True))

    def _to_disk(self) -> None:
        """Write out what is held. Held slices share memory, so all of them go at once."""
        groups = [
            (number, host, [batch for batch in batches if batch.host == host])
            for number, batches in enumerate(self._held)
            for host in sorted({batch.host for batch in batches})
        ]
        with spilling(self._spill):
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="twintap-", dir=self._spill)
            stem = Path(self._folder.name) / f"{self._written:05}"
            _write(stem.with_suffix(".events"), ([one.events for one in batches] for _, _, batches in groups))
            _write(stem.with_suffix(".heads"), ([one.heads for one in batches] for _, _, batches in groups))
        for place, (number, host, _) in enumerate(groups):
            self._on_disk[number].append(_Place(stem, place, host))
        for batches in self._held:
            batches.clear()
        self._written += 1
        self._room = self._most

    def _from_disk(self, number: int) -> Iterator[Batch]:
        places, self._on_disk[number] = self._on_disk[number], []
        for kept in places:
            events, heads = (_read(kept.stem.with_suffix(ending), kept.place) for ending in (".events", ".heads"))
            yield Batch(kept.host, events, heads)


def _write(path: Path, groups: Iterator[list[pa.RecordBatch]]) -> None:
    """One batch for each group, in their order."""
    batches = (pa.concat_batches(group) for group in groups)
    first = next(batches)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(batch)


def _read(path: Path, place: int) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).get_batch(place)
