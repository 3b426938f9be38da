"""Findings about connections that were refused, not answered, or established late."""

from collections.abc import Iterable
from typing import Any

import polars as pl
from msgspec.structs import replace

from collector.findings.finding import Finding, evidence, listing, times
from collector.findings.observations import Observations
from collector.findings.requests import Requests
from collector.findings.scans import ScanThresholds, without_scans
from collector.findings.timeouts import fingerprint
from collector.services.service_names import ServiceNames
from collector.trace.durations import in_words

WORDS = {
    "refused": ("connection_refused", "refused", "see that the server is running and listens on port {port}"),
    "ignored": (
        "listen_queue_full",
        "{late}: the kernel of {server} ignored {packets} that it had received",
        "the queue of connections to be accepted is full (nstat TcpExtListenOverflows): the server accepts too slowly, "
        "or its backlog and net.core.somaxconn are too small",
    ),
    "untaken": (
        "connection_unanswered",
        "{late}: the kernel of {server} received {packets}, and accepted no connection",
        "a firewall on that host drops them (nft list ruleset, iptables -L -v), or the queue of connections to be "
        "accepted was full all the time (nstat TcpExtListenOverflows)",
    ),
    "waiting": (
        "port_reuse",
        "{late}: {packets} came from ports of connections that {server} had closed within the last 60 s (TIME_WAIT)",
        "let the client close first or keep its connections, and give it more ports (net.ipv4.ip_local_port_range); "
        "timestamps let a server accept such a port at once (net.ipv4.tcp_timestamps)",
    ),
    "lost": (
        "syn_retry",
        "{late}: {packets} lost on the way",
        "look for drops on the path (ip -s link, tc -s qdisc)",
    ),
    "unseen": (
        "connection_unanswered",
        "{late}: {packets} without an answer",
        "see that the server is up and listens on port {port}, and that no firewall is in between",
    ),
    "gone": (
        "connection_unanswered",
        "never answered: {packets} lost on the way",
        "see that the server is up, and look for what drops packets to port {port} on the way",
    ),
}
"""By the reason why SYNs had no effect: kind, wording, remedy."""


MOST_NAMED = 8
"""At most so many ports of a host are named."""
IN_VAIN = ("refused", "unanswered")
"""Fates of connections that were never established."""
LOST = ("lost", "gone")
"""Losses in the network are weighed like other losses: by their number, or by how long clients waited for them."""


def find(seen: Observations, limits: ScanThresholds) -> Iterable[Finding]:
    """One finding for each server host and cause, for all its ports together. Waits of background requests cost
    nothing."""
    failed, severity = seen.symptoms.failed_handshakes, seen.severity
    if failed.is_empty():
        return
    total_ns, serving = seen.requests.total_ns, seen.requests.serving
    scans, tried = without_scans(_with_waiting(failed, seen.requests, ServiceNames(seen.info.services)), limits)
    yield from scans
    for cause, server, rows in _handshakes(tried):
        found = _handshake(cause, server, rows)
        vain = sum(row["count"] for row in rows if row["fate"] in IN_VAIN and row["client_host"] not in serving)
        found = replace(found, failed_count=vain)
        few = cause in LOST and found.count < severity.lost_least_count
        yield replace(found, severity=severity.by_cost(found.cost_ns, total_ns)) if few else found


def _with_waiting(rows: pl.DataFrame, requests: Requests, services: ServiceNames) -> pl.DataFrame:
    """`rows` with `cost_ns` set to 0 if all requests of the client to that service are background work."""
    of = ("client_host", "server_host", "service")
    asked = requests.groups.group_by(of).agg(pl.col("waited").sum() > 0).with_columns(pl.col(of).cast(pl.String))
    named = rows.with_columns(service=services.of_rows(rows))
    known = named.join(asked, on=of, how="left", nulls_equal=True)
    return known.with_columns(
        waited_ns="cost_ns", cost_ns=pl.when(pl.col("waited").fill_null(value=True)).then("cost_ns").otherwise(0)
    )


def _handshakes(rows: pl.DataFrame) -> Iterable[tuple[str, str, list[dict[str, Any]]]]:
    lost_for_good = (pl.col("why") == "lost") & (pl.col("fate") == "unanswered")
    where = pl.coalesce("server_host", "server_addr")
    never = ((pl.col("why") != "ignored") | (pl.col("fate") == "unanswered")).all().over(where)
    untaken = (pl.col("why") == "ignored") & never  # a full queue lets one through at times, a firewall none
    why = pl.when(lost_for_good).then(pl.lit("gone")).when(untaken).then(pl.lit("untaken")).otherwise("why")
    for (cause, server), group in rows.group_by(why.alias("cause"), where.alias("where"), maintain_order=True):
        yield str(cause), str(server), group.rows(named=True)


def _handshake(cause: str, server: str, rows: list[dict[str, Any]]) -> Finding:
    worst = max(rows, key=lambda row: row["worst_ns"])
    count, vain, cost = (sum(row[name] for row in rows) for name in ("count", "vain", "cost_ns"))
    ports = sorted({row["server_port"] for row in rows})
    clients = sorted({str(row["client_host"] or "a host that was not captured") for row in rows})
    kind, became, remedy = WORDS[cause]
    begin, end = min(row["begin_ns"] for row in rows), max(row["end_ns"] for row in rows)
    shown = [f"{server}:{port}" for port in ports[:MOST_NAMED]]
    names = ", ".join([*shown, f"{len(ports) - MOST_NAMED:,} more ports"] if len(ports) > MOST_NAMED else shown)
    never = sum(row["count"] for row in rows if row["fate"] == "unanswered")
    late = "never answered" if never == count else "established late" + (", or never" if never else "")
    what = became.format(server=server, late=late, packets=times(vain, "handshake packet"))
    waited = sum(row["waited_ns"] for row in rows)
    wait = f"; that took {in_words(waited)}" + (f", at worst {in_words(worst['worst_ns'])}" if count > 1 else "")
    has_wait = bool(waited) and cause != "refused"
    return Finding(
        severity="warning",
        kind=kind,
        host=str(worst["server_host"]) if worst["server_host"] else None,
        touches=frozenset(clients),
        services=frozenset(str(row["service"]) for row in rows),
        count=count,
        text=f"{times(count, 'connection')} from {listing(clients)} to {names} {what}{wait if has_wait else ''}"
        + fingerprint(
            "connect",
            [row["worst_ns"] for row in rows if row["fate"] == "unanswered"],
            {str(row["service"]) for row in rows},
        ),
        remedy=remedy.format(port=listing(map(str, ports[:MOST_NAMED])) + (" …" if len(ports) > MOST_NAMED else "")),
        **{**evidence(worst), "from_trace_ns": begin, "to_trace_ns": end, "cost_ns": cost},
    )
