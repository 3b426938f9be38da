"""Captures of several hosts, decoded: the tables `events` and `messages` (not yet by connection), hosts and counters.

The first stage. The core decodes a batch at a time; here the batches become one table, with one address table for all
hosts and a direction for each packet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.hosts import directions, is_loopback, own_addresses, traffic_of
from collector.store import CounterInfo, HostInfo, PointInfo
from tracer.errors import InputError
from tracer.readers import CaptureReader, EventBatch, open_capture
from tracer.records import EVENT_COLUMNS, HEAD_COLUMNS, HEAD_STRINGS, Columns, Direction, Severity, TcpOption

DIRECTION_NAMES = pa.array(["unknown", "receive", "send"])
"""Dictionary of the column `direction`, in the order of `tracer.records.Direction`."""


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
    hosts: tuple[HostInfo, ...]
    counters: tuple[CounterInfo, ...]


@dataclass(slots=True)
class _Capture:
    """One host's files, decoded: columns with addresses in the table shared by all hosts."""

    host: str
    events: Columns
    heads: pa.Table
    interfaces: list[str]
    points: tuple[PointInfo, ...]
    files: tuple[str, ...]
    packets_count: int
    named_addresses: frozenset[int]
    counters: list[CounterInfo]


@dataclass(slots=True)
class _Addresses:
    """One table of addresses for all captures."""

    texts: list[str] = field(default_factory=list)
    index: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> int:
        """The address's index, new or known."""
        if text not in self.index:
            self.index[text] = len(self.texts)
            self.texts.append(text)
        return self.index[text]


def decode(sources: Sequence[HostSource]) -> Decoded:
    """Decode the captures of all hosts.

    Raises: `InputError` for a file that is no capture, or if no host's capture holds a TCP packet.
    """
    addresses = _Addresses()
    captures = [_decode_host(source, addresses) for source in _merged_by_name(sources)]
    if not any(len(capture.events["frame"]) for capture in captures):
        files = ", ".join(file for capture in captures for file in capture.files)
        raise InputError(f"no TCP packet in {files or 'the given captures'}", "capture with a filter that includes tcp")
    own = own_addresses([traffic_of(capture.events, capture.named_addresses) for capture in captures])
    events = pa.concat_tables(
        [_event_table(capture, mine, addresses) for capture, mine in zip(captures, own, strict=True)]
    ).unify_dictionaries()
    starts = np.cumsum([0] + [len(capture.events["frame"]) for capture in captures]).tolist()
    heads = [_heads_with_rows(capture, start) for capture, start in zip(captures, starts[:-1], strict=True)]
    infos = tuple(_host_info(capture, mine, addresses) for capture, mine in zip(captures, own, strict=True))
    counters = tuple(counter for capture in captures for counter in capture.counters)
    return Decoded(
        events.combine_chunks(), pa.concat_tables(heads).combine_chunks(), infos, counters + _unknown(events)
    )


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


def _decode_host(source: HostSource, addresses: _Addresses) -> _Capture:
    assert source.host is not None
    batches: list[EventBatch] = []
    capture = _Capture(source.host, {}, _no_heads(), [], (), tuple(map(str, source.files)), 0, frozenset(), [])
    for path in source.files:
        with open_capture(path) as reader:
            of_file = [_shifted(batch, capture.packets_count, len(capture.interfaces)) for batch in reader.batches()]
            batches += [_readdressed(batch, reader.addresses, addresses) for batch in of_file]
            capture.packets_count += reader.packets_count
            _note_origin(capture, reader, addresses)
    capture.events = {
        name: np.concatenate([batch.events[name] for batch in batches] or [np.empty(0, dtype)])
        for name, dtype in EVENT_COLUMNS.items()
    }
    capture.heads = pa.concat_tables([_head_table(batch.heads) for batch in batches] or [_no_heads()])
    return capture


def _note_origin(capture: _Capture, reader: CaptureReader, addresses: _Addresses) -> None:
    names = [interface.name or f"if{interface.index}" for interface in reader.interfaces]
    capture.interfaces += names
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


def _shifted(batch: EventBatch, frames: int, interfaces: int) -> EventBatch:
    """Frames and interfaces of a host's later files go on counting."""
    if frames or interfaces:
        batch.events["frame"] += np.uint32(frames)
        batch.events["interface"] += np.uint16(interfaces)
        batch.heads["frame"] += np.uint32(frames)
    return batch


def _readdressed(batch: EventBatch, texts: Sequence[str], addresses: _Addresses) -> EventBatch:
    shared = np.array([addresses.add(text) for text in texts], dtype=np.uint32)
    for name in ("src_addr", "dst_addr"):
        batch.events[name] = shared[batch.events[name]] if len(shared) else batch.events[name]
    return batch


def _strings(columns: Columns, name: str) -> pa.Array:
    offsets, data = columns[f"{name}_offsets"], columns[f"{name}_bytes"]
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def _head_table(heads: Columns) -> pa.Table:
    numbers = {name: pa.array(heads[name]) for name in HEAD_COLUMNS}
    return pa.table(numbers | {name: _strings(heads, name) for name in HEAD_STRINGS})


def _no_heads() -> pa.Table:
    numbers = {name: pa.array(np.empty(0, dtype)) for name, dtype in HEAD_COLUMNS.items()}
    return pa.table(numbers | {name: pa.array([], pa.large_string()) for name in HEAD_STRINGS})


def _heads_with_rows(capture: _Capture, start: int) -> pa.Table:
    frames = capture.heads["frame"].to_numpy()
    rows = np.searchsorted(capture.events["frame"], frames) + start
    return capture.heads.drop_columns(["frame"]).append_column("event_row", pa.array(rows.astype(np.int64)))


def _dictionary(codes: NDArray[np.generic], values: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values)


def _event_table(capture: _Capture, own: frozenset[int], addresses: _Addresses) -> pa.Table:
    events = capture.events
    n = len(events["frame"])
    everyones = (index for index, text in enumerate(addresses.texts) if is_loopback(text))
    direction, inside = directions(events, own.union(everyones))
    texts = pa.array(addresses.texts, pa.string())
    stamped = (events["options"] & TcpOption.TIMESTAMPS) != 0
    points = pa.array([f"{capture.host}/{name}" for name in capture.interfaces], pa.string())
    plain = ("frame", "host_ns", "src_port", "dst_port", "seq", "ack", "flags", "payload_len", "window")
    besides = ("captured_len", "original_len", "options", "mss", "window_scale", "sack_hash")
    columns = {
        "host": _dictionary(np.zeros(n), pa.array([capture.host])),
        "point": _dictionary(events["interface"], points),
        "direction": _dictionary(direction, DIRECTION_NAMES),
        "src_addr": _dictionary(events["src_addr"], texts),
        "dst_addr": _dictionary(events["dst_addr"], texts),
        "ip_id": pa.array(events["ip_id"], mask=events["ip_id"] < 0),
        "tsval": pa.array(events["tsval"], mask=~stamped),
        "tsecr": pa.array(events["tsecr"], mask=~stamped),
        "loopback": pa.array(inside),
    }
    return pa.table(columns | {name: pa.array(events[name]) for name in plain + besides})


def _host_info(capture: _Capture, own: frozenset[int], addresses: _Addresses) -> HostInfo:
    stamps = capture.events["host_ns"]
    first, last = (int(stamps.min()), int(stamps.max())) if len(stamps) else (None, None)
    texts = tuple(sorted(text for text in map(addresses.texts.__getitem__, own) if not is_loopback(text)))
    count = len(stamps)
    return HostInfo(capture.host, texts, capture.points, capture.files, capture.packets_count, count, first, last)


def _unknown(events: pa.Table) -> tuple[CounterInfo, ...]:
    """Hosts of whose packets nothing tells which way they went."""
    codes = events["direction"].combine_chunks().indices.to_numpy()
    hosts = events["host"].combine_chunks()
    unknown, names = hosts.indices.to_numpy()[codes == Direction.UNKNOWN], hosts.dictionary.to_pylist()
    remedy = "capture at the host itself, or name its interface's direction with `tcpdump -i any`"
    return tuple(
        CounterInfo(names[code], "direction_unknown", Severity.DATA_LOSS, int(count), remedy)
        for code, count in zip(*np.unique(unknown, return_counts=True), strict=True)
    )
