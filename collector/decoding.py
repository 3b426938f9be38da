"""Captures of several hosts, decoded: events by partition, hosts, counters.

The first stage. The core decodes a batch at a time; here the batches of all hosts get one address table, are spread
over partitions (`collector.partitions`) and, when one is loaded, get a direction for each packet. Hosts are read side
by side.
"""

from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.event_tables import HostColumns, HostRun, event_table, head_batch, heads_with_rows
from collector.hosts import (
    ENOUGH_PAIRS,
    AnswerGaps,
    Traffic,
    address_pairs,
    is_loopback,
    own_addresses,
    told_by_direction,
)
from collector.partitions import Batch, Keys, Partitions, address_key, connection_keys
from collector.store import CounterInfo, HostInfo, PointInfo
from tracer.errors import InputError
from tracer.readers import CaptureReader, EventBatch, Interface, open_capture
from tracer.records import Columns, Direction, Severity

BYTES_PER_PACKET = 90
"""Of a capture file with headers and message heads; only to guess how many partitions are worth while."""
GZIP_RATIO = 6
EVENTS_PER_PARTITION = 500_000
"""Bounds memory: about 400 bytes an event while a partition's stages run."""
MOST_PARTITION_BITS = 10
LAST_FRAME = (1 << 32) - 2
"""Of one host; the next number says that there is none. Of a single file the reader leaves out what is beyond it."""
READERS = 2
"""Hosts read side by side."""


@dataclass(frozen=True, slots=True)
class HostSource:
    """The captures of one host, in order. `host` is None where it was not told: then the capture or its name tells."""

    host: str | None
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Decoded:
    """`events` as `schema.EVENTS` without `connection_id`, and with what matching needs besides; `heads` one row for
    each HTTP head: `event_row` (its row in `events`), `payload_offset`, and the head's columns."""

    events: pa.Table
    heads: pa.Table


@dataclass(slots=True)
class _Addresses:
    """One table of addresses for all captures; safe to use from several threads."""

    texts: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    _keys: Keys = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def add(self, text: str) -> int:
        """The address's index, new or known."""
        with self.lock:
            if text not in self.index:
                self.index[text] = len(self.texts)
                self.texts.append(text)
            return self.index[text]

    def keys(self) -> Keys:
        """Of all addresses so far, as `partitions.address_key`."""
        with self.lock:
            new = [address_key(text) for text in self.texts[len(self._keys) :]]
            self._keys = np.append(self._keys, np.array(new, dtype=np.uint64))
            return self._keys


@dataclass(slots=True)
class _Capture:
    """One host while its files are read."""

    host: str
    files: tuple[str, ...]
    interfaces: list[str] = field(default_factory=list)
    points: tuple[PointInfo, ...] = ()
    packets_count: int = 0
    events_count: int = 0
    unknown_count: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    named_addresses: frozenset[int] = frozenset()
    pairs: Tally[tuple[int, int]] = field(default_factory=Tally)
    own: frozenset[int] = frozenset()
    passing: frozenset[int] = frozenset()
    gaps: AnswerGaps = field(default_factory=AnswerGaps)
    counters: list[CounterInfo] = field(default_factory=list)
    _places: dict[str | tuple[int, int], int] = field(default_factory=dict)

    _series: int = 0

    def begin_file(self, first_ns: int) -> None:
        """Note the first stamp of the next file: one that goes on where the last ended is of the same series."""
        if self.last_ns is not None and first_ns < self.last_ns:
            self._series += 1

    def places(self, interfaces: Sequence[Interface]) -> NDArray[np.uint16]:
        """Of each interface of the file begun last, its place in `interfaces`; shape as the argument.

        A name is one interface in all files and sections: each of an agent's segments describes its interfaces again,
        and a packet sent again in the next segment is no second sight of the first. Interfaces without names are the
        same in files that follow each other in time (`tcpdump -C`), and others in files of the same time.
        """
        keys = [interface.name or (self._series, interface.index) for interface in interfaces]
        for interface, key in zip(interfaces, keys, strict=True):
            if key not in self._places:
                self._places[key] = len(self.interfaces)
                self.interfaces.append(_shown_name(interface))
        return np.array([self._places[key] for key in keys], dtype=np.uint16)

    def traffic(self) -> Traffic:
        """What it shows of its host."""
        own = self.named_addresses or self.own - self.passing
        return Traffic(self.pairs, own, self.own & self.passing, self.gaps.by_answer)


class Scan:
    """All captures, read once; a context manager, for what is on disk goes with it.

    `hosts` and `counters` are whole; events come by partition.
    """

    def __init__(self, captures: list[_Capture], partitions: Partitions, addresses: _Addresses) -> None:
        own = own_addresses([capture.traffic() for capture in captures])
        self._partitions = partitions
        texts, rank = tuple(sorted(addresses.texts)), np.argsort(np.argsort(addresses.texts)).astype(np.uint32)
        everyones = frozenset(place for place, text in enumerate(texts) if is_loopback(text))
        shared = pa.array(texts, pa.string())
        self._columns = [
            HostColumns(
                capture.host, tuple(capture.interfaces), everyones.union(rank[list(mine)].tolist()), shared, rank
            )
            for capture, mine in zip(captures, own, strict=True)
        ]
        self.hosts = tuple(
            _host_info(capture, mine, addresses.texts) for capture, mine in zip(captures, own, strict=True)
        )
        undirected = (_undirected(capture) for capture, mine in zip(captures, own, strict=True) if not mine)
        counters = [counter for capture in captures for counter in capture.counters]
        self.counters = (*counters, *(counter for counter in undirected if counter is not None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._partitions.close()

    def __len__(self) -> int:
        return len(self._partitions)

    def take(self, number: int) -> Decoded | None:
        """The events and heads of one partition, host by host in the order of its frames; None if it is empty.

        A partition can be taken once.
        """
        batches = self._partitions.take(number)
        if not batches:
            return None
        raw = _by_frame(pa.Table.from_batches([batch.events for batch in batches]), batches).combine_chunks()
        runs, rows = [], 0
        heads = []
        for host, columns in enumerate(self._columns):
            own = [batch for batch in batches if batch.host == host]
            count = sum(batch.events.num_rows for batch in own)
            if own:
                of_host = pa.Table.from_batches([batch.heads for batch in own])
                heads.append(heads_with_rows(of_host, raw["frame"].to_numpy()[rows : rows + count], rows))
            runs.append(HostRun(columns, rows, rows + count))
            rows += count
        return Decoded(event_table(raw, runs), pa.concat_tables(heads).combine_chunks())


def decode(sources: Sequence[HostSource]) -> Decoded:
    """All events and heads of the captures of all hosts, in memory at once.

    Raises: as `scan`.
    """
    with scan(sources, partition_bits=0) as captures:
        decoded = captures.take(0)
        assert decoded is not None, "scan refuses captures without a packet"
        return decoded


def scan(sources: Sequence[HostSource], spill: Path | None = None, partition_bits: int | None = None) -> Scan:
    """Read the captures of all hosts.

    Arguments: `sources`, one for each host; `spill`, where intermediate data goes if it does not fit in memory; the
    number of partitions is 2^`partition_bits`, by the files' sizes if it is not given.
    Raises: `InputError` for a file that is no capture, or if no host's capture holds a TCP packet; `ResourceError` if
    intermediate data finds no room.
    """
    named = _merged_by_name(sources)
    bits = _partition_bits(named) if partition_bits is None else partition_bits
    addresses, partitions = _Addresses(), Partitions(bits, spill)
    try:
        with ThreadPoolExecutor(READERS) as pool:
            jobs = [pool.submit(_read_host, *job, addresses, partitions) for job in enumerate(named)]
            captures = [job.result() for job in jobs]
        if not any(capture.events_count for capture in captures):
            files = ", ".join(file for capture in captures for file in capture.files)
            what = f"no TCP packet in {files or 'the given captures'}"
            raise InputError(what, "capture with a filter that includes tcp")
        partitions = partitions.regrouped(partitions.handshakes.joined(), addresses.keys())
    except BaseException:
        partitions.close()
        raise
    return Scan(captures, partitions, addresses)


def _by_frame(events: pa.Table, batches: Sequence[Batch]) -> pa.Table:
    """Each host's events in the order of its frames; they may have come from several partitions."""
    frames = events["frame"].to_numpy()
    hosts = np.repeat([batch.host for batch in batches], [batch.events.num_rows for batch in batches])
    in_order = (np.diff(frames.astype(np.int64)) > 0) | (np.diff(hosts) != 0)
    return events if in_order.all() else events.take(pa.array(np.lexsort((frames, hosts))))


def _partition_bits(sources: Iterable[HostSource]) -> int:
    """Enough partitions that each holds about `EVENTS_PER_PARTITION`, judged by the files' sizes."""
    sizes = [
        path.stat().st_size * (GZIP_RATIO if path.suffix == ".gz" else 1)
        for source in sources
        for path in source.files
        if path.is_file()
    ]
    wanted = sum(sizes) / BYTES_PER_PACKET / EVENTS_PER_PARTITION
    return min(MOST_PARTITION_BITS, max(0, int(np.ceil(np.log2(max(wanted, 1))))))


def _merged_by_name(sources: Iterable[HostSource]) -> list[HostSource]:
    """Sources that name the same host are one host, their files in the given order."""
    named: dict[str, HostSource] = {}
    for source in sources:
        name = source.host or _name_of(source.files[0])
        earlier = named[name].files if name in named else ()
        named[name] = HostSource(name, earlier + source.files)
    return list(named.values())


def _name_of(path: Path) -> str:
    """The host that the agent wrote into its capture, else the file's stem without any ending."""
    with open_capture(path) as reader:
        next(iter(reader.batches()), None)
        return reader.host or path.name.split(".", 1)[0]


def _read_host(number: int, source: HostSource, addresses: _Addresses, partitions: Partitions) -> _Capture:
    assert source.host is not None
    capture = _Capture(source.host, tuple(map(str, source.files)))
    for path in source.files:
        with open_capture(path) as reader:
            frames = capture.packets_count
            keys: Keys = np.empty(0, dtype=np.uint64)
            shared = np.empty(0, dtype=np.uint32)
            for place, batch in enumerate(reader.batches()):
                new = [addresses.add(text) for text in reader.addresses[len(shared) :]]
                shared = np.append(shared, np.array(new, dtype=np.uint32))
                _check_frames(source, frames + reader.packets_count)
                events = _placed(batch, shared, frames)
                if place == 0 and len(events["host_ns"]):
                    capture.begin_file(int(events["host_ns"].min()))
                events["interface"] = capture.places(reader.interfaces)[events["interface"]]
                if len(keys) < len(addresses.texts):
                    keys = addresses.keys()
                _note_events(capture, events)
                partitions.add(number, events, head_batch(batch.heads), connection_keys(events, keys))
            capture.packets_count += reader.packets_count
            _note_origin(capture, reader, addresses)
    return capture


def _check_frames(source: HostSource, count: int) -> None:
    if count > LAST_FRAME:
        what = (
            f"the captures of host {source.host} hold more than {LAST_FRAME:,} packets, which is as far as frames count"
        )
        raise InputError(what, "make one trace of each stretch of time, from some of the files")


def _placed(batch: EventBatch, shared: NDArray[np.uint32], frames: int) -> Columns:
    """Events with addresses as in the shared table, `shared` by the file's own numbers; frames of a host's later files
    go on counting."""
    events = batch.events
    if len(shared):
        events["src_addr"], events["dst_addr"] = shared[events["src_addr"]], shared[events["dst_addr"]]
    if frames:
        events["frame"] += np.uint32(frames)
        batch.heads["frame"] += np.uint32(frames)
    return events


def _note_events(capture: _Capture, events: Columns) -> None:
    """Add to what the capture shows of its host."""
    stamps = events["host_ns"]
    if not len(stamps):
        return
    capture.events_count += len(stamps)
    first, last = int(stamps.min()), int(stamps.max())
    capture.first_ns = first if capture.first_ns is None else min(first, capture.first_ns)
    capture.last_ns = last if capture.last_ns is None else max(last, capture.last_ns)
    capture.unknown_count += int((events["direction"] == Direction.UNKNOWN).sum())
    if len(capture.pairs) < ENOUGH_PAIRS:
        capture.pairs.update(address_pairs(events))
    own, passing = told_by_direction(events)
    capture.own |= own
    capture.passing |= passing
    capture.gaps.add(events)


def _note_origin(capture: _Capture, reader: CaptureReader, addresses: _Addresses) -> None:
    names = [_shown_name(interface) for interface in reader.interfaces]
    known = {point.interface for point in capture.points}
    for interface, name in zip(reader.interfaces, names, strict=True):
        if name not in known:
            known.add(name)
            capture.points += (PointInfo(f"{capture.host}/{name}", name, str(interface.link_type)),)
    named = {addresses.add(record.address) for record in reader.names if record.name == reader.host}
    capture.named_addresses |= named
    for counter in reader.counters:
        if counter.count:
            info = CounterInfo(capture.host, counter.name, str(counter.severity), counter.count, counter.remedy)
            capture.counters.append(info)


def _shown_name(interface: Interface) -> str:
    return interface.name or f"if{interface.index}"


def _host_info(capture: _Capture, own: frozenset[int], texts: Sequence[str]) -> HostInfo:
    addresses = tuple(sorted(text for text in (texts[index] for index in own) if not is_loopback(text)))
    counts = (capture.packets_count, capture.events_count)
    return HostInfo(capture.host, addresses, capture.points, capture.files, *counts, capture.first_ns, capture.last_ns)


def _undirected(capture: _Capture) -> CounterInfo | None:
    """For a host of whose packets nothing tells which way they went."""
    remedy = "capture at the host itself, or name its interface's direction with `tcpdump -i any`"
    count = capture.unknown_count
    return CounterInfo(capture.host, "direction_unknown", Severity.DATA_LOSS, count, remedy) if count else None
