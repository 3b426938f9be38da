"""Determines who ended a request before its answer was complete: columns `exchanges.ending` and `closed_trace_ns`.

A FIN or RST has a sender, a time and a position in its sender's stream, so packets show more than "no answer":

    client_closed, client_reset   the client left first: it gave up, was stopped, or no longer needed the answer
    server_closed, server_reset   the server ended the connection instead of answering, or in the middle of an answer
                                  whose length it had announced
    stale                         the server had closed a kept connection before the request reached it

An answer is complete if it has the length that its head announces (`response_due_bytes`), its last chunk
(`collector.requests.chunked`), or of HTTP/2 the frame that ends its stream (`complete`); an answer with none of these
ends wherever its server ends it. A complete answer has an ending only if its client had left before it arrived.

1. Take the first FIN and the first RST of either side of each connection, with the timestamps of both ends. The last
   data packet of a side may carry its FIN (`closing_data`).
2. A client that sent a FIN but still reads has not left (a half-close, RFC 9293 §3.6): its FIN came with the request,
   or it later received bytes of the server and answered them with no RST.
3. Which side was first is decided at one host, by its own clock: had the other side's FIN arrived before its own left?
4. If the server's FIN left before the request arrived, and the connection had served a request before, the ending is
   `stale`. If the server's end was not captured: if its FIN reached the client less than a round trip after the request
   left.
5. A FIN follows the last byte of its stream. If bytes before it were captured at neither end, it cannot be decided
   whether there was an answer: no ending.
6. Nor if the server sent bytes after the request that belong to no answer, in a protocol whose messages are followed:
   an answer of which the capture holds too little to read it (an agent keeps 4 KiB of a packet).

Invariants: `closed_trace_ns` is null exactly where `ending` is; `stale` and `server_*` never have a complete answer.
Limits: a chunked answer looks complete if no capture holds its last packet whole. If a middlebox ends a connection in
both directions, its packets look like those of the ends in whose name it sends them.
Source: RFC 9293 §3.6, §3.10.7; RFC 9112 §6.3, §9.6 (message length, closing).
"""

from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.requests.protocols import FOLLOWED_IN_ORDER, MULTIPLEXED
from collector.trace.arrow import indices, numbers


class Ending(StrEnum):
    """Which side ended a connection before an answer was complete, and how."""

    CLIENT_CLOSED = "client_closed"
    CLIENT_RESET = "client_reset"
    SERVER_CLOSED = "server_closed"
    SERVER_RESET = "server_reset"
    STALE = "stale"
    CLIENT_RESET_STREAM = "client_reset_stream"
    SERVER_RESET_STREAM = "server_reset_stream"
    REFUSED_STREAM = "refused_stream"


STREAM_RESETS = [str(Ending.CLIENT_RESET_STREAM), str(Ending.SERVER_RESET_STREAM), str(Ending.REFUSED_STREAM)]
"""Endings of HTTP/2: RST_STREAM ended only the exchange, and its connection continues (RFC 9113 §6.4); or GOAWAY said
that its server does not process it, so that it may be sent again (§6.8). Found by the core
(`collector/core/exchanges/src/by_stream_id.rs`), in its order."""
BY_CLIENT = (Ending.CLIENT_CLOSED, Ending.CLIENT_RESET, Ending.CLIENT_RESET_STREAM)
ENDINGS = [str(each) for each in Ending]
HALF_CLOSE_NS = 2_000_000
"""A client that half-closes because its request is complete does so at once; a busy host may take so long."""
RST_SLACK_BYTES = 1
"""A RST that follows a FIN has a sequence number one higher, since the FIN uses one (RFC 9293 §3.4)."""

FIN_FLAG = 0x01
_HOPS = (
    *("connection_id", "exchange_id", "kind", "from_client", "stream_start", "stream_end"),
    *("send_trace_ns", "receive_trace_ns", "send_host", "send_frame", "receive_host", "receive_frame"),
)
_ASKED = (
    *("exchange_id", "connection_id", "protocol", "response_bytes", "response_due_bytes", "round_trip_ns"),
    *("request_first_sent_trace_ns", "request_last_sent_trace_ns"),
    *("request_first_received_trace_ns", "request_last_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns"),
)


def closing_data(events: pa.Table) -> pa.Table:
    """Events with both data and a FIN, which then is no hop of its own: `connection_id, host, frame`."""
    both = (numbers(events["flags"]) & FIN_FLAG > 0) & (numbers(events["payload_len"]) > 0)
    return events.select(["connection_id", "host", "frame"]).take(pa.array(np.flatnonzero(both)))


NO_CONNECTIONS = pl.Series([], dtype=pl.Int64)


def with_endings(
    exchanges: pa.Table, hops: pa.Table, fins: pa.Table | None = None, cut_short: pl.Series = NO_CONNECTIONS
) -> pa.Table:
    """Exchanges of some connections with `ending` and `closed_trace_ns` filled in; endings that the exchange itself
    shows (`STREAM_RESETS`) are kept.

    Arguments: all hops of these connections, with trace times and `exchange_id`; `fins`, their `closing_data`;
    `cut_short`, connections whose last answer lacks its end (`collector.requests.chunked`).
    Cost: a pass over the kinds of hops; more only for connections that ended with a reset or an incomplete answer.
    """
    of = numbers(exchanges["connection_id"])
    ended, reset = _ended_connections(hops)
    if fins is not None:
        ended = np.concatenate([ended, numbers(fins["connection_id"])])
    is_cut = _is_cut_short(exchanges, cut_short) | _is_without_end(exchanges)
    codes, closed = _known_endings(exchanges)
    open_ = codes < 0
    owed = np.isin(of, ended) & (is_cut | ~_is_whole(exchanges))
    rows = np.flatnonzero(open_ & (owed | np.isin(of, reset)))
    if len(rows):
        asked = _frame(exchanges.select(_ASKED).take(pa.array(rows))).with_columns(
            earlier=_with_earlier(exchanges, rows), is_cut=pl.Series(is_cut[rows])
        )
        asked = asked.join(_answered_bytes(exchanges), on="connection_id", how="left", maintain_order="left")
        found = _endings(asked, hops, fins)
        codes[rows], closed[rows] = found["ending"].to_numpy(), found["closed_ns"].to_numpy()
    known = codes >= 0
    ending = pa.DictionaryArray.from_arrays(pa.array(codes, mask=~known), pa.array(ENDINGS))
    return _with_column(_with_column(exchanges, "ending", ending), "closed_trace_ns", pa.array(closed, mask=~known))


def _known_endings(exchanges: pa.Table) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """For each exchange, the index in `ENDINGS` of an ending already known, or -1; and when it ended."""
    place, names = indices(exchanges["ending"])
    codes = np.array([*(ENDINGS.index(name) for name in names), -1], np.int32)[place]
    return codes, numbers(exchanges["closed_trace_ns"]).copy()


def as_clients_saw(exchanges: pa.Table) -> pa.Table:
    """Exchanges as their clients saw them: if one ended before any byte of the answer arrived, the answer is removed
    and the exchange counts as given up at that time.

    Arguments: at least `ending`, `closed_trace_ns`, `given_up_trace_ns`, `response_first_*_trace_ns`.
    """
    ending, names = indices(exchanges["ending"])
    ended = np.isin(ending, [place for place, name in enumerate(names) if name != Ending.STALE])
    if not ended.any():
        return exchanges
    closed = numbers(exchanges["closed_trace_ns"])
    first = (exchanges[f"response_first_{what}_trace_ns"] for what in ("received", "sent"))
    came = numbers(pc.coalesce(*first), np.iinfo(np.int64).max)
    late = pa.array(ended & (came >= closed))
    never = [name for name in exchanges.column_names if name.startswith("response_") and name.endswith("_ns")]
    for name in never:
        exchanges = _with_column(exchanges, name, pc.if_else(late, None, exchanges[name]))
    given_up = pc.if_else(late, exchanges["closed_trace_ns"], exchanges["given_up_trace_ns"])
    return _with_column(exchanges, "given_up_trace_ns", given_up)


def _ended_connections(hops: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Connections with a FIN or RST, and those with a RST."""
    kind, kinds = indices(hops["kind"])
    fin, rst = (kinds.index(name) if name in kinds else len(kinds) for name in ("fin", "rst"))
    rows = np.flatnonzero((kind == fin) | (kind == rst))
    of = numbers(hops["connection_id"])[rows]
    return of, of[kind[rows] == rst]


def _is_whole(exchanges: pa.Table) -> NDArray[np.bool_]:
    """Whether each exchange has as many bytes of an answer as announced."""
    answered = exchanges["response_bytes"].is_valid().to_numpy()
    due = numbers(exchanges["response_due_bytes"], np.iinfo(np.int64).min)
    return answered & (numbers(exchanges["response_bytes"]) >= due)


def _is_cut_short(exchanges: pa.Table, cut_short: pl.Series) -> NDArray[np.bool_]:
    """Whether each exchange is the last of its connection, in `cut_short`, and has an answer."""
    found = np.zeros(exchanges.num_rows, dtype=np.bool_)
    of = numbers(exchanges["connection_id"])
    rows = np.flatnonzero(np.isin(of, cut_short.to_numpy()))
    ids = numbers(exchanges["exchange_id"])[rows]
    for connection in np.unique(of[rows]):
        mine = rows[of[rows] == connection]
        found[mine[np.argmax(ids[of[rows] == connection])]] = True
    return found & exchanges["response_bytes"].is_valid().to_numpy()


def _is_without_end(exchanges: pa.Table) -> NDArray[np.bool_]:
    """Whether each exchange is a request with an answer, of a protocol in which a frame ends it, and that frame never
    came."""
    protocol, names = indices(exchanges["protocol"])
    framed = np.isin(protocol, [place for place, name in enumerate(names) if name in MULTIPLEXED])
    lacks = pc.and_not(pc.invert(exchanges["complete"]), exchanges["is_stream"]).fill_null(False)
    return framed & exchanges["response_bytes"].is_valid().to_numpy() & lacks.to_numpy()


def _with_earlier(exchanges: pa.Table, rows: NDArray[np.int64]) -> pl.Series:
    """For each of these rows, whether its connection had served another exchange before."""
    ids, of = numbers(exchanges["exchange_id"]), numbers(exchanges["connection_id"])
    first = pl.DataFrame({"connection": of, "exchange": ids}).group_by("connection").agg(pl.col("exchange").min())
    mine = pl.DataFrame({"connection": of[rows], "mine": ids[rows]})
    return mine.join(first, on="connection", how="left", maintain_order="left").select(
        earlier=pl.col("mine") > pl.col("exchange")
    )["earlier"]


def _answered_bytes(exchanges: pa.Table) -> pl.DataFrame:
    """`connection_id, answered_bytes`: the lengths of all answers that were read on a connection."""
    rows = pl.DataFrame(exchanges.select(["connection_id", "response_bytes"]))
    return rows.group_by("connection_id").agg(answered_bytes=pl.col("response_bytes").sum())


def _endings(asked: pl.DataFrame, hops: pa.Table, fins: pa.Table | None) -> pl.DataFrame:
    """`ending` (an index in `ENDINGS`, -1 for none) and `closed_ns`, for each row of `asked`."""
    mine = np.isin(numbers(hops["connection_id"]), asked["connection_id"].unique().to_numpy())
    packets = _frame(hops.select(_HOPS).take(pa.array(np.flatnonzero(mine))))
    if fins is not None and fins.num_rows:
        packets = pl.concat([packets, _fins_on_data(packets, _frame(fins))], how="diagonal")
    sides = _asking_sides(asked, packets)
    rows = asked.join(sides, on="exchange_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("asks_as_client").fill_null(value=True))
    closings = _closings(packets)
    for side, of in (("client", pl.col("asks_as_client")), ("server", ~pl.col("asks_as_client"))):
        named = closings.rename({name: f"{side}_{name}" for name in closings.columns if name != "connection_id"})
        rows = rows.with_columns(as_client=of).join(
            named, left_on=["connection_id", "as_client"], right_on=["connection_id", f"{side}_from_client"],
            how="left", maintain_order="left",
        )  # fmt: skip
    return _decide_endings(rows)


def _fins_on_data(packets: pl.DataFrame, fins: pl.DataFrame) -> pl.DataFrame:
    """FINs carried by data packets, as hops of their own behind the data."""
    data = packets.filter(pl.col("kind") == "data")
    for end in ("send", "receive"):
        mark = fins.rename({"host": f"{end}_host", "frame": f"{end}_frame"}).with_columns(
            pl.lit(value=True).alias(f"{end}_fin")
        )
        data = data.join(mark, on=["connection_id", f"{end}_host", f"{end}_frame"], how="left")
    last = data.filter(pl.col("send_fin") | pl.col("receive_fin"))
    last = last.filter(pl.col("stream_end") == pl.col("stream_end").max().over("connection_id", "from_client"))
    return last.select(
        *("connection_id", "exchange_id", "from_client", "send_trace_ns", "receive_trace_ns", "stream_end"),
        kind=pl.lit("fin"),
        stream_start="stream_end",
    )


def _asking_sides(asked: pl.DataFrame, packets: pl.DataFrame) -> pl.DataFrame:
    """`exchange_id, asks_as_client`: whether the connection's client sent the request."""
    data = packets.filter(pl.col("kind") == "data").join(
        asked.select("exchange_id", "request_first_sent_trace_ns", "request_first_received_trace_ns"), on="exchange_id"
    )
    begins = (pl.col("send_trace_ns") == pl.col("request_first_sent_trace_ns")) | (
        pl.col("receive_trace_ns") == pl.col("request_first_received_trace_ns")
    )
    return data.filter(begins).group_by("exchange_id").agg(asks_as_client=pl.col("from_client").first())


def _closings(packets: pl.DataFrame) -> pl.DataFrame:
    """For each direction of a connection, when it was ended: `fin_sent, fin_received, rst_sent, rst_received`; when its
    last bytes arrived (`heard`) and left (`sent`), how many there were (`bytes`); whether
    bytes before its end were captured nowhere (`missed`)."""
    kind = pl.col("kind")
    fin, rst, data = kind == "fin", kind == "rst", kind == "data"
    seen = pl.col("stream_end").filter(data).max().fill_null(0)
    ended = pl.col("stream_start")
    return packets.group_by("connection_id", "from_client").agg(
        fin_sent=pl.col("send_trace_ns").filter(fin).min(),
        fin_received=pl.col("receive_trace_ns").filter(fin).min(),
        rst_sent=pl.col("send_trace_ns").filter(rst).min(),
        rst_received=pl.col("receive_trace_ns").filter(rst).min(),
        heard=pl.col("receive_trace_ns").filter(data).max(),
        sent=pl.col("send_trace_ns").filter(data).max(),
        bytes=seen,
        missed=(ended.filter(fin).max() > seen).fill_null(value=False)
        | (ended.filter(rst).min() > seen + RST_SLACK_BYTES).fill_null(value=False),
    )


def _decide_endings(rows: pl.DataFrame) -> pl.DataFrame:
    """Steps 2 to 6 of the header, over rows with the closings of both sides."""
    enough = pl.col("response_bytes") >= pl.col("response_due_bytes").fill_null(0)
    whole = pl.col("response_bytes").is_not_null() & enough & ~pl.col("is_cut")
    rows = rows.with_columns(
        client_fin=pl.coalesce("client_fin_sent", "client_fin_received"),
        client_rst=pl.coalesce("client_rst_sent", "client_rst_received"),
        server_fin=pl.coalesce("server_fin_sent", "server_fin_received"),
        server_rst=pl.coalesce("server_rst_sent", "server_rst_received"),
        whole=whole,
    ).with_columns(listens=_is_half_close())
    rows = rows.with_columns(
        client_ns=pl.min_horizontal(pl.when(~pl.col("listens")).then("client_fin"), "client_rst"),
        server_ns=pl.min_horizontal("server_fin", "server_rst"),
    ).with_columns(by_client=_is_client_first())
    missed = pl.col("client_missed").fill_null(value=False) | pl.col("server_missed").fill_null(value=False)
    missed = missed | _is_answer_unread()
    left = pl.col("client_rst").is_not_null() & _before_the_answer()
    by_client = pl.when(pl.col("whole")).then(left).otherwise(pl.col("by_client") & ~missed)
    by_server = ~pl.col("whole") & ~missed & pl.col("server_ns").is_not_null() & ~pl.col("by_client")
    reset_by_client = (pl.col("client_rst") == pl.col("client_ns")).fill_null(value=False)
    reset_by_server = (pl.col("server_rst") == pl.col("server_ns")).fill_null(value=False)
    ending = (
        pl.when(by_client & reset_by_client)
        .then(_code(Ending.CLIENT_RESET))
        .when(by_client)
        .then(_code(Ending.CLIENT_CLOSED))
        .when(by_server & _is_stale())
        .then(_code(Ending.STALE))
        .when(by_server & reset_by_server)
        .then(_code(Ending.SERVER_RESET))
        .when(by_server)
        .then(_code(Ending.SERVER_CLOSED))
        .otherwise(-1)
    )
    closed = pl.when(by_client.fill_null(value=False)).then("client_ns").otherwise("server_ns").fill_null(0)
    return rows.select(ending=ending.fill_null(-1).cast(pl.Int32), closed_ns=closed)


def _is_answer_unread() -> pl.Expr:
    """Whether the server sent bytes after the request that belong to no answer (step 6)."""
    at_server = pl.col("server_sent") > pl.col("request_last_received_trace_ns")
    at_client = pl.col("server_heard") > pl.col("request_last_sent_trace_ns")
    spoke = pl.coalesce(at_server, at_client, pl.lit(value=False))
    unread = (pl.col("server_bytes") > pl.col("answered_bytes")).fill_null(value=False)
    return pl.col("protocol").is_in(FOLLOWED_IN_ORDER) & pl.col("response_bytes").is_null() & spoke & unread


def _is_half_close() -> pl.Expr:
    """Whether the client's FIN only ends its own direction (step 2)."""
    at_client = pl.col("server_heard") > pl.col("client_fin_sent")
    at_server = pl.col("server_sent") > pl.col("client_fin_received")
    heard = pl.coalesce(at_client, at_server, pl.lit(value=False))
    at_client_too = pl.when(pl.col("client_fin_sent").is_not_null()).then("request_last_sent_trace_ns")
    asked = pl.coalesce(at_client_too, "request_last_received_trace_ns", "request_last_sent_trace_ns")
    with_request = pl.col("client_fin") - asked <= HALF_CLOSE_NS
    after = pl.min_horizontal("server_fin", "server_rst") - pl.col("client_fin")
    follows = after.is_between(0, HALF_CLOSE_NS).fill_null(value=False)
    early = with_request & ~follows
    return pl.col("client_rst").is_null() & (heard | early.fill_null(value=False))


def _is_client_first() -> pl.Expr:
    """Whether the client left before the server ended the connection (step 3), by one host's clock where possible."""
    at_client = pl.min_horizontal("server_fin_received", "server_rst_received") > pl.col("client_ns")
    at_server = pl.min_horizontal("server_fin_sent", "server_rst_sent") >= pl.min_horizontal(
        pl.when(~pl.col("listens")).then("client_fin_received"), "client_rst_received"
    )
    sent_here = pl.coalesce("client_fin_sent", "client_rst_sent").is_not_null()
    by_stamp = pl.coalesce(pl.when(sent_here).then(at_client), at_server, pl.col("client_ns") <= pl.col("server_ns"))
    only = pl.col("server_ns").is_null()
    return pl.col("client_ns").is_not_null() & (only | by_stamp.fill_null(value=True))


def _before_the_answer() -> pl.Expr:
    """Whether the client ended before the last byte of the answer, if that was captured."""
    sent = pl.min_horizontal("client_fin_sent", "client_rst_sent") < pl.col("response_last_received_trace_ns")
    received = pl.min_horizontal("client_fin_received", "client_rst_received") < pl.col("response_last_sent_trace_ns")
    return pl.coalesce(sent, received, pl.lit(value=False))


def _is_stale() -> pl.Expr:
    """Whether the server had ended the connection before the request could have reached it (step 4)."""
    at_server = pl.min_horizontal("server_fin_sent", "server_rst_sent") < pl.col("request_first_received_trace_ns")
    crossing = pl.col("request_first_sent_trace_ns") + pl.col("round_trip_ns").fill_null(0)
    at_client = pl.min_horizontal("server_fin_received", "server_rst_received") < crossing
    silent = pl.col("response_bytes").is_null()
    return pl.col("earlier") & silent & pl.coalesce(at_server, at_client, pl.lit(value=False))


def _code(ending: Ending) -> pl.Expr:
    return pl.lit(ENDINGS.index(ending), pl.Int32)


def _with_column(exchanges: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return exchanges.set_column(exchanges.schema.get_field_index(name), name, values)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))
