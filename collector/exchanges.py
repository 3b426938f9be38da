"""Requests and their responses, from hops: who asked whom, when each byte that matters left and arrived.

Each connection is cut into exchanges, by its HTTP heads where it shows any (`collector.heads`), otherwise by
turn-taking (`collector.turns`). The eight times are those of the transfers that carry the first and the last byte of
the request and of the response (`collector.parts`). Every hop of the connection is given to an exchange: payload by
its place in the stream; a handshake to the first exchange; acknowledgements, FIN and RST to the last exchange whose
request had reached the server.

`complete` is false where there is evidence that the exchange was cut: its first or last bytes were seen at neither
end, there is no response, or fewer bytes went by than a head declares.
Cost: a few sorts and joins over the hops that carry payload; no loop over packets.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl
import pyarrow as pa

from collector.heads import clients_swapped, head_parts, seen_heads
from collector.parts import FLOW, Role, byte_ranges, locate, part_times, server_time
from collector.runs import stretches
from collector.schema import EXCHANGES, conform
from collector.services import service_name
from collector.turns import turn_parts

HTTP = "http/1.1"
UNKNOWN = "unknown"
HOP_COLUMNS = (
    *("connection_id", "kind", "from_client", "stream_start", "stream_end"),
    *("send_trace_ns", "receive_trace_ns", "uncertainty_ns"),
)
HEAD_COLUMNS = (
    *("connection_id", "from_client", "stream_offset", "head_kind", "head_flags", "head_len"),
    *("content_length", "method", "target", "status", "transaction_id"),
)
END_COLUMNS = ("connection_id", "client_host", "server_host", "client_port", "server_port", "client_isn")
EDGES = ("first_sent", "first_received", "last_sent", "last_received")


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
    heads = seen_heads(_frame(messages, HEAD_COLUMNS))
    swapped = clients_swapped(heads)
    packets, heads = _true_roles(_frame(hops, HOP_COLUMNS), swapped), _true_roles(heads, swapped)
    ranges = byte_ranges(packets)
    parts, described = _parts(heads, ranges)
    ends = _ends(_frame(connections, END_COLUMNS), swapped, services)
    parts = _drop_greetings(parts, ends)
    exchanges = _assemble(parts, ranges, described, ends, _handshakes(packets)).with_columns(
        exchange_id=pl.int_range(first_id, first_id + pl.len())
    )
    ids = _hop_exchanges(packets, parts, exchanges)
    place = hops.schema.get_field_index("exchange_id")
    named = exchanges.select(EXCHANGES.names).to_arrow()
    return Built(conform("exchanges", named), hops.set_column(place, "exchange_id", ids.to_arrow()))


def _frame(table: pa.Table, names: Sequence[str]) -> pl.DataFrame:
    frame = pl.from_arrow(table.select(names))
    assert isinstance(frame, pl.DataFrame)
    return frame


def _true_roles(rows: pl.DataFrame, swapped: pl.Series) -> pl.DataFrame:
    """Rows whose `from_client` is true to who asks and who answers."""
    wrong = pl.col("connection_id").is_in(swapped.implode())
    return rows.with_columns(from_client=pl.col("from_client") != wrong).with_columns(FLOW)


def _parts(heads: pl.DataFrame, ranges: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    parts, described = head_parts(heads, ranges)
    readable = parts["connection_id"].unique()
    silent = ranges.filter(~pl.col("connection_id").is_in(readable.implode()))
    columns = ["flow", "connection_id", "from_client", "start", "ordinal", "role"]
    both = pl.concat([parts.select(columns), turn_parts(silent).select(columns)])
    return both.sort("flow", "start").with_row_index("part"), described


def _ends(connections: pl.DataFrame, swapped: pl.Series, services: Mapping[int, str]) -> pl.DataFrame:
    """`connection_id, client_host, server_host, service, handshake`, with the ends true to their roles."""
    wrong = pl.col("connection_id").is_in(swapped.implode())

    def end(right: str, other: str) -> pl.Expr:
        return pl.when(wrong).then(other).otherwise(right)

    ends = connections.select(
        "connection_id",
        client_host=end("client_host", "server_host").cast(pl.String),
        server_host=end("server_host", "client_host").cast(pl.String),
        port=end("server_port", "client_port"),
        handshake=pl.col("client_isn").is_not_null(),
    )
    ports = ends["port"].unique().to_list()
    names = pl.DataFrame(
        {"port": ports, "service": [service_name(port, services) for port in ports]},
        schema={"port": pl.UInt16, "service": pl.String},
    )
    return ends.join(names, on="port", how="left").drop("port")


def _drop_greetings(parts: pl.DataFrame, ends: pl.DataFrame) -> pl.DataFrame:
    """Without what a server says first on a fresh connection: it answers nothing."""
    known = parts.join(ends.select("connection_id", "handshake"), on="connection_id", how="left", maintain_order="left")
    return known.filter((pl.col("ordinal") > 0) | ~pl.col("handshake")).drop("handshake")


def _handshakes(packets: pl.DataFrame) -> pl.DataFrame:
    """By connection: when the client first sent its SYN, when it first had the answer, when it first closed."""
    shakes = packets.filter(pl.col("kind").is_in(["syn", "syn_ack", "fin", "rst"]))
    asks, answers = pl.col("kind") == "syn", pl.col("kind") == "syn_ack"
    closes = pl.col("kind").is_in(["fin", "rst"]) & pl.col("from_client")
    return shakes.group_by("connection_id").agg(
        connect_start_trace_ns=pl.when(asks & pl.col("from_client")).then("send_trace_ns").min(),
        connected_trace_ns=pl.when(answers & ~pl.col("from_client")).then("receive_trace_ns").min(),
        closed_ns=pl.when(closes).then("send_trace_ns").min(),
    )


def _assemble(
    parts: pl.DataFrame, ranges: pl.DataFrame, described: pl.DataFrame, ends: pl.DataFrame, shakes: pl.DataFrame
) -> pl.DataFrame:
    """One row for each exchange, numbered in order of time."""
    key = ["connection_id", "ordinal"]
    timed = parts.join(part_times(ranges, parts), on="part", how="left")
    rows = timed.group_by(key).agg(pl.col("uncertainty_ns").max())
    for role in (Role.REQUEST, Role.RESPONSE):
        rows = rows.join(_edges(timed.filter(pl.col("role") == role), role), on=key, how="left")
    rows = rows.join(_continued(timed, ranges), on=key, how="left")
    rows = rows.join(described.with_columns(protocol=pl.lit(HTTP)), on=key, how="left")
    rows = rows.join(ends, on="connection_id", how="left").join(shakes, on="connection_id", how="left")
    rows = rows.with_columns(pl.col("protocol").fill_null(UNKNOWN), *_of_connection(), complete=_complete())
    started = pl.min_horizontal(pl.col("^(request|response)_.*_trace_ns$"))
    rows = rows.with_columns(started=started).sort("started", "connection_id", "ordinal")
    return rows


def _of_connection() -> list[pl.Expr]:
    """What a connection's handshake and end say of its exchanges: only of the first, only of an unanswered one."""
    first = pl.col("ordinal") == pl.col("ordinal").min().over("connection_id")
    names = ("connect_start_trace_ns", "connected_trace_ns")
    unanswered = pl.col("response_bytes").is_null() & (pl.col("closed_ns") >= pl.col("request_first_sent_trace_ns"))
    given_up = pl.when(unanswered).then("closed_ns").alias("given_up_trace_ns")
    return [*(pl.when(first).then(name).alias(name) for name in names), given_up]


def _edges(parts: pl.DataFrame, role: Role) -> pl.DataFrame:
    """`<role>_<edge>_trace_ns` and `<role>_bytes` for each exchange that has the part."""
    name = role.name.lower()
    times = [pl.col(f"{edge}_ns").alias(f"{name}_{edge}_trace_ns") for edge in EDGES]
    return parts.select("connection_id", "ordinal", *times, (pl.col("end") - pl.col("start")).alias(f"{name}_bytes"))


def _continued(timed: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Of exchanges whose server asked for the body: when it did, when that arrived, and what the client sent next."""
    key = ["connection_id", "ordinal"]
    asked = (
        timed.filter(pl.col("role") == Role.CONTINUE)
        .group_by(key)
        .agg(
            continue_sent_trace_ns=pl.col("first_sent_ns").min(),
            continue_received_trace_ns=pl.col("first_received_ns").min(),
        )
    )
    requests = timed.filter(pl.col("role") == Role.REQUEST).join(asked, on=key)
    theirs = ranges.join(requests.select("flow"), on="flow", how="semi")
    requests = requests.sort("flow", "start")
    place = locate(theirs, requests, "start")
    held = requests.select("part", "continue_received_trace_ns")
    sent = theirs.with_columns(held[name].gather(place) for name in held.columns).drop_nulls("part")
    later = sent.filter(pl.col("sent_ns") >= pl.col("continue_received_trace_ns"))
    bodies = later.group_by("part").agg(body_sent_trace_ns=pl.col("sent_ns").min())
    resumed = requests.select(*key, "part").join(bodies, on="part").drop("part")
    return asked.join(resumed, on=key, how="left")


def _complete() -> pl.Expr:
    def seen(edge: str) -> pl.Expr:
        at = pl.coalesce(f"{edge}_sent_trace_ns", f"{edge}_received_trace_ns")
        return at.is_not_null()

    whole = pl.all_horizontal(seen(f"{name}_{edge}") for name in ("request", "response") for edge in ("first", "last"))
    enough = pl.all_horizontal(
        (pl.col(f"{name}_bytes") >= pl.col(f"{name}_due")).fill_null(value=True) for name in ("request", "response")
    )
    return whole & enough


def _hop_exchanges(packets: pl.DataFrame, parts: pl.DataFrame, exchanges: pl.DataFrame) -> pl.Series:
    """`exchange_id` for each row of `packets`, in order."""
    ids = exchanges.select("connection_id", "ordinal", "exchange_id")
    owners = parts.join(ids, on=["connection_id", "ordinal"], how="left", maintain_order="left")["exchange_id"]
    payload = packets.select(pl.col("stream_end") > pl.col("stream_start")).to_series()
    placed = packets.select("flow", "stream_start").filter(payload)
    timed = packets.select("connection_id", server_ns=server_time("send_trace_ns", "receive_trace_ns")).filter(~payload)
    by_place = owners.gather(locate(placed, parts, "stream_start"))
    found = pl.Series("exchange_id", [None], dtype=pl.Int64).new_from_index(0, len(packets))
    return found.scatter(payload.arg_true(), by_place).scatter((~payload).arg_true(), _by_time(timed, exchanges))


def _by_time(rows: pl.DataFrame, exchanges: pl.DataFrame) -> pl.Series:
    """Zero-length segments: the last exchange whose request had reached the server, or the connection's first."""
    began = pl.coalesce(
        "request_first_received_trace_ns", "request_first_sent_trace_ns", "response_first_sent_trace_ns"
    )
    starts = exchanges.select("connection_id", "exchange_id", server_ns=pl.coalesce(began, "started"))
    starts = starts.sort("connection_id", "server_ns", "exchange_id")
    known = starts.drop_nulls("server_ns")
    after = locate(rows, known, at="server_ns", start="server_ns", by="connection_id")
    low, high = stretches(starts["connection_id"].to_numpy(), rows["connection_id"].to_numpy())
    first = pl.Series(low).set(pl.Series(low == high), None)
    either = pl.coalesce(known["exchange_id"].gather(after), starts["exchange_id"].gather(first))
    return pl.select(either).to_series()
