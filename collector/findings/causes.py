"""Which finding follows from which: one trouble has many symptoms, and only it is to be acted on.

A server that was stopped also shows requests unanswered, resets, copies on other hosts, a slow proxy. So kinds stand in
an order of how deep they lie, and one further up takes with it those below that it can bring about, if they are of the
same time and of the same host (or link), or of a host that asks it, directly or through others. What follows from
another stays, as a notice that names its cause.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from collector.findings.finding import LOSS_LEAST, Finding

SLACK_NS = 1_000_000_000
"""What a trouble brings about may show so long after its end: retries and timeouts."""
_BROKEN = frozenset(
    {
        *("unanswered_request", "connection_reset", "truncated_response", "client_gave_up"),
        *("missing_replica", "incomplete_exchange"),
    }
)
_UNCONNECTED = frozenset({"connection_unanswered", "syn_retry", "port_reuse"})
_SLOW = frozenset({"slow_replica", "slow_disk", "host_starved", "handoffs", "uneven_load"})
_SILENT = frozenset({"server_silent", "server_died"})
_LATE = frozenset({"slow_link", "narrow_link", "packet_loss", "reordering"})
_FAILED = frozenset({"server_error", "disk_full"})
_LISTEN = frozenset({"listen_queue_full", "listen_drops"})
_RESENT = frozenset({"retransmission_timeout", "tail_loss", "fast_retransmission"})
_HELD = frozenset({"zero_window", "small_window"})
_AWAY = frozenset({"small_window", "slow_start_after_idle"})
"""Waits for round trips, which count on a long way only."""
_CLOCK = frozenset({"unaligned_clock", "inconsistent_clock"})
_UNANSWERED = frozenset({"slow_replica"})
"""A server that does not answer is not slow: as far as it looks so by what was given up, its silence is the cause."""

BRINGS: Mapping[str, frozenset[str]] = {
    "link_down": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _LATE | _FAILED | _LISTEN | _CLOCK | _RESENT | _HELD,
    "narrow_link": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _LATE | _LISTEN | _RESENT | _AWAY,
    "server_died": _BROKEN | _UNCONNECTED | _SLOW | _FAILED | frozenset({"connection_refused"}),
    "server_silent": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _FAILED | _LISTEN | _HELD,
    "connection_refused": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _FAILED,
    "damaged_packets": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _LISTEN | _RESENT | frozenset({"packet_loss"}),
    "packet_loss": _BROKEN | _UNCONNECTED | _SLOW | _LISTEN | _RESENT,
    "dropped_in_host": _BROKEN | _SLOW | _SILENT | _RESENT,
    "reordering": _BROKEN | _SLOW | _LATE | _RESENT,
    "slow_link": _BROKEN | _UNCONNECTED | _SLOW | _LISTEN | _AWAY | frozenset({"narrow_link", "reordering"}),
    "host_starved": _BROKEN | _UNCONNECTED | _SLOW | _SILENT | _FAILED | _LISTEN | _HELD,
    "slow_disk": _BROKEN | _SLOW | _SILENT | _FAILED | _LISTEN | _HELD,
    "listen_queue_full": _BROKEN | _UNCONNECTED | _SLOW | _LISTEN,
    "listen_drops": _BROKEN | _UNCONNECTED | _SLOW,
    "zero_window": _BROKEN | _SLOW | frozenset({"small_window"}),
    "port_exhaustion": _FAILED | _SLOW | frozenset({"port_reuse"}),
    "port_reuse": _FAILED | _SLOW,
    "connection_unanswered": _FAILED | _SLOW,
    "truncated_response": _FAILED | frozenset({"truncated_response", "connection_reset"}),
    "unanswered_request": _FAILED | _SLOW,
    "client_gave_up": _FAILED | _UNANSWERED | frozenset({"client_gave_up"}),
    "disk_full": _BROKEN | frozenset({"server_error", "slow_disk", "handoffs", "uneven_load"}),
    "server_error": _BROKEN | frozenset({"server_error", "slow_disk", "handoffs", "uneven_load"}),
    "slow_replica": _BROKEN | _SLOW | _LISTEN | _HELD,
}
"""What each kind can bring about, deepest first."""
ORDER = tuple(BRINGS)
NOBODY: Mapping[tuple[str | None, str | None], frozenset[tuple[str | None, str | None]]] = MappingProxyType({})
RIVALS = ("narrow_link", "slow_link", "reordering")
"""Ways of a link to be late: the one that costs most is meant, the others are how else it shows."""

OF_SERVICES = frozenset(
    {
        *("server_died", "server_silent", "connection_refused", "listen_queue_full", "connection_unanswered"),
        *("unanswered_request", "client_gave_up", "truncated_response", "server_error", "zero_window", "port_reuse"),
    }
)
"""Kinds that are of one service: they bring about nothing of another one of that host, unless that one asks it."""

Askers = Mapping[str, frozenset[str]]
"""Each host with all that ask it, directly or through others."""
Place = tuple[str | None, str | None]
"""A service: its host, its name."""


def with_causes(
    found: Iterable[Finding], askers: Askers, asked_by: Mapping[Place, frozenset[Place]] = NOBODY
) -> list[Finding]:
    """The findings, each that follows from another as a notice that says so.

    Arguments: `asked_by`, each service with those that ask it, directly or through others.
    """
    every = list(found)
    causes = sorted((one for one in every if one.kind in BRINGS and one.urgent), key=lambda one: _depth(one, askers))
    named: list[Finding] = []
    for cause in causes:
        if not any(_brings(deeper, cause, askers, asked_by) for deeper in named):
            named.append(cause)
    return [_told(finding, named, askers, asked_by) for finding in every]


def _told(
    finding: Finding, causes: Sequence[Finding], askers: Askers, asked_by: Mapping[Place, frozenset[Place]]
) -> Finding:
    if finding.cause is not None or any(finding is cause for cause in causes):
        return finding
    of = next((cause for cause in causes if _brings(cause, finding, askers, asked_by)), None)
    if of is None:
        return finding
    severity = "notice" if finding.urgent else finding.severity
    return replace(finding, severity=severity, cause=of.name)


def _depth(finding: Finding, askers: Askers) -> tuple[int, bool, int, int]:
    """Of one kind, what is asked by more hosts, directly or through others, lies deeper."""
    kind = RIVALS[0] if finding.kind in RIVALS else "slow_disk" if _is_broken_device(finding) else finding.kind
    asked_by = 0 if kind in RIVALS else len(askers.get(finding.host or "", ()))
    return ORDER.index(kind), not _is_broken_device(finding), -asked_by, -finding.cost_ns


def _is_broken_device(finding: Finding) -> bool:
    """Whether a device fails at once, which no slowness explains; that it is slow, too, is how else it shows."""
    return finding.kind in _FAILED and finding.quick and bool(finding.devices)


def _brings(cause: Finding, finding: Finding, askers: Askers, asked_by: Mapping[Place, frozenset[Place]]) -> bool:
    if finding.kind not in BRINGS[cause.kind] or not _at_once(cause, finding):
        return False
    if finding.kind == cause.kind and finding.host == cause.host:
        return False
    if not _may_explain(cause, finding):
        return False
    if finding.host == cause.host and not _concerns(cause, finding, asked_by):
        return False
    at = frozenset(host for host in (cause.host, cause.peer_host) if host is not None)
    if finding.kind in _LATE | _CLOCK | _UNCONNECTED | _RESENT | _AWAY:
        return bool(finding.hosts & at)
    near = at | frozenset().union(*(askers.get(host, frozenset()) for host in at))
    return finding.host in near


def _may_explain(cause: Finding, finding: Finding) -> bool:
    """Whether what is known of the two allows one to be slow because of the other, or to fail because of it."""
    if finding.kind == "slow_disk" and cause.kind in _FAILED:
        return _is_broken_device(cause) and cause.host == finding.host and bool(cause.devices & finding.devices)
    if cause.kind == "slow_disk" and _is_broken_device(finding):
        return cause.host != finding.host
    if cause.kind == "client_gave_up" and finding.kind in _UNANSWERED:
        return finding.unanswered and (finding.host, finding.service) == (cause.host, cause.service)
    if cause.kind == "listen_drops":
        least = (finding.count + 1) // 2 if finding.kind in _UNCONNECTED else LOSS_LEAST
        return cause.count >= least
    return True


def _concerns(cause: Finding, finding: Finding, asked_by: Mapping[Place, frozenset[Place]]) -> bool:
    """Whether a finding of the same host may be of the service that the cause is of, or of one that asks it."""
    services = cause.services or frozenset(name for name in (cause.service,) if name is not None)
    mine = finding.services or frozenset(name for name in (finding.service,) if name is not None)
    if cause.kind not in OF_SERVICES or not services or not mine or services & mine:
        return True
    asking = frozenset[Place]().union(*(asked_by.get((cause.host, name), frozenset()) for name in services))
    return any((finding.host, name) in asking for name in mine)


def _at_once(cause: Finding, finding: Finding) -> bool:
    """Whether the finding's time meets the cause's; no time meets any."""
    bounds = (cause.from_trace_ns, cause.to_trace_ns, finding.from_trace_ns, finding.to_trace_ns)
    if any(bound is None for bound in bounds):
        return True
    begin, end, first, last = (int(bound) for bound in bounds if bound is not None)
    return first <= end + SLACK_NS and last >= begin - SLACK_NS
