"""What is wrong or remarkable in a trace, each with its evidence, its cost and what to do.

One finding for each kind and pair of hosts, not one for each packet: it counts the cases and points at the worst one
(connection, span, time). `cost_ns` is time that somebody waited: stalls that overlap on a connection count once. What
costs nothing known has cost 0. Ordered by severity, then cost.

Limits: causes are named only as far as packets show them. A repeat of data that had arrived is no loss, and a FIN sent
twice is normal (tail loss probe): neither is reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import polars as pl
import pyarrow as pa

from collector.durations import in_words
from collector.exchanges import UNKNOWN
from collector.schema import FINDINGS, conform
from collector.stalls import stalls
from collector.store import TraceInfo

SEVERITIES = ("error", "warning", "notice", "info")
"""Most urgent first."""
LATE_NS = 1_000_000_000
"""A request that waited so long by the capture's end is unanswered, not cut off. As TCP's first timeout (RFC 6298)."""
REPLICA_GROUPS, REPLICA_RATIO, REPLICA_EXCESS_NS, REPLICA_SHARE = 5, 2.0, 1_000_000, 0.6
"""A replica is slow if in at least this many groups of parallel requests its median is this many times its siblings',
by at least this much, and it was the slower in this share of them. Below, chance looks the same."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A row of the table `findings`."""

    severity: str
    kind: str
    text: str
    remedy: str
    host: str | None = None
    connection_id: int | None = None
    span_id: int | None = None
    from_trace_ns: int | None = None
    to_trace_ns: int | None = None
    cost_ns: int = 0


def find(tables: Mapping[str, pa.Table], info: TraceInfo) -> pa.Table:
    """The table `findings`.

    Arguments: `tables` by name, with at least `hops, connections, exchanges, spans, clocks`; what the trace says of
    itself.
    """
    hops, connections, exchanges, spans = (
        _frame(tables[name]) for name in ("hops", "connections", "exchanges", "spans")
    )
    found = [
        *_losses(hops),
        *_syn_retries(hops),
        *_failed_connections(hops, connections),
        *_capture_drops(hops),
        *_incomplete(exchanges, hops),
        *_server_errors(exchanges),
        *_slow_replicas(exchanges, spans),
        *_clocks(_frame(tables["clocks"]), info),
    ]
    found.sort(key=lambda finding: (SEVERITIES.index(finding.severity), -finding.cost_ns))
    columns = {field.name: _plain(field.type) for field in FINDINGS}
    rows = [asdict(finding) for finding in found]
    table = pa.table({name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()})
    return conform("findings", table)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _times(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _losses(hops: pl.DataFrame) -> Iterable[Finding]:
    """Data that the network lost, by pair of hosts."""
    sent = hops.filter(pl.col("kind") == "data").group_by("send_host", "receive_host").agg(sent=pl.len())
    lost = stalls(hops, "data")
    for row in lost.join(sent, on=["send_host", "receive_host"], how="left").iter_rows(named=True):
        ends = f"from {row['send_host']} to {row['receive_host'] or 'a host that was not captured'}"
        share = f"{100 * row['lost'] / row['sent']:.1f} %"
        yield Finding(
            severity="warning",
            kind="packet_loss",
            host=row["send_host"],
            text=f"{_times(row['lost'], 'data packet')} {ends} lost ({share}); its connections waited "
            f"{in_words(row['cost_ns'])} for the copies, at worst {in_words(row['worst_ns'])} at once",
            remedy="look for drops on the path and at both interfaces (ip -s link, tc -s qdisc, ethtool -S)",
            **_evidence(row),
        )


def _evidence(row: dict[str, int]) -> dict[str, int]:
    return {name: row[name] for name in ("connection_id", "span_id", "from_trace_ns", "to_trace_ns", "cost_ns")}


def _syn_retries(hops: pl.DataFrame) -> Iterable[Finding]:
    for row in stalls(hops, "syn").filter(pl.col("cost_ns") > 0).iter_rows(named=True):
        yield Finding(
            severity="warning",
            kind="syn_retry",
            host=row["receive_host"],
            text=f"{_times(row['lost'], 'SYN')} from {row['send_host']} to {row['receive_host'] or 'its server'} went "
            f"unheard and had to be sent again: {in_words(row['cost_ns'])} of connecting",
            remedy="see whether the server's accept queue overflows (nstat TcpExtListenOverflows; raise its backlog "
            "and net.core.somaxconn) or the network drops",
            **_evidence(row),
        )


def _failed_connections(hops: pl.DataFrame, connections: pl.DataFrame) -> Iterable[Finding]:
    """Refused, never answered, and reset in the middle of an exchange."""
    kind, at = pl.col("kind"), pl.coalesce("send_trace_ns", "receive_trace_ns")
    ends = hops.group_by("connection_id").agg(
        syn=(kind == "syn").any(),
        answered=((kind == "syn_ack") | (kind == "data")).any(),
        reset=((kind == "rst") & ~pl.col("from_client")).any(),
        from_trace_ns=at.min(),
        to_trace_ns=at.max(),
    )
    end_ns = hops.select(at.max()).item()
    tried = ends.filter(pl.col("syn") & ~pl.col("answered")).join(connections, on="connection_id")
    late = pl.lit(end_ns) - pl.col("from_trace_ns") >= LATE_NS
    yield from _unconnected(tried.filter("reset"), "connection_refused", "refused", "see that the server is running")
    yield from _unconnected(
        tried.filter(~pl.col("reset") & late), "connection_unanswered", "never answered", "see that the server is up"
    )


def _unconnected(tried: pl.DataFrame, kind: str, how: str, remedy: str) -> Iterable[Finding]:
    waited = tried.with_columns(waited=pl.col("to_trace_ns") - pl.col("from_trace_ns")).sort("waited", descending=True)
    groups = waited.group_by("client_host", "server_host", "server_addr", "server_port", maintain_order=True).agg(
        pl.len().alias("count"), pl.col("connection_id", "from_trace_ns", "to_trace_ns").first(), pl.col("waited").sum()
    )
    for row in groups.iter_rows(named=True):
        where = f"{row['server_host'] or row['server_addr']}:{row['server_port']}"
        yield Finding(
            severity="warning",
            kind=kind,
            host=row["server_host"],
            connection_id=row["connection_id"],
            from_trace_ns=row["from_trace_ns"],
            to_trace_ns=row["to_trace_ns"],
            cost_ns=row["waited"],
            text=f"{_times(row['count'], 'connection')} from {row['client_host']} to {where} {how}",
            remedy=f"{remedy} and listens on port {row['server_port']}, and that no firewall is in between",
        )


def _capture_drops(hops: pl.DataFrame) -> Iterable[Finding]:
    missed = hops.filter(pl.col("state") == "capture_dropped")
    unseen = pl.when(pl.col("receive_host_ns").is_null()).then("receive_host").otherwise("send_host")
    at = pl.coalesce("send_trace_ns", "receive_trace_ns")
    by_host = missed.group_by(host=unseen).agg(
        pl.len().alias("count"), pl.col("connection_id").first(), first=at.min(), last=at.max()
    )
    for row in by_host.sort("count", descending=True).iter_rows(named=True):
        yield Finding(
            severity="notice",
            kind="capture_drop",
            host=row["host"],
            connection_id=row["connection_id"],
            from_trace_ns=row["first"],
            to_trace_ns=row["last"],
            text=f"the capture on {row['host']} missed {_times(row['count'], 'packet')} that did go by (they were "
            "acknowledged); their times there are unknown",
            remedy="capture with a larger buffer or a narrower filter on that host",
        )


def _incomplete(exchanges: pl.DataFrame, hops: pl.DataFrame) -> Iterable[Finding]:
    """Requests without a whole answer: left waiting, reset, or cut by the capture's edge.

    Only where heads tell: in an unknown protocol the last thing that a client says may want no answer.
    """
    at = pl.coalesce("send_trace_ns", "receive_trace_ns")
    end_ns = pl.lit(hops.select(at.max()).item(), dtype=pl.Int64)
    resets = (
        hops.filter((pl.col("kind") == "rst") & ~pl.col("from_client")).group_by("connection_id").agg(reset_ns=at.min())
    )
    asked = pl.coalesce("request_last_sent_trace_ns", "request_last_received_trace_ns")
    answered = pl.coalesce("response_last_received_trace_ns", "response_last_sent_trace_ns")
    cut = exchanges.filter(~pl.col("complete") & (pl.col("protocol") != UNKNOWN)).join(
        resets, on="connection_id", how="left"
    )
    cut = cut.with_columns(spoke=pl.max_horizontal(asked, answered))
    given_up = pl.col("given_up_trace_ns")
    late = given_up.is_not_null() | (end_ns - pl.col("spoke") >= LATE_NS)
    silent = pl.col("response_bytes").is_null() & late
    reset = pl.when(pl.col("reset_ns") >= pl.col("spoke")).then(pl.lit("reset"))
    fate = reset.when(silent).then(pl.lit("unanswered")).otherwise(pl.lit("cut"))
    cut = cut.with_columns(fate=fate, until=pl.coalesce(given_up, "reset_ns", end_ns))
    for (name,), rows in cut.group_by("fate", maintain_order=True):
        yield from _cut_exchanges(str(name), rows)


_FATES = {
    "reset": (
        "warning",
        "connection_reset",
        "broken off by a reset before the answer was whole",
        "read the log of the side that sent the RST at that time",
    ),
    "unanswered": (
        "warning",
        "unanswered_request",
        "never answered",
        "read the server's log at that time; see that the process still runs (a kernel accepts for a dead one)",
    ),
    "cut": (
        "info",
        "incomplete_exchange",
        "cut off by the capture's beginning or end, or not wholly seen",
        "start the capture earlier, or end it later",
    ),
}
"""What became of an exchange: severity, kind, text, remedy."""


def _cut_exchanges(fate: str, rows: pl.DataFrame) -> Iterable[Finding]:
    severity, kind, text, remedy = _FATES[fate]
    waited = pl.col("until") - pl.col("spoke") if fate == "unanswered" else pl.lit(0)
    ordered = rows.with_columns(waited=waited.fill_null(0)).sort("waited", descending=True)
    groups = ordered.group_by("client_host", "server_host", "service", maintain_order=True).agg(
        pl.len().alias("count"),
        pl.col("connection_id", "exchange_id", "spoke", "until").first(),
        pl.col("waited").sum(),
        longest=pl.col("waited").max(),
    )
    for row in groups.iter_rows(named=True):
        wait = f", the longest wait {in_words(row['longest'])}" if row["longest"] else ""
        yield Finding(
            severity=severity,
            kind=kind,
            host=row["server_host"],
            connection_id=row["connection_id"],
            span_id=row["exchange_id"],
            from_trace_ns=row["spoke"],
            to_trace_ns=row["until"] if severity == "warning" else row["spoke"],
            cost_ns=row["waited"],
            text=f"{_times(row['count'], 'request')} from {row['client_host']} to {row['service']} on "
            f"{row['server_host']} {text}{wait}",
            remedy=remedy,
        )


def _server_errors(exchanges: pl.DataFrame) -> Iterable[Finding]:
    failed = exchanges.filter(pl.col("status") >= 500).sort("exchange_id")
    first = pl.col("connection_id", "exchange_id", "request_first_sent_trace_ns", "response_last_received_trace_ns")
    groups = failed.group_by("server_host", "service", "status", maintain_order=True).agg(
        pl.len().alias("count"), first.first()
    )
    for row in groups.iter_rows(named=True):
        yield Finding(
            severity="warning",
            kind="server_error",
            host=row["server_host"],
            connection_id=row["connection_id"],
            span_id=row["exchange_id"],
            from_trace_ns=row["request_first_sent_trace_ns"],
            to_trace_ns=row["response_last_received_trace_ns"],
            text=f"{row['service']} on {row['server_host']} answered {row['status']} to "
            f"{_times(row['count'], 'request')}",
            remedy="read that server's log for the transaction id of the span",
        )


def _slow_replicas(exchanges: pl.DataFrame, spans: pl.DataFrame) -> Iterable[Finding]:
    """Hosts that take longer than the others asked the same thing at the same time by the same parent."""
    took = pl.col("response_first_sent_trace_ns") - pl.col("request_last_received_trace_ns")
    rows = exchanges.join(spans, left_on="exchange_id", right_on="span_id").with_columns(took=took)
    group = ["parent_span_id", "service", "method"]
    rows = rows.drop_nulls(["parent_span_id", "took", "server_host"])
    rows = rows.filter(pl.col("server_host").n_unique().over(group) > 1)
    rows = rows.with_columns(others=(pl.col("took").sum().over(group) - pl.col("took")) / (pl.len().over(group) - 1))
    excess = pl.col("took") - pl.col("others")
    worst = pl.col("exchange_id", "connection_id", "request_last_received_trace_ns", "response_first_sent_trace_ns")
    hosts = rows.group_by("server_host", "service").agg(
        pl.len().alias("groups"),
        pl.col("took", "others").median(),
        worst.sort_by(excess).last(),
        slower=(excess > 0).mean(),
        cost=pl.min_horizontal(excess.clip(lower_bound=0), "critical_ns").sum().cast(pl.Int64),
    )
    slow = hosts.filter(
        (pl.col("groups") >= REPLICA_GROUPS)
        & (pl.col("took") >= REPLICA_RATIO * pl.col("others"))
        & (pl.col("took") - pl.col("others") >= REPLICA_EXCESS_NS)
        & (pl.col("slower") >= REPLICA_SHARE)
    )
    for row in slow.sort("cost", descending=True).iter_rows(named=True):
        yield Finding(
            severity="warning",
            kind="slow_replica",
            host=row["server_host"],
            connection_id=row["connection_id"],
            span_id=row["exchange_id"],
            from_trace_ns=row["request_last_received_trace_ns"],
            to_trace_ns=row["response_first_sent_trace_ns"],
            cost_ns=row["cost"],
            text=f"{row['service']} on {row['server_host']} takes {in_words(round(row['took']))} where the others "
            f"asked at the same time take {in_words(round(row['others']))} (medians of {row['groups']:,} requests)",
            remedy="look at that host's disks and load at that time (iostat -x, vmstat)",
        )


def _clocks(clocks: pl.DataFrame, info: TraceInfo) -> Iterable[Finding]:
    busy = {host.host for host in info.hosts if host.events_count}
    for row in clocks.iter_rows(named=True):
        if row["host"] not in busy or len(busy) < 2:
            continue
        if row["method"] == "none":
            yield Finding(
                severity="warning",
                kind="unaligned_clock",
                host=row["host"],
                text=f"the clock of {row['host']} could not be aligned: no traffic with the others in both directions",
                remedy="compare no times of that host with others', or capture a host that talks to both",
            )
        if row["method"] == "inconsistent":
            yield Finding(
                severity="warning",
                kind="inconsistent_clock",
                host=row["host"],
                text=f"the clock of {row['host']} does not run straight: no offset and drift fit all its packets; its "
                f"times are good to {in_words(row['uncertainty_ns'] or 0)}",
                remedy="see whether its clock was set while the capture ran (chronyc tracking)",
            )
