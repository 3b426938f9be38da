"""What is wrong or remarkable in a trace, each with its evidence, its cost and what to do.

One finding for each kind and pair of hosts, not one for each packet: it counts the cases and points at the worst one
(connection, span, time). `cost_ns` is time that somebody waited: stalls that overlap on a connection count once. What
costs nothing known has cost 0. Ordered by severity, then cost. What happened on connections was counted before, a
partition at a time (`collector.troubles`); here it is put into words.

Limits: causes are named only as far as packets show them. A repeat of data that had arrived is no loss, and a FIN sent
twice is normal (tail loss probe): neither is reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collector.durations import in_words
from collector.schema import FINDINGS, conform
from collector.store import TraceInfo
from collector.timescale import to_trace_ns
from collector.troubles import PAIR, Troubles, gather, together

SEVERITIES = ("error", "warning", "notice", "info")
"""Most urgent first."""
REPLICA_GROUPS, REPLICA_RATIO, REPLICA_EXCESS_NS, REPLICA_SHARE = 5, 2.0, 1_000_000, 0.6
"""A replica is slow if in at least this many groups of parallel requests its median is this many times its siblings',
by at least this much, and it was the slower in this share of them. Below, chance looks the same."""
REQUEST_COLUMNS = [
    *("exchange_id", "connection_id", "server_host", "service", "method", "status", "given_up_trace_ns"),
    *("request_first_sent_trace_ns", "request_last_received_trace_ns", "response_first_sent_trace_ns"),
]
"""Of `exchanges`: what slow replicas and causes of errors are told by."""
SPAN_COLUMNS = ["span_id", "parent_span_id", "critical_ns"]


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
    """The table `findings` of a whole trace in memory.

    Arguments: `tables` by name, with at least `hops, connections, exchanges, spans, clocks`; what the trace says of
    itself.
    """
    hops, exchanges = tables["hops"], tables["exchanges"]
    end_ns = pc.max(pc.coalesce(hops["send_trace_ns"], hops["receive_trace_ns"])).as_py() or 0
    troubles = gather(hops, tables["connections"], exchanges, end_ns)
    return told(together([troubles]), exchanges, tables["spans"], tables["clocks"], info)


def told(
    troubles: Troubles,
    exchanges: pa.Table,
    spans: pa.Table,
    clocks: pa.Table,
    info: TraceInfo,
    samples: pa.Table | None = None,
) -> pa.Table:
    """The table `findings`: the troubles of all connections, slow replicas, hosts' own counters, and clocks.

    Arguments: of `exchanges`, at least `REQUEST_COLUMNS`.
    """
    children = _children(exchanges, spans)
    found = [
        *_losses(troubles),
        *_syn_retries(troubles),
        *_unconnected(troubles),
        *_queued(troubles),
        *_turned_away(samples, clocks),
        *_capture_drops(troubles),
        *_cut_exchanges(troubles),
        *_server_errors(troubles, _causes(exchanges, children)),
        *_slow_replicas(children),
        *_clocks(_frame(clocks), info),
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


def _evidence(row: dict[str, int]) -> dict[str, int]:
    return {name: row[name] for name in ("connection_id", "span_id", "from_trace_ns", "to_trace_ns", "cost_ns")}


def _losses(troubles: Troubles) -> Iterable[Finding]:
    """Data that the network lost, by pair of hosts."""
    lost = troubles.lost.join(troubles.sent, on=PAIR, how="left", nulls_equal=True, maintain_order="left")
    for row in lost.iter_rows(named=True):
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


def _syn_retries(troubles: Troubles) -> Iterable[Finding]:
    for row in troubles.lost_syns.filter(pl.col("cost_ns") > 0).iter_rows(named=True):
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


def _unconnected(troubles: Troubles) -> Iterable[Finding]:
    """Refused, or never answered."""
    for row in troubles.unconnected.sort("reset", descending=True, maintain_order=True).iter_rows(named=True):
        refused = row["reset"]
        where = f"{row['server_host'] or row['server_addr']}:{row['server_port']}"
        how = "refused" if refused else "never answered"
        if row["server_host"] and not refused:
            how += ": their SYNs arrived there" if row["arrived"] else ": their SYNs did not arrive there"
        up = "see that the server is running" if refused else "see that the server is up"
        up += " and its listen queue not full (nstat TcpExtListenDrops)" if row["arrived"] and not refused else ""
        yield Finding(
            severity="warning",
            kind="connection_refused" if refused else "connection_unanswered",
            host=row["server_host"],
            text=f"{_times(row['count'], 'connection')} from {row['client_host']} to {where} {how}",
            remedy=f"{up} and listens on port {row['server_port']}, and that no firewall is in between",
            **_evidence(row),
        )


_QUEUES = {
    "syn": ("SYN", "answered late: its accept queue was full"),
    "accept": ("ACK", "not taken: its accept queue was full, and the SYN-ACK was sent again"),
}
"""Queue to the packets that were dropped there, and what that means."""


def _queued(troubles: Troubles) -> Iterable[Finding]:
    """Connections that a full queue of the server's kept waiting."""
    for row in troubles.queued.iter_rows(named=True):
        packet, meaning = _QUEUES[row["queue"]]
        where = f"{row['server_host'] or row['server_addr']}:{row['server_port']}"
        yield Finding(
            severity="warning",
            kind="listen_queue_full",
            host=row["server_host"],
            text=f"{_times(row['count'], 'connection')} from {row['client_host']} to {where} waited, at worst "
            f"{in_words(row['worst_ns'])}: {_times(row['dropped'], packet)} arrived there and were {meaning}",
            remedy="let the server accept sooner, or raise its backlog and net.core.somaxconn; nstat "
            "TcpExtListenOverflows counts them",
            **_evidence(row),
        )


def _turned_away(samples: pa.Table | None, clocks: pa.Table) -> Iterable[Finding]:
    """What the hosts' own counters say of full listen queues."""
    if samples is None:
        return
    every_ns = pl.col("host_ns").diff().over("host").backward_fill().over("host").fill_null(0)
    drops = _frame(samples).filter(pl.col("metric") == "listen_drops_per_s").sort("host", "host_ns")
    counted = drops.with_columns(count=pl.col("value") * every_ns / 1e9).filter(pl.col("value") > 0)
    rows = counted.group_by("host", maintain_order=True).agg(
        pl.sum("count"), first=pl.first("host_ns"), last=pl.last("host_ns")
    )
    for row in rows.iter_rows(named=True):
        stamps = pa.array([row["first"], row["last"]])
        first_ns, last_ns = to_trace_ns(pa.array([row["host"]] * 2), stamps, clocks).tolist()
        yield Finding(
            severity="warning",
            kind="listen_drops",
            host=row["host"],
            from_trace_ns=first_ns,
            to_trace_ns=last_ns,
            text=f"the kernel of {row['host']} counted {_times(round(row['count']), 'packet')} of connections that its "
            "full listen queues turned away (ListenDrops)",
            remedy="let the server accept sooner, or raise its backlog and net.core.somaxconn",
        )


def _capture_drops(troubles: Troubles) -> Iterable[Finding]:
    for row in troubles.missed.iter_rows(named=True):
        yield Finding(
            severity="notice",
            kind="capture_drop",
            host=row["host"],
            connection_id=row["connection_id"],
            from_trace_ns=row["from_trace_ns"],
            to_trace_ns=row["to_trace_ns"],
            text=f"the capture on {row['host']} missed {_times(row['count'], 'packet')} that did go by (they were "
            "acknowledged); their times there are unknown",
            remedy="capture with a larger buffer or a narrower filter on that host",
        )


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


def _cut_exchanges(troubles: Troubles) -> Iterable[Finding]:
    """Requests without a whole answer."""
    for row in troubles.cut.iter_rows(named=True):
        severity, kind, text, remedy = _FATES[row["fate"]]
        wait = f", the longest wait {in_words(row['worst_ns'])}" if row["worst_ns"] else ""
        until = row["to_trace_ns"] if severity == "warning" else row["from_trace_ns"]
        yield Finding(
            severity=severity,
            kind=kind,
            host=row["server_host"],
            text=f"{_times(row['count'], 'request')} from {row['client_host']} to {row['service']} on "
            f"{row['server_host']} {text}{wait}",
            remedy=remedy,
            **_evidence(row | {"to_trace_ns": until}),
        )


def _causes(exchanges: pa.Table, children: pl.DataFrame) -> dict[tuple[str | None, str, int], str]:
    """`server_host, service, status` of an error to what most of such requests had asked in vain, in words."""
    failed = pl.DataFrame(exchanges.select(REQUEST_COLUMNS).filter(pc.field("status") >= 500)).with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )
    asked = children.filter(pl.col("given_up_trace_ns").is_not_null() | (pl.col("status") >= 500))
    fate = (
        pl.when(pl.col("status_asked").is_null())
        .then(pl.lit("left unanswered"))
        .otherwise(pl.format("answered {}", "status_asked"))
    )
    waited = pl.col("given_up_trace_ns_asked") - pl.col("request_first_sent_trace_ns_asked")
    key = ["server_host", "service", "status"]
    groups = (
        failed.join(asked, left_on="exchange_id", right_on="parent_span_id", suffix="_asked")
        .with_columns(fate=fate, waited=waited)
        .group_by(*key, "service_asked", "server_host_asked", "fate")
        .agg(count=pl.col("exchange_id").n_unique(), waited=pl.max("waited"))
        .sort("count", "service_asked", "server_host_asked")
    )
    return {tuple(row[name] for name in key): _cause(row) for row in groups.iter_rows(named=True)}


def _cause(row: dict[str, Any]) -> str:
    after = f" for up to {in_words(row['waited'])}" if row["waited"] else ""
    where = f"{row['service_asked']} on {row['server_host_asked']}"
    return f"; {row['count']:,} of them after {where} {row['fate'].replace('left', 'had left it')}{after}"


def _server_errors(troubles: Troubles, causes: Mapping[tuple[str | None, str, int], str]) -> Iterable[Finding]:
    for row in troubles.failed.iter_rows(named=True):
        yield Finding(
            severity="warning",
            kind="server_error",
            host=row["server_host"],
            text=f"{row['service']} on {row['server_host']} answered {row['status']} to "
            f"{_times(row['count'], 'request')}" + causes.get((row["server_host"], row["service"], row["status"]), ""),
            remedy="read that server's log for the transaction id of the span",
            **_evidence(row),
        )


def _children(exchanges: pa.Table, spans: pa.Table) -> pl.DataFrame:
    """Exchanges that have a parent, with their spans."""
    linked = _frame(spans.select(SPAN_COLUMNS).filter(pc.field("parent_span_id").is_valid()))
    asked = pl.DataFrame(exchanges.select(REQUEST_COLUMNS))
    return asked.join(linked, left_on="exchange_id", right_on="span_id").with_columns(
        pl.col(pl.Categorical).cast(pl.String)
    )


def _slow_replicas(children: pl.DataFrame) -> Iterable[Finding]:
    """Hosts that take longer than the others asked the same thing at the same time by the same parent."""
    took = pl.col("response_first_sent_trace_ns") - pl.col("request_last_received_trace_ns")
    rows = children.with_columns(took=took)
    group = ["parent_span_id", "service", "method"]
    rows = rows.drop_nulls(["took", "server_host"])
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
