"""Determines which finding is the cause of which: one trouble has many symptoms, and only the cause needs action.

A stopped server also causes unanswered requests, resets, writes to other hosts, and a slow proxy. So kinds are ordered
from root causes to symptoms, and each kind lists the kinds that it can cause. A finding causes another one if their
times overlap and the other one is of the same host (or network path), or of a host that calls this one, directly or
through others. A finding with a cause is kept as a notice that names the cause.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from collector.findings.finding import LOSS_LEAST, Finding

SLACK_NS = 1_000_000_000
"""Consequences of a trouble may appear so long after its end: retries and timeouts."""
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
"""Waits for round trips, which matter only on a long path."""
_CLOCK = frozenset({"unaligned_clock", "inconsistent_clock"})
_UNANSWERED = frozenset({"slow_replica"})
"""A server that does not answer is not slow: if it looks slow by the requests given up, its silence is the cause."""

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
"""The kinds that each kind can cause, root causes first."""
ORDER = tuple(BRINGS)
NOBODY: Mapping[tuple[str | None, str | None], frozenset[tuple[str | None, str | None]]] = MappingProxyType({})
RIVALS = ("narrow_link", "slow_link", "reordering")
"""Kinds of delay on a network path: the one that costs most is the cause, the others are its symptoms."""

OF_SERVICES = frozenset(
    {
        *("server_died", "server_silent", "connection_refused", "listen_queue_full", "connection_unanswered"),
        *("unanswered_request", "client_gave_up", "truncated_response", "server_error", "zero_window", "port_reuse"),
    }
)
"""Kinds about one service: they cause nothing at another service of the same host, unless that one calls it."""

Askers = Mapping[str, frozenset[str]]
"""For each host, all hosts that call it, directly or through others."""
Place = tuple[str | None, str | None]
"""A service: its host, its name."""


def with_causes(
    found: Iterable[Finding], askers: Askers, asked_by: Mapping[Place, frozenset[Place]] = NOBODY
) -> list[Finding]:
    """The findings; each that follows from another becomes a notice that names its cause.

    Arguments: `asked_by`, for each service the services that call it, directly or through others.
    """
    every = list(found)
    causes = sorted((one for one in every if one.kind in BRINGS and one.urgent), key=lambda one: _depth(one, askers))
    named: list[Finding] = []
    for cause in causes:
        if not any(_brings(deeper, cause, askers, asked_by) for deeper in named):
            named.append(cause)
    return [_demote_consequence(finding, named, askers, asked_by) for finding in every]


def _demote_consequence(
    finding: Finding, causes: Sequence[Finding], askers: Askers, asked_by: Mapping[Place, frozenset[Place]]
) -> Finding:
    """A notice that names its cause, if one of `causes` explains the finding; otherwise the finding itself."""
    if finding.cause is not None or any(finding is cause for cause in causes):
        return finding
    of = next((cause for cause in causes if _brings(cause, finding, askers, asked_by)), None)
    if of is None:
        return finding
    severity = "notice" if finding.urgent else finding.severity
    return replace(finding, severity=severity, cause=of.name)


def _depth(finding: Finding, askers: Askers) -> tuple[int, bool, int, int]:
    """Sort key: root causes first; within one kind, hosts that more hosts call, directly or through others."""
    kind = RIVALS[0] if finding.kind in RIVALS else "slow_disk" if _is_broken_device(finding) else finding.kind
    asked_by = 0 if kind in RIVALS else len(askers.get(finding.host or "", ()))
    return ORDER.index(kind), not _is_broken_device(finding), -asked_by, -finding.cost_ns


def _is_broken_device(finding: Finding) -> bool:
    """Whether a device fails immediately. Slowness does not explain that; it is rather another symptom."""
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
    """Whether `cause` can, by what is known of both, explain that `finding` is slow or fails."""
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
    """Whether a finding of the same host may concern the cause's service, or a service that calls it."""
    services = cause.services or frozenset(name for name in (cause.service,) if name is not None)
    mine = finding.services or frozenset(name for name in (finding.service,) if name is not None)
    if cause.kind not in OF_SERVICES or not services or not mine or services & mine:
        return True
    asking = frozenset[Place]().union(*(asked_by.get((cause.host, name), frozenset()) for name in services))
    return any((finding.host, name) in asking for name in mine)


def _at_once(cause: Finding, finding: Finding) -> bool:
    """Whether the two overlap in time; a finding without a time overlaps with all."""
    bounds = (cause.from_trace_ns, cause.to_trace_ns, finding.from_trace_ns, finding.to_trace_ns)
    if any(bound is None for bound in bounds):
        return True
    begin, end, first, last = (int(bound) for bound in bounds if bound is not None)
    return first <= end + SLACK_NS and last >= begin - SLACK_NS
