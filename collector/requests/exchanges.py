"""Rebuilds requests and their responses from hops: client and server, and when their first and last bytes left and
came.

The core loops over hops and heads (`collector._core.build_exchanges`, whose header explains the method): it divides
each connection into exchanges as the protocol of its messages says (`collector.requests.protocols`): by its HTTP heads
if it shows any, by its frames if it is HTTP/2 (a stream is an exchange; its method, target and status as far as header
blocks are known), otherwise by turn-taking. On a connection with TLS records, only application records take turns; the
handshake is part of opening the connection (`tls_start_trace_ns`, `tls_end_trace_ns`). This module converts the core's
columns to tables.

`complete` is false if there is evidence that the exchange was cut: its first or last bytes were captured at neither
end, it has no response, or fewer bytes were captured than a head declares.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector import _core
from collector.capture_files.records import Columns, HeadFlag, by_name
from collector.hops.sender_pauses import tcp_holds
from collector.requests.endings import STREAM_RESETS
from collector.requests.protocols import NAMES
from collector.requests.s3_names import s3_marks
from collector.requests.stalls import with_stalls
from collector.requests.stream_evidence import StreamEvidence, stream_evidence
from collector.requests.unknown_ends import with_one_place
from collector.services.service_names import ServiceNames
from collector.services.services import client_service, is_background
from collector.trace.arrow import (
    bits,
    codes,
    dictionary_array,
    indices,
    null_array,
    nullable,
    nullable_where,
    numbers,
    one_chunk,
    string_array,
    texts,
)
from collector.trace.schema import ERRORS, EXCHANGES, HopKind, SilenceCause, conform

if TYPE_CHECKING:
    from collector._core import ExchangeColumns

HTTP = "http/1.1"
UNKNOWN = "unknown"
UNSEEN = np.iinfo(np.int64).min
"""The core's value for unknown."""
NO_ROW = -1
NO_BYTE = -1
RANGE = ("range_first", "range_last")
BODILESS = (204, 304)
"""Statuses of answers without a body, whatever length they declare (RFC 9110 §6.4.1)."""
KINDS = [str(kind) for kind in HopKind]
"""In the order of the core's codes."""
FOUND_LATER = ("connect_stall_ns", "request_stall_ns", "response_stall_ns", "closed_trace_ns", "response_due_bytes")
MEASURES = [
    column.name for column in EXCHANGES if column.name.endswith(("_ns", "_bytes")) and column.name not in FOUND_LATER
]
"""Columns that are taken from the core unchanged."""


CAUSES = pa.array([str(cause) for cause in SilenceCause])
"""Dictionary of `silences.cause`, in the order of the core's codes."""


class Built(NamedTuple):
    """Exchanges, the hops with `exchange_id` filled in, the long silences of messages (table `silences`), and the
    evidence of which exchanges are streams (`collector.requests.streams`)."""

    exchanges: pa.Table
    hops: pa.Table
    silences: pa.Table
    streams: StreamEvidence


def build_exchanges(
    hops: pa.Table,
    messages: pa.Table,
    connections: pa.Table,
    services: ServiceNames,
    first_id: int = 1,
    pauses: pa.Table | None = None,
    crossings: pa.Table | None = None,
) -> Built:
    """Divide every connection into exchanges.

    Arguments: tables of `collector.trace.schema` (HOPS with trace times, MESSAGES, CONNECTIONS); the names of
    servers; `first_id`, the id of the first exchange, so that partitions can be built independently; `pauses` of
    senders (`collector.hops.sender_pauses.pause_table`); `crossings` (`collector.hops.matching.Matched`).
    Returns: the table `exchanges`, numbered in order of time, and `hops` in its own row order with
    `exchange_id`.
    """
    hosts = _hosts(connections)
    ends = _connection_columns(connections, hosts)
    ends["service"], names = services.of_connections(connections)
    built = _core.build_exchanges(
        _hop_columns(hops), _head_columns(messages), ends, tcp_holds(pauses), _crossing_columns(crossings), first_id
    )
    found = by_name(built)
    place = hops.schema.get_field_index("exchange_id")
    named = hops.set_column(place, "exchange_id", _numbers_or_null(found, "hop_exchange", hops.num_rows))
    service = _services(built["service"], names, connections, services)
    exchanges = with_stalls(_exchange_table(found, messages, hosts.names, service, first_id), named)
    evidence = stream_evidence(found, exchanges, messages, connections)
    return Built(with_one_place(exchanges), named, _silence_table(built), evidence)


def _silence_table(found: "ExchangeColumns") -> pa.Table:
    columns = {
        "exchange_id": nullable(found["silence_exchange"]),
        "in_response": pa.array(found["silence_in_response"]),
        "from_trace_ns": nullable(found["silence_from_ns"]),
        "to_trace_ns": nullable(found["silence_to_ns"]),
        "cause": dictionary_array(found["silence_cause"], CAUSES),
    }
    return conform("silences", pa.table(columns))


class _Hosts(NamedTuple):
    """The ends of connections, as indices in one list of names, -1 if unknown."""

    client: NDArray[np.int32]
    server: NDArray[np.int32]
    names: list[str]


def _hosts(connections: pa.Table) -> _Hosts:
    (client, clients), (server, servers) = (indices(connections[f"{end}_host"]) for end in ("client", "server"))
    names = list(dict.fromkeys([*clients, *servers]))
    if servers != names[: len(servers)]:
        server = np.array([*map(names.index, servers), NO_ROW], dtype=np.int32)[server]
    return _Hosts(client, server, names)


def _hop_columns(hops: pa.Table) -> Columns:
    columns = {name: numbers(hops[name]) for name in ("connection_id", "from_client", "stream_start", "stream_end")}
    times = {"sent_ns": "send_trace_ns", "received_ns": "receive_trace_ns"} | {name: name for name in ERRORS}
    columns |= {name: numbers(hops[column], UNSEEN) for name, column in times.items()}
    return columns | {"kind": codes(hops["kind"], KINDS)}


def _crossing_columns(crossings: pa.Table | None) -> Columns:
    kinds = {"connection_id": np.int64, "from_client": np.bool_, "stream_offset": np.int64}
    kinds |= {"crossed_start": np.int64, "crossed_end": np.int64}
    if crossings is None:
        return {name: np.empty(0, kind) for name, kind in kinds.items()}
    return {name: numbers(crossings[name]) for name in kinds}


def _head_columns(messages: pa.Table) -> Columns:
    plain = (
        "connection_id",
        "from_client",
        "stream_offset",
        "head_kind",
        "head_flags",
        "status",
        "frame_kind",
        "stream_id",
    )
    columns = {name: numbers(messages[name]) for name in (*plain, "head_len", "content_length", "result_code")}
    for prefix, name in (("method", "method"), ("target", "target"), ("id", "transaction_id")):
        columns |= {f"{prefix}_{part}": values for part, values in texts(messages[name]).items()}
    return columns


def _connection_columns(connections: pa.Table, hosts: _Hosts) -> Columns:
    handshake = numbers(connections["client_isn"].is_valid())
    ends = {"handshake": handshake, "client_host": hosts.client, "server_host": hosts.server}
    return {"connection_id": numbers(connections["connection_id"])} | ends


def _services(
    places: NDArray[np.int32], names: list[str], connections: pa.Table, services: ServiceNames
) -> pa.DictionaryArray:
    """The service of each exchange.

    Arguments: `places`, indices in `names`; a value below -1 is -2 minus the row of a connection whose client is the
    server of the exchange.
    """
    turned = np.flatnonzero(places < NO_ROW)
    if len(turned):
        places, names = places.copy(), list(names)
        rows, which = np.unique(-2 - places[turned], return_inverse=True)
        asked = connections.select(["client_host", "client_addr", "client_port"]).take(pa.array(rows))
        asked = asked.rename_columns(["server_host", "server_addr", "server_port"])
        missing = null_array(len(rows), pa.uint16())
        of_rows, more = services.of_connections(asked.append_column("translated_server_port", missing))
        places[turned] = (of_rows + len(names))[which]
        names += more
    distinct = list(dict.fromkeys(names))
    number = {name: place for place, name in enumerate(distinct)}
    same = np.array([number[name] for name in names], dtype=np.int32)
    return dictionary_array(same[places] if len(names) else places, pa.array(distinct, pa.string()))


def _exchange_table(
    found: Columns, messages: pa.Table, hosts: Sequence[str], service: pa.DictionaryArray, first_id: int
) -> pa.Table:
    count = len(found["connection_id"])
    names = pa.array(hosts, pa.string())
    columns = {name: _numbers_or_null(found, name, count) for name in MEASURES}
    columns |= {name: _texts_at(found[name], names) for name in ("client_host", "server_host")}
    columns |= _head_texts(found, messages) | _byte_range(found, messages)
    columns |= {
        "exchange_id": nullable(np.arange(first_id, first_id + count)),
        "connection_id": nullable(found["connection_id"]),
        "service": service,
        "protocol": dictionary_array(found["protocol"], pa.array(NAMES, pa.string())),
        "status": nullable(found["status"], found["response_row_validity"]),
        "result_code": _result_code(found, messages),
        "complete": pa.array(found["complete"]),
        "until_close": pa.array(found["until_close"]),
        "response_due_bytes": _due(found, messages, columns["method"]),
        "ending": _texts_at(found["broken_by"] - 1, pa.array(STREAM_RESETS)),  # others: `collector.requests.endings`
        "closed_trace_ns": pc.if_else(pa.array(found["broken_by"] > 0), columns["given_up_trace_ns"], None),
        "operation": _marks(found, messages, count),  # its name: `collector.requests.s3_names`
        "is_stream": pa.array(found["is_stream"]),
        "outcome": dictionary_array(
            np.zeros(count, dtype=np.int32), pa.array([UNKNOWN])
        ),  # until `collector.requests.outcomes`
    }
    absent = {column.name: null_array(count, column.type) for column in EXCHANGES if column.name not in columns}
    return pa.Table.from_pydict(columns | absent, schema=EXCHANGES)


def _marks(found: Columns, messages: pa.Table, count: int) -> pa.Array:
    if found["request_row"] is None or not messages.num_rows:
        return null_array(count, EXCHANGES.field("operation").type)
    return s3_marks(messages, found["request_row"], found["response_row"])


def _due(found: Columns, messages: pa.Table, method: pa.DictionaryArray) -> pa.Array:
    """The length of each response, head and body, that its head announces; null if it announces none.

    Source: RFC 9112 §6.3.
    """
    count, rows = len(found["connection_id"]), found["response_row"]
    if rows is None:
        return null_array(count, pa.int64())
    at = np.maximum(rows, 0)
    head, body, flags, status = (
        numbers(messages[name])[at] if messages.num_rows else np.zeros(count, np.int64)
        for name in ("head_len", "content_length", "head_flags", "status")
    )
    place, methods = indices(method)
    asks_head = place == (methods.index("HEAD") if "HEAD" in methods else len(methods))
    empty = asks_head | np.isin(status, BODILESS)
    is_frame = numbers(messages["frame_kind"])[at] > 0 if messages.num_rows else np.zeros(count, bool)
    known = (rows != NO_ROW) & ~is_frame & (head > 0) & ((body >= 0) | empty) & (flags & HeadFlag.CHUNKED == 0)
    due = head.astype(np.int64) + np.where(empty, 0, np.maximum(body, 0))
    return nullable_where(np.where(known, due, 0), ~known)


def _result_code(found: Columns, messages: pa.Table) -> pa.Array:
    """What the protocol says of each answer beside its status; null where nothing is said."""
    count, rows = len(found["connection_id"]), found["result_row"]
    if rows is None:
        return null_array(count, pa.int32())
    return nullable_where(numbers(messages["result_code"])[np.maximum(rows, 0)], rows == NO_ROW)


def _byte_range(found: Columns, messages: pa.Table) -> dict[str, pa.Array]:
    """The byte range that each exchange transfers, from its request, or else from its response."""
    count = len(found["connection_id"])
    ends = [np.full(count, NO_BYTE), np.full(count, NO_BYTE)]
    for rows in (found["request_row"], found["response_row"]):
        if rows is None or not messages.num_rows:
            continue
        said = [numbers(messages[name])[np.maximum(rows, 0)] for name in RANGE]
        is_new = (rows != NO_ROW) & (np.maximum(*said) >= 0) & (np.maximum(*ends) < 0)
        ends = [np.where(is_new, new, known) for new, known in zip(said, ends, strict=True)]
    return {name: nullable_where(end, end == NO_BYTE) for name, end in zip(RANGE, ends, strict=True)}


def _numbers_or_null(found: Columns, name: str, count: int) -> pa.Array:
    """The core's column `name`; the core omits columns in which all values are null."""
    values = found[name]
    return null_array(count, pa.int64()) if values is None else nullable(values, found[f"{name}_validity"])


def _head_texts(found: Columns, messages: pa.Table) -> dict[str, pa.Array]:
    """The text fields of the heads of exchanges."""
    rows = {"target": "request_row", "transaction_id": "id_row", "response_transaction_id": "other_id_row"}
    said = {name: _text(found, name, row) for name, row in rows.items()}
    method, methods = _distinct(found, messages["method"])
    agent, agents = _distinct(found, messages["user_agent"])
    host, hosts = _distinct(found, messages["authority"])
    said |= {"method": _texts_at(method, methods), "authority": _texts_at(_without_empty(host, hosts), hosts)}
    return said | {"client_span_id": _client_spans(found, messages)} | _askers(agent, agents.to_pylist())


def _client_spans(found: Columns, messages: pa.Table) -> pa.Array:
    """The span that asks, as the request's head says; null where it says none."""
    count, rows = len(found["connection_id"]), found["request_row"]
    if rows is None or not pc.any(pc.not_equal(messages["client_span_id"], "")).as_py():
        return null_array(count, pa.string())
    said = one_chunk(messages["client_span_id"]).take(nullable(np.maximum(rows, 0), bits(rows != NO_ROW)))
    return pc.if_else(pc.equal(said, ""), None, said)


def _text(found: Columns, name: str, rows: str) -> pa.Array:
    """One text field of the heads, null without a head."""
    count, offsets = len(found["connection_id"]), found[f"{name}_offsets"]
    if offsets is None:
        return null_array(count, pa.string())
    return string_array(offsets, found[f"{name}_bytes"], found[f"{rows}_validity"])


def _distinct(found: Columns, column: pa.ChunkedArray) -> tuple[NDArray[np.int32], pa.StringArray]:
    """One text field of the heads of requests, as indices in a list of distinct values; `NO_ROW` without a head."""
    if found["request_row"] is None:
        return np.full(len(found["connection_id"]), NO_ROW, dtype=np.int32), pa.array([], pa.string())
    places, first = _core.distinct_texts(texts(column), found["request_row"])
    return places, one_chunk(column).take(nullable(first)).cast(pa.string())


def _texts_at(places: NDArray[np.int32], names: pa.StringArray) -> pa.DictionaryArray:
    """The text at each index of `names`; `NO_ROW` is null, stored as index 0."""
    return dictionary_array(np.maximum(places, 0), names, bits(places != NO_ROW))


def _without_empty(places: NDArray[np.int32], names: pa.StringArray) -> NDArray[np.int32]:
    """`places` with `NO_ROW` where the name is empty."""
    is_empty = np.array([*(not name for name in names.to_pylist()), True])
    return np.where(is_empty[places], NO_ROW, places).astype(np.int32)


def _askers(agent: NDArray[np.int32], agents: Sequence[str]) -> dict[str, pa.Array]:
    """`background` and `client_service`: the kind of client, by the request's User-Agent.

    Arguments: `agent`, for each exchange an index in `agents`, or `NO_ROW` (-1), which selects the last element below.
    """
    daemon = np.array([*(bool(name) and is_background(name) for name in agents), False])
    unknown = np.array([*(not name for name in agents), True])
    asker = [client_service(name) if name else None for name in agents]
    names = [name for name in dict.fromkeys(asker) if name is not None]
    place = np.array([*(NO_ROW if name is None else names.index(name) for name in asker), NO_ROW], dtype=np.int32)
    return {
        "background": pa.array(daemon[agent], mask=unknown[agent]),
        "client_service": _texts_at(place[agent], pa.array(names, pa.string())),
    }
