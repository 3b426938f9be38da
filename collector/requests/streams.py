"""Builds the table `streams`: exchanges and connections that are no requests, and why.

Subscriptions, sessions, tunnels, event streams and blocking reads last as long as their clients want. Most can be
recognised by themselves (`collector.requests.stream_evidence`). If messages cannot be read, a server that sends when
*another* client has sent reveals a stream: a broker that forwards messages, a queue whose reader waits for work, a long
poll.

    publisher ──▶ ·            ──▶ ·                  ──▶ ·          messages of other connections, as they arrive
    server          ▶ ·            ▶ ·                  ▶ ·          late messages to this client, at once

1. A server's message is late if its connection was silent for 20 ms before.
2. A late message is triggered if a message of another connection of the server arrived within a window before it. That
   other connection must not be mostly answered late itself (clients of a slow server ask in step with its answers). The
   window is `WINDOW_NS`, or shorter, so that at most `MOST_CHANCE` of all times lie in such windows.
3. A connection is a stream if `LEAST_SHARE` of its late messages are triggered, more than chance can explain, and
   - most of them come unasked (the server had sent last), or
   - nearly every turn on it is such a wait (`LEAST_TURNS` of them or more).

All timestamps are those of the server's own host. If one of several requests on a connection waits for a lock that
others hold, it stays a request; so does a slow answer, since no other client's message triggers it.

Limits: if all requests on a connection wait for requests of others, such as statements always blocked by the same lock,
it looks like a queue's reader. Nothing is detected if the server's host was not captured.
Cost: a sort of all messages by server, and a search for each late one. Memory: 24 bytes for each message of a client.
"""

import math
from collections.abc import Iterable

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from collector.requests.stream_evidence import CANDIDATE, StreamEvidence
from collector.trace.schema import STREAMS, StreamReason, conform

AMQP = "amqp"
"""A protocol on which each side answers the other, though its connections are streams: a broker confirms what is
published, and consumers acknowledge what is delivered."""
WINDOW_NS = 2_000_000
"""A server forwards a message within this time; a slower one is not recognised."""
MOST_CHANCE = 0.05
LEAST_SHARE, LEAST_OF_TURNS = 0.75, 0.9
LEAST_TURNS = 5
SLOW_SHARE = 0.75
"""If so large a share of a connection's turns is answered late, its messages do not count as triggers."""
SURE_LOG_ODDS = math.log(1e4)
"""Chance explains fewer than one connection in so many."""
OTHERS_LOOKED_AT = 8
"""So many messages before a late one are examined; the last one of another connection counts."""


class StreamJudge:
    """Collects the evidence of all partitions, then decides which connections are streams."""

    def __init__(self) -> None:
        self._parts: list[StreamEvidence] = []
        self._judged: tuple[pl.DataFrame, pl.DataFrame] | None = None

    def add(self, evidence: StreamEvidence) -> None:
        """Add the evidence of one partition."""
        self._parts.append(evidence)

    def triggered_connections(self) -> NDArray[np.int64]:
        """Ids of connections that are streams by the evidence of other connections of their servers, ascending."""
        return self._all()[1]["connection_id"].sort().to_numpy()

    def table(self) -> pa.Table:
        """The table `streams`, by begin."""
        streams, connections = self._all()
        if not len(streams):
            return STREAMS.empty_table()
        waits = pl.format("its server spoke {} of {} times when another client had spoken", "hits", "count")
        found = streams.join(connections, on="connection_id", how="left", maintain_order="left")
        is_candidate = pl.col("reason") == CANDIDATE
        found = found.with_columns(evidence=pl.when(is_candidate).then(waits).otherwise("evidence"))
        shown_by_others = pl.when(is_candidate).then(pl.lit(str(StreamReason.TRIGGERED)))
        found = found.with_columns(reason=shown_by_others.otherwise("reason"))
        rows = (
            found.filter((pl.col("reason") != StreamReason.TRIGGERED) | pl.col("hits").is_not_null())
            .sort("begin_trace_ns", "connection_id")
            .select(STREAMS.names)
        )
        return conform("streams", rows.to_arrow())

    def _all(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        if self._judged is None:
            streams = pl.concat([part.streams for part in self._parts]) if self._parts else pl.DataFrame()
            self._judged = streams, _triggered_streams(streams, self._parts)
            self._parts = []
        return self._judged


def with_streams(exchanges: pa.Table, triggered: NDArray[np.int64]) -> pa.Table:
    """`exchanges` with `is_stream` set also for those on the `triggered` connections."""
    if not len(triggered):
        return exchanges
    more = pc.is_in(exchanges["connection_id"], value_set=pa.array(triggered))
    place = exchanges.schema.get_field_index("is_stream")
    known = pc.fill_null(exchanges["is_stream"], fill_value=False)
    return exchanges.set_column(place, exchanges.schema.field(place), pc.or_(known, more))


def requests_of(exchanges: pa.Table) -> pa.Table:
    """The exchanges that are requests."""
    streams = pc.fill_null(exchanges["is_stream"], fill_value=False)
    return exchanges.filter(pc.invert(streams)) if pc.any(streams).as_py() else exchanges


def turns_of_streams(exchanges: pa.Table, connection_ids: pa.Array) -> pa.Table:
    """The exchanges that are turns of these streams."""
    of_them = pc.is_in(exchanges["connection_id"], value_set=connection_ids)
    return exchanges.filter(pc.and_(pc.fill_null(exchanges["is_stream"], fill_value=False), of_them))


def answering_streams(streams: pa.Table) -> pa.Array:
    """The ids of the connections that are streams, but on which each side answers the other: those whose turns overlap,
    and those of AMQP.

    Arguments: the table `streams`.
    """
    reasons = pa.array([str(StreamReason.CROSSED), str(StreamReason.SEVERAL)])
    overlap = pc.is_in(streams["reason"].cast(pa.string()), value_set=reasons)
    answers = pc.equal(streams["protocol"].cast(pa.string()), AMQP)
    return streams["connection_id"].filter(pc.or_kleene(overlap, answers)).unique()


def stream_ids(exchanges: pa.Table) -> pl.Series:
    """The ids of the exchanges that are no requests."""
    streams = pc.fill_null(exchanges["is_stream"], fill_value=False)
    return pl.Series(exchanges["exchange_id"].filter(streams).to_pylist(), dtype=pl.Int64)


def _triggered_streams(streams: pl.DataFrame, parts: Iterable[StreamEvidence]) -> pl.DataFrame:
    """`connection_id, hits, count` of the candidates that are streams."""
    found: list[tuple[int, int, int]] = []
    candidates = streams.filter(pl.col("reason") == CANDIDATE) if len(streams) else streams
    if len(candidates):
        every = list(parts)
        said, late = pl.concat([part.said for part in every]), pl.concat([part.late for part in every])
        for (server,), own in candidates.group_by("server", maintain_order=True):
            heard = said.filter(pl.col("server") == server).sort("at_ns")
            of_server = late.filter(pl.col("connection_id").is_in(own["connection_id"].implode()))
            found += _of_server(own, of_server, heard["at_ns"].to_numpy(), heard["connection_id"].to_numpy())
    kinds = {"connection_id": pl.Int64, "hits": pl.Int64, "count": pl.Int64}
    return pl.DataFrame(found, schema=kinds, orient="row")


def _of_server(
    candidates: pl.DataFrame, late: pl.DataFrame, said_ns: NDArray[np.int64], said_by: NDArray[np.int64]
) -> list[tuple[int, int, int]]:
    """The streams among a server's connections. Arguments: when its clients' messages came, ascending, and on which
    connection."""
    turns = dict(candidates.select("connection_id", "turns").iter_rows())
    asks = ~np.isin(said_by, _with_slow_answers(late, turns))
    said_ns, said_by = said_ns[asks], said_by[asks]
    stamps = np.concatenate([said_ns, late["at_ns"].to_numpy()])
    span_ns = max(1, int(stamps.max() - stamps.min()))
    window_ns = min(WINDOW_NS, MOST_CHANCE * span_ns / max(1, len(said_ns)))
    chance = max(1e-6, len(said_ns) * window_ns / span_ns)
    found = []
    for (connection,), own in late.group_by("connection_id", maintain_order=True):
        at_ns, asked = own["at_ns"].to_numpy(), own["asked"].to_numpy()
        is_hit = _since_others(at_ns, connection, said_ns, said_by) <= window_ns
        if _waits_for_others(is_hit, asked, turns[connection], chance):
            found.append((connection, int(is_hit.sum()), len(is_hit)))
    return found


def _with_slow_answers(late: pl.DataFrame, turns: dict[int, int]) -> list[int]:
    """Connections whose requests are mostly answered late. Clients of a slow server ask again in the order of its
    answers, so their requests do not trigger these answers."""
    waits = late.filter("asked").group_by("connection_id").len()
    return [connection for connection, count in waits.iter_rows() if count >= SLOW_SHARE * turns[connection]]


def _since_others(
    at_ns: NDArray[np.int64], connection: int, said_ns: NDArray[np.int64], said_by: NDArray[np.int64]
) -> NDArray[np.float64]:
    """For each time, how long ago another connection last sent a message; infinite if none had."""
    since = np.full(len(at_ns), np.inf)
    if not len(said_ns):
        return since
    place = np.searchsorted(said_ns, at_ns, side="right") - 1
    for _ in range(OTHERS_LOOKED_AT):
        open_ = np.isinf(since) & (place >= 0)
        other = open_ & (said_by[np.maximum(place, 0)] != connection)
        since[other] = at_ns[other] - said_ns[place[other]]
        place = np.where(open_ & ~other, place - 1, place)
    return since


def _waits_for_others(is_hit: NDArray[np.bool_], asked: NDArray[np.bool_], turns: int, chance: float) -> bool:
    hits, count = int(is_hit.sum()), len(is_hit)
    share = hits / count
    if share < LEAST_SHARE or count * _divergence(share, chance) < SURE_LOG_ODDS:
        return False
    comes_unasked = 2 * int((is_hit & ~asked).sum()) >= count
    every_turn = turns >= LEAST_TURNS and int((is_hit & asked).sum()) >= LEAST_OF_TURNS * turns
    return comes_unasked or every_turn


def _divergence(share: float, chance: float) -> float:
    """Kullback-Leibler divergence of two coins; multiplied by the count, it bounds the chance of such a share
    (Chernoff).
    """
    rest = (1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0
    return share * math.log(share / chance) + rest if share > chance else 0.0
