"""Requests and their responses, from hops: who asked whom, when each byte that matters left and arrived.

The loop over hops and heads is the core's (`tracer._core.build_exchanges`, whose header explains the method): each
connection is cut into exchanges, by its HTTP heads where it shows any, otherwise by turn-taking. Here its columns
become tables.

`complete` is false where there is evidence that the exchange was cut: its first or last bytes were seen at neither
end, there is no response, or fewer bytes went by than a head declares.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.columns import nullable_where, numbers, one_chunk
from collector.exchange_stalls import with_stalls
from collector.schema import EXCHANGES, HopKind, conform
from collector.services import client_service, is_background, service_name
from tracer import _core
from tracer.records import Columns, HeadFlag

HTTP = "http/1.1"
UNKNOWN = "unknown"
UNSEEN = np.iinfo(np.int64).min
"""The core's mark of a value that is not known."""
NO_ROW = -1
KINDS = [str(kind) for kind in HopKind]
"""In the order of the core's codes."""
MEASURES = [
    column.name
    for column in EXCHANGES
    if column.name.endswith(("_ns", "_bytes")) and not column.name.endswith("stall_ns")
]
"""Columns that the core gives as they are, but for what is unseen."""


ENDS = ["connection_id", "client_host", "server_host", "client_port", "server_port"]
"""What an exchange has of its connection."""


class Built(NamedTuple):
    """Exchanges, and the hops with `exchange_id` filled in."""

    exchanges: pa.Table
    hops: pa.Table


def build_exchanges(
    hops: pa.Table, messages: pa.Table, connections: pa.Table, services: Mapping[int, str], first_id: int = 1
) -> Built:
    """Cut every connection into exchanges.

    Arguments: tables of `collector.schema` (HOPS with trace times, MESSAGES, CONNECTIONS); `services`, port to name.
    `first_id` numbers the exchanges from there, so that partitions can be built alone.
    Returns: the table `exchanges`, numbered in order of time, and `hops` in its own row order with
    `exchange_id`.
    """
    found = _core.build_exchanges(_hop_columns(hops), _head_columns(messages), _connection_columns(connections))
    ids = found["hop_exchange"]
    place = hops.schema.get_field_index("exchange_id")
    named = hops.set_column(place, "exchange_id", nullable_where(ids + first_id, ids == NO_ROW))
    return Built(with_stalls(_exchange_table(found, messages, connections, services, first_id), named), named)


def _hop_columns(hops: pa.Table) -> Columns:
    kind = one_chunk(hops["kind"].cast(pa.dictionary(pa.int32(), pa.string())))
    code = pc.index_in(kind.dictionary, pa.array(KINDS)).to_numpy().astype(np.uint8)
    columns = {name: numbers(hops[name]) for name in ("connection_id", "from_client", "stream_start", "stream_end")}
    times = {"sent_ns": "send_trace_ns", "received_ns": "receive_trace_ns", "uncertainty_ns": "uncertainty_ns"}
    columns |= {name: numbers(hops[column], UNSEEN) for name, column in times.items()}
    return columns | {"kind": code[kind.indices.to_numpy()]}


def _head_columns(messages: pa.Table) -> Columns:
    names = ("connection_id", "from_client", "stream_offset", "head_kind", "status", "content_length")
    columns = {name: numbers(messages[name]) for name in names}
    ids = one_chunk(messages["transaction_id"].cast(pa.large_string()).fill_null(""))
    _, offsets, text = ids.buffers()
    return columns | {
        "cut": numbers(pc.not_equal(pc.bit_wise_and(messages["head_flags"], HeadFlag.CUT), 0)),
        "head_len": numbers(messages["head_len"]).astype(np.int64),
        "asks_head": numbers(pc.equal(messages["method"], "HEAD").fill_null(False)),
        "target_len": numbers(pc.binary_length(messages["target"]).fill_null(0)).astype(np.int64),
        "id_offsets": np.frombuffer(offsets, np.int64)[ids.offset :][: len(ids) + 1] if len(ids) else np.zeros(1, int),
        "id_bytes": np.frombuffer(text or b"", np.uint8),
    }


def _connection_columns(connections: pa.Table) -> Columns:
    handshake = numbers(connections["client_isn"].is_valid())
    return {"connection_id": numbers(connections["connection_id"]), "handshake": handshake}


def _exchange_table(
    found: Columns, messages: pa.Table, connections: pa.Table, services: Mapping[int, str], first_id: int
) -> pa.Table:
    count = len(found["connection"])
    columns = {name: nullable_where(found[name], found[name] == UNSEEN) for name in MEASURES}
    ends = connections.select(ENDS).take(pa.array(found["connection"]))
    columns |= _ends(ends, found["swapped"], services)
    for name, row in (("method", "request"), ("target", "request"), ("status", "response"), ("transaction_id", "id")):
        rows = found[f"{row}_row"]
        columns[name] = _plain(messages[name]).take(pa.array(rows, mask=rows == NO_ROW))
    columns["response_transaction_id"] = _other_id(columns["transaction_id"], found["response_row"], messages)
    columns |= _askers(found["request_row"], messages)
    protocol = pa.DictionaryArray.from_arrays(found["readable"].astype(np.int32), pa.array([UNKNOWN, HTTP]))
    columns |= {"exchange_id": pa.array(np.arange(first_id, first_id + count)), "protocol": protocol}
    return conform("exchanges", pa.table(columns | {"complete": pa.array(found["complete"])}))


def _other_id(ids: pa.ChunkedArray, response_row: NDArray[np.int64], messages: pa.Table) -> pa.ChunkedArray:
    """The response's transaction id where it is another."""
    answered = _plain(messages["transaction_id"]).take(pa.array(response_row, mask=response_row == NO_ROW))
    other = pc.and_(pc.not_equal(answered, ids), pc.not_equal(answered, ""))
    return pc.if_else(other, answered, pa.scalar(None, pa.string()))


def _askers(request_row: NDArray[np.int64], messages: pa.Table) -> dict[str, pa.Array]:
    """`background` and `client_service`: who asked, by the request's User-Agent."""
    agents = one_chunk(_plain(messages["user_agent"]).take(pa.array(request_row, mask=request_row == NO_ROW)))
    known = agents.dictionary_encode()
    names = known.dictionary.to_pylist()
    daemon = pa.array([is_background(name) if name else None for name in names], pa.bool_())
    asker = pa.array([client_service(name) if name else None for name in names], pa.string())
    return {"background": daemon.take(known.indices), "client_service": asker.take(known.indices)}


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as such, not as numbers of texts."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _ends(connections: pa.Table, swapped: NDArray[np.bool_], services: Mapping[int, str]) -> dict[str, pa.Array]:
    """`connection_id, client_host, server_host, service` of each exchange, with the ends true to their roles."""
    ends = pl.DataFrame(connections.select(["connection_id", *(f"{end}_host" for end in ("client", "server"))]))
    wrong = pl.Series(swapped)
    hosts = ends.select(
        "connection_id",
        client_host=pl.when(wrong).then("server_host").otherwise("client_host"),
        server_host=pl.when(wrong).then("client_host").otherwise("server_host"),
    ).to_arrow()
    ports = np.where(swapped, numbers(connections["client_port"]), numbers(connections["server_port"]))
    known, number = np.unique(ports, return_inverse=True)
    names = pa.array([service_name(int(port), services) for port in known], pa.string())
    service = pa.DictionaryArray.from_arrays(number.astype(np.int32), names)
    return {name: hosts[name] for name in hosts.column_names} | {"service": service}
