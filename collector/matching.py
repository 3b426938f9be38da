"""Events to hops: each transfer of bytes from a send on one host to a receive on another.

The loop over packets is the core's (`tracer._core.match_events`, whose header explains the method). Here its columns
become tables.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.columns import numbers, one_chunk
from collector.hosts import is_loopback
from collector.schema import HopKind, HopState
from tracer import _core
from tracer.records import Columns, Direction

NO_FRAME = 0
"""Frame of an event that is not there, in the core's columns."""
NO_HOST = 0xFFFF
LOOPBACK_CODE = 3
"""The core's direction code for a packet that stayed inside its host and was captured once."""

ONLY_FOR_MATCHING = ("loopback", "options", "mss", "window_scale", "sack_hash")
"""Columns of decoded events that no later stage reads; they are not written."""
ONLY_FOR_MESSAGES = ("from_client", "stream_offset")
"""Columns of matched events by which `messages` places HTTP heads; they are not written."""

KINDS = pa.array([str(kind) for kind in HopKind])
"""Dictionary of `kind`, in the order of the core's codes."""
STATES = pa.array([str(state) for state in HopState])
"""Dictionary of `state`, in the order of the core's codes."""


@dataclass(frozen=True, slots=True)
class Matched:
    """`hops` without trace times, `connections`, and `events` with `connection_id`, `from_client`, `stream_offset` and
    `duplicate` (another point of its host speaks for it, so it is in no hop)."""

    events: pa.Table
    hops: pa.Table
    connections: pa.Table


def match(events: pa.Table, first_connection_id: int = 1) -> Matched:
    """Pair every transfer in `events` (all hosts, whole connections).

    Arguments: `events` as `decoding.Decoded.events`; `first_connection_id` numbers the connections from there, so that
    partitions can be matched alone. Cost: linear in events, ~0.1-0.3 µs each on one core.
    """
    hosts, addresses = one_chunk(events["host"]), _shared_addresses(events)
    columns = _core_columns(events, hosts, addresses)
    found = _core.match_events(columns)
    connections = _connection_table(found["connections"], hosts, addresses, first_connection_id)
    placed = found["events"]
    with_connections = (
        events.drop_columns(list(ONLY_FOR_MATCHING))
        .append_column("connection_id", pa.array(placed["connection"].astype(np.int64) + first_connection_id))
        .append_column("from_client", pa.array(placed["from_client"]))
        .append_column("stream_offset", pa.array(placed["stream_offset"]))
        .append_column("duplicate", pa.array(placed["duplicate"]))
    )
    hops = _hop_table(found["hops"], hosts, first_connection_id)
    return Matched(with_connections, hops, connections)


def messages(heads: pa.Table, events: pa.Table) -> pa.Table:
    """HTTP heads with their place in a connection's stream, as `schema.MESSAGES`.

    Arguments: `heads` as `decoding.Decoded.heads`; `events` as `Matched.events`, in the order they were decoded.
    """
    rows = heads["event_row"]
    placed = events.select(["host", "frame", "connection_id", "from_client", "stream_offset"]).take(rows)
    offset = pc.add(placed["stream_offset"], pc.cast(heads["payload_offset"], pa.int64()))
    names = ("head_kind", "head_flags", "method", "target", "status", "content_length", "head_len")
    table = placed.set_column(placed.schema.get_field_index("stream_offset"), "stream_offset", offset)
    for name in (*names, "transaction_id", "user_agent"):
        table = table.append_column(name, heads[name])
    return table


@dataclass(frozen=True, slots=True)
class _Addresses:
    texts: pa.Array
    src: NDArray[np.uint32]
    dst: NDArray[np.uint32]


def _shared_addresses(events: pa.Table) -> _Addresses:
    """Source and destination as indices into one list.

    A loopback address is another on each host: its index is `len(texts)` further for each host before it.
    """
    src, dst = one_chunk(events["src_addr"]), one_chunk(events["dst_addr"])
    texts = pc.unique(pa.concat_arrays([src.dictionary, dst.dictionary]))
    own = np.array([is_loopback(text) for text in texts.to_pylist()], dtype=bool)
    codes = []
    for side in (src, dst):
        place = pc.index_in(side.dictionary, texts).to_numpy().astype(np.uint32)
        code = place[side.indices.to_numpy()]
        if own.any():
            host = one_chunk(events["host"]).indices.to_numpy().astype(np.uint32)
            code = np.where(own[code], code + (host + np.uint32(1)) * np.uint32(len(texts)), code)
        codes.append(code)
    return _Addresses(texts, codes[0], codes[1])


def _core_columns(events: pa.Table, hosts: pa.DictionaryArray, addresses: _Addresses) -> Columns:
    told = one_chunk(events["direction"])
    codes = {"receive": Direction.RECEIVE, "send": Direction.SEND}
    by_name = np.array([codes.get(name, Direction.UNKNOWN) for name in told.dictionary.to_pylist()], dtype=np.uint8)
    direction = by_name[told.indices.to_numpy()]
    direction[numbers(events["loopback"])] = LOOPBACK_CODE
    names = (
        "frame",
        "host_ns",
        "src_port",
        "dst_port",
        "seq",
        "ack",
        "flags",
        "window",
        "payload_len",
        "options",
        "mss",
    )
    columns: Columns = {name: numbers(events[name]) for name in (*names, "sack_hash", "tsval", "tsecr")}
    columns["ip_id"] = numbers(events["ip_id"], missing=-1)
    columns["point"] = one_chunk(events["point"]).indices.to_numpy().astype(np.uint16)
    columns["host"] = hosts.indices.to_numpy().astype(np.uint16)
    columns |= {"direction": direction, "src_addr": addresses.src, "dst_addr": addresses.dst}
    columns["host_of_address"] = _host_of_address(columns)
    return columns


def _host_of_address(columns: Columns) -> NDArray[np.uint16]:
    """The host of each address: the one that sent from it or received at it; `NO_HOST` for others' addresses."""
    size = int(max(columns["src_addr"].max(initial=0), columns["dst_addr"].max(initial=0))) + 1
    owner = np.full(size, NO_HOST, dtype=np.uint16)
    for direction, end in ((Direction.RECEIVE, "dst_addr"), (Direction.SEND, "src_addr")):
        own = columns["direction"] == direction
        owner[columns[end][own]] = columns["host"][own]
    return owner


def _coded(codes: NDArray[np.generic], values: pa.Array, missing: int | None = None) -> pa.DictionaryArray:
    mask = None if missing is None else codes == missing
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=mask), values)


def _connection_table(
    found: Columns, hosts: pa.DictionaryArray, addresses: _Addresses, first_connection_id: int
) -> pa.Table:
    n = len(found["client_addr"])
    columns = {"connection_id": pa.array(np.arange(n, dtype=np.int64) + first_connection_id)}
    for side in ("client", "server"):
        isn = found[f"{side}_isn"]
        columns |= {
            f"{side}_host": _coded(found[f"{side}_host"], hosts.dictionary, NO_HOST),
            f"{side}_addr": _coded(found[f"{side}_addr"] % np.uint32(len(addresses.texts)), addresses.texts),
            f"{side}_port": pa.array(found[f"{side}_port"]),
            f"{side}_isn": pa.array(np.maximum(isn, 0).astype(np.uint32), mask=isn < 0),
        }
    plain = ("first_host_ns", "last_host_ns", "events_count")
    columns |= {name: pa.array(found[name]) for name in plain}
    return pa.table(columns | _translations(found, n, addresses))


def _translations(found: Columns, n: int, addresses: _Addresses) -> dict[str, pa.Array]:
    """How the server's host knows the connections that a NAT or balancer rewrote; null for all others."""
    columns, rows = {}, found["translated_row"]
    untouched = np.ones(n, dtype=bool)
    untouched[rows] = False
    for side in ("client", "server"):
        codes, ports = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.uint16)
        codes[rows] = found[f"translated_{side}_addr"] % np.uint32(len(addresses.texts))
        ports[rows] = found[f"translated_{side}_port"]
        translated = pa.array(codes, mask=untouched)
        columns[f"translated_{side}_addr"] = pa.DictionaryArray.from_arrays(translated, addresses.texts)
        columns[f"translated_{side}_port"] = pa.array(ports, mask=untouched)
    return columns


def _hop_table(found: Columns, hosts: pa.DictionaryArray, first_connection_id: int) -> pa.Table:
    columns = {
        "connection_id": pa.array(found["connection"].astype(np.int64) + first_connection_id),
        "kind": _coded(found["kind"], KINDS),
        "from_client": pa.array(found["from_client"]),
        "state": _coded(found["state"], STATES),
    }
    for end in ("send", "receive"):
        missing = found[f"{end}_frame"] == NO_FRAME
        columns[f"{end}_host"] = _coded(found[f"{end}_host"], hosts.dictionary, NO_HOST)
        columns |= {name: pa.array(found[name], mask=missing) for name in (f"{end}_frame", f"{end}_host_ns")}
    return pa.table(columns | {name: pa.array(found[name]) for name in ("stream_start", "stream_end", "attempt")})
