"""Who ended a request before it was wholly answered: the columns `exchanges.ending` and `closed_trace_ns`.

A FIN or RST has a sender, a time and a place in its sender's stream, so packets show more than "no answer":

    client_closed, client_reset   the client left first: it gave up, was stopped, or had no use for the answer any more
    server_closed, server_reset   the server ended the connection in place of the answer, or in the middle of one whose
                                  length it had promised
    stale                         the server had closed a kept connection before the request reached it

An answer is whole if it has the length that its head promises (`response_due_bytes`), or the last of its chunks
(`collector.requests.chunked`); one that promises neither ends wherever its server ends it. A whole answer has an ending
only if its client had left before it came.

1. Take the first FIN and the first RST of either side of each connection, with the stamps of both ends. A FIN may ride
   on the last data of its side (`closing_data`).
2. A client's FIN is no leaving while it goes on listening (a half-close, RFC 9293 §3.6): it came with the request, or
   bytes of the server reached it later, and no RST of the client answered them.
3. Who was first is decided at one host, by its own clock: had the other side's FIN arrived there before its own left?
4. The server's FIN that left before the request arrived is `stale`, if the connection had served a request before.
   Of a server whose end was not captured: one that reached the client sooner than a round trip after the request left.
5. A FIN stands behind the last byte of its stream. Where bytes before it were seen at neither end, the captures missed
   them, and whether there was an answer cannot be decided: no ending.

Invariants: `closed_trace_ns` is null exactly where `ending` is; `stale` and `server_*` never have a whole answer.
Limits: a chunked answer of which no capture holds the last packet whole looks whole. A middlebox that ends a
connection in both directions looks like the end that it speaks for.
Source: RFC 9293 §3.6, §3.10.7; RFC 9112 §6.3, §9.6 (message length, closing).
"""

from enum import StrEnum

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.trace.arrow import indices, numbers


class Ending(StrEnum):
    """Who ended a connection that owed an answer, and how."""

    CLIENT_CLOSED = "client_closed"
    CLIENT_RESET = "client_reset"
    SERVER_CLOSED = "server_closed"
    SERVER_RESET = "server_reset"
    STALE = "stale"
    CLIENT_RESET_STREAM = "client_reset_stream"
    SERVER_RESET_STREAM = "server_reset_stream"


STREAM_RESETS = [str(Ending.CLIENT_RESET_STREAM), str(Ending.SERVER_RESET_STREAM)]
"""Of HTTP/2: the exchange alone was ended, by RST_STREAM, and its connection goes on (RFC 9113 §6.4). Found by the core
(`tracer/core/exchanges/src/http2.rs`), in its order."""
BY_CLIENT = (Ending.CLIENT_CLOSED, Ending.CLIENT_RESET, Ending.CLIENT_RESET_STREAM)
ENDINGS = [str(each) for each in Ending]
HALF_CLOSE_NS = 2_000_000
"""A client that ends its half of a connection because its request is whole does so at once; a busy host takes some."""
RST_SLACK_BYTES = 1
"""A RST that follows a FIN stands one behind it, as the FIN takes a sequence number (RFC 9293 §3.4)."""

FIN_FLAG = 0x01
_HOPS = (
    *("connection_id", "exchange_id", "kind", "from_client", "stream_start", "stream_end"),
    *("send_trace_ns", "receive_trace_ns", "send_host", "send_frame", "receive_host", "receive_frame"),
)
_ASKED = (
    *("exchange_id", "connection_id", "response_bytes", "response_due_bytes", "round_trip_ns"),
    *("request_first_sent_trace_ns", "request_last_sent_trace_ns"),
    *("request_first_received_trace_ns", "request_last_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns"),
)


def closing_data(events: pa.Table) -> pa.Table:
    """Events that carry data and a FIN, which is no hop of its own: `connection_id, host, frame`."""
    both = (numbers(events["flags"]) & FIN_FLAG > 0) & (numbers(events["payload_len"]) > 0)
    return events.select(["connection_id", "host", "frame"]).take(pa.array(np.flatnonzero(both)))


NO_CONNECTIONS = pl.Series([], dtype=pl.Int64)


def with_endings(
    exchanges: pa.Table, hops: pa.Table, fins: pa.Table | None = None, cut_short: pl.Series = NO_CONNECTIONS
) -> pa.Table:
    """Exchanges of some connections with `ending` and `closed_trace_ns`; what the exchange alone shows of them
    (`STREAM_RESETS`) stays.

    Arguments: all hops of these connections, with trace times and `exchange_id`; `fins`, their `closing_data`;
    `cut_short`, connections whose last answer lacks its end (`collector.requests.chunked`).
    Cost: a pass over the kinds of hops; connections that ended by a reset or with something owed are looked at as rows.
    """
    of = numbers(exchanges["connection_id"])
    ended, reset = _ended_connections(hops)
    if fins is not None:
        ended = np.concatenate([ended, numbers(fins["connection_id"])])
    is_cut = _is_cut(exchanges, cut_short)
    codes, closed = _known(exchanges)
    open_ = codes < 0
    owed = np.isin(of, ended) & (is_cut | ~_is_whole(exchanges))
    rows = np.flatnonzero(open_ & (owed | np.isin(of, reset)))
    if len(rows):
        asked = _frame(exchanges.select(_ASKED).take(pa.array(rows))).with_columns(
            earlier=_with_earlier(exchanges, rows), is_cut=pl.Series(is_cut[rows])
        )
        found = _endings(asked, hops, fins)
        codes[rows], closed[rows] = found["ending"].to_numpy(), found["closed_ns"].to_numpy()
    known = codes >= 0
    ending = pa.DictionaryArray.from_arrays(pa.array(codes, mask=~known), pa.array(ENDINGS))
    return _with_column(_with_column(exchanges, "ending", ending), "closed_trace_ns", pa.array(closed, mask=~known))


def _known(exchanges: pa.Table) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Places of endings in `ENDINGS` that are known already, -1 for others; and when they were."""
    place, names = indices(exchanges["ending"])
    codes = np.array([*(ENDINGS.index(name) for name in names), -1], np.int32)[place]
    return codes, numbers(exchanges["closed_trace_ns"]).copy()


def until_ended(exchanges: pa.Table) -> pa.Table:
    """Exchanges as their clients saw them: those that somebody ended before any of the answer came are without it, and
    were given up then.

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
    """Whether each has as much of an answer as was promised."""
    answered = exchanges["response_bytes"].is_valid().to_numpy()
    due = numbers(exchanges["response_due_bytes"], np.iinfo(np.int64).min)
    return answered & (numbers(exchanges["response_bytes"]) >= due)


def _is_cut(exchanges: pa.Table, cut_short: pl.Series) -> NDArray[np.bool_]:
    """Which are the last of these connections, and answered."""
    found = np.zeros(exchanges.num_rows, dtype=np.bool_)
    of = numbers(exchanges["connection_id"])
    rows = np.flatnonzero(np.isin(of, cut_short.to_numpy()))
    ids = numbers(exchanges["exchange_id"])[rows]
    for connection in np.unique(of[rows]):
        mine = rows[of[rows] == connection]
        found[mine[np.argmax(ids[of[rows] == connection])]] = True
    return found & exchanges["response_bytes"].is_valid().to_numpy()


def _with_earlier(exchanges: pa.Table, rows: NDArray[np.int64]) -> pl.Series:
    """Whether the connection of each of these rows had served another exchange before."""
    ids, of = numbers(exchanges["exchange_id"]), numbers(exchanges["connection_id"])
    first = pl.DataFrame({"connection": of, "exchange": ids}).group_by("connection").agg(pl.col("exchange").min())
    mine = pl.DataFrame({"connection": of[rows], "mine": ids[rows]})
    return mine.join(first, on="connection", how="left", maintain_order="left").select(
        earlier=pl.col("mine") > pl.col("exchange")
    )["earlier"]


def _endings(asked: pl.DataFrame, hops: pa.Table, fins: pa.Table | None) -> pl.DataFrame:
    """`ending` (a place in `ENDINGS`, -1 for none) and `closed_ns`, for each row of `asked`."""
    mine = np.isin(numbers(hops["connection_id"]), asked["connection_id"].unique().to_numpy())
    packets = _frame(hops.select(_HOPS).take(pa.array(np.flatnonzero(mine))))
    if fins is not None and fins.num_rows:
        packets = pl.concat([packets, _riding(packets, _frame(fins))], how="diagonal")
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
    return _decided(rows)


def _riding(packets: pl.DataFrame, fins: pl.DataFrame) -> pl.DataFrame:
    """FINs that came with data, as hops of their own behind it."""
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
    """`exchange_id, asks_as_client`: of each request, whether the connection's client sent it."""
    data = packets.filter(pl.col("kind") == "data").join(
        asked.select("exchange_id", "request_first_sent_trace_ns", "request_first_received_trace_ns"), on="exchange_id"
    )
    begins = (pl.col("send_trace_ns") == pl.col("request_first_sent_trace_ns")) | (
        pl.col("receive_trace_ns") == pl.col("request_first_received_trace_ns")
    )
    return data.filter(begins).group_by("exchange_id").agg(asks_as_client=pl.col("from_client").first())


def _closings(packets: pl.DataFrame) -> pl.DataFrame:
    """Of each direction of a connection that has any, when it was ended: `fin_sent, fin_received, rst_sent,
    rst_received`; when its last bytes arrived (`heard`); whether bytes before its end were seen nowhere (`missed`)."""
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
        missed=(ended.filter(fin).max() > seen).fill_null(value=False)
        | (ended.filter(rst).min() > seen + RST_SLACK_BYTES).fill_null(value=False),
    )


def _decided(rows: pl.DataFrame) -> pl.DataFrame:
    """Steps 2 to 5 of the header, over rows with the closings of both sides."""
    enough = pl.col("response_bytes") >= pl.col("response_due_bytes").fill_null(0)
    whole = pl.col("response_bytes").is_not_null() & enough & ~pl.col("is_cut")
    rows = rows.with_columns(
        client_fin=pl.coalesce("client_fin_sent", "client_fin_received"),
        client_rst=pl.coalesce("client_rst_sent", "client_rst_received"),
        server_fin=pl.coalesce("server_fin_sent", "server_fin_received"),
        server_rst=pl.coalesce("server_rst_sent", "server_rst_received"),
        whole=whole,
    ).with_columns(listens=_listens())
    rows = rows.with_columns(
        client_ns=pl.min_horizontal(pl.when(~pl.col("listens")).then("client_fin"), "client_rst"),
        server_ns=pl.min_horizontal("server_fin", "server_rst"),
    ).with_columns(by_client=_client_first())
    missed = pl.col("client_missed").fill_null(value=False) | pl.col("server_missed").fill_null(value=False)
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


def _listens() -> pl.Expr:
    """Whether the client's FIN is only the end of what it says (step 2)."""
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


def _client_first() -> pl.Expr:
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
    """Whether the client's end came before the last byte of the answer, where that was seen."""
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
