"""What went wrong on connections, counted: what `collector.findings` tells, gathered a partition at a time.

All hops and exchanges of a connection are in one partition, so losses, refusals and broken answers are counted there,
and only groups of them are kept: so many cases, between these hosts, the worst of them here. Groups of several
partitions add up. So neither hops nor exchanges wait for the end.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from collector import head_of_line, host_drops, pauses, recoveries
from collector.columns import numbers
from collector.connecting import added, connecting, in_vain
from collector.exchanges import UNKNOWN
from collector.hop_counts import HopCounts, hop_counts
from collector.link_traffic import RATE_KEYS, added_traffic
from collector.schema import TABLES
from collector.stalls import PAIR, stalls

LATE_NS = 1_000_000_000
"""A request that waited so long by the capture's end is unanswered, not cut off. As TCP's first timeout (RFC 6298)."""

HOP_COLUMNS = (
    *("connection_id", "kind", "from_client", "send_host", "receive_host", "state", "attempt", "exchange_id"),
    *("stream_start", "stream_end", "send_trace_ns", "receive_trace_ns"),
)
CONNECTION_COLUMNS = (
    *("connection_id", "client_host", "server_host", "client_addr", "client_port", "server_addr", "server_port"),
    *("first_host_ns", "last_host_ns"),
)
EXCHANGE_COLUMNS = (
    *("exchange_id", "connection_id", "client_host", "server_host", "service", "status", "protocol", "complete"),
    *("request_first_sent_trace_ns", "request_last_sent_trace_ns", "request_last_received_trace_ns"),
    *("response_last_sent_trace_ns", "response_last_received_trace_ns", "response_bytes", "given_up_trace_ns"),
)


@dataclass(frozen=True, slots=True)
class Troubles:
    """One frame for each kind of trouble, one row for each group of cases; times are trace times in ns."""

    sent: pl.DataFrame  # as `HopCounts`, and the next two
    traffic: pl.DataFrame
    rates: pl.DataFrame
    lost: pl.DataFrame  # as `stalls`
    recovered: pl.DataFrame  # as `recoveries`
    paused: pl.DataFrame  # as `pauses.told`
    behind: pl.DataFrame  # as `head_of_line`
    dropped: pl.DataFrame  # as `host_drops.located`
    connecting: pl.DataFrame  # as `connecting`
    in_vain: pl.DataFrame  # as `in_vain`, each connection
    broken: pl.DataFrame  # connection_id, broken_ns: when the server's side ended a connection that owed an answer
    missed: pl.DataFrame  # host; count, connection_id, from_trace_ns, to_trace_ns
    cut: pl.DataFrame  # fate, client_host, server_host, service; count, cost_ns, and the worst
    failed: pl.DataFrame  # server_host, service, status; count, and the first


def gather(
    hops: pa.Table,
    connections: pa.Table,
    exchanges: pa.Table,
    end_trace_ns: int,
    paused: pa.Table | None = None,
    counts: HopCounts | None = None,
    drops: pa.Table | None = None,
) -> Troubles:
    """What went wrong on some connections.

    Arguments: all their hops (with trace times and exchanges; a connection's are one run of rows), their rows of
    `connections` and of `exchanges`; `end_trace_ns`, when the last capture ended; `paused`, their pauses
    as `pauses.aligned`, where the packets themselves were looked at; `counts`, the hops' `hop_counts`, if they are
    counted already; `drops`, as `host_drops.host_drops`, likewise.
    """
    counts = hop_counts(hops, by_flow=False) if counts is None else counts
    told, asked = _rows(hops, counts.telling), _rows(exchanges, _cut_or_failed(exchanges))
    rare = _rare(told, connections, asked, end_trace_ns) if told.num_rows or asked.num_rows else _nothing()
    return Troubles(
        **rare,
        sent=counts.sent,
        traffic=counts.traffic,
        rates=counts.rates,
        paused=pauses.told(paused, hops),
        behind=head_of_line.head_of_line(exchanges),
        dropped=host_drops.located(drops, _frame(told, [*HOP_COLUMNS, "receive_frame"])),
    )


def _rare(hops: pa.Table, connections: pa.Table, exchanges: pa.Table, end_trace_ns: int) -> dict[str, pl.DataFrame]:
    """What hops and exchanges say that may tell of trouble."""
    packets, asked = _frame(hops, HOP_COLUMNS), _frame(exchanges, EXCHANGE_COLUMNS)
    resets, ends = _resets(packets), _frame(connections, CONNECTION_COLUMNS)
    return {
        "lost": stalls(packets, "data"),
        "recovered": recoveries.recoveries(packets),
        "connecting": connecting(packets, ends, end_trace_ns),
        "in_vain": in_vain(packets, ends),
        "broken": _broken(packets, asked),
        "missed": _missed(packets),
        "cut": _cut(asked, resets, end_trace_ns),
        "failed": _failed(asked),
    }


@cache
def _nothing() -> dict[str, pl.DataFrame]:
    """Of a part where all went well, as most do: thirty queries less."""
    hops, connections, exchanges = (TABLES[name].empty_table() for name in ("hops", "connections", "exchanges"))
    return _rare(hops, connections, exchanges, end_trace_ns=0)


def _rows(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    return table.take(rows) if len(rows) else table.slice(0, 0)


def _cut_or_failed(exchanges: pa.Table) -> NDArray[np.int64]:
    """Rows of exchanges without a whole answer, or with one that tells of a server's failure."""
    return np.flatnonzero(~numbers(exchanges["complete"]) | (numbers(exchanges["status"]) >= 500))


def together(parts: Iterable[Troubles]) -> Troubles:
    """The troubles of all parts, group by group; itself a part that others can be added to."""
    every = list(parts)
    of = {field.name: _stacked([getattr(part, field.name) for part in every]) for field in fields(Troubles)}
    return Troubles(**{name: _sums(name, rows) if len(rows) else rows for name, rows in of.items()})


def _stacked(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([part for part in parts if len(part)] or parts[:1])


def _sums(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of one field of `Troubles` as one for each group."""
    found = ADDED[name](rows)
    return found.select(rows.columns).cast(rows.schema)


CUT = ("fate", "client_host", "server_host", "service")
FAILED = ("server_host", "service", "status")
EVIDENCE = ("connection_id", "span_id", "from_trace_ns", "to_trace_ns")


def _frame(table: pa.Table, names: Sequence[str]) -> pl.DataFrame:
    frame = pl.from_arrow(table.select(names))
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _added(groups: pl.DataFrame, keys: Sequence[str], counts: Sequence[str], worst: str) -> pl.DataFrame:
    """Groups of the same keys as one: counts and costs added up, the rest from the one with the worst case."""
    return (
        groups.sort(worst, descending=True, maintain_order=True)
        .group_by(keys, maintain_order=True)
        .agg(pl.col(*counts, "cost_ns").sum(), pl.exclude(*keys, *counts, "cost_ns").first())
    )


def _at() -> pl.Expr:
    return pl.coalesce("send_trace_ns", "receive_trace_ns")


def _resets(hops: pl.DataFrame) -> pl.DataFrame:
    """`connection_id, reset_ns` of connections that the server's side reset."""
    resets = hops.filter((pl.col("kind") == "rst") & ~pl.col("from_client"))
    return resets.group_by("connection_id").agg(reset_ns=_at().min())


def _broken(hops: pl.DataFrame, exchanges: pl.DataFrame) -> pl.DataFrame:
    """Connections with a request that got no answer, and on which the server's side sent RST or FIN."""
    owed = exchanges.filter(pl.col("response_bytes").is_null()).select(pl.col("connection_id").unique())
    ends = hops.filter(pl.col("kind").is_in(["rst", "fin"]) & ~pl.col("from_client"))
    return ends.join(owed, on="connection_id", how="semi").group_by("connection_id").agg(broken_ns=_at().min())


def _missed(hops: pl.DataFrame) -> pl.DataFrame:
    """Packets that a capture missed although they went by."""
    unseen = pl.when(pl.col("receive_trace_ns").is_null()).then("receive_host").otherwise("send_host")
    missed = hops.filter(pl.col("state") == "capture_dropped")
    return missed.group_by(host=unseen, maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("connection_id").first(),
        from_trace_ns=_at().min(),
        to_trace_ns=_at().max(),
    )


def _cut(exchanges: pl.DataFrame, resets: pl.DataFrame, end_trace_ns: int) -> pl.DataFrame:
    """Requests without a whole answer: left waiting, reset, or cut by the capture's edge.

    Only where heads tell: in an unknown protocol the last thing that a client says may want no answer.
    """
    asked = pl.coalesce("request_last_sent_trace_ns", "request_last_received_trace_ns")
    answered = pl.coalesce("response_last_received_trace_ns", "response_last_sent_trace_ns")
    cut = exchanges.filter(~pl.col("complete") & (pl.col("protocol") != UNKNOWN))
    cut = cut.join(resets, on="connection_id", how="left").with_columns(spoke=pl.max_horizontal(asked, answered))
    given_up = pl.col("given_up_trace_ns")
    late = given_up.is_not_null() | (end_trace_ns - pl.col("spoke") >= LATE_NS)
    silent = pl.col("response_bytes").is_null() & late
    reset = pl.when(pl.col("reset_ns") >= pl.col("spoke")).then(pl.lit("reset"))
    cut = cut.with_columns(
        fate=reset.when(silent).then(pl.lit("unanswered")).otherwise(pl.lit("cut")),
        until=pl.coalesce(given_up, "reset_ns", pl.lit(end_trace_ns, pl.Int64)),
    )
    waited = pl.when(pl.col("fate") == "unanswered").then(pl.col("until") - pl.col("spoke")).fill_null(0)
    ordered = cut.with_columns(worst_ns=waited).sort("worst_ns", descending=True, maintain_order=True)
    return (
        ordered.rename({"exchange_id": "span_id", "spoke": "from_trace_ns", "until": "to_trace_ns"})
        .group_by(CUT, maintain_order=True)
        .agg(pl.len().alias("count"), pl.col(EVIDENCE).first(), pl.col("worst_ns").first(), cost_ns=pl.sum("worst_ns"))
    )


def _failed(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Requests that a server failed to serve, by its own word; the worst is the first of them."""
    failed = exchanges.filter(pl.col("status") >= 500).sort("exchange_id")
    return failed.group_by(FAILED, maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("connection_id").first(),
        span_id=pl.col("exchange_id").first(),
        from_trace_ns=pl.col("request_first_sent_trace_ns").first(),
        to_trace_ns=pl.col("response_last_received_trace_ns").first(),
        worst_ns=-pl.col("exchange_id").first(),
        cost_ns=pl.lit(0, pl.Int64),
    )


def _added_losses(rows: pl.DataFrame) -> pl.DataFrame:
    first, last = pl.col("from_trace_ns").min(), pl.col("to_trace_ns").max()
    return (
        _added(rows, PAIR, ("lost",), "worst_ns")
        .drop("from_trace_ns", "to_trace_ns")
        .join(rows.group_by(PAIR).agg(first, last), on=PAIR, nulls_equal=True)
        .sort("cost_ns", descending=True, maintain_order=True)
    )


def _added_misses(rows: pl.DataFrame) -> pl.DataFrame:
    first, last = pl.col("from_trace_ns").min(), pl.col("to_trace_ns").max()
    groups = rows.group_by("host", maintain_order=True)
    return groups.agg(pl.col("count").sum(), pl.col("connection_id").first(), first, last).sort(
        "count", descending=True, maintain_order=True
    )


ADDED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "sent": lambda rows: rows.group_by(PAIR, maintain_order=True).agg(pl.col("sent").sum()),
    "lost": _added_losses,
    "traffic": added_traffic,
    "rates": lambda rows: rows.group_by(RATE_KEYS, maintain_order=True).agg(pl.col("hops").sum()),
    "recovered": recoveries.added,
    "paused": pauses.added,
    "behind": head_of_line.added,
    "dropped": host_drops.added,
    "connecting": added,
    "in_vain": lambda rows: rows,
    "broken": lambda rows: rows,
    "missed": _added_misses,
    "cut": lambda rows: _added(rows, CUT, ("count",), "worst_ns"),
    "failed": lambda rows: _added(rows, FAILED, ("count",), "worst_ns"),
}
"""How rows of several parts become one for each group, by the field of `Troubles`."""
