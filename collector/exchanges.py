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
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.columns import bits, coded, indices, nullable, numbers, one_chunk, texts
from collector.exchange_stalls import with_stalls
from collector.schema import EXCHANGES, HopKind, conform
from collector.services import client_service, is_background, service_name
from collector.stamps import Longs
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
    place = hops.schema.get_field_index("exchange_id")
    named = hops.set_column(
        place, "exchange_id", nullable(found["hop_exchange"] + first_id, found["hop_exchange_validity"])
    )
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
    ids = texts(messages["transaction_id"])
    return columns | {
        "cut": numbers(pc.not_equal(pc.bit_wise_and(messages["head_flags"], HeadFlag.CUT), 0)),
        "head_len": numbers(messages["head_len"]).astype(np.int64),
        "asks_head": numbers(pc.equal(messages["method"], "HEAD").fill_null(False)),
        "target_len": np.diff(texts(messages["target"])["offsets"]).astype(np.int64),
        "id_offsets": ids["offsets"],
        "id_bytes": ids["bytes"],
    }


def _connection_columns(connections: pa.Table) -> Columns:
    handshake = numbers(connections["client_isn"].is_valid())
    return {"connection_id": numbers(connections["connection_id"]), "handshake": handshake}


def _exchange_table(
    found: Columns, messages: pa.Table, connections: pa.Table, services: Mapping[int, str], first_id: int
) -> pa.Table:
    count = len(found["connection"])
    columns = {name: _known(found, name) for name in MEASURES}
    columns |= _ends(connections, found["connection"], found["swapped"], services)
    columns["method"] = _coded(found, "request", messages["method"])
    for name, row in (
        ("target", "request"),
        ("status", "response"),
        ("transaction_id", "id"),
        ("response_transaction_id", "other_id"),
    ):
        columns[name] = one_chunk(messages[name.removeprefix("response_")]).take(_known(found, f"{row}_row"))
    columns |= _askers(_coded(found, "request", messages["user_agent"]))
    protocol = pa.DictionaryArray.from_arrays(found["readable"].astype(np.int32), pa.array([UNKNOWN, HTTP]))
    columns |= {"exchange_id": pa.array(np.arange(first_id, first_id + count)), "protocol": protocol}
    return conform("exchanges", pa.table(columns | {"complete": pa.array(found["complete"])}))


def _known(found: Columns, name: str) -> pa.Array:
    return nullable(found[name], found[f"{name}_validity"])


def _coded(found: Columns, part: str, column: pa.ChunkedArray) -> pa.DictionaryArray:
    """What the heads of requests, or of responses, say, as places in a list of it."""
    places, first = _core.distinct_texts(texts(column), found[f"{part}_row"])
    return _texts_at(places, one_chunk(column).take(pa.array(first)).cast(pa.string()))


def _texts_at(places: NDArray[np.int32], names: pa.StringArray) -> pa.DictionaryArray:
    """Texts by their places in `names`; `NO_ROW` is null, which has place 0."""
    return coded(np.maximum(places, 0), names, bits(places != NO_ROW))


def _askers(agents: pa.DictionaryArray) -> dict[str, pa.Array]:
    """`background` and `client_service`: who asked, by the request's User-Agent."""
    names = agents.dictionary.to_pylist()
    daemon = pa.array([is_background(name) if name else None for name in names], pa.bool_())
    asker = pa.array([client_service(name) if name else None for name in names], pa.string())
    return {"background": daemon.take(agents.indices), "client_service": asker.take(agents.indices)}


def _ends(
    connections: pa.Table, row: Longs, swapped: NDArray[np.bool_], services: Mapping[int, str]
) -> dict[str, pa.Array]:
    """`connection_id, client_host, server_host, service` of each exchange, with the ends true to their roles.

    Arguments: the row of each one's connection.
    """
    (client, clients), (server, servers) = (indices(connections[f"{end}_host"]) for end in ("client", "server"))
    names = list(dict.fromkeys([*clients, *servers]))
    client, server = (
        np.array([*map(names.index, own), NO_ROW], dtype=np.int32)[end][row]
        for own, end in ((clients, client), (servers, server))
    )
    hosts = [np.where(swapped, one, other) for one, other in ((server, client), (client, server))]
    client_port, server_port = (numbers(connections[f"{end}_port"])[row] for end in ("client", "server"))
    ports, number = _distinct_ports(np.where(swapped, client_port, server_port))
    service = pa.array([service_name(port, services) for port in ports], pa.string())
    client_host, server_host = (_texts_at(host, pa.array(names, pa.string())) for host in hosts)
    connection_id = pa.array(numbers(connections["connection_id"])[row])
    return {
        "connection_id": connection_id,
        "client_host": client_host,
        "server_host": server_host,
        "service": coded(number, service),
    }


def _distinct_ports(ports: NDArray[np.uint16]) -> tuple[list[int], NDArray[np.int32]]:
    """The ports that occur, ascending, and of each its place there."""
    occurs = np.zeros(1 << 16, dtype=np.bool_)
    occurs[ports] = True
    place = np.cumsum(occurs, dtype=np.int32) - 1
    return np.flatnonzero(occurs).tolist(), place[ports]
