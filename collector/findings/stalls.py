"""Findings about pauses of senders, retransmissions, and requests that waited behind others on a connection."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl
from msgspec import Struct

from collector.findings.finding import Finding, SeverityThresholds, evidence, times
from collector.findings.observations import Observations
from collector.findings.symptoms import Symptoms
from collector.services.ends import end_name, service_at
from collector.trace.durations import in_words
from collector.trace.threshold import threshold


@dataclass(frozen=True, slots=True)
class StallThresholds:
    """From which length or share on a closed window is more than a notice."""

    unread_least_ns: int = threshold(
        500_000_000,
        "a window closed for so long outlasted the sender's first probe (after at least 200 ms: Linux, TCP_RTO_MIN), "
        "which ends the wait for a lost update; a shorter wait is how a busy receiver slows a fast sender",
    )
    short_waits_share: float = threshold(
        0.75,
        "if short waits take this share of all request time, the receiver is worth a look; half of it occurs in "
        "healthy stores that move a large object, whose proxy and client wait alternately (two of eleven reference "
        "captures)",
    )


class _Words(Struct, frozen=True):
    """The wording of a kind. `text` may name `{sender}`, `{receiver}`, `{read}`, `{count}`, `{cost}`, `{worst}`."""

    kind: str
    at_receiver: bool
    text: str
    remedy: str


PAUSES = {
    "zero_window": _Words(
        "zero_window",
        at_receiver=True,
        text="{receiver} {read} what {sender} sent: its receive window was full {times} on {connections}, and "
        "the sender had to wait for {cost}",
        remedy="see what that process does instead of reading its socket (py-spy dump, ss -tmi: Recv-Q), and whether "
        "its memory for sockets is short (nstat TcpExtTCPRcvQDrop, net.ipv4.tcp_rmem)",
    ),
    "small_window": _Words(
        "small_window",
        at_receiver=True,
        text="the receive window of {receiver} is too small for the path from {sender}: it was full, with {bytes} in "
        "flight, {times} on {connections}; waiting for ACKs took {cost}",
        remedy="let the window grow: raise net.ipv4.tcp_rmem and net.core.rmem_max, remove SO_RCVBUF (it turns "
        "autotuning off), check that no middlebox strips window scaling",
    ),
    "delayed_ack": _Words(
        "delayed_ack",
        at_receiver=False,
        text="{sender} sends messages to {receiver} in pieces, and holds a small piece back until the one before is "
        "acknowledged (Nagle), which {receiver} delays: {times} on {connections}, {cost} of waiting in total",
        remedy="set TCP_NODELAY on {sender}, or write each message at once (one buffer, writev, TCP_CORK)",
    ),
    "slow_start": _Words(
        "slow_start_after_idle",
        at_receiver=False,
        text="connections from {sender} to {receiver} that had been idle start slowly again: with {bytes} in flight "
        "they waited for ACKs {times} on {connections}, {cost} of waiting in total",
        remedy="set net.ipv4.tcp_slow_start_after_idle=0 on {sender} if it keeps connections open (sysctl)",
    ),
}
RECOVERIES = {
    "timeout": _Words(
        "retransmission_timeout",
        at_receiver=False,
        text="data from {sender} to {receiver} was sent again only when a timer expired, {times}: {cost} of waiting, "
        "during which {behind} that had arrived after it waited, too",
        remedy="find the loss first; check that SACK and timestamps are on at both ends (net.ipv4.tcp_sack, "
        "tcp_timestamps), and how long the timer is (ss -ti: rto)",
    ),
    "tail": _Words(
        "tail_loss",
        at_receiver=False,
        text="the last bytes of messages from {sender} to {receiver} were lost, {times}, which only a timer can "
        "detect: {cost} of waiting",
        remedy="find the loss first; tail loss probes shorten the wait (net.ipv4.tcp_early_retrans=3, the default)",
    ),
    "fast": _Words(
        "fast_retransmission",
        at_receiver=False,
        text="data from {sender} to {receiver} was sent again as soon as later bytes showed its loss, {times}: {cost} "
        "of waiting, during which {behind} that had arrived after it waited, too",
        remedy="find the loss; the recovery itself is as quick as it can be",
    ),
}


def find(seen: Observations, limits: StallThresholds) -> list[Finding]:
    """All findings about stalls."""
    return stall_findings(seen.symptoms, seen.requests.total_ns, limits, seen.severity)


def stall_findings(
    symptoms: Symptoms, total_ns: int, limits: StallThresholds, severity: SeverityThresholds
) -> list[Finding]:
    """One finding for each kind and pair of hosts.

    Arguments: the symptoms of all connections; the total request time, by which the severity is judged; thresholds.
    """
    return [
        *_pauses(symptoms.paused, total_ns, limits, severity),
        *_recoveries(symptoms.recovered, total_ns, limits, severity),
        *_behind(symptoms.behind, total_ns, severity),
    ]


def _pauses(
    rows: pl.DataFrame, total_ns: int, limits: StallThresholds, severity: SeverityThresholds
) -> Iterable[Finding]:
    for row in rows.iter_rows(named=True):
        short = row["why"] == "zero_window" and row["worst_ns"] < limits.unread_least_ns
        is_little = row["cost_ns"] < limits.short_waits_share * total_ns
        found = "notice" if short and is_little else severity.by_cost(row["cost_ns"], total_ns)
        yield _finding(PAUSES[row["why"]], found, row, limits)


def _recoveries(
    rows: pl.DataFrame, total_ns: int, limits: StallThresholds, severity: SeverityThresholds
) -> Iterable[Finding]:
    for row in rows.iter_rows(named=True):
        yield _finding(RECOVERIES[row["how"]], severity.by_cost(row["cost_ns"], total_ns), row, limits)


def _behind(rows: pl.DataFrame, total_ns: int, severity: SeverityThresholds) -> Iterable[Finding]:
    for row in rows.iter_rows(named=True):
        worst = f", at worst {in_words(row['worst_ns'])}" if row["count"] > 1 else ""
        yield Finding(
            severity=severity.by_cost(row["cost_ns"], total_ns),
            kind="head_of_line",
            host=row["client_host"],
            service=row["service"],
            touches=frozenset({row["server_host"]} - {None}),
            count=row["count"],
            text=f"{times(row['count'], 'request')} from {end_name(row['client_host'])} to "
            f"{service_at(row['service'], row['server_host'])} waited on their connection until the response to the "
            f"previous one had been sent (pipelining): {in_words(row['cost_ns'])}{worst}",
            remedy="send independent requests on separate connections, at least the slow ones",
            **{**evidence(row), "from_trace_ns": row["begin_ns"], "to_trace_ns": row["end_ns"]},
        )


def _finding(words: _Words, severity: str, row: dict[str, Any], limits: StallThresholds) -> Finding:
    sender = row["send_host"] or "a host that was not captured"
    receiver = row["receive_host"] or "a host that was not captured"
    names = {
        "sender": sender,
        "receiver": receiver,
        "times": times(row["count"], "time"),
        "connections": times(row.get("connections", 0), "connection"),
        "bytes": times(row.get("in_flight_bytes") or 0, "byte"),
        "behind": times(row.get("behind_bytes", 0), "byte"),
        "read": "did not read" if row["worst_ns"] >= limits.unread_least_ns else "was slow to read",
        "cost": in_words(row["cost_ns"]) + (f", at worst {in_words(row['worst_ns'])}" if row["count"] > 1 else ""),
    }
    at, other = ("receive_host", "send_host") if words.at_receiver else ("send_host", "receive_host")
    return Finding(
        severity=severity,
        kind=words.kind,
        host=row[at],
        touches=frozenset({row[other]} - {None}),
        count=row["count"],
        text=words.text.format(**names),
        remedy=words.remedy.format(**names),
        **{**evidence(row), "from_trace_ns": row["begin_ns"], "to_trace_ns": row["end_ns"]},
    )
