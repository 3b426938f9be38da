"""Matches events to hops: each hop is one transfer of bytes from a send on one host to a receive on another.

The core loops over the packets (`collector._core.match_events`, whose header explains the method). This module converts
its columns to tables.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns, by_name
from collector.decode.decoded import Decoded
from collector.hops.connection_changes import connection_changes, message_kinds
from collector.hops.event_tables import event_table
from collector.hops.messages import message_table, recognised_protocols
from collector.hops.owner_columns import owner_columns
from collector.hops.sender_pauses import pause_table
from collector.hops.small_pieces import without_own_pauses
from collector.hops.tls_handshakes import handshake_columns
from collector.trace.arrow import bits, nullable, table_of_schema
from collector.trace.schema import HOPS, HopKind, HopState, conform

if TYPE_CHECKING:
    from collector._core import Matched as CoreMatched
    from collector._core import PlacedEvents

NO_HOST = 0xFFFF

ENDS = ("send", "receive")
KINDS = pa.array([str(kind) for kind in HopKind])
"""Dictionary of `kind`, in the order of the core's codes."""
STATES = pa.array([str(state) for state in HopState])
"""Dictionary of `state`, in the order of the core's codes."""


MATCHED_COLUMNS = (
    *("host", "interface", "host_ns", "direction", "src_end", "dst_end", "src_port", "dst_port", "seq", "ack", "flags"),
    *("window", "payload_len", "ip_id", "tsval", "tsecr", "options", "mss", "window_scale", "sack_hash", "frame"),
)
"""Columns of the events that the core needs to match them."""


class Matched(Struct, frozen=True):
    """Tables of `collector.trace.schema` (`hops` without trace times, `events` with `duplicate`); `pauses` as from
    `sender_pauses.pause_table`; `crossings` (`connection_id, from_client, stream_offset, crossed_start,
    crossed_end`), packets with new data that left before data of the other side (the bytes between) had arrived."""

    events: pa.Table
    hops: pa.Table
    connections: pa.Table
    messages: pa.Table
    pauses: pa.Table
    crossings: pa.Table


def match(decoded: Decoded, first_connection_id: int = 1) -> Matched:
    """Match the sends and receives among the packets of `decoded` (all hosts, whole connections).

    Arguments: `first_connection_id`, the id of the first connection, so that partitions can be matched independently.
    Cost: linear in packets, ~0.1-0.3 µs each on one core.
    """
    is_of_end = None if decoded.forwarded is None else ~decoded.forwarded[decoded.excerpts["event_row"]]
    found = _core.match_events(*_without_forwarded(decoded, first_connection_id, is_of_end), decoded.servers)
    placed = (
        by_name(found["events"]) if decoded.forwarded is None else _with_forwarded(found["events"], decoded.forwarded)
    )
    messages = message_table(decoded, found["places"], is_of_end)
    hops = by_name(found["hops"])
    hops = _hop_table({**hops, "message_kinds": message_kinds(messages, hops, decoded.hosts)}, decoded.hosts)
    return Matched(
        events=event_table(decoded, placed),
        hops=hops,
        connections=_connection_table(found, decoded, first_connection_id, is_of_end, messages, placed),
        messages=messages,
        pauses=without_own_pauses(pause_table(by_name(found["pauses"]), decoded.hosts), hops),
        crossings=pa.table({name: pa.array(values) for name, values in by_name(found["crossings"]).items()}),
    )


def _without_forwarded(
    decoded: Decoded, first_connection_id: int, is_of_end: NDArray[np.bool_] | None
) -> tuple[Columns, int, NDArray[np.uint32]]:
    """The core's input: all events except those seen by hosts that only forward them, and the rows of excerpts.

    Arguments: `is_of_end`, which excerpts are of other hosts; None if all are.
    """
    rows = decoded.excerpts["event_row"]
    if decoded.forwarded is None:
        return decoded.events, first_connection_id, rows
    rows = rows[is_of_end]
    kept = ~decoded.forwarded
    events = {name: decoded.events[name][kept] for name in MATCHED_COLUMNS}
    return events, first_connection_id, (np.cumsum(kept)[rows] - 1).astype(np.uint32)


def _with_forwarded(placed: "PlacedEvents", forwarded: NDArray[np.bool_]) -> Columns:
    """`placed` extended to all rows: forwarded packets belong to no hop and to no connection."""
    kept, count = ~forwarded, len(forwarded)
    connection_id = np.zeros(count, dtype=np.int64)
    connection_id[kept] = placed["connection_id"]
    duplicate = forwarded.copy()
    duplicate[kept] = np.unpackbits(placed["duplicate_bits"], count=int(kept.sum()), bitorder="little")
    return {
        "connection_id": connection_id,
        "connection_id_validity": bits(kept),
        "duplicate_bits": np.packbits(duplicate, bitorder="little"),
    }


def _dictionary_column(codes: NDArray[np.generic], values: pa.Array, missing: int | None = None) -> pa.DictionaryArray:
    mask = None if missing is None else codes == missing
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=mask), values)


def _connection_table(
    matched: "CoreMatched",
    decoded: Decoded,
    first_connection_id: int,
    is_of_end: NDArray[np.bool_] | None,
    messages: pa.Table,
    placed: Columns,
) -> pa.Table:
    found = by_name(matched["connections"])
    n, addresses = len(found["client_addr"]), decoded.addresses
    columns = {"connection_id": nullable(np.arange(n, dtype=np.int64) + first_connection_id)}
    columns |= recognised_protocols(decoded, matched["places"], first_connection_id, n, is_of_end)
    columns |= handshake_columns(decoded, matched["places"], first_connection_id, n, is_of_end)
    columns |= connection_changes(messages, columns["protocol"], first_connection_id).columns()
    for side in ("client", "server"):
        isn = found[f"{side}_isn"]
        columns |= {
            f"{side}_host": _dictionary_column(found[f"{side}_host"], decoded.hosts, NO_HOST),
            f"{side}_addr": _dictionary_column(found[f"{side}_addr"] % np.uint32(len(addresses)), addresses),
            f"{side}_port": nullable(found[f"{side}_port"]),
            f"{side}_isn": pa.array(np.maximum(isn, 0).astype(np.uint32), mask=isn < 0),
        }
    plain = ("first_host_ns", "last_host_ns", "events_count")
    columns |= {name: nullable(found[name]) for name in plain}
    columns |= _translations(found, n, addresses)
    columns |= owner_columns(
        decoded.owners, columns, decoded.events, placed["connection_id"], decoded.hosts.to_pylist()
    )
    return conform("connections", pa.table(columns))


def _translations(found: Columns, n: int, addresses: pa.Array) -> dict[str, pa.Array]:
    """The addresses of connections at the server's host, if a NAT or load balancer rewrote them; otherwise null."""
    columns, rows = {}, found["translated_row"]
    untouched = np.ones(n, dtype=bool)
    untouched[rows] = False
    for side in ("client", "server"):
        codes, ports = np.zeros(n, dtype=np.int32), np.zeros(n, dtype=np.uint16)
        codes[rows] = found[f"translated_{side}_addr"] % np.uint32(len(addresses))
        ports[rows] = found[f"translated_{side}_port"]
        translated = pa.array(codes, mask=untouched)
        columns[f"translated_{side}_addr"] = pa.DictionaryArray.from_arrays(translated, addresses)
        columns[f"translated_{side}_port"] = pa.array(ports, mask=untouched)
    return columns


def _hop_table(found: Columns, hosts: pa.Array) -> pa.Table:
    """The core's columns of hops that the schema has, in its order."""
    dictionaries = {"kind": KINDS, "state": STATES, "send_host": hosts, "receive_host": hosts}
    validity = {f"{end}_{what}": found[f"{end}_validity"] for end in ENDS for what in ("frame", "host_ns")}
    validity |= {f"{end}_host": found[f"{end}_host_validity"] for end in ENDS}
    return table_of_schema(HOPS, found, dictionaries, validity)
