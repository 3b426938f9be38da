"""Collects the evidence for streams in a partition: those recognised by one connection, and candidates for the rest.

The core decides what a single connection shows (`collector/core/exchanges/src/streams.rs`); this module converts its
columns to frames. `collector.requests.streams` builds the table `streams` from them, and judges the candidates, which
needs all connections of a server.
"""

from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from collector.capture_files.records import Columns, HeadKind
from collector.requests.protocols import UNKNOWN
from collector.requests.websocket_messages import with_frames
from collector.trace.schema import StreamReason

UNSEEN = np.iinfo(np.int64).min
HTTP, HTTP2 = "http/1.1", "http/2"
CANDIDATE = "candidate"
"""In place of a reason: the server sent late messages, but the connection alone does not prove a stream."""
REASONS = [CANDIDATE, *(str(reason) for reason in StreamReason if reason != StreamReason.TRIGGERED)]
"""In the order of the core's codes."""
WORDS = {
    StreamReason.UPGRADE: "101 Switching Protocols",
    StreamReason.TUNNEL: "CONNECT",
    StreamReason.EVENT_STREAM: "text/event-stream",
}
OF_HTTP2 = {
    StreamReason.TWO_WAY: "streams of HTTP/2 on which both sides go on, or that were begun before the capture",
    StreamReason.UNREAD: "HTTP/2, of which not all frames were captured: its requests are not counted",
    StreamReason.HIDDEN: "HTTP/2 inside TLS: its requests are not counted",
}
OF_OTHERS = {
    StreamReason.UNREAD: "requests whose answers may be among messages that were not captured: they are not counted",
    StreamReason.HIDDEN: "encrypted by the protocol itself: its requests are not counted",
}
"""Of other protocols whose messages are read."""
OF_TURNS = {
    StreamReason.CROSSED: "both sides sent at one time in {} of {} turns: its requests cannot be counted",
    StreamReason.SEVERAL: "both sides went on before they had received anything in {} of {} turns: several requests at "
    "once, which cannot be counted",
}
"""Of turns of a protocol that is not read: how many show that they are no requests."""
MEASURES = (
    *("begin_trace_ns", "end_trace_ns", "to_client_count", "to_server_count", "to_client_bytes", "to_server_bytes"),
    *("delay_median_ns", "delay_p99_ns", "uncertainty_ns", "likely_error_ns", "longest_idle_ns"),
)
"""Columns of the table `streams` that are taken from the core unchanged."""


class StreamEvidence(NamedTuple):
    """Evidence of some connections, as frames.

    `streams`: the columns of the table `streams` (`reason` may be `CANDIDATE`), `server` (a hash of address and port)
    and `turns`. `late`: when servers of candidates sent late messages (`connection_id, at_ns`; `asked`: whether the
    client had sent last). `said`: when clients' messages arrived (`server, connection_id, at_ns`).
    """

    streams: pl.DataFrame
    late: pl.DataFrame
    said: pl.DataFrame


def stream_evidence(found: Columns, exchanges: pa.Table, messages: pa.Table, connections: pa.Table) -> StreamEvidence:
    """The evidence of a partition.

    Arguments: `found`, columns of the core's `build_exchanges`, and the tables that were its input.
    """
    servers = _servers(connections)
    late = {"connection_id": found["late_connection_id"], "at_ns": found["late_ns"], "asked": found["late_asked"] != 0}
    said = {"at_ns": found["said_ns"]}
    row = found["said_connection"]
    said_frame = pl.DataFrame(said).with_columns(servers["connection_id"].gather(row), servers["server"].gather(row))
    return StreamEvidence(_streams(found, exchanges, messages, servers), pl.DataFrame(late), said_frame)


def _servers(connections: pa.Table) -> pl.DataFrame:
    """`connection_id, server, closing`: a hash of the server's address and port at its own host."""
    rows = pl.DataFrame(connections.select(["connection_id", *_OF_SERVER])).with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )
    address = pl.coalesce("translated_server_addr", "server_addr")
    port = pl.coalesce("translated_server_port", "server_port")
    return rows.select("connection_id", pl.format("{} {}", address, port).hash().alias("server"), "closing")


_OF_SERVER = ("server_addr", "server_port", "translated_server_addr", "translated_server_port", "closing")


def _streams(found: Columns, exchanges: pa.Table, messages: pa.Table, servers: pl.DataFrame) -> pl.DataFrame:
    columns = {name: found[f"stream_{name}"] for name in ("connection_id", "turns", "pieces", "why", "row", *MEASURES)}
    rows = pl.DataFrame(columns)
    if not len(rows):
        return rows.with_columns(
            *(pl.lit(None, pl.String).alias(name) for name in _ENDS),
            pl.lit(None, pl.UInt64).alias("server"),
            pl.lit(None, pl.String).alias("closing"),
            *(pl.lit(None, pl.String).alias(name) for name in ("reason", "protocol", "evidence")),
            pl.lit(None, pl.Int64).alias("control_count"),
        )
    ends = pl.DataFrame(exchanges.select(["connection_id", *_ENDS, "protocol", "is_stream"]))
    wanted = ends.filter(pl.col("connection_id").is_in(rows["connection_id"].implode())).with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )
    rows = rows.join(
        wanted.unique("connection_id", keep="first"), on="connection_id", how="left", maintain_order="left"
    )
    rows = rows.join(servers, on="connection_id", how="left", maintain_order="left")
    inside = wanted.filter("is_stream").unique("connection_id", keep="first").select("connection_id", inside="protocol")
    rows = rows.join(inside, on="connection_id", how="left", maintain_order="left")
    place = pa.array([max(0, at) for at in rows["row"].to_list()], pa.int64())
    texts = (
        _texts(messages, place)
        if messages.num_rows
        else pl.DataFrame({"method": [""] * len(rows), "target": [""] * len(rows)})
    )
    reasons = [REASONS[code] for code in rows["why"]]
    counts = list(rows.select("pieces", "turns").iter_rows())
    each = zip(reasons, rows["protocol"], rows["inside"], texts["method"], texts["target"], counts, strict=True)
    words = [_words(*one) for one in each]
    rows = rows.drop("protocol", "inside", "is_stream").with_columns(
        pl.col(MEASURES).replace(UNSEEN, None),
        reason=pl.Series(reasons),
        protocol=pl.Series([protocol for protocol, _ in words]),
        evidence=pl.Series([evidence for _, evidence in words]),
    )
    return with_frames(rows, messages)


def _texts(messages: pa.Table, rows: pa.Array) -> pl.DataFrame:
    """`method, target` of some messages; only of marks the target, which names the protocol."""
    shown = pl.DataFrame(messages.select(["method", "target", "head_kind"]).take(rows))
    return shown.select(
        pl.col("method").cast(pl.String),
        pl.when(pl.col("head_kind") == HeadKind.STREAM_MARK).then(pl.col("target").cast(pl.String)).alias("target"),
    )


_ENDS = ("client_host", "server_host", "service")


def _words(
    reason: str, protocol: str, inside: str | None, method: str, target: str | None, counts: tuple[int, int]
) -> tuple[str, str]:
    """The protocol of a stream, and its evidence in words.

    Arguments: `protocol` of the connection's first exchange, and `inside` of its first that is a stream; `method` of
    the row that shows the stream, and its `target` if it is a mark; `counts`: how often its server spoke unasked, or
    how many of its turns show it, and its turns.
    """
    pieces, turns = counts
    if reason in OF_TURNS:
        return UNKNOWN, OF_TURNS[StreamReason(reason)].format(f"{pieces:,}", f"{turns:,}")
    if reason == StreamReason.WORD:
        named = target or protocol
        return named, f"{method} ({named})"
    if reason == StreamReason.UNASKED:
        return UNKNOWN, f"its server spoke {pieces:,} times without being asked, after pauses of 50 ms or more"
    if reason in OF_OTHERS and protocol not in (HTTP2, UNKNOWN):
        return protocol, OF_OTHERS[StreamReason(reason)]
    if reason in OF_HTTP2:
        return HTTP2, OF_HTTP2[StreamReason(reason)]
    if reason not in WORDS:
        return UNKNOWN, ""
    shown = WORDS[StreamReason(reason)]
    if reason == StreamReason.EVENT_STREAM or inside in (None, UNKNOWN):
        return HTTP, shown
    return inside or HTTP, f"{shown}: {inside}"
