"""Decoded columns of hosts as rows of the tables `events` and `messages`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from collector.columns import numbers
from collector.hosts import directions
from tracer.records import HEAD_COLUMNS, HEAD_STRINGS, Columns, TcpOption

DIRECTION_NAMES = pa.array(["unknown", "receive", "send"])
"""Dictionary of the column `direction`, in the order of `tracer.records.Direction`."""

PLAIN = ("frame", "host_ns", "src_port", "dst_port", "seq", "ack", "flags", "payload_len", "window")
BESIDES = ("captured_len", "original_len", "options", "mss", "window_scale", "sack_hash")
"""Columns that go into `events` as they are: of its schema, and what matching needs besides."""


@dataclass(frozen=True, slots=True)
class HostColumns:
    """What gives a host's columns their meaning: its interfaces, its own addresses (loopback ones too, as places in
    `addresses`), all addresses' texts.

    `addresses` is sorted and `rank` gives the place there of each index in the columns: threads number addresses in the
    order they come by, and a table must be the same in every run.
    """

    host: str
    interfaces: tuple[str, ...]
    own_addresses: frozenset[int]
    addresses: pa.StringArray
    rank: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class HostRun:
    """Rows `start..end` of the events of several hosts are this host's."""

    columns: HostColumns
    start: int
    end: int


def event_table(raw: pa.Table, runs: Sequence[HostRun]) -> pa.Table:
    """Rows of `events`, without connection.

    Arguments: `raw` has the columns of `tracer.records.EVENT_COLUMNS`, in one chunk; `runs` are its hosts, in order.
    """
    events: Columns = {name: numbers(raw[name]) for name in raw.column_names}
    rank, addresses = runs[0].columns.rank, runs[0].columns.addresses
    events |= {f"{end}_addr": rank[events[f"{end}_addr"]] for end in ("src", "dst")}
    found = [_directions(events, run) for run in runs]
    direction, inside = (np.concatenate(column) for column in zip(*found, strict=True))
    texts, src, dst = _used(addresses, events["src_addr"], events["dst_addr"])
    stamped = (events["options"] & TcpOption.TIMESTAMPS) != 0
    host, point = _places(events["interface"], runs)
    columns = {
        "host": host,
        "point": point,
        "direction": _dictionary(direction, DIRECTION_NAMES),
        "src_addr": _dictionary(src, texts),
        "dst_addr": _dictionary(dst, texts),
        "ip_id": pa.array(events["ip_id"], mask=events["ip_id"] < 0),
        "tsval": pa.array(events["tsval"], mask=~stamped),
        "tsecr": pa.array(events["tsecr"], mask=~stamped),
        "loopback": pa.array(inside),
    }
    return pa.table(columns | {name: raw[name] for name in PLAIN + BESIDES})


def head_batch(heads: Columns) -> pa.RecordBatch:
    """HTTP heads as the core gives them (`HEAD_COLUMNS`, strings as offsets and bytes), as one batch."""
    plain = {name: pa.array(heads[name]) for name in HEAD_COLUMNS}
    return pa.record_batch(plain | {name: _strings(heads, name) for name in HEAD_STRINGS})


def _used(
    addresses: pa.StringArray, src: NDArray[np.uint32], dst: NDArray[np.uint32]
) -> tuple[pa.StringArray, NDArray[np.uint32], NDArray[np.uint32]]:
    """The addresses of these rows alone, and the columns that number them: others' would be written with each part."""
    seen = np.zeros(len(addresses), dtype=np.bool_)
    seen[src] = seen[dst] = True
    place = (np.cumsum(seen) - 1).astype(np.uint32)
    return addresses.filter(pa.array(seen)), place[src], place[dst]


def _directions(events: Columns, run: HostRun) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    needed = ("direction", "src_addr", "dst_addr")
    columns = {name: events[name][run.start : run.end] for name in needed}
    return directions(columns, run.columns.own_addresses)


def _places(interface: NDArray[np.uint16], runs: Sequence[HostRun]) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
    """The columns `host` and `point`."""
    counts = [run.end - run.start for run in runs]
    first_point = np.cumsum([0] + [len(run.columns.interfaces) for run in runs])[:-1]
    points = [f"{run.columns.host}/{name}" for run in runs for name in run.columns.interfaces]
    hosts = pa.array([run.columns.host for run in runs])
    host = _dictionary(np.repeat(np.arange(len(runs), dtype=np.int32), counts), hosts)
    return host, _dictionary(interface + np.repeat(first_point, counts), pa.array(points, pa.string()))


def heads_with_rows(heads: pa.Table, frames: NDArray[np.uint32], start: int) -> pa.Table:
    """Heads with `event_row` in place of `frame`: the place in `frames` (ascending), counted from `start`."""
    rows = np.searchsorted(frames, heads["frame"].to_numpy()) + start
    return heads.drop_columns(["frame"]).append_column("event_row", pa.array(rows.astype(np.int64)))


def _strings(columns: Columns, name: str) -> pa.Array:
    offsets, data = columns[f"{name}_offsets"], columns[f"{name}_bytes"]
    return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data))


def _dictionary(codes: NDArray[np.generic], values: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values)
