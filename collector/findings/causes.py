"""Which finding follows from which: one trouble has many symptoms, and only it is to be acted on.

A server that was stopped also shows requests unanswered, resets, copies on other hosts, a slow proxy. So kinds stand in
an order of how deep they lie, and one further up takes with it those below that it can bring about, if they are of the
same time and of the same host (or link), or of a host that asks it, directly or through others. What follows from
another stays, as a notice that names its cause.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from collector.findings.finding import Finding

SLACK_NS = 1_000_000_000
"""What a trouble brings about may show so long after its end: retries and timeouts."""
_BROKEN = frozenset({"unanswered_request", "connection_reset", "missing_replica", "incomplete_exchange"})
_UNCONNECTED = frozenset({"connection_unanswered", "syn_retry", "port_reuse"})
_SLOW = frozenset({"slow_replica", "slow_disk", "host_starved", "handoffs", "uneven_load"})
_SILENT = frozenset({"server_silent"})
_LATE = frozenset({"slow_link", "narrow_link", "packet_loss", "reordering"})
_FAILED = frozenset({"server_error", "disk_full"})
_LISTEN = frozenset({"listen_queue_full", "listen_drops"})
_RESENT = frozenset({"retransmission_timeout", "tail_loss", "fast_retransmission"})
_HELD = frozenset({"zero_window", "small_window"})
_AWAY = frozenset({"small_window", "slow_start_after_idle"})
"""Waits for round trips, which count on a long way only."""
_CLOCK = frozenset({"unaligned_clock", "inconsistent_clock"})

BRINGS: Mapping[str, frozenset[str]] = {
    "link_down": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _LATE | _FAILED | _LISTEN | _CLOCK | _RESENT | _HELD,
    "narrow_link": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _LATE | _LISTEN | _RESENT | _AWAY,
    "server_silent": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _FAILED | _LISTEN | _HELD,
    "connection_refused": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _FAILED,
    "packet_loss": _BROKEN | _UNCONNECTED | _SLOW | _LISTEN | _RESENT,
    "dropped_in_host": _BROKEN | _SLOW | _SILENT | _RESENT,
    "reordering": _BROKEN | _SLOW | _LATE | _RESENT,
    "slow_link": _BROKEN | _UNCONNECTED | _SLOW | _LISTEN | _AWAY | frozenset({"narrow_link", "reordering"}),
    "host_starved": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _FAILED | _LISTEN | _HELD,
    "slow_disk": _BROKEN | _SLOW | _SILENT | _FAILED | _LISTEN | _HELD,
    "listen_queue_full": _BROKEN | _UNCONNECTED | _SLOW | _LISTEN,
    "zero_window": _BROKEN | _SLOW | frozenset({"small_window"}),
    "port_exhaustion": _FAILED | _SLOW | frozenset({"port_reuse"}),
    "port_reuse": _FAILED | _SLOW,
    "connection_unanswered": _FAILED | _SLOW,
    "unanswered_request": _FAILED | _SLOW,
    "disk_full": _BROKEN | frozenset({"server_error", "handoffs", "uneven_load"}),
    "server_error": _BROKEN | frozenset({"server_error", "handoffs", "uneven_load"}),
    "slow_replica": _BROKEN | _SLOW | _LISTEN | _HELD,
}
"""What each kind can bring about, deepest first."""
ORDER = tuple(BRINGS)
RIVALS = ("narrow_link", "slow_link", "reordering")
"""Ways of a link to be late: the one that costs most is meant, the others are how else it shows."""

Askers = Mapping[str, frozenset[str]]
"""Each host with all that ask it, directly or through others."""


def with_causes(found: Iterable[Finding], askers: Askers) -> list[Finding]:
    """The findings, each that follows from another as a notice that says so."""
    every = list(found)
    causes = sorted((one for one in every if one.kind in BRINGS and one.urgent), key=_depth)
    named: list[Finding] = []
    for cause in causes:
        if not any(_brings(deeper, cause, askers) for deeper in named):
            named.append(cause)
    return [_told(finding, named, askers) for finding in every]


def _told(finding: Finding, causes: Sequence[Finding], askers: Askers) -> Finding:
    if finding.cause is not None or any(finding is cause for cause in causes):
        return finding
    of = next((cause for cause in causes if _brings(cause, finding, askers)), None)
    if of is None:
        return finding
    severity = "notice" if finding.urgent else finding.severity
    return replace(finding, severity=severity, cause=f"{of.kind} on {of.host}")


def _depth(finding: Finding) -> tuple[int, int]:
    kind = RIVALS[0] if finding.kind in RIVALS else finding.kind
    return ORDER.index(kind), -finding.cost_ns


def _brings(cause: Finding, finding: Finding, askers: Askers) -> bool:
    if finding.kind not in BRINGS[cause.kind] or not _at_once(cause, finding):
        return False
    if finding.kind == cause.kind and finding.host == cause.host:
        return False
    at = frozenset(host for host in (cause.host, cause.peer_host) if host is not None)
    if finding.kind in _LATE | _CLOCK | _UNCONNECTED | _RESENT | _AWAY:
        return bool(finding.hosts & at)
    near = at | frozenset().union(*(askers.get(host, frozenset()) for host in at))
    return finding.host in near


def _at_once(cause: Finding, finding: Finding) -> bool:
    """Whether the finding's time meets the cause's; no time meets any."""
    bounds = (cause.from_trace_ns, cause.to_trace_ns, finding.from_trace_ns, finding.to_trace_ns)
    if any(bound is None for bound in bounds):
        return True
    begin, end, first, last = (int(bound) for bound in bounds if bound is not None)
    return first <= end + SLACK_NS and last >= begin - SLACK_NS
