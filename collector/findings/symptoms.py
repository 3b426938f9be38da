"""Counts the symptoms of trouble on connections, one partition at a time; `collector.findings` judges them.

All hops and exchanges of a connection are in one partition, so losses, refusals and incomplete answers are counted
there. Only groups of cases are kept: their count, their hosts, and the worst case. The groups of several partitions are
merged. So neither hops nor exchanges have to be kept until the end.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import fields, replace
from numpy.typing import NDArray

from collector.hops import damaged, host_drops, recoveries, sender_pauses
from collector.hops.captured_until import CapturedUntil
from collector.hops.counts import HopCounts, hop_counts
from collector.hops.failed_connections import (
    HandshakeThresholds,
    connection_attempts,
    failed_handshakes,
    merge_groups,
    unusable_connections,
)
from collector.hops.path_traffic import RATE_KEYS, merge_traffic
from collector.hops.recoveries import RecoveryThresholds
from collector.hops.retransmission_stalls import PAIR, stalls
from collector.hops.sender_pauses import PauseThresholds
from collector.requests import gaps, head_of_line
from collector.requests.exchanges import UNKNOWN
from collector.requests.head_of_line import HeadOfLineThresholds
from collector.requests.results import StatusClass, has_class
from collector.requests.streams import requests_of, stream_ids
from collector.services.service_names import ServiceNames, place_of
from collector.trace.arrow import numbers, plain_texts
from collector.trace.request_times import BEGIN, END, REQUEST_END, RESPONSE_BEGIN, RESPONSE_END
from collector.trace.schema import TABLES
from collector.trace.threshold import threshold

HOP_COLUMNS = (
    *("connection_id", "kind", "from_client", "send_host", "receive_host", "state", "attempt", "exchange_id"),
    *("stream_start", "stream_end", "send_trace_ns", "receive_trace_ns", "receive_frame"),
)
CONNECTION_COLUMNS = (
    *("connection_id", "client_host", "server_host", "client_addr", "client_port", "server_addr", "server_port"),
    *("first_host_ns", "last_host_ns"),
)
EXCHANGE_COLUMNS = (
    *("exchange_id", "connection_id", "client_host", "server_host", "service", "protocol", "complete"),
    *("status", "result", "status_class"),
    *BEGIN.columns,
    *REQUEST_END.columns,
    *RESPONSE_BEGIN.columns,
    *END.columns,
    *("response_bytes", "response_due_bytes", "ending", "closed_trace_ns", "outcome"),
)


NO_CONNECTIONS = pl.Series([], dtype=pl.Int64)


@dataclass(frozen=True, slots=True)
class RequestThresholds:
    """When a request without an answer counts as unanswered."""

    unanswered_least_ns: int = threshold(
        1_000_000_000,
        "a request that has waited so long when the capture ends is unanswered, not cut off by it: TCP's first timeout "
        "(RFC 6298 §2)",
    )


@dataclass(frozen=True, slots=True)
class SymptomThresholds:
    """The thresholds by which symptoms are counted, one group for each of their sources."""

    requests: RequestThresholds = field(default_factory=RequestThresholds)
    handshakes: HandshakeThresholds = field(default_factory=HandshakeThresholds)
    pauses: PauseThresholds = field(default_factory=PauseThresholds)
    recoveries: RecoveryThresholds = field(default_factory=RecoveryThresholds)
    head_of_line: HeadOfLineThresholds = field(default_factory=HeadOfLineThresholds)


DEFAULT_LIMITS = SymptomThresholds()


class Symptoms(Struct, frozen=True):
    """One frame for each kind of symptom, one row for each group of cases; times are trace times in ns."""

    sent: pl.DataFrame  # as `HopCounts`, and the next two
    traffic: pl.DataFrame
    rates: pl.DataFrame
    lost: pl.DataFrame  # as `stalls`
    recovered: pl.DataFrame  # as `recoveries`
    paused: pl.DataFrame  # as from `sender_pauses.pauses_by_host_pair`
    behind: pl.DataFrame  # as `head_of_line`
    dropped: pl.DataFrame  # as from `host_drops.drops_by_host_pair`
    damaged: pl.DataFrame  # as from `damaged.damaged_by_host_pair`
    unseen: pl.DataFrame  # as `gaps.missed_bytes`, each connection
    failed_handshakes: pl.DataFrame  # as `failed_handshakes`
    unusable_connections: pl.DataFrame  # as `unusable_connections`, each connection
    ended: pl.DataFrame  # as `_ended_requests`, one row for each request that one side ended early
    missed: pl.DataFrame  # host; count, connection_id, from_trace_ns, to_trace_ns
    cut: pl.DataFrame  # fate, client_host, server_host, service; count, cost_ns, and the worst
    failed: pl.DataFrame  # server_host, service, status, result; count, and the first


def collect_symptoms(
    hops: pa.Table,
    connections: pa.Table,
    exchanges: pa.Table,
    captured: CapturedUntil,
    paused: pa.Table | None = None,
    counts: HopCounts | None = None,
    drops: pa.Table | None = None,
    damaged_packets: pl.DataFrame | None = None,
    pieces: gaps.Pieces | None = None,
    limits: SymptomThresholds = DEFAULT_LIMITS,
) -> Symptoms:
    """The symptoms on some connections.

    Arguments: all their `hops` (with trace times and exchanges; the rows of a connection are consecutive), their rows
    of `connections` and of `exchanges`, of which streams are no requests; `captured`, until when captures ran;
    `paused`, their pauses from `sender_pauses.align_pauses`, if the packets were examined; `counts`, the hops'
    `hop_counts`, if already computed; `drops`, from `host_drops.host_drops`, likewise; `damaged_packets`, with
    columns `damaged.PACKETS`; `pieces`, what the captures lack of their streams; thresholds.
    """
    counts = hop_counts(hops, by_flow=False) if counts is None else counts
    streams, exchanges = stream_ids(exchanges), requests_of(exchanges)
    packets = _frame(_rows(hops.select(HOP_COLUMNS), counts.notable_rows))
    ended = _frame(_rows(exchanges.select(EXCHANGE_COLUMNS), _cut_or_failed(exchanges)))
    connections_with_gaps = NO_CONNECTIONS if pieces is None else pieces.gaps["connection_id"].unique()
    rare = (
        _rare_symptoms(packets, connections, ended, captured, limits, damaged_packets, connections_with_gaps)
        if len(packets) or len(ended)
        else _no_symptoms()
    )
    return Symptoms(
        **rare,
        sent=counts.sent,
        traffic=counts.traffic,
        rates=counts.rates,
        paused=sender_pauses.pauses_by_host_pair(paused, hops, limits.pauses, streams),
        behind=head_of_line.head_of_line(exchanges, limits.head_of_line),
        dropped=host_drops.drops_by_host_pair(drops, packets),
        unseen=pl.DataFrame(schema=gaps.MISSED) if pieces is None else gaps.missed_bytes(pieces.gaps, hops),
        damaged=damaged.damaged_by_host_pair(damaged_packets, packets),
    )


def _rare_symptoms(
    packets: pl.DataFrame,
    connections: pa.Table,
    asked: pl.DataFrame,
    captured: CapturedUntil,
    limits: SymptomThresholds,
    damaged_packets: pl.DataFrame | None = None,
    connections_with_gaps: pl.Series = NO_CONNECTIONS,
) -> dict[str, pl.DataFrame]:
    """The symptoms among notable hops and exchanges that were cut or failed."""
    ends, tried = _frame(connections.select(CONNECTION_COLUMNS)), connection_attempts(packets)
    return {
        "lost": stalls(damaged.without_damaged(packets, damaged_packets), "data"),
        "recovered": recoveries.recoveries(packets, limits.recoveries),
        "failed_handshakes": failed_handshakes(tried, ends, captured, limits.handshakes),
        "unusable_connections": unusable_connections(tried, ends, captured),
        "ended": _ended_requests(asked),
        "missed": _missed_packets(packets),
        "cut": _cut_requests(asked, captured, connections_with_gaps, limits.requests),
        "failed": _failed_requests(asked),
    }


@cache
def _no_symptoms() -> dict[str, pl.DataFrame]:
    """The result for a partition without trouble, as most are: it saves thirty queries."""
    hops, connections, exchanges = (TABLES[name].empty_table() for name in ("hops", "connections", "exchanges"))
    packets, asked = _frame(hops.select(HOP_COLUMNS)), _frame(exchanges.select(EXCHANGE_COLUMNS))
    return _rare_symptoms(packets, connections, asked, CapturedUntil(0), DEFAULT_LIMITS)


def _rows(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    return table.take(rows) if len(rows) else table.slice(0, 0)


def _cut_or_failed(exchanges: pa.Table) -> NDArray[np.int64]:
    """Rows of exchanges whose answer is incomplete, came too late, or reports that the server failed."""
    odd = ~numbers(exchanges["complete"]) | has_class(exchanges, StatusClass.SERVER_ERROR)
    return np.flatnonzero(odd | exchanges["ending"].is_valid().to_numpy())


def merge_symptoms(parts: Iterable[Symptoms]) -> Symptoms:
    """The symptoms of all parts, merged group by group. The result can be merged again."""
    every = list(parts)
    of = {field.name: _concat([getattr(part, field.name) for part in every]) for field in fields(Symptoms)}
    return Symptoms(**{name: _sums(name, rows) if len(rows) else rows for name, rows in of.items()})


def with_services(symptoms: Symptoms, names: ServiceNames) -> Symptoms:
    """`symptoms` with services named instead of `host:port`."""
    found = {}
    for each in fields(Symptoms):
        rows: pl.DataFrame = getattr(symptoms, each.name)
        if "service" in rows.columns and len(rows):
            called = {place: names.of(*place_of(place)) for place in rows["service"].drop_nulls().unique()}
            found[each.name] = _sums(each.name, rows.with_columns(pl.col("service").replace(called)))
    return replace(symptoms, **found)


def _concat(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat([part for part in parts if len(part)] or parts[:1])


def _sums(name: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of one field of `Symptoms`, merged to one for each group."""
    found = MERGE[name](rows)
    return found.select(rows.columns).cast(rows.schema)


CUT = ("fate", "client_host", "server_host", "service")
FAILED = ("server_host", "service", "status", "result")
EVIDENCE = ("connection_id", "span_id", "from_trace_ns", "to_trace_ns")


def _frame(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(plain_texts(table))


def _merge_groups(groups: pl.DataFrame, keys: Sequence[str], counts: Sequence[str], worst: str) -> pl.DataFrame:
    """Merges groups with the same keys: counts and costs are summed, the rest is of the group with the worst case."""
    return (
        groups.sort(worst, descending=True, maintain_order=True)
        .group_by(keys, maintain_order=True)
        .agg(pl.col(*counts, "cost_ns").sum(), pl.exclude(*keys, *counts, "cost_ns").first())
    )


def _at() -> pl.Expr:
    return pl.coalesce("send_trace_ns", "receive_trace_ns")


def _ended_requests(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Requests that one side ended before the answer was complete (`collector.requests.endings`), one row each:
    `span_id, connection_id, client_host, server_host, service, protocol, ending, outcome, response_bytes,
    response_due_bytes`, its server as `host:port` (`place`); when its first and its last byte left (`begun_ns,
    asked_ns`); when those of its answer arrived (`first_ns, last_ns`); when it ended (`closed_ns`)."""
    return exchanges.filter(pl.col("ending").is_not_null()).select(
        *("connection_id", "client_host", "server_host", "service", "protocol", "ending", "outcome"),
        *("response_bytes", "response_due_bytes"),
        span_id="exchange_id",
        place="service",
        begun_ns=BEGIN.expr(),
        asked_ns=REQUEST_END.expr(),
        first_ns=RESPONSE_BEGIN.expr(),
        last_ns=RESPONSE_END.expr(),
        closed_ns="closed_trace_ns",
    )


def _missed_packets(hops: pl.DataFrame) -> pl.DataFrame:
    """By host: packets that its capture missed although they passed."""
    unseen = pl.when(pl.col("receive_trace_ns").is_null()).then("receive_host").otherwise("send_host")
    missed = hops.filter(pl.col("state") == "capture_dropped")
    return missed.group_by(host=unseen, maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("connection_id").first(),
        from_trace_ns=_at().min(),
        to_trace_ns=_at().max(),
    )


def _cut_requests(
    exchanges: pl.DataFrame, captured: CapturedUntil, connections_with_gaps: pl.Series, limits: RequestThresholds
) -> pl.DataFrame:
    """Requests without a complete answer that neither side ended: left waiting, or cut by the capture's edge, or by a
    hole in it (`gapped` connections).

    Only for readable heads: in an unknown protocol a client's last message may need no answer.
    """
    cut = exchanges.filter(~pl.col("complete") & (pl.col("protocol") != UNKNOWN) & pl.col("ending").is_null())
    cut = cut.with_columns(spoke=pl.max_horizontal(REQUEST_END.expr(), RESPONSE_END.expr()))
    cut = cut.with_columns(captured.of(cut, "spoke"))
    open_still = pl.col("response_bytes").is_null() & pl.col("given_up_trace_ns").is_null()
    is_seen = ~pl.col("connection_id").is_in(connections_with_gaps.implode())
    late = open_still & is_seen & (pl.col("until") - pl.col("spoke") >= limits.unanswered_least_ns)
    cut = cut.with_columns(fate=pl.when(late).then(pl.lit("unanswered")).otherwise(pl.lit("cut")))
    waited = pl.when(pl.col("fate") == "unanswered").then(pl.col("until") - pl.col("spoke")).fill_null(0)
    ordered = cut.with_columns(worst_ns=waited).sort("worst_ns", descending=True, maintain_order=True)
    return (
        ordered.rename({"exchange_id": "span_id", "spoke": "from_trace_ns", "until": "to_trace_ns"})
        .group_by(CUT, maintain_order=True)
        .agg(pl.len().alias("count"), pl.col(EVIDENCE).first(), pl.col("worst_ns").first(), cost_ns=pl.sum("worst_ns"))
    )


def _failed_requests(exchanges: pl.DataFrame) -> pl.DataFrame:
    """Requests whose answer reports that the server failed; the first one counts as the worst."""
    failed = exchanges.filter(pl.col("status_class") == StatusClass.SERVER_ERROR).sort("exchange_id")
    return failed.group_by(FAILED, maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("connection_id").first(),
        span_id=pl.col("exchange_id").first(),
        from_trace_ns=BEGIN.expr().first(),
        to_trace_ns=END.expr().first(),
        worst_ns=-pl.col("exchange_id").first(),
        cost_ns=pl.lit(0, pl.Int64),
    )


def _merge_losses(rows: pl.DataFrame) -> pl.DataFrame:
    first, last = pl.col("from_trace_ns").min(), pl.col("to_trace_ns").max()
    return (
        _merge_groups(rows, PAIR, ("lost",), "worst_ns")
        .drop("from_trace_ns", "to_trace_ns")
        .join(rows.group_by(PAIR).agg(first, last), on=PAIR, nulls_equal=True)
        .sort("cost_ns", descending=True, maintain_order=True)
    )


def _merge_misses(rows: pl.DataFrame) -> pl.DataFrame:
    first, last = pl.col("from_trace_ns").min(), pl.col("to_trace_ns").max()
    groups = rows.group_by("host", maintain_order=True)
    return groups.agg(pl.col("count").sum(), pl.col("connection_id").first(), first, last).sort(
        "count", descending=True, maintain_order=True
    )


MERGE: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "sent": lambda rows: rows.group_by(PAIR, maintain_order=True).agg(pl.col("sent").sum()),
    "lost": _merge_losses,
    "traffic": merge_traffic,
    "rates": lambda rows: rows.group_by(RATE_KEYS, maintain_order=True).agg(pl.col("hops").sum()),
    "recovered": recoveries.merge_groups,
    "paused": sender_pauses.merge_groups,
    "behind": head_of_line.merge_groups,
    "dropped": host_drops.merge_groups,
    "damaged": host_drops.merge_groups,
    "unseen": lambda rows: rows,
    "failed_handshakes": merge_groups,
    "unusable_connections": lambda rows: rows,
    "ended": lambda rows: rows,
    "missed": _merge_misses,
    "cut": lambda rows: _merge_groups(rows, CUT, ("count",), "worst_ns"),
    "failed": lambda rows: _merge_groups(rows, FAILED, ("count",), "worst_ns"),
}
"""By field of `Symptoms`: the function that merges rows of several parts to one for each group."""
